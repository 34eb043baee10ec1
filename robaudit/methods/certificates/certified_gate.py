"""The gate on certified accuracy."""

from __future__ import annotations

import math
from collections.abc import Iterator

from robaudit.gates.evidence import Evidence
from robaudit.gates.measure import Measured, Method, counted_share
from robaudit.gates.statistics import Argument, Statistic
from robaudit.methods.certificates.accuracy import (
    CertifiedAccuracy,
    certificates_of,
    certified_accuracy,
)
from robaudit.names import ResultName
from robaudit.quantities import CERTIFIED
from robaudit.spec.gate_grammar import Gate
from robaudit.text import count


def _accuracy(evidence: Evidence) -> CertifiedAccuracy:
    """The certified accuracy of the rows.

    Raises:
        RunError: the run has no labels.
    """
    key = evidence.key
    candidates = certificates_of(evidence.run, [key.estimator], key.at.choice)
    (certificates,) = (certificates for certificates in candidates if certificates.key == key)
    return certified_accuracy(certificates, evidence.basis.confidence)


def _certified_accuracy(gate: Gate, evidence: Evidence) -> Measured:
    """Certified accuracy at the radius of the gate, which is exact for these images.

    Beyond the largest radius that could have been certified it is 0. If images stopped once another
    radius was decided, it is a lower bound: the gate can pass, but not fail.
    """
    accuracy = evidence.once(_accuracy)
    basis = evidence.basis
    radius = gate.arguments["radius"]
    certificates = accuracy.certificates
    certified = accuracy.at(radius)
    images = certificates.images
    remarks = tuple(_of_certificates(radius, accuracy))
    # Not even an image whose copies all agree could be certified there.
    if radius > certificates.possible:
        none = basis.estimate(0.0, (0.0, 0.0), Method.EXACT)
        return Measured(none, images=images, remarks=remarks)
    # With `decide` the answer at its own radius is exact.
    if certificates.asked in (None, radius):
        return counted_share(certified.count, certified.total, basis, remarks=remarks)
    # Images stopped before more could be certified, so the share may be as large as 1.
    least = certified.estimate.lower if basis.population else certified.value
    remedy = "run it without decide, or with decide at this radius"
    return Measured(
        basis.estimate(certified.value, (least or 0.0, 1.0), "lower bound"),
        remedy=remedy,
        images=images,
        remarks=remarks,
    )


def _of_certificates(radius: float, accuracy: CertifiedAccuracy) -> Iterator[str]:
    """Remarks on images that do not count, and on certificates that may be false."""
    certificates = accuracy.certificates
    if radius > certificates.possible:
        name = ResultName.parse(certificates.key.estimator).estimator
        yield (
            f"{name} could not have certified more than {certificates.possible:.4g}: more "
            "draws or another noise level reach further"
        )
    if certificates.asked not in (None, radius):
        yield (
            f"images stopped once it was decided whether {certificates.asked:g} is certified: "
            "at other radii more may be certified"
        )
    if accuracy.abstains.count:
        yield f"nothing certified for {accuracy.abstains.count} of {certificates.images} images"
    if accuracy.wrong.count:
        yield f"another class than the label certified for {accuracy.wrong.count}"
    # margin_radius states no probability: its certificates are proofs.
    if certificates.alpha:
        yield f"a certificate is false with probability at most {certificates.alpha:g}"
    if certificates.unlabelled:
        yield f"{count(certificates.unlabelled, 'image')} without a label left out"


CERTIFIED_ACCURACY = Statistic(
    _certified_accuracy,
    needs=(CERTIFIED.name,),
    lacking=(
        "there are no certified radii",
        "add certified_radius, margin_radius or smoothed_margin to the estimators",
    ),
    arguments=(Argument("radius", lambda _: (0.0, math.inf), "a radius"),),
)
