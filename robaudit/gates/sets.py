"""The quantities of gates on a set of values: scores of radii, and certified accuracy."""

from __future__ import annotations

import math
from collections.abc import Iterator

from robaudit.errors import SpecError
from robaudit.gates.measure import Measured, Method, counted, score_range
from robaudit.names import ResultName
from robaudit.spec.gates import Gate
from robaudit.stats.certified import CertifiedAccuracy, certificates_of, certified_accuracy
from robaudit.stats.groups import GroupKey
from robaudit.stats.scores import Score, Scores, radii_of, scores_of
from robaudit.store.run import Run
from robaudit.text import count


def scores_for(run: Run, key: GroupKey, confidence: float) -> Scores:
    """The scores of a result.

    Raises:
        RunError: the run has no labels.
    """
    (radii,) = (result for result in radii_of(run, [key.estimator], key.at.choice) if result.key == key)
    return scores_of(radii, confidence)


def certified_for(run: Run, key: GroupKey, confidence: float) -> CertifiedAccuracy:
    """The certified accuracy of a result.

    Raises:
        RunError: the run has no labels.
    """
    (certificates,) = (result for result in certificates_of(run, [key.estimator], key.at.choice) if result.key == key)
    return certified_accuracy(certificates, confidence)


def measured_score(gate: Gate, scores: Scores, *, population: bool) -> Measured:
    """A score and its interval: for these images from the ends of their radii, for the population the interval over images.

    The radii of a search are upper bounds: the true radii, and with them the score, may be as small as the range allows, and a score that
    does not grow with them may have any value.

    Raises:
        SpecError: the score is not defined for these images.
    """
    score, size, remarks = scores.values[Score(gate.quantity)], len(scores.radii.ids), tuple(_of_radii(scores))
    if score.value is None:
        raise SpecError(f"gate {str(gate)!r}", f"{gate.quantity} is not defined: {score.why}", "gate another score, such as r_m")
    lower, upper = (score.lower, score.upper) if population else (score.measured_lower, score.measured_upper)
    if lower is None or upper is None:
        return Measured(score.value, None, Method.NONE, images=size, remarks=remarks)
    low, high = score_range(gate.quantity)
    if scores.radii.upper_bounds:
        lower, upper = low, upper if low == 0.0 and high == math.inf else high
    method, stuck = "ends of the radii", "its images leave it open"
    if population:
        method, stuck = "over images", f"more than {size} images would narrow it"
    elif lower == score.value == upper:
        method = Method.EXACT
    return Measured(score.value, (lower, upper), method, stuck=stuck, images=size, remarks=remarks)


def _of_radii(scores: Scores) -> Iterator[str]:
    radii = scores.radii
    if radii.upper_bounds:
        yield "upper bounds: the true values may be as small as the range allows"
    if radii.censored.any():
        yield f"{int(radii.censored.sum())} of {len(radii.ids)} images are censored at {radii.cap:.4g}"
    if radii.left_out:
        yield f"{radii.left_out} correct images with g <= 0 are in no ratio"
    if left := radii.unlabelled + radii.not_finite:
        yield f"{left} images left out: no label or no finite value"


def measured_certified(gate: Gate, accuracy: CertifiedAccuracy, *, population: bool) -> Measured:
    """Certified accuracy at the radius of the gate, which is exact for these images.

    Beyond the largest radius that could have been certified it is 0. If images stopped once another radius was decided, it is a lower
    bound: the gate can pass, but not fail.
    """
    radius, certificates = gate.radius or 0.0, accuracy.certificates
    certified, images, remarks = accuracy.at(radius), certificates.images, tuple(_of_certificates(radius, accuracy))
    if radius > certificates.possible:
        return Measured(0.0, (0.0, 0.0), Method.EXACT, images=images, remarks=remarks)
    if certificates.asked in (None, gate.radius):
        return counted(certified.count, certified.total, accuracy.confidence, population=population, remarks=remarks)
    least, stuck = certified.lower if population else certified.value, "run it without decide, or with decide at this radius"
    return Measured(certified.value, (least, 1.0), "lower bound", stuck=stuck, images=images, remarks=remarks)


def _of_certificates(radius: float, accuracy: CertifiedAccuracy) -> Iterator[str]:
    certificates = accuracy.certificates
    if radius > certificates.possible:
        name = ResultName.parse(certificates.key.estimator).estimator
        yield f"{name} could not have certified more than {certificates.possible:.4g}: more draws or another noise level reach further"
    if certificates.asked not in (None, radius):
        yield f"images stopped once it was decided whether {certificates.asked:g} is certified: at other radii more may be certified"
    if accuracy.abstains.count:
        yield f"nothing certified for {accuracy.abstains.count} of {certificates.images} images"
    if accuracy.wrong.count:
        yield f"another class than the label certified for {accuracy.wrong.count}"
    if certificates.alpha:
        yield f"a certificate is false with probability at most {certificates.alpha:g}"
    if certificates.unlabelled:
        yield f"{count(certificates.unlabelled, 'image')} without a label left out"
