"""What the estimators of the radius share: norms, the limit of a search, and the shape of their rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from robaudit.estimators.base import Estimate, Estimator, Need, Scope
from robaudit.estimators.difficulty import ease
from robaudit.estimators.work import Work
from robaudit.names import Part
from robaudit.noise.base import Shape
from robaudit.quantities import RADIUS, Interval, IntervalKind, Quantity
from robaudit.spec.fields import as_tuple

Norm = Literal["l2", "linf"]
LEAST_CAP = 1e-6
"""Below it, perturbations are hardly more than the rounding of float32 pixels."""


def each_once(norms: tuple[Norm, ...]) -> tuple[Norm, ...]:
    """Refuse a norm that is given twice."""
    if len(set(norms)) != len(norms):
        raise ValueError("give each norm once")
    return norms


class RadiusEstimator(Estimator):
    """An estimator of the radius: the norm of the smallest perturbation of the clean image that changes the predicted class.

    A row is relative to the predicted class, whether that is the label or not; :mod:`robaudit.stats.scores` counts misclassified images
    as 0. How easy the image is, and its margin, are among the details.

    Args:
        norm: of the perturbations, for pixels in [0, 1]; each is a result of its own.

    Source: Giraudon, Gripon, Loewe and Vermet, Intrinsic robustness, definition 2.1.
    """

    quantity: ClassVar[Quantity] = RADIUS
    needs: ClassVar[frozenset[Need]] = frozenset({"logits", "gradients"})
    scope: ClassVar[Scope] = Scope.IMAGE
    source: ClassVar[str] = "Giraudon et al., Intrinsic robustness"

    norm: Annotated[tuple[Norm, ...], BeforeValidator(as_tuple), AfterValidator(each_once), Field(min_length=1)] = Field(
        ("l2", "linf"), description="of the perturbations, for pixels in [0, 1]; each is a result of its own"
    )

    @property
    def parts(self) -> tuple[Part, ...]:
        """One value for each norm."""
        return tuple(Part.norm(norm) for norm in self.norm)


class SearchedRadius(RadiusEstimator):
    """A radius that is looked for: what is found is never less than the true one.

    Args:
        cap: where the search ends, in the norm's unit.
        clip: look at images within [0, 1] only.
    """

    interval: ClassVar[Interval] = Interval(IntervalKind.UPPER_BOUND)

    cap: float | None = Field(
        None,
        ge=LEAST_CAP,
        allow_inf_nan=False,
        description="where the search ends, in the norm's unit; default: the largest distance of two images within [0, 1]",
    )
    clip: bool = Field(False, description="look at images within [0, 1] only")

    def limit(self, norm: str, shape: Shape) -> float:
        """Where the search ends."""
        return diameter(norm, shape) if self.cap is None else self.cap


def diameter(norm: str, shape: Shape) -> float:
    """The largest distance of two images within [0, 1]."""
    return math.sqrt(math.prod(shape)) if norm == "l2" else 1.0


def rows_of(
    work: Work,
    values: Sequence[float],
    found: Sequence[bool],
    reached: Sequence[int],
    interval: Interval,
    passes: Sequence[tuple[int, int]],
    details: Sequence[dict[str, float]] | None = None,
    lost: Sequence[int] | None = None,
) -> list[Estimate]:
    """The estimates of a chunk's images in one norm.

    Args:
        work: the chunk.
        values: the radius, or where the search ended.
        found: whether there was a flip.
        reached: the class behind it.
        interval: how the values are to be read where there was one.
        passes: forwards and backwards of each image.
        details: further numbers.
        lost: how many points of each image had logits that are not finite; a flip may be hidden behind them.
    """
    censored = Interval(IntervalKind.CENSORED)
    estimates = []
    for i, (g, margin) in enumerate(ease(work.clean.logits, work.clean.predicted)):
        value, exact = values[i], interval.kind is IntervalKind.EXACT
        estimates.append(
            Estimate(
                value=value,
                lower=value if exact else 0.0,
                upper=value if found[i] else math.inf,
                flips_to=reached[i] if found[i] else None,
                forwards=passes[i][0],
                backwards=passes[i][1],
                interval=interval if found[i] else censored,
                note=f"{lost[i]} points gave non-finite logits, counted as no flips" if lost and lost[i] else "",
                not_finite=lost[i] if lost else 0,
                details={"difficulty": g, "margin": margin, **(details[i] if details else {})},
            )
        )
    return estimates
