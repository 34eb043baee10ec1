"""The flagged samples."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from robaudit.errors import SpecError
from robaudit.quantities import P_ROBUST
from robaudit.records import with_names
from robaudit.report import legends, numbers
from robaudit.report.layout import laid_out
from robaudit.report.pictures.page import Drawing, PictureSize, cut, stacked
from robaudit.report.pictures.style import FAINT, LOWER, quiet
from robaudit.report.principal_result import one_result, same_result
from robaudit.report.sections import Entry, Section, SectionRequest, name_in_pictures
from robaudit.report.summary_section import about
from robaudit.report.tables import Table, Tone
from robaudit.report.typed import (
    TEXT,
    WORD,
    WRITTEN,
    Beside,
    Kind,
    TypedColumn,
    TypedTable,
    data_columns,
)
from robaudit.runs.run import Run
from robaudit.runs.table import with_values
from robaudit.settings import BOTTOM, THRESHOLD
from robaudit.stats.flags import Certainty, Flag, Flagged, check_threshold, flag, usual_threshold
from robaudit.text import Names, class_name, count

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import SubFigure
    from torch import Tensor

    from robaudit.report.gallery import ImageSource


_OPEN = 8  # images of a list on a page that are not folded
_MOST_LISTED = 50


class FlaggedSection(Section[Flagged]):
    """The samples that are not robust, for each result, and how certain that is."""

    title = "Flagged samples"
    place = 4
    uses = Section.uses | {"threshold", "bottom", "only"}
    main_only = True

    def applies(self, run: Run) -> bool:
        """Whether a quantity of the run has a usual threshold."""
        return any(math.isfinite(usual_threshold(quantity)) for quantity in run.quantities.values())

    def records(self, run: Run, request: SectionRequest) -> list[Flagged]:
        """The flagged samples of each result.

        Raises:
            RobauditError: there is no threshold, and no number of samples is given; or a quantity
                cannot have this threshold.
        """
        groups = with_values(run.groups(request.estimators, request.levels).values())
        threshold = request.threshold
        if threshold is not None:
            for name in dict.fromkeys(columns.key.quantity for columns in groups):
                where = THRESHOLD + f" {threshold:g}"
                check_threshold(threshold, run.quantities[name], where, name)
        listed = []
        for columns in groups:
            quantity = run.quantities[columns.key.quantity]
            below = threshold
            # What the run was sampled for.
            if below is None and quantity == P_ROBUST:
                below = run.info.flag
            flagged = flag(
                columns,
                below=usual_threshold(quantity) if below is None else below,
                bottom=request.bottom,
                only=request.only,
                quantity=quantity,
            )
            listed.append(flagged)
        has_threshold = any(flagged.has_threshold for flagged in listed)
        # without both nothing could ever be listed, which the user cannot have meant
        if listed and request.bottom is None and not has_threshold:
            lacking = ", ".join(dict.fromkeys(flagged.key.estimator for flagged in listed))
            raise SpecError(
                "flagged",
                f"{lacking} has no usual threshold",
                "give " + THRESHOLD + ", or list the least robust with " + BOTTOM + " 10",
            )
        return listed

    def typed_tables(self, entry: Entry[Flagged], request: SectionRequest) -> Sequence[TypedTable]:
        """How many samples are flagged, where there are several runs; then the list."""
        counts = [_count_of(entry.record)] if entry.several else []
        return [*counts, self.table(entry, request)]

    def table(self, entry: Entry[Flagged], request: SectionRequest) -> TypedTable:
        """The list: a row for each sample, worst first."""
        return _list(entry.record, entry.run.class_names)

    def page_tables(
        self, entries: Sequence[Entry[Flagged]], request: SectionRequest
    ) -> Iterator[Table]:
        """The tables for a page: the first images of the result that the figure shows; folded the
        others, and those of other results that have flagged samples."""
        listed = []
        for entry in entries:
            samples = entry.record.samples[:_MOST_LISTED]
            listed.append(replace(entry, record=replace(entry.record, samples=samples)))
        drawn = _worst_result(listed)
        for table in self.tables(drawn, request):
            last = len(table.rows)
            if last <= _OPEN + 1:
                yield table
                continue
            yield replace(table, rows=table.rows[:_OPEN])
            heading = f"{table.heading}: images {_OPEN + 1} to {last}"
            yield Table(heading, table.columns, table.rows[_OPEN:], folded=True)
        shown = drawn[0].record.key
        others = [entry for entry in listed if entry.record.key != shown]
        flagged = [entry for entry in others if entry.record.beyond]
        if flagged:
            yield from (replace(table, folded=True) for table in self.tables(flagged, request))
        none = [entry.record.key for entry in others if not entry.record.beyond]
        if none:
            results = count(len(set(none)), "other result")
            yield Table(notes=(f"No sample is flagged in {results}.",))

    def narrowed(self, runs: Sequence[Run], request: SectionRequest) -> SectionRequest:
        """Narrow to one result of each run and its least robust images, beyond the threshold or
        not."""
        return replace(
            one_result(runs, request),
            bottom=_most(len(runs)) if request.bottom is None else request.bottom,
        )

    def figure(self, entries: Sequence[Entry[Flagged]], request: SectionRequest) -> Drawing:
        """The least robust images, run by run: clean beside noisy, the class they flip to, and
        their robustness.

        Raises:
            RobauditError: a data set has moved, or holds other images.
        """
        entries = _worst_result(entries)
        most = _most(len(entries)) if request.bottom is None else request.bottom
        entries = [
            replace(entry, record=replace(entry.record, samples=entry.record.samples[:most]))
            for entry in entries
        ]
        drawn = [_pixels(entry, request.data) for entry in entries]
        return Drawing(
            title="Least robust images",
            about=name_in_pictures(entries, entries[0].record.key),
            caption=" ".join(_caption(entries)),
            height=lambda size: sum(
                _height(entry, size, several=len(entries) > 1) for entry in entries
            ),
            draw=lambda body, size: _draw(body, size, entries, drawn),
        )


def _worst_result(entries: Sequence[Entry[Flagged]]) -> list[Entry[Flagged]]:
    """An entry of each run, all of the same result: the one with the most flagged samples in the
    first run; of equals, the strongest level of the first noise."""
    usual = same_result(entries, lambda record: record.key)
    of_first = [entry.record for entry in entries if entry.name == entries[0].name]
    worst = max([usual[0].record, *of_first], key=lambda record: record.beyond / record.total)
    return [entry for entry in entries if entry.record.key == worst.key]


def _count_of(flagged: Flagged) -> TypedTable:
    """How many samples of a result are flagged."""
    text = f"{flagged.beyond:,} of {flagged.total:,}" if flagged.has_threshold else numbers.NONE
    return TypedTable(
        "Flagged samples by run",
        (TypedColumn("", TEXT, head="result"), TypedColumn("", WRITTEN, head="flagged")),
        [(str(flagged.key), text)],
        beside=Beside.COLUMNS,
    )


def flags_table(
    flagged: Flagged,
    class_names: Names | None = None,
    limit: int | None = 50,
) -> Table:
    """How many are flagged, then the list, worst first.

    Args:
        flagged: from :func:`robaudit.stats.flags.flag`.
        class_names: by class index.
        limit: the most lines of the list (the rest are counted); None: all.
    """
    table = replace(_list(flagged, class_names), most=limit)
    return laid_out([("", table)], several=False)


def _list(flagged: Flagged, names: Names | None) -> TypedTable:
    """The flagged samples of a result, and how many they are."""
    about_result = {
        "estimator": flagged.key.estimator,
        **flagged.key.at.document(),
        "threshold": flagged.threshold if flagged.has_threshold else None,
    }
    # without samples the columns are known, too, so that a CSV file has its head
    keys = with_names({member.key: None for member in Flag.json_members()}, None)
    rows = []
    for sample in flagged.samples:
        rows.append((*_texts(sample, flagged, names), *sample.document(names).values()))
    lines = (about(flagged.quantity), count_line(flagged))
    return TypedTable(
        str(flagged.key),
        (*_columns(flagged), *data_columns(list(keys))),
        rows,
        about=about_result,
        lines=(*lines, "Least robust first:") if rows else lines,
        notes=tuple(_notes(flagged)),
        most=_MOST_LISTED,
        beside=Beside.APART,
    )


def is_beyond(sample: Flag, flagged: Flagged) -> bool:
    """Whether a listed sample is flagged, or only listed as one of the least robust."""
    if flagged.quantity.higher_is_better:
        return sample.value < flagged.threshold
    return sample.value > flagged.threshold


def count_line(flagged: Flagged) -> str:
    """How many of the samples are beyond the threshold, and how certain that is."""
    side = "below" if flagged.quantity.higher_is_better else "above"
    kind = f"{flagged.only} " if flagged.only else ""
    if not flagged.has_threshold:
        return (
            f"{flagged.total:,} {kind}samples; {flagged.key.quantity} has no usual threshold, "
            "so none is flagged: --threshold gives one."
        )
    text = f"{flagged.beyond:,} of {flagged.total:,} {kind}samples are {side} {flagged.threshold:g}"
    certain = legends.certainties(flagged)
    if certain:
        # without flagged samples the certainties are about the others only
        text += f": {certain}" if flagged.beyond else f"; {certain}"
    return " ".join(filter(None, (f"{text}.", legends.wrong_before(flagged))))


_CLEAN = TypedColumn("", WORD, head="clean")
_RIGHT = {True: "right", False: "wrong", None: None}
"""How a sample is classified without noise, by :attr:`Flag.correct`."""
_SAMPLE = (
    TypedColumn("", TEXT, head="sample"),
    TypedColumn("", WORD, head="label"),
    TypedColumn("", WORD, head="predicted"),
    _CLEAN,
    TypedColumn("", WRITTEN, head="value [95% interval]"),
    TypedColumn("", WORD, head="flips to"),
)


class _Answer(NamedTuple):
    """Whether a sample is beyond the threshold.

    Attributes:
        text: for the table.
        is_wrong: whether noise breaks nothing, as the sample is misclassified without it.
    """

    text: str
    is_wrong: bool


def _is_bad(answer: _Answer) -> Tone:
    return "bad" if answer.text == Certainty.CONFIRMED and not answer.is_wrong else ""


def _is_red(sample: Flag) -> bool:
    """Whether the picture of a sample is red, as its row of the table is."""
    return sample.certainty is Certainty.CONFIRMED and not sample.is_wrong


_ANSWER = Kind(lambda answer: answer.text, number=False, tone=_is_bad)


def _columns(flagged: Flagged) -> tuple[TypedColumn, ...]:
    """The columns for people: whether samples are right only where they have labels, and whether
    they are beyond the threshold only where there is one."""
    columns = list(_SAMPLE)
    if all(sample.correct is None for sample in flagged.samples):
        columns[columns.index(_CLEAN)] = replace(_CLEAN, head=None)
    if flagged.has_threshold:
        side = "<" if flagged.quantity.higher_is_better else ">"
        columns.append(TypedColumn("", _ANSWER, head=f"{side} {flagged.threshold:g}?"))
    return tuple(columns)


def _texts(sample: Flag, flagged: Flagged, names: Names | None) -> tuple[Any, ...]:
    """The values below :func:`_columns`."""
    texts = (
        sample.id,
        class_name(sample.label, names),
        class_name(sample.predicted, names),
        _RIGHT[sample.correct],
        numbers.sample_value(sample, flagged.quantity.low, flagged.quantity.high),
        class_name(sample.flips_to, names),
    )
    if not flagged.has_threshold:
        return texts
    return (*texts, _Answer(_answer(sample, flagged), sample.is_wrong))


def _answer(sample: Flag, flagged: Flagged) -> str:
    """Whether the sample is beyond the threshold, as text for the table."""
    if sample.certainty is not Certainty.NO_INTERVAL:
        return sample.certainty
    return "~yes" if is_beyond(sample, flagged) else "~no"


def _notes(flagged: Flagged) -> Iterator[str]:
    """The meaning of the certainties that occur, and what the list leaves out."""
    certainties = {sample.certainty for sample in flagged.samples}
    if flagged.has_threshold:
        for name, text in legends.CERTAINTIES.items():
            if name in certainties:
                yield text
    if flagged.wrong:
        yield "clean: how the image is classified without noise."
    if flagged.censored:
        yield f"> {flagged.censored:,} of {flagged.total:,} values are only known to be larger."
    if flagged.filtered:
        yield f"{count(flagged.filtered, 'sample')} filtered out: not known to be {flagged.only}."
    if flagged.not_finite:
        yield f"{count(flagged.not_finite, 'sample')} left out: not a finite value."


# --- the figure

Pixels = NDArray[np.uint8]
# images; pixels of a side as stored in the file
_MOST = 12
_LARGEST = 160
_SMALLEST = 128
_BESIDE = 0.12  # inches between pairs
_CELL = 1.7  # inches of a pair, at least: room for a value with its interval


def _most(runs: int) -> int:
    """How many images of each run are drawn."""
    return max(4, _MOST // runs)


def _pixels(entry: Entry[Flagged], source: ImageSource | None) -> list[Pixels]:
    """Each sample, clean and with its first noise draw, side by side; noisy pixels beyond [0, 1]
    are cut off."""
    from robaudit.report.gallery import RunImages

    flagged = entry.record
    images = RunImages(entry.run, (sample.id for sample in flagged.samples), source)
    pairs = []
    for sample in flagged.samples:
        clean = images.clean(sample.id)
        at = flagged.key.at
        noisy = clean if at.level is None else images.noisy(sample.id, clean, at)
        left = _opaque(sized(clean))
        right = _opaque(sized(noisy))
        # transparent, as the page behind the picture may be dark
        gap = np.full((left.shape[0], max(2, left.shape[1] // 24), 4), 0, np.uint8)
        pairs.append(np.concatenate([left, gap, right], 1))
    return pairs


def _opaque(pixels: Pixels) -> Pixels:
    """Pixels (height, width, 3) with an alpha channel of 255."""
    alpha = np.full((*pixels.shape[:2], 1), 255, np.uint8)
    return np.concatenate([pixels, alpha], 2)


def sized(image: Tensor) -> Pixels:
    """An image (channels, height, width) in [0, 1] as bytes: small ones enlarged pixel by pixel,
    large ones reduced."""
    from PIL import Image

    from robaudit.report.gallery import as_array

    pixels = as_array(image)
    longest = max(pixels.shape[:2])
    if longest > _LARGEST:
        height, width = (max(1, round(side * _LARGEST / longest)) for side in pixels.shape[:2])
        # a box filter: each pixel is the mean of those that it replaces
        return np.asarray(Image.fromarray(pixels).resize((width, height), Image.Resampling.BOX))
    factor = math.ceil(_SMALLEST / longest)
    return pixels.repeat(factor, axis=0).repeat(factor, axis=1)


def _across(flagged: Flagged, size: PictureSize) -> int:
    """The number of pairs in a row: two in a column of a paper."""
    return size.across(max(4, len(flagged.samples)), _CELL) if size.body > 4.5 else 2


def _height(entry: Entry[Flagged], size: PictureSize, *, several: bool) -> float:
    """Inches of a run: rows of pairs, each half as high as wide, with three lines of text, or
    four where two names need a line each."""
    across = _across(entry.record, size)
    rows = math.ceil(len(entry.record.samples) / across)
    letters = _letters(size, across)
    names = entry.run.class_names
    two = any("\n" in _turn(sample, names, letters) for sample in entry.record.samples)
    row = size.body / across / 2 + (4.4 if two else 3.2) * size.line + 0.1
    name = size.line * 1.8 if several else 0.0
    return rows * row + name


def _caption(entries: Sequence[Entry[Flagged]]) -> Iterator[str]:
    for entry in entries:
        name = f"{entry.name}: " if len(entries) > 1 else ""
        shown = len(entry.record.samples)
        yield f"{name}{count_line(entry.record)} Shown: the {shown} least robust."
    records = [entry.record for entry in entries]
    pair = (
        "twice: the result has no noise level"
        if records[0].key.at.level is None
        else "clean and with its first noise draw"
    )
    yield (
        f"Each image {pair}; the predicted class, and the class it most likely flips to; "
        f"{records[0].key.quantity}."
    )
    samples = list(chain.from_iterable(flagged.samples for flagged in records))
    if any(sample.is_wrong for sample in samples):
        yield "is: the label, where the model is wrong without noise."
    if any(flagged.with_interval for flagged in records):
        yield "[ ] 95 % interval of the image."
    if any(not sample.estimate.has_interval for sample in samples):
        yield "~ no interval."
    if any(flagged.approximate for flagged in records):
        yield "The intervals cover sampling only, not the estimator's bias."
    if not_finite := sum(flagged.not_finite for flagged in records):
        yield f"{not_finite:,} images without a finite value are left out."


def _draw(
    body: SubFigure,
    size: PictureSize,
    entries: Sequence[Entry[Flagged]],
    drawn: Sequence[Sequence[Pixels]],
) -> None:
    several = len(entries) > 1
    heights = [_height(entry, size, several=several) for entry in entries]
    for part, entry, pixels in zip(stacked(body, heights), entries, drawn, strict=True):
        across = _across(entry.record, size)
        if several:
            part.suptitle(
                cut(entry.name, size.letters(size.body, bold=True), "middle"),
                x=0.012,
                ha="left",
                weight="bold",
            )
        grid = part.subplots(math.ceil(len(pixels) / across), across, squeeze=False)
        for ax in grid.flat[len(pixels) :]:
            ax.set_axis_off()
        for ax, sample, pair in zip(grid.flat, entry.record.samples, pixels, strict=False):
            _cell(ax, entry, sample, pair, size, size.body / across - _BESIDE)


def _letters(size: PictureSize, across: int) -> int:
    """How many letters fit above a pair."""
    return size.letters(size.body / across - _BESIDE, bold=True)


def _turn(sample: Flag, names: Names | None, letters: int) -> str:
    """The predicted class and the one that it flips to, below each other where they are long."""
    turn = [index for index in (sample.predicted, sample.flips_to) if index is not None]
    texts = [cut(class_name(index, names), letters - 2) for index in turn]
    in_a_line = " \u2192 ".join(texts)
    return in_a_line if len(in_a_line) <= letters else "\n\u2192 ".join(texts)


def _cell(
    ax: Axes, entry: Entry[Flagged], sample: Flag, pair: Pixels, size: PictureSize, width: float
) -> None:
    names = entry.run.class_names
    quantity = entry.record.quantity
    quiet(ax, pair)
    wrong = sample.is_wrong
    about = f"is {class_name(sample.label, names, 12)}, " if wrong else "id "
    # the end of an id tells files of one folder apart; digits and capitals are as wide as bold text
    letters = size.letters(width, bold=True) - len(about)
    about += cut(sample.id, max(4, letters), "beginning")
    ax.set_title(_turn(sample, names, size.letters(width, bold=True)), pad=3)
    value = cut(numbers.sample_value(sample, quantity.low, quantity.high), size.letters(width))
    ax.set_xlabel(
        f"{value}\n{about}",
        loc="left",
        color=LOWER if _is_red(sample) else FAINT,
        labelpad=2,
    )
