"""Estimators of radii made from the clean logits alone: cheap stand-ins with every kind of interval, for reports and scores."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import EntryPoint, entry_points
from typing import ClassVar, Literal

import pytest
from pydantic import Field

from robaudit import Estimate, Estimator, Interval, IntervalKind, Part, Work, plugins
from robaudit.estimators import registry
from robaudit.estimators.base import Scope
from robaudit.estimators.difficulty import ease
from robaudit.quantities import RADIUS, TOLERANCE

_KINDS = {"exact": IntervalKind.EXACT, "upper": IntervalKind.UPPER_BOUND}


class Radii(Estimator):
    """0.2 (l2) and 0.02 (linf) times the margin of the clean logits; beyond a cap nothing is found.

    Source: a test.
    """

    quantity, needs, scope = RADIUS, frozenset({"logits"}), Scope.IMAGE
    summary, prefer, source = "a multiple of the margin", "a test", "a test"
    interval: ClassVar[Interval] = Interval(IntervalKind.UPPER_BOUND)

    cap: float = Field(1e9, gt=0, description="of the l2 radius; a tenth of it for linf")
    kind: Literal["exact", "upper"] = Field("upper", description="what is claimed")

    @property
    def parts(self) -> tuple[Part, ...]:
        return tuple(Part.norm(norm) for norm in ("l2", "linf"))

    def passes(self, classes: int) -> tuple[int, int]:
        return 1, 0

    def estimate(self, work: Work) -> list[tuple[Estimate, ...]]:
        found = ease(work.clean.logits, work.clean.predicted)
        return [tuple(self._radius(0.2 * scale * margin, self.cap * scale, g, margin) for scale in (1.0, 0.1)) for g, margin in found]

    def _radius(self, r: float, cap: float, g: float, margin: float) -> Estimate:
        details = {"difficulty": g, "margin": margin}
        if r > cap:
            return Estimate(cap, None, 1, 0, cap, None, interval=Interval(IntervalKind.CENSORED), details=details)
        return Estimate(r, 1, 1, 0, 0.0 if self.kind == "upper" else r, r, interval=Interval(_KINDS[self.kind]), details=details)


class Tolerance(Estimator):
    """0.1 times the margin of the clean logits, within a tenth; the cap is 1.

    Source: a test.
    """

    quantity, needs, scope = TOLERANCE, frozenset({"logits"}), Scope.NOISE
    summary, prefer, source = "a multiple of the margin", "a test", "a test"
    interval: ClassVar[Interval] = Interval(IntervalKind.OTHER, remark="bisection")

    def passes(self, classes: int) -> tuple[int, int]:
        return 1, 0

    def estimate(self, work: Work) -> list[Estimate]:
        made = []
        for g, margin in ease(work.clean.logits, work.clean.predicted):
            r, details = 0.1 * margin, {"difficulty": g, "margin": margin}
            if r > 1:
                made.append(Estimate(1.0, None, 1, 0, 1.0, None, interval=Interval(IntervalKind.CENSORED), details=details))
            else:
                made.append(Estimate(r, None, 1, 0, 0.9 * r, 1.1 * r, interval=self.interval, details=details))
        return made


@contextmanager
def installed(more: Mapping[str, str] | None = None) -> Iterator[None]:
    """Both as if they were installed, beside ours, and more by name."""
    names = {"radii": "tests.plugin.radii:Radii", "tolerance": "tests.plugin.radii:Tolerance", **(more or {})}
    found = [*entry_points(group=registry.GROUP), *(EntryPoint(name, value, registry.GROUP) for name, value in names.items())]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plugins, "entry_points", lambda group: found if group == registry.GROUP else entry_points(group=group))
        yield
