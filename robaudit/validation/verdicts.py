"""Verdicts on estimators compared with the reference, and advice on which to use.

The rules, in this order:

- CLOSE, USABLE: an RMSE of at most .01, .03.
- Biased: a mean difference of at least .01 that is beyond two of its standard errors.
- Mostly sampling error: the stated standard errors explain at least 70 % of the RMSE. Not sampling
  error: at most half.
- Intervals too narrow: the whole 95 % interval of their coverage is below 90 %.
- No verdict: fewer than 10 images. For an unbiased estimator also where the reference errs more
  than the estimator seems to (and by more than .005), or where both agree on images that noise does
  not affect.
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
_LEAST_BIAS = 0.01  # a smaller one is within CLOSE, however significant it is
# Shares of the RMSE that the stated standard errors explain.
_MOSTLY_SAMPLING = 0.7
_HARDLY_SAMPLING = 0.5
_NARROW = 0.9  # coverage of 95 % intervals
_RANKED = 0.95  # rank correlation from which a biased estimator still ranks the images
# An image is affected by noise if the reference's share of copies that keep the class is between.
_NEVER_KEPT = 0.001
_ALWAYS_KEPT = 0.999


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
    """The grade of an estimator at a noise level, by its RMSE or the reason why it has none."""
    error = comparison.error
    if error is None:
        return Grade.OTHER
    if comparison.exact:
        return Grade.EXACT
    if comparison.images < FEWEST_IMAGES:
        return Grade.UNKNOWN
    # A significant bias is a finding, however coarse the reference or weak the noise.
    if not biased(error):
        if _is_coarse(error):
            return Grade.COARSE
        if not comparison.touched and error.rmse <= USABLE:
            return Grade.UNAFFECTED
    return _grade_of(error.rmse)


def _grade_of(rmse: float) -> Grade:
    if rmse <= CLOSE:
        return Grade.CLOSE
    return Grade.USABLE if rmse <= USABLE else Grade.OFF


def _is_coarse(error: Error) -> bool:
    """Whether the reference errs more than the estimator seems to, by more than half of CLOSE."""
    return error.reference > max(CLOSE / 2, error.rmse)


def biased(error: Error) -> bool:
    """Whether the values are biased significantly."""
    if error.bias_error is None:  # a single image
        return False
    return abs(error.bias) >= _LEAST_BIAS and abs(error.bias) > 2 * error.bias_error


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
    parts = [_accuracy(comparison, comparison.error, graded), *_cause(comparison.error, graded)]
    if comparison.coverage is not None and _too_narrow(comparison.coverage):
        parts.append(f"its intervals are too narrow: coverage {comparison.coverage.value:.0%}")
    return "; ".join(parts)


def _too_narrow(coverage: Share) -> bool:
    """Whether intervals that cover this share of the references are too narrow."""
    # The interval of the share: among few images, chance alone makes it small.
    bounds = coverage.estimate.bounds
    return coverage.total >= FEWEST_IMAGES and bounds is not None and bounds[1] < _NARROW


def _accuracy(comparison: ReferenceComparison, error: Error, graded: Grade) -> str:
    """The first part of a verdict: how accurate the values are."""
    if biased(error):
        side = "overestimates" if error.bias > 0 else "underestimates"
        text = f"is biased: {side} by {abs(error.bias):z.3f} on average"
        if comparison.rank is not None and comparison.rank >= _RANKED:
            text += "; its ranking of the images holds"
        return text
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


def _cause(error: Error, graded: Grade) -> list[str]:
    """The cause of the error, where it is known and matters: whether more draws would help."""
    # An accurate estimator needs no remedy, and a coarse reference hides the estimator's error.
    if graded in (Grade.CLOSE, Grade.COARSE) or error.sampling is None:
        return []
    if error.sampling >= _MOSTLY_SAMPLING * error.rmse:
        return ["mostly sampling error: more draws would help"]
    if error.sampling <= _HARDLY_SAMPLING * error.rmse:
        return ["not sampling error: more draws would hardly help"]
    return []


def advice(group: Sequence[ReferenceComparison]) -> list[str]:
    """Advice on which estimators to use at one noise level.

    It is the cheapest unbiased estimator that is close, else the cheapest that is usable, else the
    reference.

    Args:
        group: all estimators at that noise level.
    """
    accuracies = (Grade.CLOSE, Grade.USABLE, Grade.OFF)
    judged = [comparison for comparison in group if grade(comparison) in accuracies]
    if not judged:
        return []
    best = _best(judged)
    if best is not None:
        use = f"use {best.estimator}"
    elif any(comparison.kind == reference() for comparison in group):
        # It has been tried, and is not accurate with its number of draws.
        use = f"use {reference()} with more draws"
    else:
        use = f"use {reference()}"
    lines = []
    for comparison in judged:
        objection = _objection(comparison)
        if comparison is not best and objection:
            lines.append(f"{comparison.estimator} {objection}: {use}")
    if best is not None and best.error is not None:
        lines.append(
            f"{use}: RMSE {best.error.rmse:z.3f}, the cheapest that is {grade(best).value} "
            f"({milliseconds(best.seconds)} per image)"
        )
    elif not lines:
        lines.append(f"none is within {USABLE:z.3f} (RMSE): {use}")
    return lines


def _best(judged: Sequence[ReferenceComparison]) -> ReferenceComparison | None:
    """The cheapest unbiased comparison with the best grade; None if none is usable."""
    for wanted in (Grade.CLOSE, Grade.USABLE):
        candidates = []
        for comparison in judged:
            unbiased = comparison.error is not None and not biased(comparison.error)
            if unbiased and grade(comparison) is wanted:
                candidates.append(comparison)
        if candidates:
            return min(candidates, key=lambda comparison: comparison.seconds)
    return None


def _objection(comparison: ReferenceComparison) -> str:
    """The reason against an estimator, or ''."""
    if comparison.error is None:
        return ""
    if biased(comparison.error):
        return f"is biased by {comparison.error.bias:+z.3f}"
    if grade(comparison) is Grade.OFF:
        return f"has an RMSE of {comparison.error.rmse:z.3f} per image"
    return ""


def remark(group: Sequence[ReferenceComparison], truths: Sequence[float]) -> str:
    """A line about noise that affects few images; '' otherwise.

    Args:
        group: all estimators at that noise level.
        truths: the reference of each image.
    """
    affected = sum(_NEVER_KEPT < p < _ALWAYS_KEPT for p in truths)
    # The verdicts already say that no image is affected.
    already_said = all(comparison.exact or not comparison.touched for comparison in group)
    if already_said or affected >= max(3, len(truths) / 20):
        return ""
    return (
        f"this noise affects only {affected} of {len(truths)} images: stronger noise or more "
        "images would tell more"
    )


def milliseconds(seconds: float) -> str:
    """A time per image: 0.4 ms, 33 ms, 4.9 s."""
    if seconds >= 1:
        return f"{seconds:.1f} s"
    if seconds >= 0.01:
        return f"{1000 * seconds:.0f} ms"
    return f"{1000 * seconds:.1f} ms"
