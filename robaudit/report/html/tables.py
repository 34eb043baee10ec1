"""The tables of a report, for its page and for Markdown."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from robaudit.compare.difference import compare
from robaudit.errors import RobauditError
from robaudit.levels import NoiseLevel
from robaudit.names import series
from robaudit.quantities import Quantity
from robaudit.report import numbers
from robaudit.report.certified_tables import OfRun, side_by_side
from robaudit.report.class_tables import OTHERS, SINGLE_IMAGE, difference_text, label_of, test_note, weakest_first
from robaudit.report.html.content import Content
from robaudit.report.summary_tables import approximate, caveats, heading
from robaudit.report.tables import Bar, Cell, Table, cells, columns
from robaudit.report.words import MEASUREMENT, POPULATION
from robaudit.stats.classes import ClassBias, ClassStats
from robaudit.stats.curves import Curves
from robaudit.stats.summary import GroupSummary
from robaudit.store.run import Run
from robaudit.text import count

LOSS_WORDS = (
    "The loss at q is the q-norm (E[l^q])^(1/q) over the noise, where l is the cross-entropy of a noisy copy of the image. q=1 is the "
    "mean; the larger q is, the more the upper tail counts; the limit is the maximum, which an attack searches for. Lower is better. "
    "A flat curve: the loss hardly varies with the noise. A steep one: rare noise gives a much larger loss than the mean shows.",
    "Sampling rarely meets the tail, so at a large q a value is biased low, and so is the attack's: where two differ by more than their "
    "intervals, the higher one is closer to the true value.",
)
SCORE_WORDS = (
    "The radius r of the nearest change of the prediction, and its growth with the difficulty g, the logit of the clean score: larger is "
    "easier. Misclassified images count as 0. Ratios to g compare networks with less dependence on the choice of images."
)
CERTIFIED_WORDS = (
    "The share of images whose class provably stays the same within a radius, and is the label: unlike the tables under Robustness, it is "
    "relative to the label. A result of a noise level is about the network smoothed by that noise, any other about the network itself."
)
CURVE_WORDS = "Accuracy against the size of the perturbation; an image that is misclassified on the clean image is an error at every size."
_ALL, _WORST, _BEST = 30, 20, 5  # of the classes


@dataclass(frozen=True, slots=True)
class ClassView:
    """The classes of one estimator at one noise level.

    Attributes:
        bias: all of them, tested.
        title: estimator and noise level.
        table: all classes, the least robust first; of more than 30 the least robust 20.
        best, rest: the most robust 5, and those between; None where the table has all.
        notes: lines below.
    """

    bias: ClassBias
    title: str
    table: Table
    best: Table | None
    rest: Table | None
    notes: tuple[str, ...]


def accuracy_table(content: Content) -> Table:
    """Clean accuracy, and accuracy under noise by noise level."""
    rows: list[tuple[Cell, ...]] = []
    clean = content.run.info["clean_accuracy"]
    if clean is not None:
        value = numbers.percent(clean["value"], clean["lower"], clean["upper"])
        bar = Bar(clean["value"], clean["lower"], clean["upper"])
        rows.append((Cell("no noise"), Cell(""), Cell(value, bar), Cell(numbers.percents(clean["lower"], clean["upper"])), Cell("exact")))
    for group in content.groups:
        one = group.noisy_accuracy
        if one is not None:
            bar = Bar(one.value, one.lower, one.upper)
            ends = numbers.percents(one.lower, one.upper), numbers.percents(one.measured_lower, one.measured_upper)
            rows.append(
                (
                    Cell(_level(content, group)),
                    Cell(group.key.estimator),
                    Cell(numbers.percent(one.value, one.lower, one.upper), bar),
                    *map(Cell, ends),
                )
            )
    return Table(
        "Clean accuracy, and accuracy under noise", columns(("noise", "estimator"), ("accuracy", POPULATION, MEASUREMENT)), tuple(rows)
    )


def robustness_tables(content: Content) -> tuple[Table, ...]:
    """Mean, median, 5th percentile (95th where lower is better) and shares by noise level, in a separate table for each quantity.

    Losses by q are in :func:`robaudit.report.loss_tables.loss_table`.
    """
    groups = content.beside_losses().groups
    kinds = dict.fromkeys(group.key.quantity for group in groups)
    return tuple(_robustness(content, [g for g in groups if g.key.quantity == kind], content.quantity(kind)) for kind in kinds)


def agreement_table(content: Content) -> Table:
    """A line for each pair of estimators and noise level."""
    texts, heads = ("noise", "quantity", "estimators"), ("images", "mean difference", POPULATION, "RMS difference", "rank correlation")
    rows = []
    for group in content.agreements:
        place = content.levels[group.at], group.quantity.name
        for one in group.pairs:
            away = numbers.difference(one.difference, one.lower, one.upper), numbers.interval(one.lower, one.upper)
            rows.append(
                cells(
                    (*place, f"{one.up} − {one.across}", f"{one.images:,}", *away, numbers.plain(one.rms, digits=4), numbers.rank(one.rank))
                )
            )
    return Table("Pairs of estimators, on the same images", columns(texts, heads), tuple(rows))


def cost_table(content: Content) -> Table:
    """Seconds and passes per image, for each estimator and noise level."""
    heads = ("seconds", "seconds per image", "forward passes per image", "backward passes per image", "interval of an image")
    rows = []
    for group in content.groups:
        key = group.key.estimator, group.key.at
        tally = content.tallies[key]
        n, time = tally.results, content.run.seconds_of(*key)
        each = f"{time / n:.3g}" if time else numbers.NONE  # run.json rounds to milliseconds: 0 is no measurement
        passes = (f"{number / n:,.1f}".removesuffix(".0") for number in (tally.forwards, tally.backwards))
        kinds = ", ".join(kind for kind, _ in tally.intervals.most_common(3))
        rows.append(cells((key[0], _level(content, group), numbers.duration(time) or numbers.NONE, each, *passes, kinds)))
    return Table(
        "Time and passes",
        columns(("estimator", "noise"), heads),
        tuple(rows),
        notes=tuple(_shared(group.key.estimator for group in content.groups)),
    )


def _shared(names: Iterable[str]) -> Iterator[str]:
    """What is counted more than once in a table of costs."""
    yield "The clean pass of an image is counted with every estimator, shared or not."
    if any(len(values) > 1 for values in series(names).values()):
        yield "Values of one estimator (q=1, q=10) come from one computation: each line states all of its time and passes."


def meaning(group: GroupSummary) -> str:
    """The meaning of a group's quantity, and which direction is better."""
    direction = "higher is better" if group.higher_is_better else "lower is better"
    return f"{heading(group.key, group.unit)}; {direction}"


def bar_of(value: float, lower: float | None, upper: float | None, quantity: Quantity) -> Bar | None:
    """A bar on the scale of the quantity; None where the scale has no end."""
    width = quantity.high - quantity.low
    if not math.isfinite(width) or width <= 0:
        return None
    low, high = value if lower is None else lower, value if upper is None else upper
    return Bar(*(min(1.0, max(0.0, (x - quantity.low) / width)) for x in (value, low, high)))


def _tail(quantity: Quantity) -> str:
    return "5th percentile" if quantity.higher_is_better else "95th percentile"


def _robustness(content: Content, groups: Sequence[GroupSummary], quantity: Quantity) -> Table:
    shares = ("below 0.5", "below 0.9") if quantity.is_share and quantity.higher_is_better else ()
    rows = []
    for group in groups:
        one, marked = group.mean, group.with_interval < group.images
        middle = (numbers.quantile(group.median, quantity), numbers.quantile(group.bad_end, quantity))
        below = (numbers.share(share) for share in (group.below_half, group.below_ninety) if share is not None) if shares else ()
        intervals = numbers.interval(one.lower, one.upper), numbers.interval(one.measured_lower, one.measured_upper)
        mean = Cell(numbers.mean(one, quantity, marked=marked), bar_of(one.value, one.lower, one.upper, quantity))
        rows.append((*cells((group.key.estimator, _level(content, group))), mean, *cells((*intervals, *middle, *below))))
    heads = ("mean", POPULATION, MEASUREMENT, "median", _tail(quantity), *shares)
    return Table(meaning(groups[0]), columns(("estimator", "noise"), heads), tuple(rows), notes=tuple(caveats(groups)))


def _class_cells(one: ClassStats, bias: ClassBias, quantity: Quantity) -> Iterable[Cell]:
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
    yield Cell(difference_text(one) or numbers.NONE)
    yield Cell(numbers.NONE if one.p_value is None else numbers.p_value(one.p_value))
    worse = "lower" if bias.higher_is_better else "higher"
    differs = {None: "not tested", "no": "no", worse: "yes, worse"}.get(one.differs, "yes, better")
    yield Cell(differs, tone="bad" if one.differs == worse else "")


def _level(content: Content, group: GroupSummary) -> str:
    return content.levels[group.key.at]


def class_view(content: Content, bias: ClassBias) -> ClassView:
    """The tables of one estimator and noise level."""
    quantity, ordered = content.quantity(bias.key.quantity), weakest_first(bias)
    title = f"{bias.key.estimator}, {content.levels[bias.key.at]}"

    def table(classes: Sequence[ClassStats], caption: str) -> Table:
        heads = ("images", "mean", POPULATION, MEASUREMENT, "median", OTHERS, "p", "significant?")
        return Table(caption, columns(("class",), heads), tuple(tuple(_class_cells(one, bias, quantity)) for one in classes))

    if len(ordered) <= _ALL:
        by = "label" if bias.by == "label" else "predicted class"
        return ClassView(bias, title, table(ordered, f"By {by}, {title}"), None, None, _class_notes(bias))
    worst, rest, best = ordered[:_WORST], ordered[_WORST:-_BEST], ordered[-_BEST:]
    return ClassView(
        bias,
        title,
        table(worst, f"The {len(worst)} least robust of {len(ordered):,} classes, {title}"),
        table(best, f"The {len(best)} most robust, {title}"),
        table(rest, f"The others, {title}"),
        _class_notes(bias),
    )


def _class_notes(bias: ClassBias) -> tuple[str, ...]:
    lines = [test_note(bias)]
    if any(one.images == 1 for one in bias.classes):
        lines.append(SINGLE_IMAGE)
    if any(one.mean.measured_lower is None for one in bias.classes):
        lines.append(approximate())
    if bias.left_out:
        lines.append(f"{count(bias.left_out, 'sample')} left out: no {bias.by}, or no finite value.")
    return tuple(lines)


def comparison_tables(contents: Sequence[Content], names: Sequence[str]) -> tuple[Table, ...]:
    """A table for each quantity, by noise level and estimator first, so that comparable lines follow each other.

    Args:
        contents: of the runs.
        names: of the runs, all different.
    """
    level = numbers.level_texts(group.key.at for content in contents for group in content.groups)
    lines = [(group, content, name) for content, name in zip(contents, names, strict=True) for group in content.groups]
    kinds = dict.fromkeys(group.key.quantity for group, _, _ in lines)
    changes = {name: _changes(contents[0].run, content.run) for content, name in zip(contents[1:], names[1:], strict=True)}
    tables = []
    for kind in kinds:
        mine = [line for line in lines if line[0].key.quantity == kind]
        order = {estimator: i for i, estimator in enumerate(dict.fromkeys(group.key.estimator for group, _, _ in mine))}
        rows = []
        for group, content, name in sorted(mine, key=lambda line: (line[0].key.at, order[line[0].key.estimator])):
            quantity, mean, noisy = content.quantity(kind), group.mean, group.noisy_accuracy
            marked = group.with_interval < group.images
            clean = numbers.NONE if group.clean_accuracy is None else numbers.share(group.clean_accuracy)
            texts = (name, level[group.key.at], group.key.estimator, f"{group.images:,}", clean)
            shown = Cell(numbers.mean(mean, quantity, marked=marked), bar_of(mean.value, mean.lower, mean.upper, quantity))
            change = changes.get(name, {}).get((group.key.estimator, group.key.at), "")
            ends = numbers.interval(mean.lower, mean.upper), change, numbers.quantile(group.bad_end, quantity)
            rows.append(
                (
                    *cells((*texts, numbers.NONE if noisy is None else numbers.percent(noisy.value, noisy.lower, noisy.upper))),
                    shown,
                    *cells(ends),
                )
            )
        heads = (
            *("images", "clean accuracy", "accuracy under noise", "mean", POPULATION),
            *(f"mean minus {names[0]}'s [{POPULATION}]", _tail(mine[0][1].quantity(kind))),
        )
        tables.append(Table(meaning(mine[0][0]), columns(("run", "noise", "estimator"), heads), tuple(rows)))
    return tuple(tables)


def _changes(base: Run, new: Run) -> dict[tuple[str, NoiseLevel], str]:
    """By estimator and noise level, how the mean differs from the same of another run; empty where the two cannot be compared."""
    try:
        groups = compare(base, new).groups
    except RobauditError:  # other images or noise, or no results in common
        return {}
    return {
        (group.key.estimator, group.key.at): numbers.change(group.mean.value, limits and (limits.lower, limits.upper))
        for group in groups
        for limits in [group.mean.population]
    }


def certified_together(contents: Sequence[Content], names: Sequence[str]) -> list[OfRun]:
    """The certified accuracies of all runs, where several have some; else none.

    Args:
        contents: of the runs.
        names: of the runs, all different.
    """
    every = [OfRun(name, one.accuracy) for content, name in zip(contents, names, strict=True) for one in content.certified]
    return side_by_side(every) if len({one.run for one in every}) > 1 else []


def curves_together(contents: Sequence[Content], names: Sequence[str]) -> list[Curves]:
    """The error curves of all runs, where several have some; else none.

    Args:
        contents: of the runs.
        names: of the runs, all different.
    """
    every = [replace(content.curves, name=name) for content, name in zip(contents, names, strict=True) if content.curves is not None]
    return every if len(every) > 1 else []


def comparison_notes(contents: Sequence[Content]) -> list[str]:
    """What to know before comparing lines."""
    if len({content.run.info["data"].get("sha256") for content in contents}) > 1:
        return ["These runs used different data: a difference between two lines may be due to the images."]
    return ["All runs used the same data: a difference can be significant although the intervals of the means overlap."]
