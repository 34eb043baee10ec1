"""The votes of noisy copies, counted at once or in rounds until an image is decided."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from robaudit.engine.batch import ImageBatch

_FIRST = 16  # draws at the first look
_STEP = 8  # the size of batches that networks pass fastest
_GROWTH = 8  # a look after each eighth more: stops are late by a sixteenth on average

Counts = NDArray[np.int64]
T = TypeVar("T")


def count_votes(
    batch: ImageBatch,
    images: Sequence[int],
    start: int,
    draws: int,
    kept: torch.Tensor | None = None,
) -> torch.Tensor:
    """Votes of noisy copies by class, and in the last column the copies with non-finite logits.

    Args:
        batch: the chunk.
        images: indices into the chunk, in order (n,).
        start: number of the first draw.
        draws: number of draws of each image.
        kept: filled with whether each draw kept the class of the clean image (n, draws), bool; only
            if ``images`` are all images.

    Returns:
        The votes (n, classes + 1), int64.
    """
    bins = batch.classes + 1
    # Counts of all images in one row, so that a single scatter adds those of a batch.
    votes = torch.zeros(len(images) * bins, dtype=torch.int64, device=batch.x.device)
    for noisy, logits in batch.noisy_logits(draws, images, start=start):
        winner = _winners(logits)
        votes.index_add_(0, noisy.image * bins + winner, torch.ones_like(winner))
        if kept is not None:
            kept[noisy.image, noisy.draw] = winner == batch.predicted[noisy.image]
    return votes.view(-1, bins)


def _winners(logits: torch.Tensor) -> torch.Tensor:
    """The class of each copy (n,), from its logits (n, classes); the number of classes for a copy
    with non-finite logits."""
    winner = logits.argmax(1)
    # The terms of a finite sum are finite. On CUDA, to ask would be to wait for the device.
    if logits.device.type == "cpu" and math.isfinite(float(logits.sum())):
        return winner
    return torch.where(logits.isfinite().all(1), winner, logits.shape[1])


def flip_by_votes(votes: Sequence[int], predicted: int) -> int | None:
    """The other class with the most votes, the first if several tie; None if no copy flipped."""
    # Negative counts, so that the smallest pair has the most votes, and the smallest index in ties.
    others = [(-count, c) for c, count in enumerate(votes) if c != predicted and count]
    return min(others)[1] if others else None


def next_look(draws: int, most: int) -> int:
    """The number of draws at the next look: an eighth more, in steps of 8; ``most`` at most."""
    if not draws:
        return min(most, _FIRST)
    further = draws // _GROWTH // _STEP * _STEP
    return min(most, draws + max(_STEP, further))


def in_rounds(
    images: int,
    most: int,
    count: Callable[[Sequence[int], int, int], Counts],
    look: Callable[[NDArray[np.int64], Counts, int], Sequence[T | None]],
) -> list[T]:
    """Draw in rounds; after each, stop the images that are decided.

    Args:
        images: number of images.
        most: draws of an image at the last look.
        count: (images, start, draws) -> copies by class (images, classes + 1) among ``draws`` draws
            from number ``start`` on.
        look: (images, copies by class so far, draws so far) -> the result of each image, None if it
            stays open; never None at the last look.

    Returns:
        The result of each image, in order.
    """
    decided: dict[int, T] = {}
    open_images = np.arange(images)
    draws = 0
    votes = np.zeros((images, 1), dtype=np.int64)  # the first counts broadcast it to all classes
    while len(open_images):
        stop = next_look(draws, most)
        votes = votes + count(open_images.tolist(), draws, stop - draws)
        draws = stop
        results = look(open_images, votes, draws)
        for image, result in zip(open_images.tolist(), results, strict=True):
            if result is not None:
                decided[image] = result
        stays_open = np.array([result is None for result in results])
        open_images = open_images[stays_open]
        votes = votes[stays_open]
    return [decided[b] for b in range(images)]
