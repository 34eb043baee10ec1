"""Shared parts of the radius estimators: norms, search limits and results."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Annotated

import torch
from pydantic import AfterValidator, BeforeValidator, Field
from torch import Tensor

from robaudit.engine.batch import ImageBatch
from robaudit.engine.estimator import Estimator, Need
from robaudit.methods.radius.minimal_norm import Flips
from robaudit.methods.radius.norm_steps import Norm
from robaudit.names import Part
from robaudit.noise.noise import Shape
from robaudit.numerics.margins import ease
from robaudit.quantities import RADIUS, Interval, IntervalKind
from robaudit.results import CleanImage, Result, Searched
from robaudit.spec.fields import as_tuple

LEAST_CAP = 1e-6
"""The smallest cap: smaller perturbations are hardly more than the rounding of float32 pixels."""


def _each_once(norms: tuple[Norm, ...]) -> tuple[Norm, ...]:
    """Refuse a repeated norm."""
    if len(set(norms)) != len(norms):
        raise ValueError("give each norm once")
    return norms


Norms = Annotated[
    tuple[Norm, ...], BeforeValidator(as_tuple), AfterValidator(_each_once), Field(min_length=1)
]


class ByNorm(Estimator):
    """An estimator of lengths in several norms."""

    norm: Norms = Field(
        ("l2", "linf"),
        description="of the perturbations, for pixels in [0, 1]; each is a result of its own",
    )

    @property
    def parts(self) -> tuple[Part, ...]:
        """One value for each norm."""
        return tuple(Part.norm(norm) for norm in self.norm)


class RadiusEstimator(ByNorm):
    """An estimator of the radius: the norm of the smallest perturbation of the clean image that
    changes the predicted class.

    It refers to the predicted class, right or wrong; :mod:`robaudit.methods.radius.scores` counts
    misclassified images as 0. A row also states how easy the clean image is.

    Source: Giraudon, Gripon, Loewe and Vermet, Intrinsic robustness, definition 2.1.
    """

    quantity = RADIUS
    needs = Need.GRADIENTS
    source = "Giraudon et al., Intrinsic robustness"


class SearchedRadius(RadiusEstimator):
    """A radius from a search: an upper bound of the true radius."""

    interval = Interval(IntervalKind.UPPER_BOUND)

    cap: float | None = Field(
        None,
        ge=LEAST_CAP,
        allow_inf_nan=False,
        description="where the search ends, in the norm's unit; default: the largest distance of "
        "two images within [0, 1]",
    )
    clip: bool = Field(False, description="look at images within [0, 1] only")

    def limit(self, norm: str, shape: Shape) -> float:
        """The radius at which the search ends."""
        return diameter(norm, shape) if self.cap is None else self.cap


def diameter(norm: str, shape: Shape) -> float:
    """The largest distance between two images within [0, 1]."""
    # It is reached by an image of zeros and an image of ones.
    return math.sqrt(math.prod(shape)) if norm == "l2" else 1.0


def flips_of(
    batch: ImageBatch, values: int, search: Callable[[Tensor], Sequence[Flips]]
) -> tuple[Sequence[Flips], Sequence[tuple[int, int]]]:
    """The nearest flips of a chunk's images in each norm, and each image's forwards and backwards.

    Args:
        batch: the chunk.
        values: number of values that the search holds at once for an image. It gets groups of
            images that fit into memory.
        search: indices of some images -> their flips in each norm.
    """
    parts = [search(group) for group in batch.groups(values)]
    flips = [Flips.joined(of_norm) for of_norm in zip(*parts, strict=True)]
    # A gradient is a forward and a backward pass; the clean pass is added at the end.
    counts = [torch.stack([f.forwards + f.gradients, f.gradients], 1) for f in flips]
    spent = torch.stack(counts).sum(0)
    return flips, [(1 + forwards, gradients) for forwards, gradients in spent.tolist()]


def results_of(
    batch: ImageBatch,
    radius: Tensor,
    reached: Tensor,
    cap: float,
    interval: Interval,
    passes: Sequence[tuple[int, int]],
    lost: Tensor | None = None,
    searches: Sequence[Searched] | None = None,
) -> list[Result]:
    """The results of a chunk's images in one norm.

    Args:
        batch: the chunk.
        radius: of each image, infinite without a flip (images,), float64.
        reached: class of each flip (images,).
        cap: where the search ended; the value without a flip.
        interval: of a value with a flip.
        passes: forwards and backwards of each image.
        lost: points of each image with non-finite logits, which may hide a flip (images,).
        searches: further details of each image's search.
    """
    # An upper bound has no lower end but 0.
    exact = interval.kind is IntervalKind.EXACT
    missing = [0] * len(batch.x) if lost is None else lost.tolist()
    further: Sequence[Searched | None] = searches or [None] * len(batch.x)
    eases = ease(batch.logits, batch.predicted)
    results = []
    for distance, to, (forwards, backwards), not_finite, details, (g, margin) in zip(
        radius.tolist(), reached.tolist(), passes, missing, further, eases, strict=True
    ):
        # Without a flip the true radius is only known to be larger than the cap.
        hit = math.isfinite(distance)
        value = distance if hit else cap
        note = ""
        numbers = {}
        if not_finite:
            note = f"{not_finite} points gave non-finite logits, counted as no flips"
            numbers = {"not_finite": not_finite}
        results.append(
            Result(
                value=value,
                lower=value if exact else 0.0,
                upper=distance,
                flips_to=to if hit else None,
                forwards=forwards,
                backwards=backwards,
                interval=interval if hit else Interval(IntervalKind.CENSORED),
                note=note,
                search=details,
                clean=CleanImage(margin, g),
                numbers=numbers,
            )
        )
    return results
