"""Certified accuracy as a quantity of gates."""

from __future__ import annotations

from collections.abc import Iterator

from robaudit.gates.measure import Measured, Method, counted
from robaudit.names import ResultName
from robaudit.spec.gates import Gate
from robaudit.stats.certified import CertifiedAccuracy, certificates_of, certified_accuracy
from robaudit.stats.groups import GroupKey
from robaudit.store.run import Run
from robaudit.text import count

_WITHOUT_DECIDE = "run it without decide, or with decide at this radius"


def certified_for(run: Run, key: GroupKey, confidence: float) -> CertifiedAccuracy:
    """The certified accuracy of a result.

    Raises:
        RunError: the run has no labels.
    """
    (one,) = (one for one in certificates_of(run, [key.estimator], key.at.choice) if one.key == key)
    return certified_accuracy(one, confidence)


def measured_certified(gate: Gate, made: CertifiedAccuracy, *, population: bool) -> Measured:
    """Certified accuracy at the radius of the gate: for these images it is exactly what was certified.

    Beyond what could have been certified it is 0, whatever the images. Of images that stopped once a question about another radius was
    answered, it is a lower bound: it may show that the gate's radius is certified often enough, and no more.
    """
    one, given = made.at(gate.radius or 0.0), made.certificates
    if (gate.radius or 0.0) > given.possible:
        return Measured(0.0, lambda _: (0.0, 0.0), Method.EXACT, 0)
    if given.asked not in (None, gate.radius):
        least = one.lower if population else one.value
        return Measured(one.value, lambda _: (least, 1.0), "lower bound", 0, stuck=_WITHOUT_DECIDE)
    return counted(one.count, one.total, made.confidence, population=population, images=given.images)


def remarks(gate: Gate, made: CertifiedAccuracy) -> list[str]:
    """What a gate on certified accuracy compares, and how sure the certificates are."""
    return list(_remarks(gate, made))


def _remarks(gate: Gate, made: CertifiedAccuracy) -> Iterator[str]:
    given, radius = made.certificates, gate.radius or 0.0
    name = ResultName.parse(given.key.estimator).estimator
    if radius > given.possible:
        yield f"{name} could not have certified more than {given.possible:.4g}: more draws or another noise level reach further"
    if given.asked not in (None, gate.radius):
        yield f"images stopped once it was decided whether {given.asked:g} is certified: at another radius more may be"
    if made.abstains.count:
        yield f"nothing certified of {made.abstains.count} of {given.images} images"
    if made.wrong.count:
        yield f"another class than the label certified of {made.wrong.count}"
    if given.alpha:
        yield f"a certificate is false with probability at most {given.alpha:g}"
    if given.unlabelled:
        yield f"{count(given.unlabelled, 'image')} without a label left out"
