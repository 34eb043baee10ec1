"""The verdict on a run: a sentence and a few large numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from robaudit.levels import GAUSSIAN, NO_NOISE, LevelName, NoiseLevel
from robaudit.quantities import LOG10_P_FAIL
from robaudit.report import numbers
from robaudit.report.class_tables import label_of
from robaudit.report.html.content import Content
from robaudit.report.words import POPULATION, bracketed_certainties, certainties
from robaudit.stats.classes import ClassBias, ClassStats
from robaudit.stats.flags import Flagged
from robaudit.stats.summary import GroupSummary, Mean
from robaudit.text import count

_MOST = 4  # noise levels in a tile
NO_THRESHOLD = "the quantity has no usual threshold; --threshold gives one"
"""Why no image is flagged."""


@dataclass(frozen=True, slots=True)
class Line:
    """One number of a tile: the noise level, the value, and its interval or how certain it is."""

    where: str
    value: str
    detail: str


@dataclass(frozen=True, slots=True)
class Tile:
    """A few large numbers that belong together."""

    title: str
    lines: tuple[Line, ...]
    note: str = ""


def sentence(content: Content) -> str:
    """The verdict: how robust the model is at the lowest and at the highest noise level, and how many images are flagged.

    Of several noises, each at its strongest level, it is about the least and the most harmful one.
    """
    groups = _headline(content)
    least, most = groups[0], groups[-1]
    if len({group.key.noise for group in groups}) > 1:
        most, *_, least = sorted(groups, key=_goodness)
    text = _answer(content, least)
    if most is not least:
        text += f", and {_short(content, most)}"
    return f"{text}. {_flag_sentence(content, most.key.at)}".rstrip()


def tiles(content: Content) -> tuple[Tile, ...]:
    """Clean accuracy, accuracy under noise, robustness, the least robust class and the flagged samples."""
    return tuple(tile for tile in _tiles(content) if tile.lines)


def flag_rule(flagged: Flagged) -> str:
    """When a sample of this list counts as not robust."""
    if flagged.key.quantity == "p_robust" and flagged.threshold == 0.5:
        return "noise changes the prediction of more than half of the copies (value below 0.5)"
    return f"{flagged.key.quantity} {'below' if flagged.higher_is_better else 'above'} {flagged.threshold:.4g}"


def worst_class(bias: ClassBias) -> ClassStats | None:
    """The least robust class, of those with two images or more."""
    tested = [one for one in bias.classes if one.images > 1]
    if len(tested) < 2:
        return None
    return (min if bias.higher_is_better else max)(tested, key=lambda one: one.mean.value)


def explained(one: ClassStats, bias: ClassBias) -> str:
    """Whether the mean of a class differs significantly from the others."""
    worse = "lower" if bias.higher_is_better else "higher"
    if one.differs is None:
        return "not tested"
    if one.differs == "no":
        return "not significant"
    return f"significantly {'worse' if one.differs == worse else 'better'} than the others"


def _tiles(content: Content) -> Iterator[Tile]:
    groups, level = _headline(content), content.levels
    places = [group.key.at for group in groups]
    name, noisy = content.shown[0], _noisy_lines(content)
    under = f"under noise: share of noisy copies, {name}; " if noisy else ""
    yield Tile("Accuracy", (_clean_line(content), *noisy), f"{under}{POPULATION}")
    yield Tile(_title(groups[0]), tuple(_mean_line(content, group) for group in groups), _mean_note(groups[0]))
    yield Tile(
        "Least robust class",
        tuple(
            Line(level[bias.key.at], _class_text(worst), f"{_mean_text(content, worst, bias)}; {explained(worst, bias)}")
            for bias in content.biases
            if bias.key.estimator == name and bias.key.at in places and (worst := worst_class(bias)) is not None
        ),
        f"its mean, {POPULATION}; significance by permutation test against all others",
    )
    flagged = [one for one in content.flagged if one.key.estimator == name and one.key.at in places and one.has_threshold]
    yield Tile(
        "Flagged images",
        tuple(Line(level[one.key.at], f"{one.beyond:,} of {one.total:,}", certainties(one)) for one in flagged),
        flag_rule(flagged[0]) if flagged else "",
    )


def _clean_line(content: Content) -> Line:
    clean = content.run.info["clean_accuracy"]
    if clean is None:
        return Line("no noise", "not measured", "the data have no labels")
    value = numbers.percent(clean["value"], clean["lower"], clean["upper"])
    ends = numbers.percents(clean["lower"], clean["upper"])
    return Line("no noise", value, f"{ends} · {clean['count']:,} of {clean['total']:,} images")


def _noisy_lines(content: Content) -> tuple[Line, ...]:
    return tuple(
        Line(
            content.levels[group.key.at],
            numbers.percent(one.value, one.lower, one.upper),
            numbers.percents(one.lower, one.upper),
        )
        for group in _headline(content)
        if (one := group.noisy_accuracy) is not None
    )


def _headline(content: Content) -> list[GroupSummary]:
    """The levels that the large numbers are about: of one noise all of them, or the weakest, the strongest and two between; of several
    noises the strongest of each, and of more than four the most harmful.
    """
    every = sorted(content.main(), key=lambda group: group.key.at.strength)
    noises = dict.fromkeys(group.key.noise for group in content.main())
    if len(noises) == 1:
        return every if len(every) <= _MOST else [every[round(i * (len(every) - 1) / (_MOST - 1))] for i in range(_MOST)]
    strongest = {group.key.noise: group for group in every}
    worst = sorted(strongest.values(), key=_goodness)[:_MOST]
    return [strongest[label] for label in noises if strongest[label] in worst]


def _goodness(group: GroupSummary) -> float:
    return group.mean.value if group.higher_is_better else -group.mean.value


def _title(group: GroupSummary) -> str:
    if group.unit == "probability":
        return "Prediction unchanged under noise"
    return "Probability that noise changes the prediction" if group.key.quantity == LOG10_P_FAIL.name else f"Mean {group.key.quantity}"


def _mean_note(group: GroupSummary) -> str:
    if group.unit == "probability":
        interval = POPULATION if group.with_interval else "~ an approximation without an interval"
        return f"share of noisy copies, mean over the images ({group.key.estimator}); {interval}"
    if group.key.quantity == LOG10_P_FAIL.name:
        return f"of noisy copies, geometric mean over the images ({group.key.estimator}); {POPULATION}"
    direction = "higher is better" if group.higher_is_better else "lower is better"
    found = "; upper bound: of what the search found" if group.not_found else ""
    return f"mean {group.key.quantity} ({group.unit}, {direction}), {group.key.estimator}{found}"


def _mean_line(content: Content, group: GroupSummary) -> Line:
    where, one = content.levels[group.key.at], group.mean
    marked = group.with_interval < group.images
    quantity = content.quantity(group.key.quantity)
    if group.unit == "probability":
        return Line(where, numbers.mean_percent(one, marked=marked), numbers.percents(one.lower, one.upper))
    if group.key.quantity == LOG10_P_FAIL.name:
        return _odds_line(where, one, marked=marked)
    value = numbers.mean(one, quantity, marked=marked)
    return Line(where, value, numbers.interval(one.lower, one.upper))


def _odds_line(where: str, one: Mean, *, marked: bool) -> Line:
    """The mean of log10 of failure probabilities as odds: their geometric mean."""
    if math.isinf(one.lower):
        end = numbers.upper_end(one)
        return Line(where, f"≤ {numbers.odds(end, 'up')}" if end < 0 else numbers.NONE, numbers.NONE)
    ends = f"{numbers.odds(one.lower, 'down')} to {numbers.odds(one.upper, 'up')}"
    return Line(where, ("~" if marked else "") + numbers.odds(one.value), ends)


def _class_text(one: ClassStats) -> str:
    """``class 3`` without a name: a bare number would read as the value."""
    text = label_of(one, 24)
    return text if text != str(one.index) else f"class {text}"


def _mean_text(content: Content, one: ClassStats, bias: ClassBias) -> str:
    quantity, marked = content.quantity(bias.key.quantity), one.mean.measured_lower is None
    if bias.unit == "probability":
        ends = numbers.percents(one.mean.lower, one.mean.upper)
        return f"{numbers.mean_percent(one.mean, marked=marked)} ({ends})"
    return numbers.mean(one.mean, quantity, marked=marked)


def _answer(content: Content, group: GroupSummary) -> str:
    line = _mean_line(content, group)
    if group.unit == "probability":
        levels = _amount(content, group.key.at)
        return f"With {levels} the prediction is unchanged in {line.value} of noisy copies{_within(line)}"
    if group.key.quantity == LOG10_P_FAIL.name:
        value = "an unknown share of" if line.value == numbers.NONE else line.value
        copies = f"{value} noisy copies{_within(line)}, by the geometric mean over the images"
        return f"With {_named(group.key.at, line.where)} the prediction changes in {copies}"
    if group.key.at == NO_NOISE:
        found = " (an upper bound)" if group.not_found else ""
        return f"The mean {group.key.quantity} of {group.key.estimator}{found} is {line.value}{_within(line)}"
    return f"With {_named(group.key.at, line.where)} the mean {group.key.quantity} is {line.value}{_within(line)}"


def _amount(content: Content, at: NoiseLevel) -> str:
    """The noise with its level, and in grey levels where that is what it is."""
    display = f" ({numbers.grey_levels(at.level)})" if at.name in (LevelName.SIGMA, LevelName.EPS) else ""
    return _named(at, content.levels[at]) + display


def _named(at: NoiseLevel, level: str) -> str:
    return f"{GAUSSIAN} noise of {level}" if at.usual else f"the noise {level}"


def _short(content: Content, group: GroupSummary) -> str:
    line = _mean_line(content, group)
    share = group.unit == "probability" or group.key.quantity == LOG10_P_FAIL.name
    return f"at {line.where} {'in' if share else 'it is'} {line.value}{_within(line)}"


def _within(line: Line) -> str:
    return "" if line.detail == numbers.NONE else f" ({line.detail})"


def _flag_sentence(content: Content, at: NoiseLevel) -> str:
    flagged: Sequence[Flagged] = [one for one in content.flagged if one.key.at == at and one.key.estimator == content.shown[0]]
    if not flagged or not flagged[0].has_threshold:
        return ""
    one = flagged[0]
    many, verb = f"{one.beyond:,} of {count(one.total, 'image')}", "is" if one.beyond == 1 else "are"
    certain = bracketed_certainties(one)
    where = "Without noise" if at == NO_NOISE else f"At {content.levels[at]}"
    return f"{where}, {many} {verb} flagged{certain}: {flag_rule(one)}."
