"""Common mistakes that cost accuracy: wrong normalisation, swapped or inverted channels, reordered labels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from operator import itemgetter

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
Correction = tuple[float, str]
"""A correction that raises accuracy: the accuracy with it, and its text, to follow "but 93.0% with"."""


def accuracy_warnings(
    model: LogitModel, x: Tensor, labels: Tensor, predicted: Tensor, classes: int, predict: Callable[[Tensor], Tensor]
) -> Iterator[str]:
    """At most one warning: a common mistake would explain the clean accuracy, or it is no better than chance.

    Args:
        model: the network.
        x: the labelled images (n, channels, height, width).
        labels, predicted: of these images (n,).
        classes: number of logits.
        predict: predicts the classes of changed images.
    """
    from scipy.stats import binom

    n, right = len(labels), predicted == labels
    if n < _FEWEST_LABELLED:
        yield from _unapplied(model)
        return
    says = f"{model.name}: clean accuracy is {int(right.sum()) / n:.1%} on {n} images"
    corrections = [*_by_pixels(model, x, labels, right, predict), *_by_labels(labels, predicted)]
    if corrections:
        accuracy, text = max(corrections, key=itemgetter(0))
        yield f"{says}, but {accuracy:.1%} with {text}"
    elif float(binom.sf(int(right.sum()) - 1, n, 1 / classes)) > 0.01:
        yield f"{says}, no better than chance; check labels, head, mean and std"


def _unapplied(model: LogitModel) -> Iterator[str]:
    """Warn when a network in memory has a normalisation in its timm configuration that is not applied."""
    config = getattr(model.network, "pretrained_cfg", None)
    mean, std = (config.get(key) if isinstance(config, Mapping) else None for key in ("mean", "std"))
    if mean and std and model.format == IN_MEMORY and not bool((model.mean != 0).any()) and not bool((model.std != 1).any()):
        yield f"{model.name}: no mean and std are applied, but its timm configuration has mean: {list(mean)}, std: {list(std)}"


def _better(right: Tensor, other: Tensor, tests: int) -> bool:
    """Whether a correction classifies more images as labelled: by enough, and significantly (McNemar's exact test, one-sided)."""
    from scipy.stats import binom

    gained, lost = int((other & ~right).sum()), int((right & ~other).sum())
    return gained - lost >= _LEAST_GAIN * len(right) and float(binom.sf(gained - 1, gained + lost, 0.5)) < _LEVEL / tests


def _by_pixels(model: LogitModel, x: Tensor, labels: Tensor, right: Tensor, predict: Callable[[Tensor], Tensor]) -> Iterator[Correction]:
    """Pixel changes that explain the accuracy: among the best on a few images, and significantly better on all."""
    if int((~right).sum()) < _LEAST_GAIN * len(right):
        return  # nothing can be that much better
    changes = _changes(model, x.shape[1])

    def hits(change: PixelMap, images: int) -> Tensor:
        try:
            classes = torch.cat([predict(change(part)) for part in x[:images].split(_FIRST)])
        except ModelError:
            return torch.zeros(images, dtype=torch.bool)
        return classes == labels[:images]

    scores = [int(hits(change, _FIRST).sum()) for _, change in changes]
    least = max(int(right[:_FIRST].sum()) + 1, max(scores) - _TIED)
    for (text, change), score in zip(changes, scores, strict=True):
        if score >= least and _better(right, changed := hits(change, len(x)), len(changes)):
            yield float(changed.double().mean()), text


def _changes(model: LogitModel, channels: int) -> list[tuple[str, PixelMap]]:
    """Corrections of common mistakes: the text, and the map on pixels with the same effect."""
    changes: list[tuple[str, PixelMap]] = [("inverted pixels (1 - x)", lambda x: 1 - x)]
    if channels == 3:
        changes.append(("red and blue swapped (RGB/BGR)", lambda x: x.flip(1)))
    normalisations = {
        "no mean and std (is the normalisation inside the model?)": ((0.0,), (1.0,)),
        "pixels times 255 (mean: 0, std: 0.00392157)": ((0.0,), (1 / 255,)),
        **{hint(name): NORMALISATIONS[name] for name in LIKELY if len(NORMALISATIONS[name][0]) == channels or name == "half"},
    }
    for text, values in normalisations.items():
        mean, std = (model.mean.new_tensor(value)[:, None, None] for value in values)
        if not _close(mean, std, model.mean, model.std):
            changes.append((text, _normalised(model, mean, std)))
    return changes


def _close(mean: Tensor, std: Tensor, other_mean: Tensor, other_std: Tensor) -> bool:
    """Whether two normalisations are so close (as ImageNet's and CIFAR-10's are) that accuracy hardly depends on the choice."""
    return bool((mean - other_mean).abs().max() < _NEAR_MEAN) and bool((std / other_std - 1).abs().max() < _NEAR_STD)


def _normalised(model: LogitModel, mean: Tensor, std: Tensor) -> PixelMap:
    """Map pixels so that the model's own normalisation then has the effect of this one."""
    return lambda x: (x - mean) / std * model.std + model.mean


def _by_labels(labels: Tensor, predicted: Tensor) -> Iterator[Correction]:
    """A permutation of the classes that explains the accuracy.

    It is fitted on every other image of each class and measured on the rest, so that it cannot fit noise. It must be right on most of
    them: the classes of an unrelated data set also fit some permutation.
    """
    from scipy.optimize import linear_sum_assignment

    if int(labels.min()) == int(labels.max()):
        return  # any permutation fits a single label
    by_class = labels.argsort(stable=True)
    fitted, rest = by_class[::2], by_class[1::2]
    seen = np.union1d(labels.numpy(), predicted.numpy())
    hits = np.zeros((len(seen), len(seen)))
    np.add.at(hits, (np.searchsorted(seen, labels[fitted].numpy()), np.searchsorted(seen, predicted[fitted].numpy())), 1.0)
    rows, columns = linear_sum_assignment(hits + np.eye(len(seen)) / (2 * len(seen)), maximize=True)  # ties keep the label's own class
    order = {int(seen[row]): int(seen[column]) for row, column in zip(rows, columns, strict=True) if hits[row].any()}
    right, reordered = predicted == labels, predicted == torch.tensor([order.get(label, label) for label in labels.tolist()])
    accuracy = float(reordered[rest].double().mean())
    if accuracy > _MAJORITY and _better(right[rest], reordered[rest], 2):
        pairs = [f"{label}->{to}" for label, to in sorted(order.items()) if label != to]
        shown = ", ".join(pairs[:_MOST_SHOWN]) + (", ..." if len(pairs) > _MOST_SHOWN else "")
        yield accuracy, f"the labels permuted ({shown}): check the order of the classes"
