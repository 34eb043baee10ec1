"""Common mistakes that cost accuracy: wrong normalisation, other preprocessing, swapped or inverted
channels, reordered labels."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter

import numpy as np
import torch
from torch import Tensor

from robaudit.auditing.preparations import Preparation
from robaudit.errors import ModelError
from robaudit.models.logits import LogitModel, ReversedChannels
from robaudit.numerics.sequences import deciding_sequence
from robaudit.spec.model import IN_MEMORY
from robaudit.spec.presets import LIKELY, NORMALISATIONS, hint

_FEWEST_LABELLED = 20  # of fewer images the accuracy says little
# Every change is tried on the first images; on more, only those that are correct on as many as the
# best, or on two fewer.
_FIRST = 32
_TIED = 2
_LEAST_GAIN = 0.03  # of accuracy, by a correction
_LEVEL = 0.02  # of significance, of all tests of a kind together
_FUTILE = 2.5  # standard errors: a gain that is so far below the least one is no longer looked for
_CHANCE = 0.01  # probability of so many hits by chance, above which the accuracy is no better
# Normalisations that differ by less, in the mean and relatively in the std, have almost the same
# accuracy: ImageNet's and CIFAR-10's do.
_NEAR_MEAN = 0.05
_NEAR_STD = 0.2
_MOST_SHOWN = 3  # labels of a permutation
_MAJORITY = 0.5
_SIZES_OF_TIMM = ("input_size", "test_input_size")  # keys of its configurations

PixelMap = Callable[[Tensor], Tensor]
"""A change of pixels (n, channels, height, width)."""
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

    def first(self, number: int) -> Labelled:
        """The first of them."""
        parts = self.x[:number], self.labels[:number], self.predicted[:number]
        return Labelled(self.ids[:number], *parts)


Predictor = Callable[[Labelled], Tensor]
"""Predicts the classes (n,) of images with a change; -1 for an image that cannot be changed."""


@dataclass(slots=True)
class _Change:
    """A change of the images that may be right, and how it did so far.

    Attributes:
        text: to follow "but 93.0% with".
        predict: with the change.
        level: of significance.
        hits: images that are classified as labelled with the change.
        gained, lost: images that only the change, or only the run, classifies as labelled.
        seen: number of images.
    """

    text: str
    predict: Predictor
    level: float
    hits: int = 0
    gained: int = 0
    lost: int = 0
    seen: int = 0

    def right(self, images: Labelled) -> Tensor:
        """Whether images are classified as labelled with the change (n,)."""
        try:
            classes = self.predict(images)
        except ModelError:  # the network refuses images of that size
            return torch.zeros(len(images.labels), dtype=torch.bool)
        return classes == images.labels

    def try_on(self, images: Labelled) -> None:
        """Count further images."""
        changed = self.right(images)
        unchanged = images.predicted == images.labels
        self.hits += int(changed.sum())
        self.gained += int((changed & ~unchanged).sum())
        self.lost += int((unchanged & ~changed).sum())
        self.seen += len(changed)

    @property
    def is_better(self) -> bool:
        """Whether it classifies enough more images as labelled, and significantly so, at a single
        look."""
        return self._gains and _significant(self.gained, self.lost, self.level)

    @property
    def is_clearly_better(self) -> bool:
        """The same at any number of looks."""
        # Without an effect, each image that changes is as likely gained as lost.
        lower, _ = deciding_sequence(self.gained, self.lost, 0.5, 1 - self.level)
        return self._gains and float(lower) >= 0.5

    @property
    def is_open(self) -> bool:
        """Whether more images may show that it is better."""
        # The standard error of the gain, not below that of a single image that changes.
        error = math.sqrt(self.gained + self.lost + 1)
        return self.gained - self.lost + _FUTILE * error >= _LEAST_GAIN * self.seen

    @property
    def _gains(self) -> bool:
        return self.gained - self.lost >= _LEAST_GAIN * self.seen

    @property
    def correction(self) -> Correction:
        """The accuracy with the change, and its text."""
        return self.hits / self.seen, self.text


def accuracy_warnings(
    model: LogitModel,
    images: Labelled,
    classes: int,
    predict: Callable[[Tensor], Tensor],
    others: Sequence[Preparation] = (),
    further: Iterable[Labelled] = (),
) -> Iterator[str]:
    """A warning that a common mistake would explain the clean accuracy; without one, warnings that
    the network's own configuration differs from what is used, or that the accuracy is no better
    than chance.

    Args:
        model: the network.
        images: the labelled images.
        classes: number of logits.
        predict: predicts the classes of changed images.
        others: other ways to prepare the images.
        further: more labelled images of the run, which are read while it is unclear whether a
            change would be better.
    """
    from scipy.stats import binom

    labels = images.labels
    predicted = images.predicted
    n = len(labels)
    right = predicted == labels
    if n < _FEWEST_LABELLED:
        yield from _other_timm_configuration(model, images.x.shape[1:])
        return
    own = _normalisation_of_timm(model)
    preparations = others if own is None else (*others, own)
    changes = _all_changes(model, images.x.shape[1], predict, preparations)
    promising = _promising(changes, images)
    corrections = [
        *(change.correction for change in promising if change.is_better),
        *_by_labels(labels, predicted),
    ]
    hits = int(right.sum())
    seen = n
    undecided = [] if corrections else [change for change in promising if change.is_open]
    # Only while it is asked for, as each of these images takes a pass, and one for each change.
    for part in further if undecided else ():
        hits += int((part.predicted == part.labels).sum())
        seen += len(part.labels)
        for change in undecided:
            change.try_on(part)
        corrections = [change.correction for change in undecided if change.is_clearly_better]
        undecided = [change for change in undecided if change.is_open]
        if corrections or not undecided:
            break
    if corrections:
        accuracy, text = max(corrections, key=itemgetter(0))
        statement = f"{model.name}: clean accuracy is {hits / seen:.1%} on {seen} images"
        yield f"{statement}, but {accuracy:.1%} with {text}"
        return
    yield from _other_timm_configuration(model, images.x.shape[1:])
    # P[hits >= right] for guesses: hits are binomial with p = 1 / classes.
    by_chance = float(binom.sf(int(right.sum()) - 1, n, 1 / classes))
    if by_chance > _CHANCE:
        statement = f"{model.name}: clean accuracy is {int(right.sum()) / n:.1%} on {n} images"
        yield f"{statement}, no better than chance; check labels, head, mean and std"


def _all_changes(
    model: LogitModel,
    channels: int,
    predict: Callable[[Tensor], Tensor],
    others: Sequence[Preparation],
) -> list[_Change]:
    """The changes that are tried: other ways to prepare the images, and corrections of common
    mistakes.

    What is stated with the model has a level of its own; all others share one.
    """
    usual = [
        *((other.text, _prepared(model, predict, other)) for other in others if not other.stated),
        *((text, _changed(predict, change)) for text, change in _changes(model, channels)),
    ]
    stated = [(other.text, _prepared(model, predict, other)) for other in others if other.stated]
    return [
        *(_Change(text, predictor, _LEVEL / len(stated)) for text, predictor in stated),
        *(_Change(text, predictor, _LEVEL / len(usual)) for text, predictor in usual),
    ]


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
    return Preparation(
        f"mean: {list(mean)}, std: {list(std)} (its timm configuration)", mean, std, stated=True
    )


def _per_channel(model: LogitModel, values: Sequence[float]) -> Tensor:
    """Values of channels as a tensor (channels, 1, 1), like the model's own."""
    return model.mean.new_tensor(values)[:, None, None]


def _other_timm_configuration(model: LogitModel, shape: Sequence[int]) -> Iterator[str]:
    """Warnings that a network in memory has another normalisation in its timm configuration than
    the one that is applied, or another size than the images.

    Args:
        model: the network.
        shape: of the images (channels, height, width).
    """
    config = getattr(model.network, "pretrained_cfg", None)
    if model.format == IN_MEMORY and isinstance(config, Mapping) and config.get("input_size"):
        sizes = [tuple(config[key]) for key in _SIZES_OF_TIMM if config.get(key)]
        if tuple(shape) not in sizes:
            made_for = " or ".join(" x ".join(map(str, size)) for size in dict.fromkeys(sizes))
            given = " x ".join(map(str, shape))
            yield (
                f"{model.name}: its timm configuration is for images of {made_for}, and these are "
                f"{given}"
            )
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


def _significant(gained: int, lost: int, level: float) -> bool:
    """McNemar's exact test, one-sided: without an effect, each image that changes is as likely
    gained as lost."""
    from scipy.stats import binom

    return float(binom.sf(gained - 1, gained + lost, 0.5)) < level


def _promising(changes: Sequence[_Change], images: Labelled) -> list[_Change]:
    """The changes that are among the best on a few images, tried on all."""
    right = images.predicted == images.labels
    if int((~right).sum()) < _LEAST_GAIN * len(right):
        return []  # nothing can be that much better
    few = images.first(_FIRST)
    scores = [int(change.right(few).sum()) for change in changes]
    # A gain of a few percent hardly shows on the first images, so one hit less is allowed.
    least = max(int(right[:_FIRST].sum()) - 1, max(scores) - _TIED)
    promising = [change for change, score in zip(changes, scores, strict=True) if score >= least]
    for change in promising:
        change.try_on(images)
    return promising


def _changed(predict: Callable[[Tensor], Tensor], change: PixelMap) -> Predictor:
    """Predictions with a map on the pixels of the run."""
    return lambda images: torch.cat([predict(change(part)) for part in images.x.split(_FIRST)])


def _prepared(
    model: LogitModel, predict: Callable[[Tensor], Tensor], other: Preparation
) -> Predictor:
    """Predictions of images that are prepared in another way."""

    def with_preparation(images: Labelled) -> Tensor:
        ids = images.ids
        if other.dataset is None:
            pixels = dict(zip(ids, images.x, strict=True))
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

    return with_preparation


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
    if int(labels.min()) >= 1 and _better(right, from_0):
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
    if accuracy > _MAJORITY and _better(right[rest], reordered[rest]):
        pairs = [f"{label}->{to}" for label, to in sorted(class_of.items()) if label != to]
        shown = ", ".join(pairs[:_MOST_SHOWN])
        if len(pairs) > _MOST_SHOWN:
            shown += ", ..."
        yield accuracy, f"the labels permuted ({shown}): check the order of the classes"


def _better(right: Tensor, other: Tensor) -> bool:
    """Whether other labels agree with enough more predictions, and significantly so.

    Args:
        right: whether an image is classified as labelled (n,).
        other: whether it is classified as labelled otherwise (n,).
    """
    gained = int((other & ~right).sum())
    lost = int((right & ~other).sum())
    enough = gained - lost >= _LEAST_GAIN * len(right)
    return enough and _significant(gained, lost, _LEVEL / 2)  # two kinds of other labels


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
