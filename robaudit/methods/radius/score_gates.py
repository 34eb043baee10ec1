"""Gates on the scores of radii."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from robaudit.errors import SpecError
from robaudit.estimates import Estimate
from robaudit.gates.evidence import Evidence
from robaudit.gates.measure import Measured, Method
from robaudit.gates.statistics import Statistic
from robaudit.methods.radius.scores import RADII, Score, Scores, radii_of, scores_of
from robaudit.spec.gate_grammar import Gate


def _scores(evidence: Evidence) -> Scores:
    """The scores of the rows.

    Raises:
        RunError: the run has no labels.
    """
    key = evidence.key
    # An estimator has a result for each norm and noise level; the evidence is of one of them.
    candidates = radii_of(evidence.run, [key.estimator], key.at.choice)
    (radii,) = (radii for radii in candidates if radii.key == key)
    return scores_of(radii, evidence.basis.confidence)


def _score(low: float, high: float, gate: Gate, evidence: Evidence) -> Measured:
    """A score and its interval.

    For these images the interval follows from the ends of their radii, for the population from a
    bootstrap over images. The radii of a search are upper bounds: the true radii may be as small as
    the range allows, and with them a score that grows with them. Any other score may have any
    value.

    Args:
        low, high: the range of the score.
        gate, evidence: see :class:`Statistic`.
    """
    scores = evidence.once(_scores)
    population = evidence.basis.population
    score = scores.values[Score(gate.quantity)]
    size = len(scores.radii.ids)
    remarks = tuple(_of_radii(scores))
    if score.value is None:
        raise SpecError(
            f"gate {str(gate)!r}",
            f"{gate.quantity} is not defined: {score.why}",
            "gate another score, such as r_m",
        )
    estimate = score.population if population else score.measured
    if estimate is None or estimate.bounds is None:
        return Measured(Estimate(score.value), images=size, remarks=remarks)
    if scores.radii.upper_bounds:
        # Means, smallest radii, ratios and slopes grow with the radii: those with this range.
        grows = low == 0.0 and high == math.inf
        estimate = estimate.with_bounds((low, estimate.bounds[1] if grows else high))
    remedy = (
        f"more than {size} images would narrow it" if population else "its images leave it open"
    )
    if estimate.is_exact and not population:
        estimate = replace(estimate, method=Method.EXACT)
    return Measured(estimate, remedy=remedy, images=size, remarks=remarks)


def _of_radii(scores: Scores) -> Iterator[str]:
    """Remarks on radii that are bounds, and on images that do not enter."""
    radii = scores.radii
    if radii.upper_bounds:
        yield "upper bounds: the true values may be as small as the range allows"
    if radii.censored.any():
        number = int(radii.censored.sum())
        yield f"{number} of {len(radii.ids)} images are censored at {radii.cap:.4g}"
    if radii.left_out:
        yield f"{radii.left_out} correct images with g <= 0 are in no ratio"
    left = radii.unlabelled + radii.not_finite
    if left:
        yield f"{left} images left out: no label or no finite value"


def _statistic(low: float = 0.0, high: float = math.inf) -> Statistic:
    """The statistic of a score with this range."""
    lacking = (
        "there are no radii, and so no scores",
        "add radius_attack, radius_exact or noise_tolerance to the estimators",
    )
    return Statistic(
        partial(_score, low, high), lambda _: (low, high), needs=RADII, lacking=lacking
    )


POSITIVE = _statistic()
"""A mean or smallest radius, a ratio or a slope."""
DETERMINATION = _statistic(-math.inf, 1.0)
"""R^2 of the line through the origin, which may be worse than the mean."""
VARIATION = _statistic(0.0, 1.0)
"""A relative difference of the halves, without its sign."""
DIFFERENCE = _statistic(-math.inf)
"""A difference of the halves."""
