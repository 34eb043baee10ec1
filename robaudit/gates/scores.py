"""Scores of radii as quantities of gates."""

from __future__ import annotations

import math

from robaudit.errors import SpecError
from robaudit.gates.measure import Measured, Method, score_range
from robaudit.spec.gates import Gate
from robaudit.stats.groups import GroupKey
from robaudit.stats.scores import Score, Scores, radii_of, scores_of
from robaudit.store.run import Run


def scores_for(run: Run, key: GroupKey, confidence: float) -> Scores:
    """The scores of a result.

    Raises:
        RunError: the run has no labels.
    """
    (radii,) = (one for one in radii_of(run, [key.estimator], key.at.choice) if one.key == key)
    return scores_of(radii, confidence)


def measured_score(gate: Gate, scores: Scores, *, population: bool) -> Measured:
    """A score and its interval: for these images what their radii leave open, for others like them the interval over images.

    The radii of a search are upper bounds: the true ones, and with them the score, may be as small as the range allows, and a score that
    does not grow with them may be anything.

    Raises:
        SpecError: the score is not defined for these images.
    """
    one, size = scores.values[Score(gate.quantity)], len(scores.radii.ids)
    if one.value is None:
        raise SpecError(f"gate {str(gate)!r}", f"{gate.quantity} is not defined: {one.why}", "gate another score, such as r_m")
    ends = (one.lower, one.upper) if population else (one.measured_lower, one.measured_upper)
    lower, upper = ends
    if lower is None or upper is None:
        return Measured(one.value, None, Method.NONE, 0)
    low, high = score_range(gate.quantity)
    if scores.radii.upper_bounds:
        lower, upper = low, upper if low == 0.0 and high == math.inf else high
    known = lower, upper
    if population:
        return Measured(one.value, lambda _: known, "over images", 0, stuck=f"more than {size} images would narrow it")
    if lower == one.value == upper:
        return Measured(one.value, lambda _: known, Method.EXACT, 0)
    return Measured(one.value, lambda _: known, "ends of the radii", 0, stuck="its images leave it open")


def remarks(scores: Scores) -> list[str]:
    """What a gate on a score compares."""
    radii, found = scores.radii, []
    if radii.upper_bounds:
        found.append("upper bounds: the true values may be as small as the range allows")
    if radii.censored.any():
        found.append(f"{int(radii.censored.sum())} of {len(radii.ids)} images are censored at {radii.cap:.4g}")
    if radii.left_out:
        found.append(f"{radii.left_out} correct images with g <= 0 are in no ratio")
    left = radii.unlabelled + radii.not_finite
    return [*found, *([f"{left} images left out: no label or no finite value"] if left else [])]
