"""The verdict on a run: a sentence, and the numbers behind it at a glance."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import chain

from robaudit.levels import GAUSSIAN, LevelName, NoiseLevel
from robaudit.numerics.image_intervals import LIKE_THESE
from robaudit.quantities import LOG10_P_FAIL, P_ROBUST
from robaudit.report import numbers
from robaudit.report.classes_section import class_mean, label_of
from robaudit.report.differences import changes_of, difference
from robaudit.report.html.content import Content, RunView
from robaudit.report.legends import COVER, bracketed_certainties
from robaudit.report.sections import Entry
from robaudit.report.summary_section import group_mean, mean_text
from robaudit.report.tables import Cell, Column, Table, cells
from robaudit.stats.class_differences import ClassBias, ClassStats
from robaudit.stats.flags import Flagged
from robaudit.stats.summary import GroupSummary, Mean
from robaudit.text import count

_MOST = 4  # noise levels at a glance


def sentence(content: Content, view: RunView) -> str:
    """The verdict: how robust the model is at the lowest and at the highest noise level, and how
    many images are flagged.

    With several noises, each at its strongest level, it is about the least and the most harmful
    noise.
    """
    groups = _headline(view)
    least = groups[0]
    most = groups[-1]
    if len({group.key.noise for group in groups}) > 1:
        most, *_, least = sorted(groups, key=_goodness)
    levels = numbers.level_texts(group.key.at for group in view.groups)
    text = _answer(least, levels[least.key.at])
    if most is not least:
        in_it = "in" if _is_share(most) else "it is"
        text += f", and at {levels[most.key.at]} {in_it} {_mean(most)}"
    return f"{text}. {_flag_sentence(content.flagged(view), view, most.key.at, levels)}".rstrip()


def gate_line(view: RunView) -> tuple[str, str]:
    """The worst verdict of the gates of a run, and how many there are of each; empty without
    gates."""
    verdicts = [str(decision["verdict"]) for decision in view.decisions]
    words = {"fail": "failed", "inconclusive": "inconclusive", "pass": "passed"}
    # the words are in order: the first verdict that occurs is the worst
    occurring = [verdict for verdict in words if verdict in verdicts]
    if not occurring:
        return "", ""
    counts = [f"{verdicts.count(verdict)} {words[verdict]}" for verdict in occurring]
    return occurring[0], f"{count(len(verdicts), 'gate')}: {', '.join(counts)}"


def glance(content: Content) -> Table:
    """A line for each run and noise level, at most four levels of each: accuracy, robustness, the
    least robust class, flagged samples."""
    rows = []
    for view in content.views:
        rows += [(Cell(view.name), *row) for row in _rows(content, view)]
    columns = (
        Column("run"),
        Column("noise"),
        Column("accuracy", number=True),
        Column(_mean_head(content), number=True),
        Column("least robust class"),
        Column("flagged", number=True),
    )
    # Columns without a value are left out: without labels, for example, there is no accuracy.
    shown = [1] if len(content.views) == 1 else [0, 1]
    for place in range(2, len(columns)):
        if any(row[place].text not in ("", numbers.NONE) for row in rows):
            shown.append(place)
    return Table(
        "At a glance",
        tuple(columns[place] for place in shown),
        tuple(tuple(row[place] for place in shown) for row in rows),
        conclusions=tuple(_compared(content)),
        notes=(f"{content.views[0].shown[0]}; [ ] 95 % interval, {LIKE_THESE}.", COVER),
    )


def _mean_head(content: Content) -> str:
    """The head of the means: the quantity where all runs show the same."""
    groups = chain.from_iterable(view.main() for view in content.views)
    quantities = {group.key.quantity for group in groups}
    if len(quantities) > 1:
        return "mean"
    (quantity,) = quantities
    return "prediction unchanged" if quantity == P_ROBUST.name else f"mean {quantity}"


def _compared(content: Content) -> Iterator[Cell]:
    """How the main result of each further run differs from the first one's, at the strongest level
    of the verdict."""
    base, *others = content.views
    group = _headline(base)[-1]
    changes = changes_of([Entry(view.name, view.run, None) for view in content.views])
    level = numbers.level_texts(group.key.at for group in base.groups)[group.key.at]
    for view in others:
        change = changes[view.name].get((group.key.estimator, group.key.at))
        if change is not None:
            text = (
                f"{view.name} minus {base.name}, {level}: mean {group.key.quantity} "
                f"{difference(change.mean)}."
            )
            yield Cell(text, tone="strong")


def _rows(content: Content, view: RunView) -> Iterator[tuple[Cell, ...]]:
    """The cells of a run, after its name: a line without noise, then one for each level."""
    levels = numbers.level_texts(group.key.at for group in view.groups)
    clean = view.run.info.clean_accuracy
    if clean is not None:
        yield cells(
            ("no noise", numbers.with_percents(clean.value, clean.lower, clean.upper), "", "", "")
        )
    flagged = {group.key: group for group in content.flagged(view) if group.has_threshold}
    biases = {bias.key: bias for bias in content.biases(view)}
    for group in _headline(view):
        noisy = group.noisy_accuracy
        accuracy = "" if noisy is None else numbers.percents(noisy.population)
        yield (
            *cells((levels[group.key.at], accuracy, group_mean(group))),
            _worst_class_cell(biases.get(group.key), group),
            _flagged_cell(flagged.get(group.key)),
        )


def _worst_class_cell(bias: ClassBias | None, group: GroupSummary) -> Cell:
    worst = None if bias is None else worst_class(bias)
    if worst is None:
        return Cell("")
    return Cell(f"{_class_text(worst)}: {class_mean(worst, group.quantity)}")


def _flagged_cell(flagged: Flagged | None) -> Cell:
    """How many samples are flagged; in red if one of them is certain."""
    if flagged is None:
        return Cell("")
    text = f"{flagged.beyond:,} of {flagged.total:,}"
    return Cell(text, tone="bad" if flagged.confirmed else "")


def flag_rule(flagged: Flagged) -> str:
    """When a sample of this list counts as not robust."""
    if flagged.key.quantity == "p_robust" and flagged.threshold == 0.5:
        return "noise changes the prediction in more than half of the copies (value below 0.5)"
    side = "below" if flagged.quantity.higher_is_better else "above"
    return f"{flagged.key.quantity} is {side} {flagged.threshold:.4g}"


def worst_class(bias: ClassBias) -> ClassStats | None:
    """The least robust class, of those with two images or more."""
    # one image is no class: its mean may be anything
    tested = [stats for stats in bias.classes if stats.images > 1]
    if len(tested) < 2:
        return None
    worst = min if bias.quantity.higher_is_better else max
    return worst(tested, key=lambda stats: stats.mean.value)


def _class_text(stats: ClassStats) -> str:
    """``class 3`` without a name: a bare number would read as the value."""
    text = label_of(stats)
    return text if text != str(stats.index) else f"class {text}"


def _headline(view: RunView) -> list[GroupSummary]:
    """The levels that the verdict is about: of one noise all of them, or the weakest, the strongest
    and two between; of several noises the strongest of each, and of more than four the most
    harmful.
    """
    groups = sorted(view.main(), key=lambda group: group.key.at.strength)
    noises = dict.fromkeys(group.key.noise for group in view.main())
    if len(noises) == 1:
        if len(groups) <= _MOST:
            return groups
        # evenly spaced, with both ends
        last = len(groups) - 1
        return [groups[round(i * last / (_MOST - 1))] for i in range(_MOST)]
    # later groups replace earlier ones, and the last is the strongest
    strongest = {group.key.noise: group for group in groups}
    worst = sorted(strongest.values(), key=_goodness)[:_MOST]
    return [strongest[label] for label in noises if strongest[label] in worst]


def _goodness(group: GroupSummary) -> float:
    """The mean, negative where lower is better."""
    return group.mean.value if group.quantity.higher_is_better else -group.mean.value


def _is_share(group: GroupSummary) -> bool:
    """Whether the mean is a share of the noisy copies, as a sentence says it."""
    return group.quantity.unit == "probability" or group.key.quantity == LOG10_P_FAIL.name


def _mean(group: GroupSummary) -> str:
    """The mean of a group with its interval, for a sentence."""
    mean = group.mean
    mark = numbers.NO_INTERVAL if group.with_interval < group.images else ""
    if group.quantity.unit == "probability":
        text = numbers.percents(mean.measured if group.images == 1 else mean.population)
    elif group.key.quantity == LOG10_P_FAIL.name:
        return _odds(mean, mark)
    else:
        text = mean_text(mean, group.quantity, alone=group.images == 1)
    return text if text.startswith(numbers.NO_INTERVAL) else mark + text


def _odds(mean: Mean, mark: str) -> str:
    """The mean of log10 of failure probabilities as odds: their geometric mean."""
    # Without a lower end the mean is itself an upper bound: only that end is certain.
    lower, upper = mean.population.bounds or (-math.inf, math.inf)
    if math.isinf(lower):
        end = upper if mean.measured.upper is None else mean.measured.upper
        return f"at most {numbers.odds(end, 'up')}" if end < 0 else "an unknown share of"
    ends = f"[{numbers.odds(lower, 'down')}, {numbers.odds(upper, 'up')}]"
    return f"{mark}{numbers.odds(mean.value)} {ends}"


def _answer(group: GroupSummary, level: str) -> str:
    """The first sentence of the verdict: the mean at a noise level."""
    mean = _mean(group)
    at = group.key.at
    named = f"{GAUSSIAN} noise of {level}" if at.usual else f"the noise {level}"
    if group.quantity.unit == "probability":
        # sigma and eps are in units of the pixels, which few people can picture
        in_pixels = at.name in (LevelName.SIGMA, LevelName.EPS)
        display = f" ({numbers.grey_levels(at.number)})" if in_pixels else ""
        return f"With {named}{display} the prediction is unchanged in {mean} of noisy copies"
    if group.key.quantity == LOG10_P_FAIL.name:
        return (
            f"With {named} the prediction changes in {mean} noisy copies, by the geometric "
            "mean over the images"
        )
    if at.noise is None:
        bound = " (an upper bound)" if group.not_found else ""
        return f"The mean {group.key.quantity} of {group.key.estimator}{bound} is {mean}"
    return f"With {named} the mean {group.key.quantity} is {mean}"


def _flag_sentence(
    results: Sequence[Flagged], view: RunView, at: NoiseLevel, levels: dict[NoiseLevel, str]
) -> str:
    """How many images are flagged at a noise level; empty where there is no threshold."""
    flagged = [
        group for group in results if group.key.at == at and group.key.estimator == view.shown[0]
    ]
    if not flagged or not flagged[0].has_threshold:
        return ""
    first = flagged[0]
    many = f"{first.beyond:,} of {count(first.total, 'image')}"
    verb = "is" if first.beyond == 1 else "are"
    where = "Without noise" if at.noise is None else f"At {levels[at]}"
    return (
        f"{where}, {many} {verb} flagged{bracketed_certainties(first)}; flagged means that "
        f"{flag_rule(first)}."
    )
