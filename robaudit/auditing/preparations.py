"""Other ways to prepare the images of a run, which may explain a low accuracy: the model's own, or
the usual ones."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from robaudit.datasets.dataset import Dataset, Sample, first_samples
from robaudit.datasets.open_dataset import open_whole
from robaudit.datasets.select import Selected
from robaudit.errors import RobauditError
from robaudit.models.pretrained import published_geometry
from robaudit.spec.model import AuditSpec, BaseDatasetSpec, ImageOptions, ModelSpec

_NO_MEAN = (0.0,)
_NO_STD = (1.0,)
_ROUNDING = 0.005  # of mean and std, which people write with two digits
_GEOMETRY = ("resize", "crop", "crop_rounding", "interpolation")
_RESIZE_TO_CROP = 256 / 224  # the usual ratio for ImageNet


@dataclass(frozen=True, slots=True)
class Preparation:
    """Another way to prepare the images.

    Attributes:
        text: the keys of a spec, for messages.
        mean, std: the normalisation; empty: the run's.
        dataset: opens the images prepared in this way; None: the images are those of the run.
        stated: whether it is stated with the model, and not only usual.
    """

    text: str
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    dataset: Opener | None = None
    stated: bool = False


@dataclass(frozen=True)
class Opener:
    """Opens a data set again, with its images prepared in another way.

    Attributes:
        spec: of the run.
        section: the changed section of the data set.
        trust: whether Python code that the section names may run.
    """

    spec: AuditSpec
    section: BaseDatasetSpec
    trust: bool

    def pixels(self, ids: Sequence[str]) -> dict[str, Tensor]:
        """The pixels (channels, height, width) of the samples that can be read, by id.

        All have the shape of the first that was ever read.
        """
        pixels: dict[str, Tensor] = {}
        for sample_id in ids:
            # No image, or no further one, can be prepared in this way: it is only a trial.
            with contextlib.suppress(RobauditError):
                whole, places = self._opened
                found = whole[places[sample_id]].pixels
                if self._shapes.setdefault("first", found.shape) == found.shape:
                    pixels[sample_id] = found
        return pixels

    @cached_property
    def _opened(self) -> tuple[Dataset, dict[str, int]]:
        """The whole data set, and the places of its samples by id."""
        whole = open_whole(self.section, self.spec.base_dir, trust=self.trust)
        return whole, {whole.sample_id(place): place for place in range(len(whole))}

    @cached_property
    def _shapes(self) -> dict[str, torch.Size]:
        """The shape of the first image that was read."""
        return {}


def further_samples(dataset: Dataset, most: int) -> Iterator[Sample]:
    """Samples that a run leaves out, so that a check sees ``most`` in all. Errors of these samples
    are ignored."""
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
    """Warnings that a spec has another architecture than its model's own files, or prepares images
    differently."""
    own = spec.origin.own
    if own is None or not own.trained:
        return
    ours = spec.model.architecture
    # The tag of the weights follows a dot.
    names = {(architecture or "").partition(".")[0] for architecture in (ours, own.architecture)}
    if len(names - {""}) > 1:
        yield f"{own.source}: describes {own.architecture}, but the spec has architecture: {ours}"
    differing = {**_other_normalisation(spec, own.keys), **_other_geometry(spec, own.keys)}
    if not differing:
        return
    used = {}
    for key in differing:
        section = spec.model if key in ("mean", "std") else spec.dataset
        used[key] = getattr(section, key)
    yield (
        f"{own.source}: the model's own preprocessing has {_shown(differing)}, but the spec "
        f"has {_shown(used)}"
    )


def preparations(
    spec: AuditSpec, shape: Sequence[int], *, trust: bool, in_memory: bool
) -> tuple[Preparation, ...]:
    """The ways to prepare images that differ from the run's: the model's own, and without one the
    usual ones of its architecture.

    Args:
        spec: of the run, filled.
        shape: of its images (channels, height, width).
        trust: whether Python code that the spec names may run.
        in_memory: whether the samples are objects in memory, which cannot be prepared again.
    """

    def opener(keys: Mapping[str, Any]) -> Opener:
        """Opens the run's data set with these keys in place of its own geometry."""
        unset = {key: type(spec.dataset).model_fields[key].default for key in _GEOMETRY}
        return Opener(spec, spec.dataset.model_copy(update={**unset, **keys}), trust)

    own = spec.origin.own
    if own is None:
        if in_memory or not isinstance(spec.dataset, ImageOptions):
            return ()
        usual = _usual_geometries(spec.model, spec.dataset, shape)
        # Those that the spec has already change nothing.
        return tuple(
            Preparation(_shown(keys), dataset=opener(keys))
            for keys in usual
            if _other_geometry(spec, keys)
        )
    normalisation = _other_normalisation(spec, own.keys)
    geometry = {} if in_memory else _other_geometry(spec, own.keys)
    if not normalisation and not geometry:
        return ()
    dataset = None
    if geometry:
        keys = {key: own.keys[key] for key in (*_GEOMETRY, "channels") if key in own.keys}
        dataset = opener(keys)
    text = f"{_shown({**normalisation, **geometry})} ({own.source})"
    mean = normalisation.get("mean", ())
    std = normalisation.get("std", ())
    return (Preparation(text, mean, std, dataset, stated=True),)


def _other_normalisation(spec: AuditSpec, keys: Mapping[str, Any]) -> dict[str, tuple[float, ...]]:
    """Mean and std among the keys, if those of the spec differ; else empty."""
    own = {"mean": keys.get("mean", _NO_MEAN), "std": keys.get("std", _NO_STD)}
    ours = {"mean": spec.model.mean or _NO_MEAN, "std": spec.model.std or _NO_STD}
    same = all(np.allclose(own[key], ours[key], rtol=0, atol=_ROUNDING) for key in own)
    return {} if same else own


def _other_geometry(spec: AuditSpec, keys: Mapping[str, Any]) -> dict[str, Any]:
    """Those of resize, crop, interpolation and channels among the keys that differ in the spec."""
    images = spec.dataset
    if not isinstance(images, ImageOptions):
        return {}
    differing: dict[str, Any] = {}
    # Resize and crop belong together: one of them alone says little.
    if keys.get("resize") != images.resize or _sides(keys.get("crop")) != _sides(images.crop):
        differing = {"resize": keys.get("resize"), "crop": keys.get("crop")}
    # Without a resize, nothing is interpolated.
    both_resize = keys.get("resize") is not None and images.resize is not None
    if both_resize and keys.get("interpolation", images.interpolation) != images.interpolation:
        differing["interpolation"] = keys["interpolation"]
    if images.channels is not None and keys.get("channels", images.channels) != images.channels:
        differing["channels"] = keys["channels"]
    return differing


def _sides(crop: int | tuple[int, int] | None) -> tuple[int, int] | None:
    """Height and width of a crop; one number stands for both."""
    return (crop, crop) if isinstance(crop, int) else crop


def _shown(keys: Mapping[str, Any]) -> str:
    """The keys as text: ``mean: [0.5], std: [0.5], resize: 256, no crop``."""
    texts = []
    for key, value in keys.items():
        if not value:
            texts.append(f"no {key}")
        else:
            texts.append(f"{key}: {list(value) if isinstance(value, tuple) else value}")
    return ", ".join(texts)


def _usual_geometries(
    model: ModelSpec, images: ImageOptions, shape: Sequence[int]
) -> Iterator[Mapping[str, Any]]:
    """The preparation of the architecture's published weights; for resized images also common ones,
    for their size and for ImageNet's."""
    published = published_geometry(model)
    if published:
        yield published
    # Images that are used as they are have the size that the network was made for.
    if images.resize is None and images.crop is None:
        return
    height, width = shape[1:]
    side = min(height, width)
    yield {"resize": (height, width)}
    yield {"resize": side, "crop": (height, width)}
    yield {"resize": round(side * _RESIZE_TO_CROP), "crop": (height, width)}
    yield {"resize": 256, "crop": 224}
