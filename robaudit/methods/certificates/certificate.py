"""Results of the estimators of certified radii."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from robaudit.quantities import Interval, IntervalKind
from robaudit.results import Certificate, Result

CERTIFICATE = Interval(IntervalKind.LOWER_BOUND)
"""A certified radius is a lower bound: the true radius is at least as large, with the stated
confidence."""
UNSTATED = Certificate()
"""The details of a certificate that states none."""


def certificate(
    radius: float,
    of_class: int | None,
    predicted: int,
    passes: tuple[int, int],
    *,
    note: str = "",
    details: Certificate = UNSTATED,
    numbers: Mapping[str, float] | None = None,
    lost: int = 0,
) -> Result:
    """The result of an image.

    Args:
        radius: within it the class provably stays the same; negative: nothing is certified.
        of_class: the certified class; None if the estimator abstains.
        predicted: the class of the clean image.
        passes: forwards and backwards, the clean pass included.
        note: a remark for the reader of the row.
        details: the certificate's further fields.
        numbers: further numbers, for people.
        lost: number of noisy copies whose logits were not finite.
    """
    # A certificate of radius 0 says nothing, so the row states no class either.
    certified = of_class is not None and radius > 0.0
    value = radius if certified else 0.0
    label = of_class if certified else None
    # Rows without lost copies have no key for them.
    counts = {"not_finite": lost} if lost else {}
    return Result(
        value=value,
        lower=value,
        flips_to=None if label == predicted else label,
        forwards=passes[0],
        backwards=passes[1],
        interval=CERTIFICATE,
        note=note,
        certificate=replace(details, label=label),
        numbers={**(numbers or {}), **counts},
    )
