"""Certified accuracy: the share of images whose class is certified, and is the label, within a
given radius.

Unlike all rows, it is relative to the label. An image counts at radius r only where the certified
class is its label and the certified radius is r or more. An image that is certified for another
class, or not certified at all, counts as not certified.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from robaudit.errors import RunError
from robaudit.estimates import Estimate
from robaudit.levels import LevelChoice
from robaudit.numerics.image_intervals import ROW_CONFIDENCE, Floats
from robaudit.numerics.intervals import clopper_pearson
from robaudit.quantities import CERTIFIED
from robaudit.records import Inline, Nested, Record, published
from robaudit.runs.groups import GroupKey
from robaudit.runs.run import Run, measuring
from robaudit.runs.table import NO_CLASS, Columns
from robaudit.stats.bootstrap import BOOTSTRAP, percentiles
from robaudit.stats.summary import Share, share

Mask = NDArray[np.bool_]
LACKING = (
    "has no certified radii",
    "add certified_radius, margin_radius or smoothed_margin to its estimators",
)
"""Problem and remedy for a run without certificates."""


@dataclass(frozen=True, slots=True)
class Certificates:
    """The certificates of the labelled images of a result.

    Attributes:
        key: of the result.
        radii: certified radii (n,), 0 where nothing is certified.
        right: whether the certified class is the label (n,).
        wrong: whether the certified class is another one (n,). Neither: nothing is certified.
        correct: whether the network itself classifies the clean image correctly (n,).
        unlabelled: number of images left out, because they have no label.
        not_finite: number of images without a finite radius, which count as not certified.
        alpha: the largest probability that an image's certificate is false; 0 where rows state
            none.
        possible: the largest radius that could have been certified; infinite where rows state none.
        asked: the radius in question, where the estimator stopped once that was decided. At other
            radii it may have certified less than it could. None without such a radius.
    """

    key: Annotated[GroupKey, Inline()]
    radii: Floats
    right: Mask
    wrong: Mask
    correct: Mask
    unlabelled: int = 0
    not_finite: int = 0
    alpha: float = 0.0
    possible: float = math.inf
    asked: float | None = None

    @property
    def images(self) -> int:
        """Number of labelled images."""
        return len(self.radii)

    @property
    def norm(self) -> str | None:
        """The norm of the radii, where they have one."""
        return self.key.norm or None

    @property
    def stated_alpha(self) -> float | None:
        """:attr:`alpha`; None where rows state no probability."""
        return self.alpha or None

    @property
    def false_certificates(self) -> float | None:
        """:attr:`false_at_most`; None where rows state no probability."""
        return self.false_at_most if self.alpha else None

    @property
    def counted(self) -> Floats:
        """The radii that count (n,): 0 where the certified class is not the label."""
        return np.where(self.right, self.radii, 0.0)

    @property
    def false_at_most(self) -> float:
        """The largest expected number of false certificates."""
        # alpha is for each image: of 1,000 certificates at .001, one may be wrong.
        return self.alpha * self.images


@dataclass(frozen=True, slots=True)
class Curve(Record):
    """Certified accuracy against radius.

    It is given at 0 and at each radius where it falls: just beyond it, the next value holds.

    Attributes:
        radii: ascending, the first 0 (m,).
        counts: number of images certified there (m,).
        values: shares of the images (m,).
        lowers, uppers: the Clopper-Pearson intervals of the shares, pointwise (m,).
    """

    radii: Annotated[Floats, Field(serialization_alias="radius")]
    counts: Annotated[NDArray[np.int64], Field(serialization_alias="count")]
    values: Annotated[Floats, Field(serialization_alias="value")]
    lowers: Annotated[Floats, Field(serialization_alias="lower")]
    uppers: Annotated[Floats, Field(serialization_alias="upper")]


@dataclass(frozen=True, slots=True)
class CertifiedAccuracy(Record):
    """Certified accuracy of a result, and other statistics of its certificates.

    Attributes:
        certificates: of at least one image.
        confidence: of the intervals, which are for the population. For these images all numbers are
            exact.
        clean: share of images that the network itself classifies correctly.
        wrong: share certified for a class other than the label.
        abstains: share without a certificate.
        mean: average certified radius, 0 where the certified class is not the label, with its
            bootstrap interval. A single image has no interval.
        median: of the same radii.
        largest: of the same radii.
    """

    certificates: Annotated[Certificates, Inline("key", "norm")]
    confidence: float
    clean: Annotated[Share, Field(serialization_alias="clean_accuracy")]
    wrong: Annotated[Share, Field(serialization_alias="wrong_class")]
    abstains: Share
    mean: Annotated[
        Estimate,
        Nested("MeanRadius", "value", "lower", "upper"),
        Field(serialization_alias="mean_radius"),
    ]
    median: Annotated[float, Field(serialization_alias="median_radius")]
    largest: Annotated[float, Field(serialization_alias="largest_radius")]

    @property
    @published(after="confidence")
    def counts(
        self,
    ) -> Annotated[
        Certificates,
        Inline(
            "images",
            "unlabelled",
            "not_finite",
            alpha="stated_alpha",
            false_certificates_at_most="false_certificates",
            largest_possible="possible",
            asked="asked",
        ),
    ]:
        """The certificates behind the numbers."""
        return self.certificates

    def at(self, radius: float) -> Share:
        """Certified accuracy at a radius of 0 or more; at 0, the share with any positive radius."""
        certificates = self.certificates
        # Images without a certificate have the radius 0, but are not right.
        within = certificates.right & (certificates.radii >= radius)
        return share(int(within.sum()), certificates.images, self.confidence)

    def curve(self) -> Curve:
        """Certified accuracy at every radius."""
        certificates = self.certificates
        radii = np.sort(certificates.radii[certificates.right])
        # At 0 the curve begins, even if every certified radius is larger.
        steps = np.unique(np.append(radii, 0.0))
        # Number of radii that are at least as large as each step.
        counts = len(radii) - np.searchsorted(radii, steps, side="left")
        lowers, uppers = clopper_pearson(counts, certificates.images, self.confidence)
        return Curve(
            radii=steps,
            counts=counts.astype(np.int64),
            values=counts / certificates.images,
            lowers=lowers,
            uppers=uppers,
        )


@dataclass(frozen=True, slots=True)
class ShareAtRadius(Record):
    """Certified accuracy at a radius."""

    radius: float
    share: Annotated[Share, Inline()]


@dataclass(frozen=True, slots=True)
class AccuracyAtRadii(Record):
    """The statistics of a result, with its certified accuracy at some radii."""

    accuracy: Annotated[CertifiedAccuracy, Inline()]
    radii: Annotated[Sequence[float], Field(exclude=True)]

    @property
    @published(after="clean_accuracy")
    def certified_accuracy(self) -> tuple[ShareAtRadius, ...]:
        """Certified accuracy at each of the radii."""
        return tuple(ShareAtRadius(radius, self.accuracy.at(radius)) for radius in self.radii)


def certificates_of(
    run: Run, estimators: Sequence[str] = (), levels: LevelChoice | Sequence[float] = ()
) -> list[Certificates]:
    """The certificates of each result that has some, in the run's order.

    A row whose certified class is missing, or whose radius is 0 or no finite number, certifies
    nothing.

    Raises:
        RunError: the results named have no certified radii, or the run no labels.
    """
    results = measuring(
        run, (CERTIFIED.name,), estimators, levels, called="certified radii", lacking=LACKING
    )
    return [_certificates(columns, str(run.path)) for columns in results]


def _certificates(columns: Columns, where: str) -> Certificates:
    """The certificates of a result; ``where``: the run, for messages."""
    labelled = columns.take(columns.label != NO_CLASS)
    if not len(labelled):
        raise RunError(
            where,
            "has no labels, and certified accuracy compares with them",
            "audit labelled images",
        )
    # A radius that is not finite, or 0, certifies nothing: such a row has no certified class.
    finite = np.isfinite(labelled.values)
    values = labelled.values
    certified = np.where(finite & (values > 0.0), labelled.certified_class, np.nan)
    right = certified == labelled.label
    wrong = ~np.isnan(certified) & ~right
    radii = np.where(right | wrong, values, 0.0)
    # Certificates from a Lipschitz constant state no largest radius: then there is no limit.
    possible = columns.largest
    largest = math.inf if np.isnan(possible).any() else float(possible.max())
    asked = columns.asked[~np.isnan(columns.asked)]
    return Certificates(
        key=columns.key,
        radii=radii,
        right=right,
        wrong=wrong,
        correct=labelled.correct,
        unlabelled=len(columns) - len(labelled),
        not_finite=int((~finite).sum()),
        alpha=float(np.nan_to_num(columns.alpha).max()),
        # A radius may exceed the largest one by rounding.
        possible=max(largest, float(radii.max())),
        asked=float(asked[-1]) if len(asked) else None,
    )


def certified_accuracy(
    certificates: Certificates, confidence: float = ROW_CONFIDENCE
) -> CertifiedAccuracy:
    """Certified accuracy of a result.

    The mean radius over all images, 0 where the certified class is not the label, is known as ACR,
    average certified radius.

    Args:
        certificates: at least one image.
        confidence: of the intervals. Those of shares are Clopper-Pearson over images, the mean has
            percentiles of 2,000 bootstrap replicates.

    Source: Cohen, Rosenfeld and Kolter 2019, Certified adversarial robustness via randomized
    smoothing; the mean: Zhai et al. 2020, MACER.
    """
    n = certificates.images
    counted = certificates.counted
    right = int(certificates.right.sum())
    wrong = int(certificates.wrong.sum())
    abstains = n - right - wrong
    # ACR, Zhai et al. 2020: radii of another class count as 0.
    bounds = percentiles(n, lambda drawn: {"mean": drawn @ counted / n}, confidence)["mean"]
    return CertifiedAccuracy(
        certificates=certificates,
        confidence=confidence,
        clean=share(int(certificates.correct.sum()), n, confidence),
        wrong=share(wrong, n, confidence),
        abstains=share(abstains, n, confidence),
        mean=Estimate.population(float(counted.mean()), bounds, BOOTSTRAP),
        median=float(np.median(counted)),
        largest=float(counted.max()),
    )
