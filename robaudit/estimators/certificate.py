"""What the estimators of certified radii share: the shape of their rows."""

from __future__ import annotations

from collections.abc import Mapping

from robaudit.estimators.base import Estimate
from robaudit.names import CERTIFIED_CLASS
from robaudit.quantities import Interval, IntervalKind

CERTIFICATE = Interval(IntervalKind.LOWER_BOUND)
"""How a certified radius is to be read: the true one is at least as large, with the confidence that the estimator states."""


def certificate(
    radius: float,
    of_class: int | None,
    predicted: int,
    passes: tuple[int, int],
    *,
    note: str = "",
    details: Mapping[str, float] | None = None,
    not_finite: int = 0,
) -> Estimate:
    """The estimate of one image.

    Args:
        radius: within which the class provably stays the same; negative: nothing is certified.
        of_class: the class that is certified; None: the estimator abstains.
        predicted: the class of the clean image.
        passes: forwards and backwards, the clean pass included.
        note: a remark for the reader of the row.
        details: further numbers.
        not_finite: noisy copies whose logits were not finite.
    """
    certified = of_class is not None and radius > 0.0
    value = radius if certified else 0.0
    return Estimate(
        value=value,
        lower=value,
        flips_to=of_class if of_class is not None and certified and of_class != predicted else None,
        forwards=passes[0],
        backwards=passes[1],
        interval=CERTIFICATE,
        note=note,
        not_finite=not_finite,
        details={**(details or {}), **({CERTIFIED_CLASS: of_class} if certified and of_class is not None else {})},
    )
