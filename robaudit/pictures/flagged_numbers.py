"""Which samples stand in the picture of the worst ones, and what do they look like, clean and noisy?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from robaudit.pictures.groups import one_of
from robaudit.store.run import Run
from robaudit.summary.flags import flag, usual_threshold
from robaudit.summary.flags_result import Flag, Flagged
from robaudit.summary.groups import QuantityLike, quantity_of

Pixels = NDArray[np.uint8]
_LARGEST, _SMALLEST = 256, 128  # pixels of a side as they go into a file


@dataclass(frozen=True, slots=True)
class Worst:
    """The worst samples of one estimator at one noise level.

    Attributes:
        flagged: the list, and how many samples are beyond the threshold in all.
        quantity: what was measured.
        class_names: by class index, if known.
        others: other groups of the run.
    """

    flagged: Flagged
    quantity: QuantityLike
    class_names: tuple[str, ...] | None
    others: int

    @property
    def samples(self) -> tuple[Flag, ...]:
        """Those shown, the worst first."""
        return self.flagged.samples


def worst_of(
    run: Run, most: int = 12, estimators: Sequence[str] = (), sigmas: Sequence[float] = (), threshold: float | None = None
) -> Worst:
    """The worst samples, beyond the threshold or not.

    Raises:
        RunError: the run has no such estimator or sigma.
        NothingLeftError: there is no finite value.
    """
    rows, others = one_of(run, estimators, sigmas)
    quantity = quantity_of(rows[0].quantity, run.quantities)
    below = usual_threshold(quantity) if threshold is None else threshold
    return Worst(flag(rows, below=below, bottom=most, quantity=quantity), quantity, run.class_names, others)


def pixels_of(run: Run, worst: Worst, *, trust: bool = False) -> tuple[tuple[Pixels, Pixels], ...]:
    """Each sample, clean and with its first noise draw, as (height, width, 3) bytes; noisy pixels beyond [0, 1] are cut off.

    Raises:
        RobauditError: the data set is not where it was, or is Python code and not trusted.
    """
    from robaudit.gallery import RunImages

    images = RunImages(run, (sample.id for sample in worst.samples), trust=trust)
    found = []
    for sample in worst.samples:
        clean = images.clean(sample.id)
        found.append((sized(clean.numpy()), sized(images.noisy(sample.id, clean, worst.flagged.key.sigma).numpy())))
    return tuple(found)


def sized(image: NDArray[np.float32]) -> Pixels:
    """An image (channels, height, width) in [0, 1] as bytes: small ones enlarged pixel by pixel, large ones made smaller."""
    from PIL import Image

    whole = (image.clip(0.0, 1.0) * 255).round().astype(np.uint8)
    rgb = np.broadcast_to(whole, (3, *whole.shape[1:])) if len(whole) == 1 else whole[:3]
    pixels = np.ascontiguousarray(np.moveaxis(rgb, 0, 2))
    longest = max(pixels.shape[:2])
    if longest > _LARGEST:
        height, width = (max(1, round(side * _LARGEST / longest)) for side in pixels.shape[:2])
        return np.asarray(Image.fromarray(pixels).resize((width, height), Image.Resampling.BOX))
    factor = -(-_SMALLEST // longest)
    return pixels.repeat(factor, axis=0).repeat(factor, axis=1)
