"""What do the tables of a report hold, whether they become HTML or Markdown?"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from robaudit.report import numbers
from robaudit.report.class_tables import label_of
from robaudit.report.html.content import Content
from robaudit.report.tables import APPROXIMATE, MEANINGS
from robaudit.summary.bias import ClassBias
from robaudit.summary.bias_result import ClassStats
from robaudit.summary.groups import QuantityLike
from robaudit.summary.overall import GroupSummary
from robaudit.text import count

KIND, THESE = "95% for images of this kind", "95% for these images"
COVER = (
    "“Images of this kind” allows for the choice of images: other images would give other numbers. “These images” allows only for "
    "the noise that was drawn: it says how well this very set was measured."
)


@dataclass(frozen=True, slots=True)
class Bar:
    """A value and its interval as shares of the scale, 0 to 1."""

    value: float
    lower: float
    upper: float


@dataclass(frozen=True, slots=True)
class Cell:
    """A text, and a bar beside it where there is a scale."""

    text: str
    bar: Bar | None = None
    tone: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """A table: its caption, column heads (those from ``numeric`` on are numbers), rows, and lines below it."""

    caption: str
    heads: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    numeric: int = 1
    notes: tuple[str, ...] = ()


def accuracy_table(content: Content) -> Table:
    """Clean accuracy and accuracy under noise over sigma."""
    rows: list[tuple[Cell, ...]] = []
    clean = content.run.info["clean_accuracy"]
    if clean is not None:
        value = numbers.signs(numbers.percent(clean["count"], clean["total"], clean["lower"], clean["upper"]))
        bar = Bar(clean["value"], clean["lower"], clean["upper"])
        rows.append((Cell("no noise"), Cell(""), Cell(value, bar), Cell(numbers.percents(clean["lower"], clean["upper"])), Cell("exact")))
    for group in content.groups:
        one = group.noisy_accuracy
        if one is not None:
            bar = Bar(one.value, one.lower, one.upper)
            ends = numbers.percents(one.lower, one.upper), numbers.percents(one.measured_lower, one.measured_upper)
            rows.append((Cell(_sigma(content, group)), Cell(group.key.estimator), Cell(numbers.noisy_percent(one), bar), *map(Cell, ends)))
    return Table("Share of right answers", ("noise", "estimator", "right", KIND, THESE), tuple(rows), 2)


def robustness_tables(content: Content) -> tuple[Table, ...]:
    """Mean, median, 5th percentile and shares over sigma: a table for each quantity, which never share one."""
    kinds = dict.fromkeys((group.key.quantity, group.key.noise) for group in content.groups)
    return tuple(
        _robustness(content, [g for g in content.groups if (g.key.quantity, g.key.noise) == kind], content.quantity(kind[0]))
        for kind in kinds
    )


def class_table(bias: ClassBias, quantity: QuantityLike, classes: Sequence[ClassStats], caption: str) -> Table:
    """A line for each of these classes.

    Args:
        bias: where they are from.
        quantity: what the values are.
        classes: in the order of the lines.
        caption: of the table.
    """
    heads = ("class", "images", "mean", KIND, THESE, "median", "p", "beyond chance?")
    rows = tuple(tuple(_class_cells(one, bias, quantity)) for one in classes)
    return Table(caption, heads, rows, 1)


def agreement_table(content: Content) -> Table:
    """A line for each pair of estimators and noise level."""
    heads = ("noise", "quantity", "estimators", "images", "mean difference", KIND, "RMS difference", "rank correlation")
    rows = []
    for one in content.agreements:
        away = numbers.difference(one.difference, one.lower, one.upper)
        texts = [f"{one.second} − {one.first}", f"{one.images:,}", away, numbers.interval(one.lower, one.upper)]
        cells = (f"sigma {content.sigmas[one.sigma]}", one.quantity, *texts, f"{one.rms:.4f}", numbers.rank(one.rank))
        rows.append(tuple(map(Cell, cells)))
    return Table("Pairs of estimators, on the same images", heads, tuple(rows), 3)


def cost_table(content: Content) -> Table:
    """Seconds and passes of an image, for each estimator and noise level."""
    heads = (
        "estimator",
        "noise",
        "seconds",
        "seconds an image",
        "forward passes an image",
        "backward passes an image",
        "interval of an image",
    )
    seconds = content.run.seconds
    rows = []
    for group in content.groups:
        key = group.key.estimator, group.key.sigma
        tally = content.tallies[key]
        n, time = len(tally.values), seconds.get(key)
        each = f"{time / n:.3g}" if time else numbers.NONE  # run.json rounds to milliseconds: 0 is no measurement
        passes = (f"{number / n:,.1f}".removesuffix(".0") for number in (tally.forwards, tally.backwards))
        kinds = ", ".join(kind for kind, _ in tally.intervals.most_common(3))
        cells = (key[0], _sigma(content, group), numbers.duration(time) or numbers.NONE, each, *passes, kinds)
        rows.append(tuple(map(Cell, cells)))
    return Table("Time and passes", heads, tuple(rows), 2, ("The clean pass of an image is counted with every estimator, shared or not.",))


def meaning(group: GroupSummary) -> str:
    """What a quantity is, in words, and which direction is better."""
    direction = "higher is better" if group.higher_is_better else "lower is better"
    return f"{group.key.quantity}: {MEANINGS.get(group.key.quantity, group.unit)}; {direction}"


def bar_of(value: float, lower: float | None, upper: float | None, quantity: QuantityLike) -> Bar | None:
    """A bar on the scale of the quantity; None where the scale has no end."""
    width = quantity.high - quantity.low
    if not math.isfinite(width) or width <= 0:
        return None
    low, high = value if lower is None else lower, value if upper is None else upper
    return Bar(*(min(1.0, max(0.0, (x - quantity.low) / width)) for x in (value, low, high)))


def _robustness(content: Content, groups: Sequence[GroupSummary], quantity: QuantityLike) -> Table:
    shares = ("below 0.5", "below 0.9") if quantity.high > 0.9 else ()
    rows = []
    for group in groups:
        one, marked = group.mean, group.with_interval < group.images
        middle = (numbers.quantile(group.median, quantity), numbers.quantile(group.p05, quantity))
        below = (numbers.share(share) for share in (group.below_half, group.below_ninety)) if shares else ()
        cells = [
            Cell(group.key.estimator),
            Cell(_sigma(content, group)),
            Cell(numbers.mean(one, quantity, marked=marked), bar_of(one.value, one.lower, one.upper, quantity)),
            *map(Cell, (numbers.interval(one.lower, one.upper), numbers.interval(one.measured_lower, one.measured_upper), *middle, *below)),
        ]
        rows.append(tuple(cells))
    heads = ("estimator", "noise", "mean", KIND, THESE, "median", "5th percentile", *shares)
    return Table(meaning(groups[0]), heads, tuple(rows), 2, tuple(_notes(groups)))


def _notes(groups: Sequence[GroupSummary]) -> Iterable[str]:
    if any(group.with_interval < group.images for group in groups):
        yield APPROXIMATE.replace("[ ]", "the interval")
    if biased := list(dict.fromkeys(group.key.estimator for group in groups if group.sampling_only)):
        yield f"{', '.join(biased)}: the interval of an image covers its noise draws only, not the bias of the approximation."
    if leaning := list(dict.fromkeys(group.key.estimator for group in groups if group.adaptive)):
        yield f"{', '.join(leaning)}: images stopped by themselves, and lean to the side where they stopped; the intervals allow for it."
    if dropped := sum(group.not_finite for group in groups):
        yield f"{count(dropped, 'result')} left out: not a finite number."
    if noted := sum(group.noted for group in groups):
        yield f"{count(noted, 'result')} with a note: see the column note of samples.csv."


def _class_cells(one: ClassStats, bias: ClassBias, quantity: QuantityLike) -> Iterable[Cell]:
    single, mean = one.images == 1, one.mean
    yield Cell(label_of(one))
    yield Cell(f"{one.images:,}")
    marked = mean.measured_lower is None
    if single:
        yield Cell(f"({numbers.number(mean.value, mean.measured_lower, mean.measured_upper, quantity)})")
        yield Cell(numbers.NONE)
    else:
        yield Cell(numbers.mean(mean, quantity, marked=marked), bar_of(mean.value, mean.lower, mean.upper, quantity))
        yield Cell(numbers.interval(mean.lower, mean.upper))
    yield Cell(numbers.interval(mean.measured_lower, mean.measured_upper))
    yield Cell(numbers.quantile(one.median, quantity))
    yield Cell(numbers.NONE if one.p_holm is None else numbers.p_value(one.p_holm))
    worse = "lower" if bias.higher_is_better else "higher"
    words = {None: "not tested", "no": "no", worse: "worse"}.get(one.differs, "better")
    yield Cell(words, tone="bad" if words == "worse" else "")


def _sigma(content: Content, group: GroupSummary) -> str:
    return f"sigma {content.sigmas[group.key.sigma]}"
