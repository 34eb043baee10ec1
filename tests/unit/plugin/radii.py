"""Estimators of radii made from the clean logits alone: cheap stand-ins with every kind of interval, for reports and scores."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar, Literal

from pydantic import Field

from robaudit import Estimator, ImageBatch, Interval, IntervalKind, Part, Result
from robaudit.estimators import registry
from robaudit.estimators.base import Need
from robaudit.estimators.difficulty import ease
from robaudit.quantities import RADIUS
from robaudit.results import CleanImage
from tests.unit.plugin import entries

_KINDS = {"exact": IntervalKind.EXACT, "upper": IntervalKind.UPPER_BOUND}


def censored(cap: float, g: float, margin: float) -> Result:
    """Nothing found up to a cap."""
    about: dict[str, Any] = {"flips_to": None, "forwards": 1, "backwards": 0, "clean": CleanImage(margin, g)}
    return Result(cap, **about, lower=cap, upper=None, interval=Interval(IntervalKind.CENSORED))


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
        if r > cap:
            return censored(cap, g, margin)
        lower = 0.0 if self.kind == "upper" else r
        return Result(
            r, flips_to=1, forwards=1, backwards=0, lower=lower, upper=r, interval=Interval(_KINDS[self.kind]), clean=CleanImage(margin, g)
        )


@contextmanager
def installed(more: Mapping[str, str] | None = None) -> Iterator[None]:
    """As if they were installed, beside ours, and more by name."""
    names = {"radii": "tests.unit.plugin.radii:Radii", **(more or {})}
    with entries.beside_ours(registry.GROUP, names):
        yield
