"""The headline and the overall result of runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from robaudit.levels import GAUSSIAN, NONE, LevelName, NoiseLevel, noise_level
from robaudit.names import ResultName
from robaudit.numerics.image_intervals import LIKE_THESE, THESE_IMAGES, Floats
from robaudit.quantities import LOSS, P_ROBUST, Quantity
from robaudit.report import numbers
from robaudit.report.differences import mean_changes
from robaudit.report.layout import laid_out
from robaudit.report.pictures.page import (
    KEPT_SHARE,
    Drawing,
    PictureSize,
    cut,
    few_ticks,
    in_words,
    paneled,
    percent_scale,
)
from robaudit.report.pictures.style import FAINT, level_colours, line_style
from robaudit.report.sections import (
    ROWS,
    Entry,
    Section,
    SectionRequest,
    has_several_estimators,
    sections_of,
)
from robaudit.report.tables import Table
from robaudit.report.typed import TEXT, WRITTEN, Beside, Changes, TypedColumn, TypedTable
from robaudit.runs.groups import GroupKey
from robaudit.runs.info import NoisyAccuracyInfo, RunInfo, ShareInfo
from robaudit.runs.run import Run, chosen
from robaudit.stats.flags import usual_threshold
from robaudit.stats.summary import GroupSummary, Mean, Share, summary_of
from robaudit.text import count, printable, shell

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_SKIPPED = 3  # samples above the tables
QUANTILE_ENDS = f"[ ] beside a median or percentile: 95 % interval for {THESE_IMAGES}."


class SummarySection(Section[tuple[GroupSummary, ...]]):
    """The audit, clean accuracy first; then mean, quantiles and shares of each result."""

    title = "Results"
    place = 0
    words = "Robustness is relative to the prediction on the clean image, correct or not."

    def records(self, run: Run, request: SectionRequest) -> list[tuple[GroupSummary, ...]]:
        """The summaries of the results, together."""
        groups = {group.key: group for group in summary_of(run)}
        return [
            tuple(
                groups[key]
                for key in chosen(groups, request.estimators, request.levels, str(run.path))
            )
        ]

    def typed_tables(
        self, entry: Entry[tuple[GroupSummary, ...]], request: SectionRequest
    ) -> Iterator[TypedTable]:
        """A table for each quantity; then the results without a value."""
        seconds = {}
        for group in entry.record:
            spent = entry.run.seconds_of(group.key.estimator, group.key.at)
            if spent is not None:
                seconds[group.key.estimator, group.key.at] = spent
        for groups in _by_quantity(entry.record):
            yield _means(groups) if entry.several else _overall(groups, seconds)
        if entry.several:
            # on a page a run may lack some of the requested results, and groups() refuses them
            return
        results = entry.run.groups(request.estimators, request.levels)
        empty = [str(key) for key, columns in results.items() if not len(columns.finite)]
        if empty:
            remark = (
                f"Without a finite value for any image: {', '.join(empty)}; the column note of "
                "samples.csv says why."
            )
            yield TypedTable("", (), (), remarks=(remark,))

    def changes(
        self, entries: Sequence[Entry[tuple[GroupSummary, ...]]], request: SectionRequest
    ) -> Changes:
        """The differences of the means from the first run's."""
        return mean_changes(
            entries,
            "Differences are paired image by image: one can be significant although the intervals "
            "of the means overlap.",
        )

    def page_tables(
        self, entries: Sequence[Entry[tuple[GroupSummary, ...]]], request: SectionRequest
    ) -> Iterator[Table]:
        """The tables without losses where there are losses by q, which have their own section."""
        # losses by q are in the section losses of the page
        reduced = [replace(entry, record=_beside_losses(entry.record)) for entry in entries]
        if any(entry.record for entry in reduced):
            yield from self.tables(reduced, request)

    def figure(
        self, entries: Sequence[Entry[tuple[GroupSummary, ...]]], request: SectionRequest
    ) -> Drawing:
        """The values of all images, sorted: a panel for each result, a line for each noise level or
        run."""
        panels = list(_panels(entries, request))
        shown = panels[:_MOST_PANELS]
        quantities = {panel.quantity.name for panel in shown}
        what = "Robustness" if quantities == {P_ROBUST.name} else "Values"

        def draw(ax: Axes, panel: _Panel, size: PictureSize) -> None:
            _draw_panel(ax, panel, size, size.body / size.across(len(shown), _WIDE))

        return paneled(
            f"{what} of the images, sorted",
            _caption(shown, panels[_MOST_PANELS:]),
            shown,
            draw,
            wide=_WIDE,
            high=lambda size: _HIGH + max(map(_legend_lines, shown), default=0) * size.line,
            titles=[panel.title for panel in shown],
        )

    def document(
        self, entry: Entry[tuple[GroupSummary, ...]], request: SectionRequest
    ) -> dict[str, Any]:
        """The headline's numbers, and the groups as in summary.json."""
        about = entry.run.info.document()
        names = "clean_accuracy", "noisy_accuracy", "warnings"
        return {
            **{name: about[name] for name in names},
            "groups": [group.document() for group in entry.record],
        }

    def lines(
        self, entry: Entry[tuple[GroupSummary, ...]], request: SectionRequest
    ) -> Iterator[Mapping[str, Any]]:
        """A line for each result."""
        return (group.document() for group in entry.record)


def _beside_losses(groups: Sequence[GroupSummary]) -> tuple[GroupSummary, ...]:
    """The results without the losses at levels that have losses by q."""
    losses = [group.key for group in groups if group.key.quantity == LOSS.name]
    # only losses by q have a part in their names, as in qnorm_path:q=10
    levels = {key.at for key in losses if ResultName.parse(key.estimator).part is not None}
    return tuple(
        group for group in groups if group.key.quantity != LOSS.name or group.key.at not in levels
    )


def head_table(run: Run) -> Table:
    """The lines above a run's tables in a terminal."""
    return Table(lines=(*warning_lines(run.info), *headline(run)))


def foot_table(run: Run) -> Table:
    """The lines below a run's tables in a terminal: its files and sections."""
    files = f"Files: {run.path}/samples.csv, samples.json, summary.json, run.json"
    return Table(
        lines=(
            files,
            f"robaudit show {shell(run.path)} SECTION has: {', '.join([*sections_of(run), ROWS])}",
        )
    )


def headline(run: Run) -> list[str]:
    """The lines above a run's tables, below :func:`warning_lines`: clean accuracy first, then
    model, data and noise."""
    info = run.info
    totals = info.totals
    data = info.data
    model = info.model
    skipped = f", {totals.skipped} skipped" if totals.skipped else ""
    passes = f"{totals.forwards:,} forward and {totals.backwards:,} backward passes"
    lines = [
        f"clean accuracy  {_accuracy(info.clean_accuracy)}",
        *_noisy(info.noisy_accuracy),
        *_turns(summary_of(run)),
        f"model           {model.name} ({model.format}, {model.classes} classes, sha256 "
        f"{model.sha256[:8]})",
        f"data            {data.where}: {count(totals.samples, 'sample')}{skipped}",
        f"noise           {info.noise}",
        f"run             seed {info.seed}, {info.device}, {passes}",
    ]
    lines += [f"skipped         {skip.reason}" for skip in info.skipped[:_MOST_SKIPPED]]
    if len(info.skipped) > _MOST_SKIPPED:
        rest = len(info.skipped) - _MOST_SKIPPED
        lines.append(f"skipped         and {rest} more: see run.json")
    return [printable(line) for line in lines]


def warning_lines(info: RunInfo) -> list[str]:
    """The lines that lead everything printed about a run that warned."""
    first = []
    if not info.complete:
        first = [printable(f"so far          {info.so_far}")]
    return [*first, *(printable(f"warning         {text}") for text in info.warnings)]


def _accuracy(share: ShareInfo | None) -> str:
    """Clean accuracy, with its counts."""
    if share is None:
        return "not measured (no labels)"
    value = numbers.with_percents(share.value, share.lower, share.upper)
    return f"{value} ({share.count:,} of {share.total:,}; [ ] 95 % interval, {LIKE_THESE})"


def _noisy(accuracies: Sequence[NoisyAccuracyInfo]) -> list[str]:
    """A line for accuracy under each noise; only the first has a name."""
    lines = []
    for place, noisy in enumerate(accuracies):
        name = "" if place else "under noise"
        value = numbers.with_percents(noisy.value, noisy.lower, noisy.upper)
        at = noise_level(noisy.noise, noisy.level, noisy.level_name)
        lines.append(f"{name:15} {value} at {at} ({noisy.estimator})")
    return lines


def _turns(groups: Sequence[GroupSummary]) -> list[str]:
    """The line about what stays right and what is repaired under the most harmful noise; none
    without labels or votes."""
    measured = []
    for group in groups:
        noisy = group.noisy_accuracy
        if noisy is not None:
            measured.append((noisy.value, noisy, group.key))
    if not measured:
        return []
    _, noisy, key = min(measured, key=itemgetter(0))
    parts = []
    if noisy.stays_right is not None:
        parts.append(f"{numbers.percents(noisy.stays_right)} of {noisy.right:,} right")
    if noisy.repaired is not None:
        wrong = noisy.images - noisy.right
        repaired = f"{numbers.percents(noisy.repaired)} of {wrong:,} wrong"
        parts.append(f"{repaired} are repaired" if parts else repaired)
    name = "is repaired" if noisy.stays_right is None else "stays right"
    return [f"{name:15} {'; '.join(parts)}, at {key.at} ({key.estimator})"]


def overall_tables(
    groups: Sequence[GroupSummary], seconds: Mapping[tuple[str, NoiseLevel], float] | None = None
) -> Iterator[Table]:
    """A table for each quantity and name of levels, which never share one, with a line per
    estimator and noise level.

    Args:
        groups: from :func:`robaudit.stats.summary.summarise`.
        seconds: time by (estimator, noise level); an empty cell where unknown.
    """
    for members in _by_quantity(groups):
        yield laid_out([("", _overall(members, seconds or {}))], several=False)


def _by_quantity(groups: Sequence[GroupSummary]) -> list[list[GroupSummary]]:
    """The groups that may share a table: of one quantity, at levels of one name."""
    alike: dict[tuple[str, LevelName | None], list[GroupSummary]] = {}
    for group in groups:
        alike.setdefault((group.key.quantity, group.key.at.name), []).append(group)
    return list(alike.values())


def _overall(
    groups: Sequence[GroupSummary], seconds: Mapping[tuple[str, NoiseLevel], float]
) -> TypedTable:
    """The results of one run."""
    quantity = groups[0].quantity
    # the number of images is a column only where it differs
    same_images = len({group.images for group in groups}) == 1
    # the two thresholds only mean something for a probability of doing right
    shares = ("< 0.5", "< 0.9") if quantity.is_share and quantity.higher_is_better else ()
    tail = _tail(quantity)
    heads = ["median", tail, *shares, "seconds"]
    if not same_images:
        heads.insert(0, "images")
    rows = []
    for key_values, group in zip(_key_values(groups), groups, strict=True):
        values = {
            "images": f"{group.images:,}",
            "median": numbers.quantile_estimate(group.median, quantity.low, quantity.high),
            tail: numbers.quantile_estimate(group.bad_end, quantity.low, quantity.high),
            "< 0.5": _share_text(group.below_half),
            "< 0.9": _share_text(group.below_ninety),
            "seconds": numbers.duration(seconds.get((group.key.estimator, group.key.at))),
        }
        measured = numbers.ends(*group.mean.measured.ends, quantity.low, quantity.high)
        rows.append((*key_values, group_mean(group), measured, *(values[head] for head in heads)))
    facts = [count(groups[0].images, "image")] if same_images else []
    interval = f"[ ] 95 % interval of the mean, {covered(groups)}."
    if shares:
        interval += (
            " < 0.5, < 0.9: share of images whose value is below, which depends on the number of "
            f"draws; [ ]: the true share, {LIKE_THESE}. summary.json has it of every share."
        )
    side = "least" if quantity.higher_is_better else "most"
    return TypedTable(
        heading(quantity),
        (
            *_key_columns(groups[0].key.at),
            TypedColumn("", WRITTEN, head="mean [95% interval]"),
            TypedColumn("", WRITTEN, head=f"[{THESE_IMAGES}]", detail=True),
            *(TypedColumn("", WRITTEN, head=head) for head in heads),
        ),
        rows,
        lines=(_circumstances(groups, *facts),),
        notes=(
            interval,
            f"{tail}: 95 % of the images have at {side} this value. {QUANTILE_ENDS}",
            *caveats(groups, "[ ]"),
        ),
    )


def _means(groups: Sequence[GroupSummary]) -> TypedTable:
    """The means of one run, for a column beside those of other runs."""
    return TypedTable(
        heading(groups[0].quantity),
        (*_key_columns(groups[0].key.at), TypedColumn("", WRITTEN, head="mean")),
        [
            (*values, group_mean(group))
            for values, group in zip(_key_values(groups), groups, strict=True)
        ],
        keys=[(group.key.estimator, group.key.at) for group in groups],
        lines=(_circumstances(groups),),
        notes=(
            f"Means over the images. [ ] 95 % interval, {covered(groups)}.",
            *how_to_read(groups, "[ ]"),
        ),
        remarks=tuple(left_open(groups)),
        beside=Beside.COLUMNS,
    )


def _circumstances(groups: Sequence[GroupSummary], *facts: str) -> str:
    """The line below the heading: the noise where there is only one, the direction, and facts."""
    key = groups[0].key if len({group.key.noise for group in groups}) == 1 else None
    return circumstances(key, groups[0].quantity.higher_is_better, *facts)


def _share_text(share: Share | None) -> str:
    return "" if share is None else numbers.share(share)


def covered(groups: Iterable[GroupSummary]) -> str:
    """The images that the intervals of :func:`group_mean` are about."""
    alone = {group.images == 1 for group in groups}
    if True not in alone:
        return LIKE_THESE
    return "this image" if alone == {True} else f"{LIKE_THESE}; of a single image, of this image"


def _tail(quantity: Quantity) -> str:
    return f"{'5th' if quantity.higher_is_better else '95th'} %ile"


def _key_columns(at: NoiseLevel) -> tuple[TypedColumn, ...]:
    """The columns that name a result; the noise only where there are several."""
    columns = (
        TypedColumn("", TEXT, head="estimator"),
        TypedColumn("", TEXT, head="noise", varying=True),
    )
    return columns if at.level is None else (*columns, TypedColumn("", TEXT, head=str(at.name)))


def _key_values(groups: Sequence[GroupSummary]) -> Iterator[tuple[str, ...]]:
    """The values below :func:`_key_columns`."""
    texts = numbers.level_numbers(group.key.at for group in groups)
    for group in groups:
        key = group.key
        level = () if key.at.level is None else (texts[key.at],)
        yield (key.estimator, key.noise, *level)


def mean_text(mean: Mean, quantity: Quantity, *, exact: bool = True, alone: bool = False) -> str:
    """A mean with its interval for images like these.

    Args:
        mean: the mean.
        quantity: what it is of.
        exact: every image has an interval of its own.
        alone: the mean is of a single image: with the image's own interval.
    """
    ends = quantity.low, quantity.high
    if alone:
        return numbers.with_interval(mean.value, *mean_ends(mean, alone=True), *ends)
    text = numbers.mean_estimate(mean, *ends)
    # the interval covers the choice of images; the "~" says that the images' own errors are unknown
    return text if exact or text.startswith(numbers.NO_INTERVAL) else numbers.NO_INTERVAL + text


def mean_ends(mean: Mean, *, alone: bool) -> tuple[float | None, float | None]:
    """The interval shown with a mean: for images like these, or the own interval of a single image.

    Args:
        mean: the mean.
        alone: it is of a single image.
    """
    return mean.measured.ends if alone else mean.population.ends


def group_mean(group: GroupSummary | None) -> str:
    """The mean of a result, as :func:`mean_text`; a dash where a run lacks it."""
    if group is None:
        return numbers.NONE
    return mean_text(
        group.mean,
        group.quantity,
        exact=group.with_interval == group.images,
        alone=group.images == 1,
    )


def heading(quantity: Quantity) -> str:
    """The quantity that a table is about, and its meaning."""
    return f"{quantity.name}: {quantity.meaning or quantity.unit}"


def about(quantity: Quantity) -> str:
    """The quantity, its meaning and its direction: the line below the heading of a table of one
    result."""
    return f"{heading(quantity)}; {_direction(quantity.higher_is_better)}"


def _direction(higher_is_better: bool) -> str:
    return "higher is better" if higher_is_better else "lower is better"


def circumstances(key: GroupKey | None, higher_is_better: bool, *facts: str) -> str:
    """The line below the heading: noise (of a group; None: several), direction, and ``facts``."""
    parts = [_direction(higher_is_better), *facts]
    if key is not None:
        parts.insert(0, "no noise" if key.at.noise is None else f"{key.noise} noise")
    return ", ".join(parts)


def caveats(groups: Sequence[GroupSummary], interval: str = "the interval") -> Iterator[str]:
    """The limits of these groups' numbers, one line each.

    Args:
        groups: shown together.
        interval: what the table calls the interval of the mean.
    """
    yield from _approximations(groups, interval)
    yield from censoring(groups)
    yield from open_ends(groups)
    yield from _bounds(groups)
    yield from _left_out(groups)


def how_to_read(groups: Sequence[GroupSummary], interval: str = "the interval") -> Iterator[str]:
    """The :func:`caveats` that are about the estimators, and so hold for any run."""
    yield from _approximations(groups, interval)
    yield from _bounds(groups)


def left_open(groups: Sequence[GroupSummary]) -> Iterator[str]:
    """The :func:`caveats` with counts, which are about one run."""
    yield from censoring(groups)
    yield from open_ends(groups)
    yield from _left_out(groups)


def _approximations(groups: Sequence[GroupSummary], interval: str) -> Iterator[str]:
    """The limits of approximations and of images that stopped early."""
    if any(group.with_interval < group.images for group in groups):
        yield approximate(interval)
    if biased := _estimators(groups, lambda group: group.approximate):
        verb = "is" if len(biased) == 1 else "are"
        yield (
            f"{', '.join(biased)} {verb} approximate: the interval of an image covers its "
            "noise draws, not the bias of the approximation."
        )
    if voted := _estimators(groups, lambda group: group.by_votes):
        yield by_the_votes(voted)
    if leaning := list(dict.fromkeys(group.key.estimator for group in groups if group.adaptive)):
        yield (
            f"{', '.join(leaning)}: images that stopped early are biased towards the side on "
            "which they stopped, and so is their mean; "
            f"{interval} allows for it."
        )


def _bounds(groups: Sequence[GroupSummary]) -> Iterator[str]:
    """The estimators whose values are bounds."""
    if bounds := _estimators(groups, lambda group: group.of_search):
        yield f"<= {', '.join(bounds)}: upper bounds; the true value of an image may be smaller."
    if bounds := _estimators(groups, lambda group: group.lower_bounds):
        yield f">= {', '.join(bounds)}: lower bounds; the true value of an image may be larger."


def _estimators(
    groups: Sequence[GroupSummary], chosen: Callable[[GroupSummary], object]
) -> list[str]:
    """The estimators of the chosen groups."""
    names = [ResultName.parse(group.key.estimator).estimator for group in groups if chosen(group)]
    return list(dict.fromkeys(names))


def _left_out(groups: Sequence[GroupSummary]) -> Iterator[str]:
    """How many results have no finite value, and how many a note."""
    if dropped := sum(group.not_finite for group in groups):
        yield f"{count(dropped, 'result')} left out: not a finite number."
    if noted := sum(group.noted for group in groups):
        yield f"{count(noted, 'result')} with a note: see the column note of samples.csv."


def censoring(groups: Sequence[GroupSummary]) -> Iterator[str]:
    """A line for each result with values that are only known to be larger, or were not found."""
    for group in groups:
        # the mean counts a censored value as the cap, so it can only be too small
        if group.censored and group.cap is not None:
            where = "" if group.key.at.noise is None else f" at {group.key.at}"
            beyond = f"beyond {group.cap:.4g}"
            how = "their mean counts them as that and is a lower bound"
            if group.not_found:
                beyond = f"not found up to {group.cap:.4g}"
                how = f"{how} of the radii that the search finds, not of the true ones"
            yield (
                f"{group.key.estimator}{where}: {group.censored:,} of "
                f"{count(group.images, 'image')} {beyond}; {how}."
            )


def open_ends(groups: Sequence[GroupSummary]) -> Iterator[str]:
    """A line each on estimates whose interval has no lower end, and no upper end."""
    for end, larger in (("lower", "smaller"), ("upper", "larger")):
        named = []
        for group in groups:
            number = group.open_below if end == "lower" else group.open_above
            at = "" if group.key.at.noise is None else f" at {group.key.at}"
            if number:
                of_all = f"({number:,} of {count(group.images, 'image')})"
                named.append(f"{group.key.estimator}{at} {of_all}")
        if named:
            results = ", ".join(dict.fromkeys(named))
            yield (
                f"No {end} end: {results}; the true values may be much {larger}, and so may the "
                "mean."
            )


def by_the_votes(estimators: Sequence[str]) -> str:
    """The caveat of numbers that rest on votes, although each image's value is an approximation."""
    return (
        f"{', '.join(estimators)}: by the votes of the noisy copies, as in gates; "
        "the value of a single image is an approximation with a small bias."
    )


def approximate(interval: str = "the interval") -> str:
    """The caveat of values without an interval of their own."""
    return (
        "~ no interval of its own: each image's value is an approximation of unknown error; "
        f"{interval} covers the choice of images only."
    )


# --- the figure

_MOST_PANELS = 6
_MOST_POINTS = 400  # of a line
_MOST_NAMES = 7  # in the legend of a panel
# inches of a panel
_WIDE = 3.0
_HIGH = 2.15


class _Line(NamedTuple):
    """One result of one run, and its values from the least to the most robust image."""

    run: str
    group: GroupSummary
    values: Floats


class _Panel(NamedTuple):
    """Lines of one quantity, and the value beyond which an image is not robust (NaN: none)."""

    title: str
    quantity: Quantity
    threshold: float
    lines: tuple[_Line, ...]


def _panels(
    entries: Sequence[Entry[tuple[GroupSummary, ...]]], request: SectionRequest
) -> Iterator[_Panel]:
    """A panel for each estimator and noise, and for each run where there are several levels; else
    the runs share it."""
    several = len(entries) > 1
    grouped: dict[tuple[str, ...], list[_Line]] = {}
    for entry in entries:
        levels_of: dict[tuple[str, str], set[NoiseLevel]] = {}
        for group in entry.record:
            levels = levels_of.setdefault((group.key.estimator, group.key.noise), set())
            levels.add(group.key.at)
        for group in entry.record:
            key = group.key
            # levels and runs in one panel would be too many lines to tell apart
            alone = len(levels_of[key.estimator, key.noise]) > 1
            place = (key.estimator, key.quantity, key.noise, entry.name if alone else "")
            line = _Line(entry.name, group, _sorted_values(entry.run, group))
            grouped.setdefault(place, []).append(line)
    results = list(dict.fromkeys(place[:3] for place in grouped))
    panels = sorted(grouped.items(), key=lambda panel: results.index(panel[0][:3]))
    by_name = has_several_estimators(entries)
    for (estimator, _, noise, run), lines in panels:
        quantity = lines[0].group.quantity
        named = []
        if by_name:
            named.append(estimator)
        elif len(panels) > 1:
            named.append(in_words(quantity.name))
        if noise not in (GAUSSIAN, NONE):
            named.append(noise)
        name = f": {run}" if run and several else ""
        title = f"{', '.join(named)}{name}".removeprefix(": ")
        ordered = sorted(lines, key=lambda line: line.group.key.at.strength) if run else lines
        yield _Panel(title, quantity, _threshold(request, quantity), tuple(ordered))


def _sorted_values(run: Run, group: GroupSummary) -> Floats:
    """The finite values of a result, the least robust first."""
    values = np.sort(run.table[group.key].by_votes().finite.values)
    return values if group.quantity.higher_is_better else values[::-1]


def _threshold(request: SectionRequest, quantity: Quantity) -> float:
    """The requested threshold where the quantity can have it, else the usual one."""
    threshold = request.threshold
    if threshold is not None and quantity.low <= threshold <= quantity.high:
        return threshold
    return usual_threshold(quantity)


def _caption(shown: Sequence[_Panel], left: Sequence[_Panel]) -> Iterator[str]:
    groups = [line.group for line in chain.from_iterable(panel.lines for panel in shown)]
    yield (
        f"{numbers.span([group.images for group in groups])} images, sorted from the least to "
        "the most robust: a curve gives the share of "
        "images with a value or a worse one. Numbers: mean and, where it fits, its [95 % "
        f"interval, {covered(groups)}]."
    )
    if any(len(panel.lines) > _MOST_NAMES for panel in shown if _by_level(panel)):
        yield (
            f"Of more than {_MOST_NAMES} noise levels only some are named, from weak noise "
            "(blue) to strong (red)."
        )
    limits = {
        panel.quantity.name: panel.threshold for panel in shown if math.isfinite(panel.threshold)
    }
    if limits:
        texts = [f"{value:.3g} ({in_words(name)})" for name, value in limits.items()]
        yield f"Dashed: {', '.join(texts)}."
    for line in dict.fromkeys(numbers.signs(text) for text in caveats(groups, "[ ]")):
        yield line if line.endswith(".") else f"{line}."
    if left:
        yield (
            f"Not shown: {count(len(left), 'further panel')} (choose with --estimator and --noise)."
        )


def _by_level(panel: _Panel) -> bool:
    """Whether the lines are noise levels of one run, not runs."""
    return len({line.group.key.at for line in panel.lines}) > 1


def _draw_panel(ax: Axes, panel: _Panel, size: PictureSize, width: float) -> None:
    """Draw the lines of a panel of this width in inches, and its legend."""
    quantity = panel.quantity
    texts = numbers.level_numbers(line.group.key.at for line in panel.lines)
    by_level = _by_level(panel)
    letters = size.letters(width - 1.1)  # of a label: the axis and the line need the rest
    named = _named(len(panel.lines)) if by_level else range(len(panel.lines))
    ends = []
    for i, (line, style) in enumerate(
        zip(panel.lines, _styles(panel.lines, by_level), strict=True)
    ):
        count = len(line.values)
        places = np.unique(np.linspace(0, count - 1, min(count, _MOST_POINTS)).round().astype(int))
        # a step for each image: the k-th value holds for the shares up to k of n
        shares = np.append(0.0, (places + 1) / count)
        values = line.values[np.append(places[:1], places)]
        mean = numbers.signs(group_mean(line.group))
        name = _name(line, texts, by_level, len(panel.lines) > 1)
        label = f"{name}{mean}"
        if name and len(label) > letters:
            label = f"{name}{mean.partition(' [')[0]}"
        shown = cut(label, letters) if i in named else None
        ax.plot(shares, values, drawstyle="steps-pre", label=shown, **style)
        ends += [float(values.min()), float(values.max()), line.group.mean.value]
    if math.isfinite(panel.threshold):
        ax.axhline(panel.threshold, color=FAINT, linewidth=0.8, dashes=(4, 3), zorder=1)
    low = quantity.low if math.isfinite(quantity.low) else min(ends)
    high = quantity.high if math.isfinite(quantity.high) else max(ends)
    room = 0.04 * ((high - low) or 1.0)
    # robust is always up
    upright = (low - room, high + room)
    ax.set_ylim(upright if quantity.higher_is_better else upright[::-1])
    ax.set_xlim(-0.01, 1.02)
    percent_scale(ax.xaxis)
    few_ticks(ax.yaxis)
    ax.set_xlabel("images, least robust first")
    label = cut(in_words(quantity.name), size.letters(_HIGH - 0.5))
    ax.set_ylabel(KEPT_SHARE if quantity == P_ROBUST else label)
    # Between the title and the axes, where it covers no curve.
    ax.legend(
        loc="lower left", bbox_to_anchor=(-0.02, 1.0), handlelength=1.2, labelspacing=_LEGEND_SPACE
    )
    ax.set_title(ax.get_title(loc="left"), pad=10 + _legend_lines(panel) * 72 * size.line)


_LEGEND_SPACE = 0.2  # letters between the lines of a legend


def _legend_lines(panel: _Panel) -> int:
    """The number of lines in the legend of a panel."""
    return len(_named(len(panel.lines))) if _by_level(panel) else len(panel.lines)


def _named(levels: int) -> list[int]:
    """The places of the noise levels in a legend, which has room for a few."""
    places = np.linspace(0, levels - 1, min(levels, _MOST_NAMES)).round().astype(int)
    return sorted(set(places.tolist()))


def _styles(lines: Sequence[_Line], by_level: bool) -> list[dict[str, Any]]:
    """Colours from cool to hot for noise levels; colours and dashes for runs."""
    if not by_level:
        return [line_style(i) for i in range(len(lines))]
    return [{"color": colour} for colour in level_colours(len(lines))]


def _name(line: _Line, texts: dict[NoiseLevel, str], by_level: bool, several: bool) -> str:
    """The beginning of a label in a legend: the run or the noise level, which differ between the
    lines."""
    at = line.group.key.at
    level = "" if at.level is None else f"{at.name} {texts[at]}: "
    if by_level and level:
        return level
    return f"{line.run}: " if several else level
