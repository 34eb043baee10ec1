"""Estimators of certified radii made from the clean logits alone: cheap stand-ins for reports, gates and certified accuracy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar

from pydantic import Field

from robaudit import CERTIFIED, Estimator, ImageBatch, Interval, Part, Result
from robaudit.estimators.base import Need
from robaudit.estimators.certificate import CERTIFICATE, certificate
from robaudit.estimators.difficulty import ease
from robaudit.results import Certificate
from tests.unit.plugin import radii


class Margins(Estimator):
    """0.1 (l2) and 0.01 (linf) times the margin of the clean logits; below a threshold it abstains. The network itself.

    Source: a test.
    """

    quantity, needs = CERTIFIED, Need.NOTHING
    summary, prefer, source = "a multiple of the margin", "a test", "a test"
    interval: ClassVar[Interval] = CERTIFICATE

    least: float = Field(0.0, ge=0, description="margins up to it are not certified")
    scale: float = Field(0.1, gt=0, description="radius of a margin of 1")

    @property
    def parts(self) -> tuple[Part, ...]:
        return tuple(Part.norm(norm) for norm in ("l2", "linf"))

    def passes(self, classes: int) -> tuple[int, int]:
        return 1, 0

    def estimate(self, batch: ImageBatch) -> list[tuple[Result, ...]]:
        predicted = batch.predicted.tolist()
        margins = [margin for _, margin in ease(batch.logits, batch.predicted)]
        return [
            tuple(
                certificate(self.scale * scale * margin, of if margin > self.least else None, of, self.passes(batch.classes))
                for scale in (1.0, 0.1)
            )
            for of, margin in zip(predicted, margins, strict=True)
        ]


class Smoothed(Estimator):
    """Sigma times a fifth of the margin, with confidence 1 - alpha; images of margin 1 or less are certified for the next class.

    Source: a test.
    """

    quantity, needs = CERTIFIED, Need.LEVEL
    summary, prefer, source = "a multiple of the margin", "a test", "a test"
    interval: ClassVar[Interval] = CERTIFICATE

    alpha: float = Field(0.001, gt=0, lt=0.5, description="chance of a false certificate")
    samples: int = Field(100, ge=1, description="sets the largest radius")

    @property
    def parts(self) -> tuple[Part, ...]:
        return (Part.norm("l2"),)

    def passes(self, classes: int) -> tuple[int, int]:
        return 1, 0

    def estimate(self, batch: ImageBatch) -> list[tuple[Result, ...]]:
        made: list[tuple[Result, ...]] = []
        sigma = batch.at.number
        largest = sigma * 2.0
        for of, (_, margin) in zip(batch.predicted.tolist(), ease(batch.logits, batch.predicted), strict=True):
            radius, class_ = min(sigma * (margin - 2.0) / 5.0, largest), of
            if margin <= 1.0:
                radius, class_ = 0.1 * sigma, (of + 1) % batch.classes
            about = Certificate(alpha=self.alpha, largest=largest)
            made.append((certificate(radius, class_, of, (1, 0), about=about),))
        return made


@contextmanager
def installed() -> Iterator[None]:
    """Both as if they were installed, beside ours and the stand-ins for radii."""
    with radii.installed({"margins": "tests.unit.plugin.certificates:Margins", "smoothed": "tests.unit.plugin.certificates:Smoothed"}):
        yield
