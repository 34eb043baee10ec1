"""Verdicts on estimators compared with the reference, and advice on which to use.

The rules, in this order. CLOSE, USABLE: an RMSE of at most .01, .03. Biased: a mean difference of
at least .01 that is beyond two of its standard errors. Sampling error: the stated standard errors
explain at least 70 % of the RMSE; none: at most half. Intervals are called too narrow when the
whole 95 % interval of their coverage is below 90 %. No verdict: fewer than 10 images; and, for an
unbiased estimator, where the reference errs more than the estimator seems to (and by more than
.005), or where both agree on images that noise does not affect.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from robaudit.plugins import reference
from robaudit.quantities import P_ROBUST
from robaudit.stats.summary import Share
from robaudit.validation.deviations import Error, ReferenceComparison

CLOSE = 0.01
USABLE = 0.03
FEWEST_IMAGES = 10
_BIASED = 0.01
_SAMPLING = 0.7
_NO_SAMPLING = 0.5
_NARROW = 0.9
_RANKED = 0.95
_OPEN = 0.001, 0.999


class Grade(StrEnum):
    """The grade of an estimator's values, by their RMSE."""

    CLOSE = "accurate"
    USABLE = "accurate for means"
    OFF = "inaccurate"
    OTHER = "other quantity"
    UNKNOWN = "too few images"
    COARSE = "reference too coarse"
    UNAFFECTED = "no image affected"
    EXACT = "exact"


def grade(comparison: ReferenceComparison) -> Grade:
    """The grade by RMSE, for a probability of robustness on at least 10 images and a reference that
    is fine enough."""
    if comparison.error is None:
        return Grade.OTHER
    if comparison.exact:
        return Grade.EXACT
    if comparison.images < FEWEST_IMAGES:
        return Grade.UNKNOWN
    if not biased(comparison.error):
        if _coarse(comparison.error):
            return Grade.COARSE
        if not comparison.touched and comparison.error.rmse <= USABLE:
            return Grade.UNAFFECTED
    return (
        Grade.CLOSE
        if comparison.error.rmse <= CLOSE
        else Grade.USABLE
        if comparison.error.rmse <= USABLE
        else Grade.OFF
    )


def _coarse(error: Error) -> bool:
    return error.reference > max(CLOSE / 2, error.rmse)


def biased(error: Error) -> bool:
    """Whether the values are biased significantly."""
    return (
        abs(error.bias) >= _BIASED
        and error.bias_error is not None
        and abs(error.bias) > 2 * error.bias_error
    )


def verdict(comparison: ReferenceComparison) -> str:
    """The verdict on an estimator at a noise level, on one line."""
    rank = "unknown" if comparison.rank is None else f"{comparison.rank:z.3f}"
    if comparison.error is None:
        return (
            f"estimates {comparison.quantity}, not {P_ROBUST.name}: only its order is "
            f"compared (rank correlation {rank})"
        )
    graded = grade(comparison)
    if graded is Grade.EXACT:
        return (
            "is exact: this noise does the same to an image every time, and a single copy is enough"
        )
    if graded is Grade.UNKNOWN:
        return f"{comparison.images} images are too few for a verdict (at least {FEWEST_IMAGES})"
    if graded is Grade.UNAFFECTED:
        return (
            "no verdict: the noise affects none of these images: stronger noise or more "
            "images would tell more"
        )
    parts = [_how_far(comparison, comparison.error, graded), *_why(comparison.error, graded)]
    if comparison.coverage is not None and _too_narrow(comparison.coverage):
        parts.append(f"its intervals are too narrow: coverage {comparison.coverage.value:.0%}")
    return "; ".join(parts)


def _too_narrow(coverage: Share) -> bool:
    """Whether intervals that cover this share of the references are too narrow."""
    bounds = coverage.estimate.bounds
    return coverage.total >= FEWEST_IMAGES and bounds is not None and bounds[1] < _NARROW


def _how_far(comparison: ReferenceComparison, error: Error, graded: Grade) -> str:
    if biased(error):
        side = "overestimates" if error.bias > 0 else "underestimates"
        ranks = (
            "; its ranking of the images holds"
            if comparison.rank is not None and comparison.rank >= _RANKED
            else ""
        )
        return f"is biased: {side} by {abs(error.bias):z.3f} on average{ranks}"
    if graded is Grade.COARSE:
        return (
            "no verdict: the reference is too coarse (standard error "
            f"{error.reference:z.3f}); give it more draws"
        )
    if graded is Grade.CLOSE:
        return "is accurate for each image"
    if graded is Grade.USABLE:
        return f"is accurate for means and rankings; RMSE per image {error.rmse:z.3f}"
    return f"is inaccurate for each image: RMSE {error.rmse:z.3f}, no significant bias"


def _why(error: Error, graded: Grade) -> list[str]:
    if graded in (Grade.CLOSE, Grade.COARSE) or error.sampling is None:
        return []
    if error.sampling >= _SAMPLING * error.rmse:
        return ["mostly sampling error: more draws would help"]
    if error.sampling <= _NO_SAMPLING * error.rmse:
        return ["not sampling error: more draws would hardly help"]
    return []


def advice(group: Sequence[ReferenceComparison]) -> list[str]:
    """Advice on which estimators to use at one noise level: the cheapest that is close, else the
    cheapest that is usable.

    Args:
        group: all estimators at that noise level.
    """
    judged = [
        comparison
        for comparison in group
        if grade(comparison) in (Grade.CLOSE, Grade.USABLE, Grade.OFF)
    ]
    if not judged:
        return []
    unbiased = [
        comparison
        for comparison in judged
        if comparison.error is not None and not biased(comparison.error)
    ]
    good = [comparison for comparison in unbiased if grade(comparison) is Grade.CLOSE] or [
        comparison for comparison in unbiased if grade(comparison) is Grade.USABLE
    ]
    best = min(good, key=lambda comparison: comparison.seconds) if good else None
    tried = any(comparison.kind == reference() for comparison in group)
    use = (
        f"use {best.estimator}"
        if best
        else f"use {reference()} with more draws"
        if tried
        else f"use {reference()}"
    )
    lines = [
        f"{comparison.estimator} {off}: {use}"
        for comparison in judged
        if comparison is not best and (off := _off(comparison))
    ]
    if best is not None and best.error is not None:
        lines.append(
            f"{use}: RMSE {best.error.rmse:z.3f}, the cheapest that is {grade(best).value} "
            f"({milliseconds(best.seconds)} per image)"
        )
    elif not lines:
        lines.append(f"none is within {USABLE:z.3f} (RMSE): {use}")
    return lines


def _off(comparison: ReferenceComparison) -> str:
    if comparison.error is None:
        return ""
    if biased(comparison.error):
        return f"is biased by {comparison.error.bias:+z.3f}"
    return (
        f"has an RMSE of {comparison.error.rmse:z.3f} per image"
        if grade(comparison) is Grade.OFF
        else ""
    )


def remark(group: Sequence[ReferenceComparison], truths: Sequence[float]) -> str:
    """What limits the comparison at one noise level where the verdicts do not say it: noise that
    affects few images; or ''.

    Args:
        group: all estimators at that noise level.
        truths: the reference of each image.
    """
    undecided = sum(_OPEN[0] < p < _OPEN[1] for p in truths)
    if all(one.exact or not one.touched for one in group) or undecided >= max(3, len(truths) / 20):
        return ""
    return (
        f"this noise affects only {undecided} of {len(truths)} images: stronger noise or more "
        "images would tell more"
    )


def milliseconds(seconds: float) -> str:
    """A time per image: 0.4 ms, 33 ms, 4.9 s."""
    return (
        f"{seconds:.1f} s"
        if seconds >= 1
        else f"{1000 * seconds:.0f} ms"
        if seconds >= 0.01
        else f"{1000 * seconds:.1f} ms"
    )
