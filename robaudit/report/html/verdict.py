"""The verdict on a run: a sentence, and the numbers behind it at a glance."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import chain

from robaudit.levels import GAUSSIAN, LevelName, NoiseLevel
from robaudit.numerics.image_intervals import LIKE_THESE, THESE_IMAGES, these_images
from robaudit.quantities import LOG10_P_FAIL, P_ROBUST
from robaudit.report import numbers
from robaudit.report.classes_section import class_mean, label_of
from robaudit.report.differences import changes_of, difference
from robaudit.report.html.content import Content, RunView
from robaudit.report.legends import COVER, TURNS, bracketed_certainties, wrong_before
from robaudit.report.sections import Entry
from robaudit.report.summary_section import group_mean, mean_text
from robaudit.report.tables import Cell, Column, Table, cells
from robaudit.stats.class_differences import ClassBias, ClassStats
from robaudit.stats.flags import Flagged
from robaudit.stats.summary import GroupSummary, Mean
from robaudit.text import count

_MOST = 4  # levels of a single noise at a glance


def sentence(view: RunView) -> str:
    """The verdict: how robust the model is at the lowest and at the highest noise level, and how
    many copies stay right and are repaired at the highest.

    With several noises, each at its strongest level, it is about the least and the most harmful
    noise.
    """
    least, most = _extremes(view)
    levels = numbers.level_texts(group.key.at for group in view.groups)
    text = _answer(least, levels[least.key.at])
    extremes = [least]
    if most is not least:
        in_it = "in" if _is_share(most) else "it is"
        text += f", and at {levels[most.key.at]} {in_it} {_mean(most)}"
        extremes.append(most)
    text += _of_these(extremes)
    return f"{text}. {_turn_sentence(most, _where(most, levels))}".rstrip()


def flag_sentence(content: Content, view: RunView) -> str:
    """How many images are flagged at the most harmful level of the verdict; empty where there is no
    threshold."""
    _, most = _extremes(view)
    levels = numbers.level_texts(group.key.at for group in view.groups)
    return _flag_sentence(content.flagged(view), view, most.key.at, _where(most, levels))


def _where(group: GroupSummary, levels: dict[NoiseLevel, str]) -> str:
    """The noise level, at the beginning of a sentence."""
    return "Without noise" if group.key.at.noise is None else f"At {levels[group.key.at]}"


def _extremes(view: RunView) -> tuple[GroupSummary, GroupSummary]:
    """The results of the verdict that are the least and the most harmful."""
    groups = _headline(view)
    if len({group.key.noise for group in groups}) == 1:
        return groups[0], groups[-1]
    by_harm = sorted(groups, key=_goodness)
    return by_harm[-1], by_harm[0]


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
    """A line for each run and noise level: accuracy, robustness, what stays correct and what is
    repaired, the least robust class, flagged samples.

    There is a line for each of several noises, or for at most four levels of a single one.
    """
    # the lines of all runs about a noise are together
    by_noise: dict[str, list[tuple[Cell, ...]]] = {}
    for view in content.views:
        for noise, *row in _rows(content, view):
            by_noise.setdefault(noise.text, []).append((noise, Cell(view.name), *row))
    rows = list(chain.from_iterable(by_noise.values()))
    columns = (
        Column("noise"),
        Column("run"),
        Column("accuracy", number=True),
        Column(_mean_head(content), number=True),
        Column(f"[{THESE_IMAGES}]", number=True),
        Column("right stays right", number=True),
        Column("wrong is repaired", number=True),
        Column("least robust class"),
        Column("flagged", number=True),
    )
    # Columns without a value are left out: without labels, for example, there is no accuracy.
    shown = [0] if len(content.views) == 1 else [0, 1]
    for place in range(2, len(columns)):
        if any(row[place].text not in ("", numbers.NONE) for row in rows):
            shown.append(place)
    return Table(
        "At a glance",
        tuple(columns[place] for place in shown),
        tuple(tuple(row[place] for place in shown) for row in rows),
        conclusions=tuple(_compared(content)),
        notes=tuple(_notes(content)),
    )


def _notes(content: Content) -> Iterator[str]:
    """How to read the table."""
    yield (
        f"{content.views[0].shown[0]}; [ ] 95 % interval, {LIKE_THESE}; beside the mean also for "
        f"{THESE_IMAGES}, as gates without --population decide."
    )
    yield COVER
    groups = list(chain.from_iterable(_headline(view) for view in content.views))
    if any(group.noisy_accuracy for group in groups):
        yield TURNS
    if any(flagged.broken for view in content.views for flagged in content.flagged(view)):
        yield (
            "A number of flagged images is emphasised where one of them is right without noise "
            "and confirmed."
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
    """How the main result of each further run differs from the first one's, at the most harmful
    level of the verdict."""
    base, *others = content.views
    _, group = _extremes(base)
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
        accuracy = numbers.with_percents(clean.value, clean.lower, clean.upper)
        yield cells(("no noise", accuracy, *_NOTHING))
    flagged = {group.key: group for group in content.flagged(view) if group.has_threshold}
    biases = {bias.key: bias for bias in content.biases(view)}
    for group in _headline(view):
        noisy = group.noisy_accuracy
        accuracy = "" if noisy is None else numbers.percents(noisy.population)
        shares = (None, None) if noisy is None else (noisy.stays_right, noisy.repaired)
        texts = ["" if share is None else numbers.percents(share) for share in shares]
        mean = (group_mean(group), _measured_ends(group))
        yield (
            *cells((levels[group.key.at], accuracy, *mean, *texts)),
            _worst_class_cell(biases.get(group.key), group),
            _flagged_cell(flagged.get(group.key)),
        )


_NOTHING = ("",) * 6
"""The cells after the accuracy, in the line without noise."""


def _measured_ends(group: GroupSummary) -> str:
    """The interval of a mean for these images; empty where it is exact or of a single image."""
    measured = group.mean.measured
    if not measured.has_interval or measured.is_exact or group.images == 1:
        return ""
    return numbers.ends(*measured.ends, group.quantity.low, group.quantity.high)


def _worst_class_cell(bias: ClassBias | None, group: GroupSummary) -> Cell:
    worst = None if bias is None else worst_class(bias)
    if worst is None:
        return Cell("")
    return Cell(f"{_class_text(worst)}: {class_mean(worst, group.quantity)}")


def _flagged_cell(flagged: Flagged | None) -> Cell:
    """How many samples are flagged; in red if one of them is certain, and right without noise."""
    if flagged is None:
        return Cell("")
    text = f"{flagged.beyond:,} of {flagged.total:,}"
    return Cell(text, tone="bad" if flagged.broken else "")


def flag_rule(flagged: Flagged) -> str:
    """When a sample of this list counts as not robust."""
    if flagged.key.quantity == "p_robust" and flagged.threshold == 0.5:
        return "noise changes the prediction in more than half of the copies (value below 0.5)"
    side = "below" if flagged.quantity.higher_is_better else "above"
    return f"{flagged.key.quantity} is {side} {flagged.threshold:.4g}"


def worst_class(bias: ClassBias) -> ClassStats | None:
    """The least robust class, of those that are compared."""
    if len(bias.compared) < 2:
        return None
    worst = min if bias.quantity.higher_is_better else max
    return worst(bias.compared, key=lambda stats: stats.mean.value)


def _class_text(stats: ClassStats) -> str:
    """``class 3`` without a name: a bare number would read as the value."""
    text = label_of(stats)
    return text if text != str(stats.index) else f"class {text}"


def _headline(view: RunView) -> list[GroupSummary]:
    """The levels that the verdict is about: of one noise all of them, or the weakest, the strongest
    and two between; of several noises the strongest of each."""
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
    return [strongest[label] for label in noises]


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


def _of_these(groups: Sequence[GroupSummary]) -> str:
    """The subject of the intervals in a sentence, and the same means' intervals for these images,
    in brackets; empty where there are none."""
    ends = []
    for group in groups:
        measured = group.mean.measured
        if group.quantity.unit != "probability" or group.images == 1 or measured.bounds is None:
            return ""
        ends.append("exact" if measured.is_exact else numbers.percent_ends(*measured.bounds))
    images = these_images(max(group.images for group in groups))
    return f" ({LIKE_THESE}; {images}: {' and '.join(ends)})"


def _turn_sentence(group: GroupSummary, at: str) -> str:
    """How many copies of the correctly classified images stay correct, and how many of the others
    are repaired; empty without labels or votes."""
    noisy = group.noisy_accuracy
    if noisy is None:
        return ""
    parts = []
    if noisy.stays_right is not None:
        whose = f"the {count(noisy.right, 'image')} that {_are(noisy.right)} right without noise"
        parts.append(f"{numbers.percents(noisy.stays_right)} of the copies of {whose} stay right")
    wrong = noisy.images - noisy.right
    if noisy.repaired is not None:
        copies = "those" if parts else "the copies"
        whose = f"{copies} of the {count(wrong, 'wrong image')}"
        parts.append(f"{numbers.percents(noisy.repaired)} of {whose} are repaired")
    return f"{at}, {', and '.join(parts)}."


def _are(number: int) -> str:
    return "is" if number == 1 else "are"


def _flag_sentence(results: Sequence[Flagged], view: RunView, at: NoiseLevel, where: str) -> str:
    """How many images are flagged at a noise level; empty where there is no threshold.

    Args:
        results: the flagged samples of the run.
        view: the run.
        at: the noise level.
        where: the noise level in words.
    """
    flagged = [
        group for group in results if group.key.at == at and group.key.estimator == view.shown[0]
    ]
    if not flagged or not flagged[0].has_threshold:
        return ""
    first = flagged[0]
    many = f"{first.beyond:,} of {count(first.total, 'image')}"
    text = (
        f"{where}, {many} {_are(first.beyond)} flagged{bracketed_certainties(first)}; flagged "
        f"means that {flag_rule(first)}."
    )
    return f"{text} {wrong_before(first)}".rstrip()
