"""Other ways to prepare the images of a run, which may explain a low accuracy: the model's own, or
the usual ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from torch import Tensor

from robaudit.datasets.dataset import Dataset, Sample, first_samples
from robaudit.datasets.open_dataset import open_dataset
from robaudit.datasets.select import Selected
from robaudit.errors import RobauditError
from robaudit.models.pretrained import published_geometry
from robaudit.spec.model import AuditSpec, BaseDatasetSpec, ImageOptions, ModelSpec

_NO_MEAN = (0.0,)
_NO_STD = (1.0,)
_ROUNDING = 0.005  # of mean and std, as people write them
_GEOMETRY = ("resize", "crop", "crop_rounding", "interpolation")
_LARGER = 256 / 224  # a resize by its crop, as usual for ImageNet


@dataclass(frozen=True, slots=True)
class Preparation:
    """Another way to prepare the images.

    Attributes:
        text: the keys of a spec, for messages.
        mean, std: the normalisation; empty: the run's.
        dataset: opens the images prepared in this way; None: as in the run.
    """

    text: str
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    dataset: Opener | None = None


@dataclass(frozen=True, slots=True)
class Opener:
    """Opens a data set again, with its images prepared in another way.

    Attributes:
        spec: of the run.
        section: the changed section of the data set.
        most: how many samples the input check reads.
        trust: whether Python code that the section names may run.
    """

    spec: AuditSpec
    section: BaseDatasetSpec
    most: int
    trust: bool

    def pixels(self, ids: Sequence[str]) -> dict[str, Tensor]:
        """The pixels (channels, height, width) of samples by id, of those that can be read.

        Args:
            ids: of samples among those that the input check reads.
        """
        wanted = set(ids)
        found: dict[str, Tensor] = {}
        try:
            dataset = open_dataset(self.section, base_dir=self.spec.base_dir, trust=self.trust)
            for sample in chain(
                first_samples(dataset, self.most, skip_bad=True),
                further_samples(dataset, self.most),
            ):
                if sample.id in wanted:
                    found[sample.id] = sample.pixels
                if len(found) == len(wanted):
                    break
        except RobauditError:  # no image can be prepared in this way
            return found
        return found


def further_samples(dataset: Dataset, most: int) -> Iterator[Sample]:
    """Samples that a run leaves out, so that a check sees ``most`` in all. What is wrong with them
    is no concern of the run."""
    missing = most - len(dataset)
    if missing <= 0 or not isinstance(dataset, Selected):
        return
    try:
        further = dataset.further(missing)
        if further is not None:
            yield from first_samples(further, missing, skip_bad=True)
    except RobauditError:
        return


def overridden(spec: AuditSpec) -> Iterator[str]:
    """The warning that a spec prepares images otherwise than its model's own files say."""
    own = spec.origin.own
    if own is None or not own.trained:
        return
    others = {**_other_normalisation(spec, own.keys), **_other_geometry(spec, own.keys)}
    if others:
        ours = {
            key: getattr(spec.model if key in ("mean", "std") else spec.dataset, key)
            for key in others
        }
        yield (
            f"{own.source}: the model's own preprocessing has {_shown(others)}, but the spec "
            f"has {_shown(ours)}"
        )


def preparations(
    spec: AuditSpec, shape: Sequence[int], most: int, *, trust: bool, in_memory: bool
) -> tuple[Preparation, ...]:
    """The ways to prepare images that differ from the run's: the model's own, and without one the
    usual ones of its architecture.

    Args:
        spec: of the run, filled.
        shape: of its images (channels, height, width).
        most: how many samples the input check reads.
        trust: whether Python code that the spec names may run.
        in_memory: the samples are not those that the spec names.
    """

    def changed(keys: Mapping[str, Any]) -> Opener:
        unset = {key: type(spec.dataset).model_fields[key].default for key in _GEOMETRY}
        return Opener(spec, spec.dataset.model_copy(update={**unset, **keys}), most, trust)

    own = spec.origin.own
    if own is None:
        others = (
            ()
            if in_memory or not isinstance(spec.dataset, ImageOptions)
            else _usual(spec.model, spec.dataset, shape)
        )
        return tuple(
            Preparation(_shown(keys), dataset=changed(keys))
            for keys in others
            if _other_geometry(spec, keys)
        )
    normalisation = _other_normalisation(spec, own.keys)
    geometry = {} if in_memory else _other_geometry(spec, own.keys)
    if not normalisation and not geometry:
        return ()
    dataset = (
        changed({key: own.keys[key] for key in (*_GEOMETRY, "channels") if key in own.keys})
        if geometry
        else None
    )
    text = f"{_shown({**normalisation, **geometry})} ({own.source})"
    return (
        Preparation(text, normalisation.get("mean", ()), normalisation.get("std", ()), dataset),
    )


def _other_normalisation(spec: AuditSpec, keys: Mapping[str, Any]) -> dict[str, tuple[float, ...]]:
    """Mean and std among the keys, if the spec has others."""
    own = {"mean": keys.get("mean", _NO_MEAN), "std": keys.get("std", _NO_STD)}
    ours = {"mean": spec.model.mean or _NO_MEAN, "std": spec.model.std or _NO_STD}
    same = all(np.allclose(own[key], ours[key], rtol=0, atol=_ROUNDING) for key in own)
    return {} if same else own


def _other_geometry(spec: AuditSpec, keys: Mapping[str, Any]) -> dict[str, Any]:
    """Resize, crop, interpolation and channels among the keys, as far as the spec has others."""
    images = spec.dataset
    if not isinstance(images, ImageOptions):
        return {}
    other: dict[str, Any] = {}
    if keys.get("resize") != images.resize or _sides(keys.get("crop")) != _sides(images.crop):
        other = {"resize": keys.get("resize"), "crop": keys.get("crop")}
    resized = keys.get("resize") is not None and images.resize is not None
    if resized and keys.get("interpolation", images.interpolation) != images.interpolation:
        other["interpolation"] = keys["interpolation"]
    if images.channels is not None and keys.get("channels", images.channels) != images.channels:
        other["channels"] = keys["channels"]
    return other


def _sides(crop: int | tuple[int, int] | None) -> tuple[int, int] | None:
    return (crop, crop) if isinstance(crop, int) else crop


def _shown(keys: Mapping[str, Any]) -> str:
    """``mean: [0.5], std: [0.5], resize: 256, no crop``."""
    return ", ".join(
        f"{key}: {list(value) if isinstance(value, tuple) else value}" if value else f"no {key}"
        for key, value in keys.items()
    )


def _usual(
    model: ModelSpec, images: ImageOptions, shape: Sequence[int]
) -> Iterator[Mapping[str, Any]]:
    """The preparation of the architecture's published weights; for resized images also common ones,
    for their size and for ImageNet's."""
    published = published_geometry(model)
    if published:
        yield published
    if images.resize is None and images.crop is None:
        return
    height, width = shape[1:]
    side = min(height, width)
    yield {"resize": (height, width)}
    yield {"resize": side, "crop": (height, width)}
    yield {"resize": round(side * _LARGER), "crop": (height, width)}
    yield {"resize": 256, "crop": 224}
