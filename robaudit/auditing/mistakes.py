"""Common mistakes that cost accuracy: wrong normalisation, swapped or inverted channels, reordered labels, wrong head."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from robaudit.errors import ModelError
from robaudit.models.logits import LogitModel
from robaudit.spec.model import IN_MEMORY
from robaudit.spec.presets import LIKELY, NORMALISATIONS, hint

_FEWEST_LABELLED = 20  # whose accuracy says something
_FIRST, _TIED = 32, 2  # images on which every change of the pixels is tried; only the best, or so close to it, are tried on all
_LEAST_GAIN, _LEVEL = 0.03, 0.02  # a correction gains as much accuracy at least; of all tests of a kind together
_NEAR_MEAN, _NEAR_STD = 0.05, 0.2  # the latter relative
_MOST_SHOWN = 3  # labels of a permutation
_MAJORITY = 0.5

PixelMap = Callable[[Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class CleanCheck:
    """The classes predicted for the first images.

    Attributes:
        predicted: class of each image.
        labels: of each image; -1: none.
        known: images with a label within the classes, and finite logits.
        classes: number of logits.
        highest: the highest known label of the data set.
    """

    predicted: Tensor
    labels: Tensor
    known: Tensor
    classes: int
    highest: int

    @property
    def right(self) -> Tensor:
        """Which images are classified as labelled."""
        return (self.predicted == self.labels) & self.known


@dataclass(frozen=True, slots=True)
class _Correction:
    """A correction that raises accuracy.

    Attributes:
        accuracy: with the correction.
        text: the correction, to follow "but 93.0% with".
    """

    accuracy: float
    text: str


def accuracy_warnings(model: LogitModel, x: Tensor, checked: CleanCheck, predict: Callable[[Tensor], Tensor]) -> Iterator[str]:
    """At most one warning: a common mistake would explain the clean accuracy, or it is no better than chance.

    Args:
        model: the network.
        x: the images (n, channels, height, width).
        checked: its predictions for them.
        predict: predicts the classes of changed images.
    """
    n, right = int(checked.known.sum()), checked.right[checked.known]
    if n < _FEWEST_LABELLED:
        yield from _normalisation_warnings(model)
        return
    from scipy.stats import binom

    says = f"{model.name}: clean accuracy is {int(right.sum()) / n:.1%} on {n} images"
    by_pixels, by_labels = _by_pixels(model, x, checked, predict), _by_labels(checked)
    corrections = [one for one in (by_pixels, by_labels) if one is not None]
    if corrections:
        best = max(corrections, key=lambda one: one.accuracy)
        yield f"{says}, but {best.accuracy:.1%} with {best.text}"
    elif (beyond := _beyond(checked)) > _MAJORITY:
        what = f"the network has {checked.classes} logits, the labels run from 0 to {checked.highest}"
        yield f"{says}: {what}, and {beyond:.0%} of the predictions lie beyond; check that head and labels belong together"
    elif float(binom.sf(int(right.sum()) - 1, n, 1 / checked.classes)) > 0.01:
        yield f"{says}, no better than chance; check labels, mean and std"


def _better(right: Tensor, other: Tensor, tests: int) -> bool:
    """Whether a correction classifies more images as labelled: by enough, and significantly (McNemar's exact test, one-sided)."""
    from scipy.stats import binom

    gained, lost = int((other & ~right).sum()), int((right & ~other).sum())
    return gained - lost >= _LEAST_GAIN * len(right) and float(binom.sf(gained - 1, gained + lost, 0.5)) < _LEVEL / tests


# --- pixels


def _by_pixels(model: LogitModel, x: Tensor, checked: CleanCheck, predict: Callable[[Tensor], Tensor]) -> _Correction | None:
    """The pixel change that explains the accuracy: among the best on a few images, and significantly better on all."""
    known, right = checked.known, checked.right
    if int((known & ~right).sum()) < _LEAST_GAIN * int(known.sum()):
        return None  # nothing can be that much better
    first = known.nonzero().flatten()[:_FIRST]
    changes = _changes(model, x.shape[1])

    def hits(change: PixelMap, images: Tensor) -> Tensor:
        try:
            found = torch.cat([predict(change(x[part.to(x.device)])) for part in images.split(_FIRST)])
        except ModelError:
            return torch.zeros_like(images, dtype=torch.bool)
        return found == checked.labels[images]

    scores = [int(hits(change, first).sum()) for _, change in changes]
    least = max(int(right[first].sum()) + 1, max(scores) - _TIED)
    images = known.nonzero().flatten()
    found = [(hits(change, images), text) for (text, change), score in zip(changes, scores, strict=True) if score >= least]
    better = [_Correction(float(hit.double().mean()), text) for hit, text in found if _better(right[images], hit, len(changes))]
    return max(better, key=lambda one: one.accuracy, default=None)


def _changes(model: LogitModel, channels: int) -> list[tuple[str, PixelMap]]:
    """Corrections of common mistakes: the text, and the map on pixels with the same effect."""
    found: list[tuple[str, PixelMap]] = [("inverted pixels (1 - x)", lambda x: 1 - x)]
    if channels == 3:
        found.append(("red and blue swapped (RGB/BGR)", lambda x: x.flip(1)))
    normalisations = {
        "no mean and std (is the normalisation inside the model?)": ((0.0,), (1.0,)),
        "pixels times 255 (mean: 0, std: 0.00392157)": ((0.0,), (1 / 255,)),
        **{hint(name): NORMALISATIONS[name] for name in LIKELY if len(NORMALISATIONS[name][0]) == channels or name == "half"},
    }
    own = _own_normalisation(model)
    if own is not None and len(own[0]) == len(own[1]) == channels:
        normalisations[f"mean: {list(own[0])}, std: {list(own[1])} of its timm configuration"] = tuple(own[0]), tuple(own[1])
    for text, values in normalisations.items():
        mean, std = (model.mean.new_tensor(one)[:, None, None] for one in values)
        if not _close(mean, std, model.mean, model.std):
            found.append((text, _normalised(model, mean, std)))
    return found


def _close(mean: Tensor, std: Tensor, other_mean: Tensor, other_std: Tensor) -> bool:
    """Whether two normalisations are so close (as ImageNet's and CIFAR-10's are) that accuracy hardly depends on the choice."""
    return bool((mean - other_mean).abs().max() < _NEAR_MEAN) and bool((std / other_std - 1).abs().max() < _NEAR_STD)


def _normalised(model: LogitModel, mean: Tensor, std: Tensor) -> PixelMap:
    """Map pixels so that the model's own normalisation then has the effect of this one."""
    return lambda x: (x - mean) / std * model.std + model.mean


def _normalisation_warnings(model: LogitModel) -> Iterator[str]:
    """Warn when a network in memory has a normalisation in its configuration that is not applied."""
    own = _own_normalisation(model)
    if own is not None and model.format == IN_MEMORY and not bool((model.mean != 0).any()) and not bool((model.std != 1).any()):
        mean, std = own
        yield f"{model.name}: no mean and std are applied, but its timm configuration has mean: {list(mean)}, std: {list(std)}"


def _own_normalisation(model: LogitModel) -> tuple[Sequence[float], Sequence[float]] | None:
    """Mean and standard deviation in the configuration that timm gives a network."""
    config = getattr(model.network, "pretrained_cfg", None)
    mean, std = (config.get(key) if isinstance(config, Mapping) else None for key in ("mean", "std"))
    return (mean, std) if isinstance(mean, tuple | list) and isinstance(std, tuple | list) else None


# --- labels


def _by_labels(checked: CleanCheck) -> _Correction | None:
    """A renumbering of the classes that explains the accuracy: all labels shifted by one, or a permutation.

    A permutation is fitted on every other image of each class and measured on the rest, so that it cannot fit noise. It must be right
    on most of them: the classes of an unrelated data set also fit some permutation.
    """
    predicted, labels = checked.predicted[checked.known], checked.labels[checked.known]
    right = predicted == labels
    if int(labels.min()) == int(labels.max()):
        return None  # any permutation fits a single label

    def correction(right: Tensor, found: Tensor, text: str) -> _Correction | None:
        accuracy = float(found.double().mean())
        return _Correction(accuracy, text) if accuracy > _MAJORITY and _better(right, found, 2) else None

    if int(labels.min()) > 0:
        one = correction(right, predicted == labels - 1, "1 subtracted from each label: the labels count from 1, the network from 0")
    elif checked.highest + 1 < checked.classes:
        one = correction(right, predicted == labels + 1, "1 added to each label: the network has a class before the first label")
    else:
        one = None
    if one is not None:
        return one
    by_class = labels.argsort(stable=True)
    fitted, rest = by_class[::2], by_class[1::2]
    order = _permutation(labels[fitted], predicted[fitted])
    pairs = [f"{label}->{to}" for label, to in sorted(order.items()) if label != to]
    shown = ", ".join(pairs[:_MOST_SHOWN]) + (", ..." if len(pairs) > _MOST_SHOWN else "")
    assigned = torch.tensor([order.get(label, label) for label in labels[rest].tolist()])
    return correction(right[rest], predicted[rest] == assigned, f"the labels permuted ({shown}): check the order of the classes")


def _permutation(labels: Tensor, predicted: Tensor) -> dict[int, int]:
    """The class assigned to each label: the assignment with the most hits; ties keep the label's own class."""
    from scipy.optimize import linear_sum_assignment

    seen = np.union1d(labels.numpy(), predicted.numpy())
    hits = np.zeros((len(seen), len(seen)))
    np.add.at(hits, (np.searchsorted(seen, labels.numpy()), np.searchsorted(seen, predicted.numpy())), 1.0)
    rows, columns = linear_sum_assignment(hits + np.eye(len(seen)) / (2 * len(seen)), maximize=True)
    return {int(seen[row]): int(seen[column]) for row, column in zip(rows, columns, strict=True) if hits[row].any()}


def _beyond(checked: CleanCheck) -> float:
    """The share of predictions beyond the highest label, where the network has at least twice as many classes as there are labels.

    Zero if the images cover too few of the labels (such as the first class folders) to tell.
    """
    labels, different = checked.highest + 1, len(checked.labels[checked.known].unique())
    if checked.classes < 2 * labels or different < max(2, labels / 2):
        return 0.0
    return float((checked.predicted[checked.known] > checked.highest).double().mean())
