"""Is a drop beyond its threshold: of a mean, of a share, of the worst class?"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from robaudit.compare.paired import Ends
from robaudit.compare.result import Difference, GroupComparison
from robaudit.errors import SpecError
from robaudit.gates.enough import smallest_factor
from robaudit.gates.grammar import Gate
from robaudit.gates.result import ClassPart, Covers, Decision, judge
from robaudit.text import class_name


@dataclass(frozen=True, slots=True)
class How:
    """How gates are decided.

    Attributes:
        confidence: of the intervals.
        population: by the intervals for images of this kind, else for the measurement of these images.
        point: let a value without an interval decide by itself.
    """

    confidence: float
    population: bool
    point: bool

    @property
    def covers(self) -> Covers:
        """What the intervals cover."""
        return "images of this kind" if self.population else "these images"

    def of(self, found: Difference) -> Ends | None:
        """The interval to go by."""
        return found.population if self.population else found.these


@dataclass(frozen=True, slots=True)
class Drop:
    """A drop and the samples behind it.

    Attributes:
        value: base - new, turned round where lower is better.
        ends: of the samples that have a difference.
        images: those; ``unknown``: further ones, whose drop may be anything up to ``span`` either way.
    """

    value: float
    ends: Ends
    images: int
    unknown: int
    span: float

    @classmethod
    def of(cls, value: float, ends: Ends, sign: float, images: int, unknown: int, span: float) -> Drop:
        """That of a difference."""
        turned = Ends(-ends.upper + 0.0, -ends.lower + 0.0, ends.method) if sign > 0 else ends
        return cls(-sign * value + 0.0, turned, images, unknown, span)

    def reach(self, factor: float = 1.0) -> tuple[float, float]:
        """The ends with so many times the draws or images (by the square root law), the unknown at both ends of the range."""
        near = factor**-0.5
        lower, upper = self.value - (self.value - self.ends.lower) * near, self.value + (self.ends.upper - self.value) * near
        if not self.unknown:
            return lower, upper
        share = self.unknown / (self.images + self.unknown)
        return lower * (1 - share) - self.span * share, upper * (1 - share) + self.span * share


def on_drop(gate: Gate, drop: Drop, how: How, draws: int, *notes: str) -> Decision:
    """A gate on one drop."""
    ends = drop.reach()
    verdict = judge(gate.relation, gate.threshold, *ends)
    exact = drop.ends.method == "counted"
    method = "exact" if exact and not drop.unknown else drop.ends.method
    more = None if exact and not how.population else _more(gate, drop.reach, verdict, drop.images if how.population else draws)
    return Decision(gate, drop.value, *ends, method, how.covers, how.confidence, verdict, _joined(_words(more, how), *notes), more)


def on_worst_class(gate: Gate, group: GroupComparison, how: How, *notes: str) -> Decision:
    """A gate on the largest drop of a class: it is at most so large if that of each class is."""
    sign = 1.0 if group.higher_is_better else -1.0
    unknown = {index: number for index, number in group.unknown.items() if index >= 0}
    parts, drops = list[ClassPart](), list[Drop]()
    for one in group.classes:
        ends, missing = how.of(one.difference), unknown.pop(one.index, 0)
        part = ClassPart(one.index, one.name, one.images + missing, -sign * one.difference.value + 0.0, None, None)
        if ends is not None:
            drops.append(Drop.of(one.difference.value, ends, sign, one.images, missing, group.span))
            lower, upper = drops[-1].reach()
            part = replace(part, lower=lower, upper=upper)
        parts.append(part)
    parts += [ClassPart(index, None, number, math.nan, -group.span, group.span) for index, number in sorted(unknown.items())]
    first = parts[0]
    name = class_name(first.index, None if first.name is None else {first.index: first.name})
    about = f"class {name}, {first.images} images"
    if len(drops) < len(group.classes):
        return replace(by_value(gate, first.value, how), evidence=_joined(about, *notes), classes=tuple(parts))

    def worst(factor: float) -> tuple[float, float]:
        ends = [*(drop.reach(factor) for drop in drops), *((-group.span, group.span) for _ in unknown)]
        return max(lower for lower, _ in ends), max(upper for _, upper in ends)

    lower, upper = worst(1.0)
    verdict = judge(gate.relation, gate.threshold, lower, upper)
    draws = group.draws or 0
    more = _more(gate, worst, verdict, group.images if how.population else draws)
    method = f"{drops[0].ends.method}, simultaneous over {len(parts)} classes"
    words = _joined(about, _words(more, how), *notes)
    return Decision(gate, first.value, lower, upper, method, how.covers, how.confidence, verdict, words, more, tuple(parts))


def by_value(gate: Gate, value: float, how: How, *notes: str) -> Decision:
    """A gate on a value without an interval.

    Raises:
        SpecError: that was not asked for.
    """
    if not how.point:
        what = f"{gate.estimator or gate.quantity} has no interval to decide on"
        raise SpecError(f"gate {str(gate)!r}", what, "use an estimator with one such as mc, or let the value decide: --point")
    verdict = judge(gate.relation, gate.threshold, value, value)
    return Decision(gate, value, None, None, "none", "nothing", how.confidence, verdict, _joined(*notes))


def _more(gate: Gate, ends: Callable[[float], tuple[float, float]], verdict: str, now: int) -> int | None:
    """How many further draws or images would decide it if the value stayed; to a percent."""
    if verdict != "inconclusive" or not now:
        return None
    factor = smallest_factor(lambda n: judge(gate.relation, gate.threshold, *ends(n)) != "inconclusive")
    return None if factor is None else max(1, math.ceil(now * (factor - 1.0)))


def _words(more: int | None, how: How) -> str:
    unit = "images" if how.population else "draws an image"
    return f"about {more:,} more {unit} would decide it if the value stayed" if more else ""


def _joined(*notes: str) -> str:
    return "; ".join(filter(None, notes))
