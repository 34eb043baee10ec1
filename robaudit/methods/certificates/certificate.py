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


def certificate(
    radius: float,
    of_class: int | None,
    predicted: int,
    passes: tuple[int, int],
    *,
    note: str = "",
    about: Certificate = UNSTATED,
    numbers: Mapping[str, float] | None = None,
    lost: int = 0,
) -> Result:
    """The result of one image.

    Args:
        radius: within it the class provably stays the same; negative: nothing is certified.
        of_class: the certified class; None: the estimator abstains.
        predicted: the class of the clean image.
        passes: forwards and backwards, the clean pass included.
        note: a remark for the reader of the row.
        about: the certificate's details.
        numbers: further numbers, for people.
        lost: noisy copies whose logits were not finite.
    """
    certified = of_class is not None and radius > 0.0
    value = radius if certified else 0.0
    return Result(
        value=value,
        lower=value,
        flips_to=of_class if of_class is not None and certified and of_class != predicted else None,
        forwards=passes[0],
        backwards=passes[1],
        interval=CERTIFICATE,
        note=note,
        certificate=replace(about, label=of_class if certified else None),
        numbers={**(numbers or {}), **({"not_finite": lost} if lost else {})},
    )
