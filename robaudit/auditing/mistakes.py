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
from robaudit.models.logits import LogitModel, ReversedChannels
from robaudit.spec.model import IN_MEMORY
from robaudit.spec.presets import LIKELY, NORMALISATIONS, hint

_FEWEST_LABELLED = 20  # of fewer images the accuracy says little
# Every change is tried on the first images; on all, only those that are correct on as many as the
# best, or on two fewer.
_FIRST = 32
_TIED = 2
_LEAST_GAIN = 0.03  # of accuracy, by a correction
_LEVEL = 0.02  # of significance, of all tests of a kind together
_CHANCE = 0.01  # probability of so many hits by chance, above which the accuracy is no better
# Normalisations that differ by less, in the mean and relatively in the std, have almost the same
# accuracy: ImageNet's and CIFAR-10's do.
_NEAR_MEAN = 0.05
_NEAR_STD = 0.2
_MOST_SHOWN = 3  # labels of a permutation
_MAJORITY = 0.5

PixelMap = Callable[[Tensor], Tensor]
"""A change of pixels (n, channels, height, width)."""
Predictor = Callable[[int], Tensor]
"""Predicts the classes (n,) of the first n images, with a change; -1 for an image that cannot be
changed."""
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
    """At most one warning: a common mistake would explain the clean accuracy, or the accuracy is no
    better than chance.

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
        yield from _other_timm_normalisation(model)
        return
    statement = f"{model.name}: clean accuracy is {int(right.sum()) / n:.1%} on {n} images"
    own = _normalisation_of_timm(model)
    preparations = others if own is None else (*others, own)
    changes = [
        *_prepared(model, images, predict, preparations),
        *_changed(model, images.x, predict),
    ]
    corrections = [*_by_images(changes, labels, right), *_by_labels(labels, predicted)]
    if corrections:
        accuracy, text = max(corrections, key=itemgetter(0))
        yield f"{statement}, but {accuracy:.1%} with {text}"
        return
    # P[hits >= right] for guesses: hits are binomial with p = 1 / classes.
    by_chance = float(binom.sf(int(right.sum()) - 1, n, 1 / classes))
    if by_chance > _CHANCE:
        yield f"{statement}, no better than chance; check labels, head, mean and std"


def _normalisation_of_timm(model: LogitModel) -> Preparation | None:
    """The normalisation in the timm configuration of a network in memory; None without one, or if
    it is close to the one that is applied."""
    config = getattr(model.network, "pretrained_cfg", None)
    # The spec takes the configuration of networks that it names.
    if model.format != IN_MEMORY or not isinstance(config, Mapping):
        return None
    if not config.get("mean") or not config.get("std"):
        return None
    mean = tuple(config["mean"])
    std = tuple(config["std"])
    own_mean = _per_channel(model, mean)
    own_std = _per_channel(model, std)
    if _close(own_mean, own_std, model.mean, model.std):
        return None
    return Preparation(f"mean: {list(mean)}, std: {list(std)} (its timm configuration)", mean, std)


def _per_channel(model: LogitModel, values: Sequence[float]) -> Tensor:
    """Values of channels as a tensor (channels, 1, 1), like the model's own."""
    return model.mean.new_tensor(values)[:, None, None]


def _other_timm_normalisation(model: LogitModel) -> Iterator[str]:
    """The warning that a network in memory has another normalisation in its timm configuration than
    the one that is applied."""
    own = _normalisation_of_timm(model)
    if own is None:
        return
    applied = []
    for key in ("mean", "std"):
        values = getattr(model, key).flatten().tolist()
        applied.append(f"{key}: {[round(value, 4) for value in values]}")
    none_applied = not bool((model.mean != 0).any()) and not bool((model.std != 1).any())
    what = f"{' and '.join(applied)} are applied"
    if none_applied:
        what = "no mean and std are applied"
    yield (
        f"{model.name}: {what}, but its timm configuration has mean: {list(own.mean)}, std: "
        f"{list(own.std)}"
    )


def _better(right: Tensor, other: Tensor, tests: int) -> bool:
    """Whether a correction classifies enough more images as labelled, and significantly so.

    Args:
        right: whether an image is classified as labelled without the correction (n,).
        other: the same, with it (n,).
        tests: number of corrections that are tested.
    """
    from scipy.stats import binom

    gained = int((other & ~right).sum())
    lost = int((right & ~other).sum())
    if gained - lost < _LEAST_GAIN * len(right):
        return False
    # McNemar's exact test, one-sided: without an effect, each image that changes is as likely
    # gained as lost. Bonferroni for the number of tests.
    p_value = float(binom.sf(gained - 1, gained + lost, 0.5))
    return p_value < _LEVEL / tests


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
        except ModelError:  # the network refuses images of that size
            return torch.zeros(images, dtype=torch.bool)
        return classes == labels[:images]

    scores = [int(hits(predict, min(_FIRST, len(right))).sum()) for _, predict in changes]
    # A gain of a few percent hardly shows on the first images, so one hit less is allowed.
    least = max(int(right[:_FIRST].sum()) - 1, max(scores) - _TIED)
    for (text, predict), score in zip(changes, scores, strict=True):
        if score < least:
            continue
        with_change = hits(predict, len(right))
        if _better(right, with_change, len(changes)):
            yield float(with_change.double().mean()), text


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
        if other.dataset is None:
            pixels = dict(zip(ids, images.x, strict=False))
        else:
            pixels = other.dataset.pixels(ids)
        mean = _per_channel(model, other.mean) if other.mean else model.mean
        std = _per_channel(model, other.std) if other.std else model.std
        change = _normalised(model, mean, std)
        classes = torch.full((len(ids),), -1)
        # Prepared in another way, some images may be unreadable.
        readable = [index for index, name in enumerate(ids) if name in pixels]
        for start in range(0, len(readable), _FIRST):
            part = readable[start : start + _FIRST]
            x = torch.stack([pixels[ids[index]] for index in part]).to(images.x)
            classes[part] = predict(change(x))
        return classes

    for other in others:
        yield other.text, partial(with_preparation, other)


def _changes(model: LogitModel, channels: int) -> list[tuple[str, PixelMap]]:
    """Corrections of common mistakes: the text, and the map on pixels with the same effect."""
    changes: list[tuple[str, PixelMap]] = [("inverted pixels (1 - x)", lambda x: 1 - x)]
    if channels == 3:
        text = "red and blue swapped (RGB/BGR)"
        if not model.in_memory:
            order = "rgb" if isinstance(model.network, ReversedChannels) else "bgr"
            text = f"model.channels: {order} (red and blue swapped)"
        changes.append((text, lambda x: x.flip(1)))
    # Mean and std by text.
    normalisations: dict[str, tuple[tuple[float, ...], tuple[float, ...]]] = {
        "no mean and std (is the normalisation inside the model?)": ((0.0,), (1.0,)),
        "pixels times 255 (mean: 0, std: 0.00392157)": ((0.0,), (1 / 255,)),
    }
    for name in LIKELY:
        # "half", (x - 0.5) / 0.5, is usual for any number of channels.
        if len(NORMALISATIONS[name][0]) == channels or name == "half":
            normalisations[hint(name)] = NORMALISATIONS[name]
    for text, (mean_values, std_values) in normalisations.items():
        mean = _per_channel(model, mean_values)
        std = _per_channel(model, std_values)
        if not _close(mean, std, model.mean, model.std):
            changes.append((text, _normalised(model, mean, std)))
    return changes


def _close(mean: Tensor, std: Tensor, other_mean: Tensor, other_std: Tensor) -> bool:
    """Whether two normalisations are so close that accuracy hardly depends on the choice."""
    means_close = bool((mean - other_mean).abs().max() < _NEAR_MEAN)
    stds_close = bool((std / other_std - 1).abs().max() < _NEAR_STD)
    return means_close and stds_close


def _normalised(model: LogitModel, mean: Tensor, std: Tensor) -> PixelMap:
    """Map pixels so that the model's own normalisation then has the effect of this one."""
    # The model computes (x' - model.mean) / model.std, which is then (x - mean) / std.
    return lambda x: (x - mean) / std * model.std + model.mean


def _by_labels(labels: Tensor, predicted: Tensor) -> Iterator[Correction]:
    """Labels that count from 1, or a permutation of the classes, that explain the accuracy."""
    if int(labels.min()) == int(labels.max()):
        return  # any permutation fits a single label
    right = predicted == labels
    from_0 = predicted == labels - 1
    if int(labels.min()) >= 1 and _better(right, from_0, 2):
        yield float(from_0.double().mean()), "1 subtracted from each label: they count from 1"
        return
    # Fitted on every other image of each class and measured on the rest, so that it cannot fit
    # noise.
    by_class = labels.argsort(stable=True)
    fitted = by_class[::2]
    rest = by_class[1::2]
    class_of = _best_permutation(labels[fitted], predicted[fitted], torch.cat([labels, predicted]))
    permuted = torch.tensor([class_of.get(label, label) for label in labels.tolist()])
    reordered = predicted == permuted
    accuracy = float(reordered[rest].double().mean())
    # Right on most images: the classes of an unrelated data set also fit some permutation.
    if accuracy > _MAJORITY and _better(right[rest], reordered[rest], 2):
        pairs = [f"{label}->{to}" for label, to in sorted(class_of.items()) if label != to]
        shown = ", ".join(pairs[:_MOST_SHOWN])
        if len(pairs) > _MOST_SHOWN:
            shown += ", ..."
        yield accuracy, f"the labels permuted ({shown}): check the order of the classes"


def _best_permutation(labels: Tensor, predicted: Tensor, classes: Tensor) -> dict[int, int]:
    """The permutation of classes under which most predictions agree with the labels.

    Args:
        labels, predicted: of the images to fit (n,).
        classes: all classes that may occur, in any order.

    Returns:
        The class of each label that occurs.
    """
    from scipy.optimize import linear_sum_assignment

    known = np.unique(classes.numpy())
    hits = np.zeros((len(known), len(known)))  # images by label and predicted class
    label_rows = np.searchsorted(known, labels.numpy())
    predicted_columns = np.searchsorted(known, predicted.numpy())
    np.add.at(hits, (label_rows, predicted_columns), 1.0)
    # The bonuses of all labels are half an image together: they only decide between ties, where a
    # label keeps its own class.
    bonus = np.eye(len(known)) / (2 * len(known))
    rows, columns = linear_sum_assignment(hits + bonus, maximize=True)
    class_of = {}
    for row, column in zip(rows, columns, strict=True):
        if hits[row].any():
            class_of[int(known[row])] = int(known[column])
    return class_of
