"""Common mistakes that cost accuracy: wrong normalisation, other preprocessing, swapped or inverted
channels, reordered labels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import itemgetter

import numpy as np
import torch
from torch import Tensor

from robaudit.auditing.preparations import Preparation
from robaudit.errors import ModelError
from robaudit.models.logits import LogitModel
from robaudit.spec.model import IN_MEMORY
from robaudit.spec.presets import LIKELY, NORMALISATIONS, hint

_FEWEST_LABELLED = 20  # whose accuracy says something
# images on which every change is tried; only the best, or so close to it, are tried on all
_FIRST = 32
_TIED = 2
# a correction gains as much accuracy at least; of all tests of a kind together
_LEAST_GAIN = 0.03
_LEVEL = 0.02
# the latter relative
_NEAR_MEAN = 0.05
_NEAR_STD = 0.2
_MOST_SHOWN = 3  # labels of a permutation
_MAJORITY = 0.5

PixelMap = Callable[[Tensor], Tensor]
Predictor = Callable[[int], Tensor]
"""The classes predicted for so many of the first images (n,), with a change; -1 where there is
none."""
Correction = tuple[float, str]
"""A correction that raises accuracy: the accuracy with it, and its text, to follow "but 93.0%
with"."""


@dataclass(frozen=True, slots=True)
class Labelled:
    """Images with labels.

    Attributes:
        ids: of the samples.
        x: pixels (n, channels, height, width).
        labels, predicted: classes (n,).
    """

    ids: Sequence[str]
    x: Tensor
    labels: Tensor
    predicted: Tensor


def accuracy_warnings(
    model: LogitModel,
    images: Labelled,
    classes: int,
    predict: Callable[[Tensor], Tensor],
    others: Sequence[Preparation] = (),
) -> Iterator[str]:
    """At most one warning: a common mistake would explain the clean accuracy, or it is no better
    than chance.

    Args:
        model: the network.
        images: the labelled images.
        classes: number of logits.
        predict: predicts the classes of changed images.
        others: other ways to prepare the images.
    """
    from scipy.stats import binom

    labels = images.labels
    predicted = images.predicted
    n = len(labels)
    right = predicted == labels
    if n < _FEWEST_LABELLED:
        yield from _unapplied(model)
        return
    says = f"{model.name}: clean accuracy is {int(right.sum()) / n:.1%} on {n} images"
    own = _of_timm(model)
    ways = others if own is None else (*others, own)
    changes = [*_prepared(model, images, predict, ways), *_changed(model, images.x, predict)]
    corrections = [*_by_images(changes, labels, right), *_by_labels(labels, predicted)]
    if corrections:
        accuracy, text = max(corrections, key=itemgetter(0))
        yield f"{says}, but {accuracy:.1%} with {text}"
    elif float(binom.sf(int(right.sum()) - 1, n, 1 / classes)) > 0.01:
        yield f"{says}, no better than chance; check labels, head, mean and std"


def _of_timm(model: LogitModel) -> Preparation | None:
    """The normalisation in the timm configuration of a network in memory; None if it has none, or
    none that differs."""
    config = getattr(model.network, "pretrained_cfg", None)
    if (
        model.format != IN_MEMORY
        or not isinstance(config, Mapping)
        or not config.get("mean")
        or not config.get("std")
    ):
        return None
    mean = tuple(config["mean"])
    std = tuple(config["std"])
    own_mean, own_std = (model.mean.new_tensor(values)[:, None, None] for values in (mean, std))
    if _close(own_mean, own_std, model.mean, model.std):
        return None
    return Preparation(f"mean: {list(mean)}, std: {list(std)} (its timm configuration)", mean, std)


def _unapplied(model: LogitModel) -> Iterator[str]:
    """Warn when a network in memory has another normalisation in its timm configuration than the
    one that is applied."""
    own = _of_timm(model)
    if own is None:
        return
    applied = [
        f"{key}: {[round(value, 4) for value in getattr(model, key).flatten().tolist()]}"
        for key in ("mean", "std")
    ]
    none = not bool((model.mean != 0).any()) and not bool((model.std != 1).any())
    what = "no mean and std are applied" if none else f"{' and '.join(applied)} are applied"
    yield (
        f"{model.name}: {what}, but its timm configuration has mean: {list(own.mean)}, std: "
        f"{list(own.std)}"
    )


def _better(right: Tensor, other: Tensor, tests: int) -> bool:
    """Whether a correction classifies more images as labelled: by enough, and significantly
    (McNemar's exact test, one-sided)."""
    from scipy.stats import binom

    gained = int((other & ~right).sum())
    lost = int((right & ~other).sum())
    return (
        gained - lost >= _LEAST_GAIN * len(right)
        and float(binom.sf(gained - 1, gained + lost, 0.5)) < _LEVEL / tests
    )


def _by_images(
    changes: Sequence[tuple[str, Predictor]], labels: Tensor, right: Tensor
) -> Iterator[Correction]:
    """Changes of the images that explain the accuracy: among the best on a few, and significantly
    better on all.

    Args:
        changes: the text of each, and what is predicted with it.
        labels: of the images (n,).
        right: whether they are classified as labelled without a change (n,).
    """
    if int((~right).sum()) < _LEAST_GAIN * len(right):
        return  # nothing can be that much better

    def hits(predict: Predictor, images: int) -> Tensor:
        try:
            classes = predict(images)
        except ModelError:
            return torch.zeros(images, dtype=torch.bool)
        return classes == labels[:images]

    scores = [int(hits(predict, min(_FIRST, len(right))).sum()) for _, predict in changes]
    # a gain of a few percent hardly shows on the first
    least = max(int(right[:_FIRST].sum()) - 1, max(scores) - _TIED)
    for (text, predict), score in zip(changes, scores, strict=True):
        if score >= least and _better(right, changed := hits(predict, len(right)), len(changes)):
            yield float(changed.double().mean()), text


def _changed(
    model: LogitModel, x: Tensor, predict: Callable[[Tensor], Tensor]
) -> Iterator[tuple[str, Predictor]]:
    """Corrections of common mistakes, as maps on the pixels of the run."""

    def with_map(change: PixelMap, images: int) -> Tensor:
        return torch.cat([predict(change(part)) for part in x[:images].split(_FIRST)])

    for text, change in _changes(model, x.shape[1]):
        yield text, partial(with_map, change)


def _prepared(
    model: LogitModel,
    images: Labelled,
    predict: Callable[[Tensor], Tensor],
    others: Sequence[Preparation],
) -> Iterator[tuple[str, Predictor]]:
    """Other ways to prepare the images."""

    def with_preparation(other: Preparation, number: int) -> Tensor:
        ids = images.ids[:number]
        pixels = (
            dict(zip(ids, images.x, strict=False))
            if other.dataset is None
            else other.dataset.pixels(ids)
        )
        mean, std = (
            own if not values else own.new_tensor(values)[:, None, None]
            for own, values in ((model.mean, other.mean), (model.std, other.std))
        )
        change = _normalised(model, mean, std)
        classes = torch.full((len(ids),), -1)
        read = [index for index, name in enumerate(ids) if name in pixels]
        for start in range(0, len(read), _FIRST):
            part = read[start : start + _FIRST]
            x = torch.stack([pixels[ids[index]] for index in part]).to(images.x)
            classes[part] = predict(change(x))
        return classes

    for other in others:
        yield other.text, partial(with_preparation, other)


def _changes(model: LogitModel, channels: int) -> list[tuple[str, PixelMap]]:
    """Corrections of common mistakes: the text, and the map on pixels with the same effect."""
    changes: list[tuple[str, PixelMap]] = [("inverted pixels (1 - x)", lambda x: 1 - x)]
    if channels == 3:
        changes.append(("red and blue swapped (RGB/BGR)", lambda x: x.flip(1)))
    normalisations = {
        "no mean and std (is the normalisation inside the model?)": ((0.0,), (1.0,)),
        "pixels times 255 (mean: 0, std: 0.00392157)": ((0.0,), (1 / 255,)),
        **{
            hint(name): NORMALISATIONS[name]
            for name in LIKELY
            if len(NORMALISATIONS[name][0]) == channels or name == "half"
        },
    }
    for text, values in normalisations.items():
        mean, std = (model.mean.new_tensor(value)[:, None, None] for value in values)
        if not _close(mean, std, model.mean, model.std):
            changes.append((text, _normalised(model, mean, std)))
    return changes


def _close(mean: Tensor, std: Tensor, other_mean: Tensor, other_std: Tensor) -> bool:
    """Whether two normalisations are so close (as ImageNet's and CIFAR-10's are) that accuracy
    hardly depends on the choice."""
    return bool((mean - other_mean).abs().max() < _NEAR_MEAN) and bool(
        (std / other_std - 1).abs().max() < _NEAR_STD
    )


def _normalised(model: LogitModel, mean: Tensor, std: Tensor) -> PixelMap:
    """Map pixels so that the model's own normalisation then has the effect of this one."""
    return lambda x: (x - mean) / std * model.std + model.mean


def _by_labels(labels: Tensor, predicted: Tensor) -> Iterator[Correction]:
    """A permutation of the classes that explains the accuracy.

    It is fitted on every other image of each class and measured on the rest, so that it cannot fit
    noise. It must be right on most of them: the classes of an unrelated data set also fit some
    permutation.
    """
    from scipy.optimize import linear_sum_assignment

    if int(labels.min()) == int(labels.max()):
        return  # any permutation fits a single label
    by_class = labels.argsort(stable=True)
    fitted = by_class[::2]
    rest = by_class[1::2]
    seen = np.union1d(labels.numpy(), predicted.numpy())
    hits = np.zeros((len(seen), len(seen)))
    np.add.at(
        hits,
        (
            np.searchsorted(seen, labels[fitted].numpy()),
            np.searchsorted(seen, predicted[fitted].numpy()),
        ),
        1.0,
    )
    # ties keep the label's own class
    rows, columns = linear_sum_assignment(hits + np.eye(len(seen)) / (2 * len(seen)), maximize=True)
    order = {
        int(seen[row]): int(seen[column])
        for row, column in zip(rows, columns, strict=True)
        if hits[row].any()
    }
    right = predicted == labels
    reordered = predicted == torch.tensor([order.get(label, label) for label in labels.tolist()])
    accuracy = float(reordered[rest].double().mean())
    if accuracy > _MAJORITY and _better(right[rest], reordered[rest], 2):
        pairs = [f"{label}->{to}" for label, to in sorted(order.items()) if label != to]
        shown = ", ".join(pairs[:_MOST_SHOWN]) + (", ..." if len(pairs) > _MOST_SHOWN else "")
        yield accuracy, f"the labels permuted ({shown}): check the order of the classes"
