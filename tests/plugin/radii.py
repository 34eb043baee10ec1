"""Estimators of radii made from the clean logits alone: cheap stand-ins with every kind of interval, for reports and scores."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import ClassVar, Literal

from pydantic import Field

from robaudit import Estimator, ImageBatch, Interval, IntervalKind, Part, Result
from robaudit.estimators import registry
from robaudit.estimators.base import Need
from robaudit.estimators.difficulty import ease
from robaudit.quantities import RADIUS, TOLERANCE
from robaudit.results import CleanImage
from tests.plugin import entries

_KINDS = {"exact": IntervalKind.EXACT, "upper": IntervalKind.UPPER_BOUND}


class Radii(Estimator):
    """0.2 (l2) and 0.02 (linf) times the margin of the clean logits; beyond a cap nothing is found.

    Source: a test.
    """

    quantity, needs = RADIUS, Need.NOTHING
    summary, prefer, source = "a multiple of the margin", "a test", "a test"
    interval: ClassVar[Interval] = Interval(IntervalKind.UPPER_BOUND)

    cap: float = Field(1e9, gt=0, description="of the l2 radius; a tenth of it for linf")
    kind: Literal["exact", "upper"] = Field("upper", description="what is claimed")

    @property
    def parts(self) -> tuple[Part, ...]:
        return tuple(Part.norm(norm) for norm in ("l2", "linf"))

    def passes(self, classes: int) -> tuple[int, int]:
        return 1, 0

    def estimate(self, batch: ImageBatch) -> list[tuple[Result, ...]]:
        found = ease(batch.logits, batch.predicted)
        return [tuple(self._radius(0.2 * scale * margin, self.cap * scale, g, margin) for scale in (1.0, 0.1)) for g, margin in found]

    def _radius(self, r: float, cap: float, g: float, margin: float) -> Result:
        clean = CleanImage(margin, g)
        if r > cap:
            return Result(
                cap,
                flips_to=None,
                forwards=1,
                backwards=0,
                lower=cap,
                upper=None,
                interval=Interval(IntervalKind.CENSORED),
                clean=clean,
            )
        return Result(
            r,
            flips_to=1,
            forwards=1,
            backwards=0,
            lower=0.0 if self.kind == "upper" else r,
            upper=r,
            interval=Interval(_KINDS[self.kind]),
            clean=clean,
        )


class Tolerance(Estimator):
    """0.1 times the margin of the clean logits, within a tenth; the cap is 1.

    Source: a test.
    """

    quantity, needs = TOLERANCE, Need.NOISE
    summary, prefer, source = "a multiple of the margin", "a test", "a test"
    interval: ClassVar[Interval] = Interval(IntervalKind.OTHER, remark="bisection")

    def passes(self, classes: int) -> tuple[int, int]:
        return 1, 0

    def estimate(self, batch: ImageBatch) -> list[Result]:
        made = []
        for g, margin in ease(batch.logits, batch.predicted):
            r, clean = 0.1 * margin, CleanImage(margin, g)
            if r > 1:
                made.append(
                    Result(
                        1.0,
                        flips_to=None,
                        forwards=1,
                        backwards=0,
                        lower=1.0,
                        upper=None,
                        interval=Interval(IntervalKind.CENSORED),
                        clean=clean,
                    )
                )
            else:
                made.append(
                    Result(r, flips_to=None, forwards=1, backwards=0, lower=0.9 * r, upper=1.1 * r, interval=self.interval, clean=clean)
                )
        return made


@contextmanager
def installed(more: Mapping[str, str] | None = None) -> Iterator[None]:
    """Both as if they were installed, beside ours, and more by name."""
    names = {"radii": "tests.plugin.radii:Radii", "tolerance": "tests.plugin.radii:Tolerance", **(more or {})}
    with entries.beside_ours(registry.GROUP, names):
        yield
