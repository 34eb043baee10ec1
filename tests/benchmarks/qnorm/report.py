"""The section of docs/research/benchmarks.md, from the results that there are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from tests.benchmarks.qnorm.cases import ATTACK, CASES, COPIES, OURS, PICTURED_IMAGES, PUBLISHED, longer, methods
from tests.benchmarks.qnorm.results import ORDERS, Case, Found, Results
from tests.benchmarks.report import Section, Table

HIGH = tuple(k for k, q in enumerate(ORDERS) if q >= 100)
AIM = 0.8
SLACK = 2.0
"""Standard errors by which a value may miss another."""


@dataclass(frozen=True, slots=True)
class Mean:
    """The mean over images, as an estimate of the same images' mean.

    Attributes:
        value: of the values.
        error: its standard error between chains, or None.
        lower, upper: the means of the ends of their intervals (lags do not average out), or None.
    """

    value: float
    error: float | None
    lower: float | None
    upper: float | None

    @classmethod
    def of(cls, found: Sequence[Found], k: int) -> Mean:
        """At the k-th order."""
        errors, lower, upper = ([getattr(one, name)[k] for one in found] for name in ("std_error", "lower", "upper"))
        known = None not in errors
        return cls(
            fmean(one.value[k] for one in found),
            math.sqrt(math.fsum(e * e for e in errors)) / len(errors) if known else None,
            fmean(lower) if known else None,
            fmean(upper) if known else None,
        )

    def __str__(self) -> str:
        if self.error is None or self.lower is None or self.upper is None:
            return three(self.value)
        return f"{three(self.value)} ± {_error(self.error, self.value)} [{three(self.lower)}, {three(self.upper)}]"


def three(value: float) -> str:
    """Three decimals; more where the number is small."""
    return f"{value:.3f}" if value >= 0.1 or value == 0 else f"{value:.4f}" if value >= 0.001 else f"{value:.2g}"


def section(results: Results, picture: str) -> Section:
    """All of it, without the machine."""
    tables, targets, raw, counts = [], list[list[str]](), dict[str, Any](), []
    for case in CASES:
        found = {name: results.have(case, method) for name, method in methods(case).items()}
        if not found[OURS] or not found[COPIES]:
            continue
        found["long"] = results.have(case, longer(case))
        tables.append(_table(case, found))
        targets += _targets(case, found)
        counts.append(_counts(case, found))
        raw[case.name] = _raw(found)
    speeds = [(case, rates) for case in CASES if (rates := results.kept(f"speed; {case.name}"))]
    if speeds:
        tables.append(Table(_SPEED_HEADERS, [_speed(case, rates) for case, rates in speeds], "**Speed**"))
        targets += [_speed_target(case, rates) for case, rates in speeds]
        raw["speed"] = {case.name: rates for case, rates in speeds}
    if counts:
        tables.insert(len(tables) - bool(speeds), Table(_COUNT_HEADERS, counts, "**What the rows say of themselves** (`qnorm_path`)"))
    return Section(
        title="Between the average and the worst case",
        reading=_READING,
        tables=tables,
        targets=targets,
        notes=_NOTES,
        raw=raw,
        picture=picture,
    )


_READING = (
    "Means over the first test images of the q-norm of the loss against the label, in nats, at equal cost for each image. `±`: standard"
    " error between chains (copies); in brackets: the means of the ends of the rows' intervals. Both are for the mean of these images, not"
    " of others. Every method but `adversarial_loss` estimates the same number, from below where it does not get there: at q"
    " of 100 and more, higher is nearer."
)
_NOTES = (
    "Written by `python -m tests.benchmarks.qnorm`. Cost: gradients with respect to the pixels; a noisy copy of `qnorm_mc` counts as one."
    " One run of `qnorm_path` serves all q; the published sampler takes all of the cost for each q, and has no error.",
    "Published sampler: m, L and lengths of the trajectories as published (MNIST 100, 20, .6/.6/.4/.2; CIFAR-10 50, 10, .6/.6/.4/.09), in"
    " the whole box about the image. For transforms there is no published program that takes these; `qnorm_path` and"
    " `adversarial_loss` do without gradients there, and the cost counts forward passes.",
    "A long run has its own bars; where they are wide it is no truth. Those of ResNet20 have fewer images: one takes a core half a minute"
    " and more. Values were computed before the arithmetic of the chains was made faster, which changes their rounding alone.",
    f"Picture: the first {PICTURED_IMAGES} images of MNIST ConvSmall; bars are the means of the ends of the intervals. What leaves a"
    " panel is cut: with 15 temperatures of one step (128 gradients), the values of two images at q = 1000 are above every loss that their"
    " chains met, one far so. Their rows say that the chains disagree.",
    "Speed: CPU seconds of one thread, the fastest of 9 rounds in turn; `plain`: forward and backward passes of the network alone in"
    " batches of as many rows.",
)
_COUNT_HEADERS = ["network", "values", "that fall with q", "with remarks", "images", "where the attack was beaten"]
_SPEED_HEADERS = ["network", "rows", "plain, gradients a second", "qnorm_path, gradients a second", "ratio"]


def _table(case: Case, found: dict[str, list[Found]]) -> Table:
    rows = []
    for name in (OURS, PUBLISHED, COPIES):
        if some := found.get(name, []):
            rows.append([_named(name, some, len(found[OURS])), *(str(Mean.of(some, k)) for k in range(len(ORDERS))), _highest(some)])
    if case.published is None:
        rows.append(["published sampler: none", *["-"] * (len(ORDERS) + 1)])
    if attack := found[ATTACK]:
        rows.append([_named(ATTACK, attack, len(found[OURS])), *["-"] * len(ORDERS), three(Mean.of(attack, 0).value)])
    if long := found["long"]:
        same = found[OURS][: len(long)]
        if len(same) < len(found[OURS]):
            rows.append([f"{OURS}, first {len(same)} images", *(str(Mean.of(same, k)) for k in range(len(ORDERS))), _highest(same)])
        rows.append([_named("long run", long, len(long)), *(str(Mean.of(long, k)) for k in range(len(ORDERS))), _highest(long)])
        rows.append(
            [
                "images whose interval holds the long run's value",
                *(f"{_held(same, long, k)} of {len(long)}" for k in range(len(ORDERS))),
                "",
            ]
        )
    what = "gradients" if case.published is not None else "forward passes"
    caption = f"**{case.title}**: {len(found[OURS])} images, {found[OURS][0].cost:,} {what} an image"
    return Table(["method", *(f"q = {q:g}" for q in ORDERS), "highest loss met"], rows, caption)


def _named(name: str, found: Sequence[Found], usual: int) -> str:
    texts = [f"{found[0].cost:,}"] if name in ("long run", ATTACK) else []
    texts += [f"{len(found)} images"] if len(found) != usual else []
    return ", ".join([name, *texts])


def _highest(found: Sequence[Found]) -> str:
    return three(fmean(one.highest for one in found))


def _held(ours: Sequence[Found], long: Sequence[Found], k: int) -> int:
    return sum(_between(a.lower[k], b.value[k], a.upper[k]) for a, b in zip(ours, long, strict=True))


def _between(low: float | None, value: float, high: float | None) -> bool:
    return low is not None and high is not None and low <= value <= high


def _targets(case: Case, found: dict[str, list[Found]]) -> list[list[str]]:
    rows = []
    for name in (PUBLISHED, COPIES):
        if other := found.get(name, []):
            n = min(len(other), len(found[OURS]))
            pairs = [(Mean.of(found[OURS][:n], k), Mean.of(other[:n], k)) for k in HIGH]
            lacking = [theirs.value - ours.value - SLACK * (ours.error or 0.0) for ours, theirs in pairs]
            texts = ", ".join(f"{three(ours.value)} / {three(theirs.value)}" for ours, theirs in pairs)
            rows.append([f"{case.title}: at q = 100, 1000 at least {name}", ">=", texts, _met(max(lacking) <= 0)])
    if long := found["long"]:
        same = found[OURS][: len(long)]
        means = [(Mean.of(same, k), Mean.of(long, k)) for k in range(len(ORDERS))]
        outside = [f"{q:g}" for q, (ours, truth) in zip(ORDERS, means, strict=True) if not _between(ours.lower, truth.value, ours.upper)]
        text = f"not at q = {', '.join(outside)}" if outside else "at every q"
        rows.append([f"{case.title}: bars hold the mean of the long run", "at every q", text, _met(not outside)])
    return rows


def _met(yes: bool) -> str:
    return "yes" if yes else "**no**"


def _counts(case: Case, found: dict[str, list[Found]]) -> list[str]:
    ours, attack = found[OURS], found[ATTACK]
    beaten = sum(one.highest > best.value[0] for one, best in zip(ours, attack, strict=False))
    texts = [str(sum(map(falls, ours))), str(sum(one.notes for one in ours)), str(len(ours)), str(beaten) if attack else "-"]
    return [case.title, str(len(ours) * len(ORDERS)), *texts]


def falls(one: Found) -> int:
    """How often the value falls from one order to the next by more than two standard errors."""
    count = 0
    for k in range(len(one.value) - 1):
        errors = one.std_error[k] or 0.0, one.std_error[k + 1] or 0.0
        count += one.value[k + 1] < one.value[k] - SLACK * math.hypot(*errors)
    return count


def _speed(case: Case, rates: dict[str, float]) -> list[str]:
    return [case.title, f"{rates['rows']:.0f}", f"{rates['plain']:,.0f}", f"{rates['path']:,.0f}", f"{rates['path'] / rates['plain']:.2f}"]


def _speed_target(case: Case, rates: dict[str, float]) -> list[str]:
    ratio = rates["path"] / rates["plain"]
    return [f"{case.title}: gradients a second, share of the network's own", f">= {AIM:g}", f"{ratio:.2f}", _met(ratio >= AIM)]


def _error(error: float, value: float) -> str:
    digits = 3 if value >= 0.1 else 4
    return f"{error:.{digits}f}" if error >= 10.0**-digits else f"{error:.1g}"


def _raw(found: dict[str, list[Found]]) -> dict[str, Any]:
    return {
        name: {
            "images": len(some),
            "cost": some[0].cost,
            "means": [Mean.of(some, k).value for k in range(len(some[0].value))],
            "errors": [Mean.of(some, k).error for k in range(len(some[0].value))],
        }
        for name, some in found.items()
        if some
    }
