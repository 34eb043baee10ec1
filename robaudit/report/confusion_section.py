"""Which class turns into which under noise."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from robaudit.errors import NothingLeftError, SpecError
from robaudit.numerics.image_intervals import LIKE_THESE
from robaudit.records import json_values
from robaudit.report import numbers
from robaudit.report.pictures.page import (
    Drawing,
    PictureSize,
    cut,
    paneled,
    percent_scale,
    told_apart,
)
from robaudit.report.pictures.style import CARD, GRID, INK, RED, heat_colours
from robaudit.report.principal_result import one_result, same_result
from robaudit.report.sections import Entry, Section, SectionRequest, name_in_pictures
from robaudit.report.tables import Table
from robaudit.report.typed import TEXT, Beside, Kind, TypedColumn, TypedTable, data_columns
from robaudit.runs.run import Run
from robaudit.settings import BY
from robaudit.stats.class_differences import ENOUGH
from robaudit.stats.confusion_matrix import MOST_TURNS, Confusion, Turn, confusions
from robaudit.text import class_name, count, known_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST = 15
_SINGLE = "No class with two images or more turns into another."


class ConfusionSection(Section[Confusion]):
    """Which class turns into which under noise: the share of noisy copies of a class that are
    classified as another one."""

    title = "Which class turns into which"
    place = 3
    words = (
        "The share of the noisy copies of the images that are predicted to be of a class without "
        "noise, and with it of another: what noise changes, the largest first. --by label also "
        "counts what is wrong without noise."
    )
    uses = Section.uses | {"by"}
    main_only = True
    by_class = True

    def applies(self, run: Run) -> bool:
        """Whether noisy copies were counted."""
        return bool(run.info.noisy_accuracy)

    def records(self, run: Run, request: SectionRequest) -> Sequence[Confusion]:
        """A matrix for each result with votes.

        Raises:
            SpecError: images are to be grouped by a column of the data.
        """
        if request.by in (None, "label", "predicted"):
            return confusions(run, request.estimators, request.levels, request.by)
        raise SpecError(
            BY + f" {request.by}",
            "does not apply to the section confusion",
            "use label or predicted",
        )

    def table(self, entry: Entry[Confusion], request: SectionRequest) -> TypedTable:
        """A row for each pair of classes that occurs, the largest share first."""
        record = entry.record
        names = entry.run.class_names
        rows = []
        for turn in record.turns:
            classes = (class_name(turn.start, names), class_name(turn.to, names))
            known = (known_name(turn.start, names), known_name(turn.to, names))
            rows.append((*classes, turn, *known))
        kind = "label" if record.by == "label" else "predicted without noise"
        shown = sum(turn.images >= ENOUGH for turn in record.turns)
        remarks = []
        if single := len(rows) - shown:
            remarks.append(
                f"{count(single, 'pair')} of classes with a single image not shown: --format csv "
                "has them."
            )
        if record.by == "label" and rows:
            remarks.append("Images that are misclassified without noise count, too.")
        if record.pairs > len(rows) and shown:
            remarks.append(
                f"{record.pairs:,} pairs in all; --format csv has the {MOST_TURNS} largest."
            )
        return TypedTable(
            str(record.key),
            (TypedColumn("", TEXT, head=kind), *_COLUMNS),
            rows,
            keys=[(record.key, turn.start, turn.to) for turn in record.turns],
            about={**record.key.document(), "by": record.by},
            notes=(f"[ ] 95 % interval, {LIKE_THESE} of the class.",) if shown else (),
            shows=lambda row: row[2].images >= ENOUGH,
            empty=_SINGLE if rows else "No noisy copy changes class.",
            most=_MOST,
            remarks=tuple(remarks),
            more="... and {} more pairs: --format csv has them.",
            rank=lambda row: row[2].share,
            beside=Beside.COLUMNS,
        )

    def page_tables(
        self, entries: Sequence[Entry[Confusion]], request: SectionRequest
    ) -> list[Table]:
        """At the strongest level of the first noise, which the picture shows."""
        # two tables where one run has labels and another has not
        tables = list(self.tables(same_result(entries, lambda record: record.key), request))
        rest = len({entry.record.key for entry in entries}) - 1
        if rest:
            note = f"{count(rest, 'other result')}: robaudit show RUN confusion."
            tables[-1] = replace(tables[-1], notes=(*tables[-1].notes, note))
        return tables

    def narrowed(self, runs: Sequence[Run], request: SectionRequest) -> SectionRequest:
        """Narrow to one result of each run, unless results are named."""
        return request if request.estimators or request.levels else one_result(runs, request)

    def figure(self, entries: Sequence[Entry[Confusion]], request: SectionRequest) -> Drawing:
        """One matrix of each run, or of the results that are named; of many classes a list of the
        largest shares.

        Raises:
            NothingLeftError: the classes are many, and have a single image each.
        """
        drawn = entries
        if not (request.estimators or request.levels):
            drawn = same_result(entries, lambda record: record.key)
        shown = drawn[:_MOST_PANELS]
        as_list = max(len(entry.record.classes) for entry in shown) > _MOST_CLASSES
        if as_list and not any(_enough(entry.record) for entry in shown):
            raise NothingLeftError(
                "confusion", "no class with two images turns into another", "audit more images"
            )
        parts = [
            (entry.name, entry.record.key.estimator, str(entry.record.key.at)) for entry in shown
        ]
        # One scale for all panels, which ends at the largest share; at least 5 %, so that a network
        # that hardly changes its classes is not drawn in red.
        largest = [entry.record.turns[0].share for entry in shown if entry.record.turns]
        top = max(0.05, *largest) if largest else 0.05

        # both names of a turn need room
        wide = _LIST_WIDE if as_list else _WIDE

        def draw(ax: Axes, entry: Entry[Confusion], size: PictureSize) -> None:
            width = size.body / size.across(len(shown), wide)
            if as_list:
                _turns(ax, entry, size, width)
            else:
                _matrix(ax, entry, size, width, top)

        same = len({part[1:] for part in parts}) == 1
        return paneled(
            "Which class turns into which under noise",
            _caption(shown, len(entries) - len(shown), as_list=as_list),
            shown,
            draw,
            wide=wide,
            high=lambda size: _height(shown, size, as_list=as_list),
            titles=told_apart(parts) if len(shown) > 1 else [],
            beside=wide / 2 + 0.4 if as_list else _AXIS + 0.5,
            about=name_in_pictures(shown, shown[0].record.key) if same else "",
        )

    def document(self, entry: Entry[Confusion], request: SectionRequest) -> dict[str, Any]:
        """The matrix and the turns."""
        record = entry.record
        names = entry.run.class_names
        return {
            **record.key.document(),
            "by": record.by,
            "classes": [
                {"index": i, "name": known_name(i, names), "images": n}
                for i, n in zip(record.classes, record.images, strict=True)
            ],
            "shares": json_values(record.shares),
            "pairs": record.pairs,
            "turns": json_values(record.turns),
        }


_SHARE = Kind(lambda turn: numbers.percents(turn.estimate))
_COLUMNS = (
    TypedColumn("", TEXT, head="classified as"),
    TypedColumn("", _SHARE, head="share of copies", record=Turn),
    *data_columns(["start_name", "to_name"]),
)


# --- the figure

_MOST_PANELS = 6
_MOST_CLASSES = 25
_MOST_TURNS = 20
# inches: of a panel, of its names
_WIDE = 3.0
_LIST_WIDE = 4.5
_AXIS = 0.75


def _enough(record: Confusion) -> list[Turn]:
    """The largest turns of classes that have enough images."""
    return [turn for turn in record.turns if turn.images >= ENOUGH][:_MOST_TURNS]


def _height(shown: Sequence[Entry[Confusion]], size: PictureSize, *, as_list: bool) -> float:
    """The height of a panel: square, or a line for each turn."""
    if as_list:
        return max(len(_enough(entry.record)) for entry in shown) * size.line + 0.6
    return min(size.body / size.across(len(shown), _WIDE), 4.6) + 0.3 * (len(shown) > 1)


def _caption(shown: Sequence[Entry[Confusion]], left: int, *, as_list: bool) -> Iterator[str]:
    images = numbers.span([sum(entry.record.images) for entry in shown])
    by = "labelled" if shown[0].record.by == "label" else "predicted without noise"
    yield (
        f"{images} images. Share of the noisy copies of the images of a class ({by}) that are "
        "classified as another one, by their votes."
    )
    if as_list:
        yield f"The largest shares; bars: 95 % intervals, {LIKE_THESE}, each alone."
    else:
        yield "In percent; the diagonal, in grey: classified as that class."
    if left:
        yield f"{left} further results not shown (choose with --estimator and --level)."


def _matrix(ax: Axes, entry: Entry[Confusion], size: PictureSize, width: float, top: float) -> None:
    """Draw the matrix; ``top``: the share at the end of the colours."""
    record = entry.record
    shares = np.array(record.shares)
    names = [
        cut(class_name(index, entry.run.class_names), size.letters(_AXIS))
        for index in record.classes
    ]
    others = np.where(np.eye(len(shares), dtype=bool), np.nan, shares)
    ax.imshow(np.where(np.eye(len(shares)), shares, np.nan), cmap="Greys", vmin=0.0, vmax=4.0)
    ax.imshow(others, cmap=heat_colours(), vmin=0.0, vmax=top)
    ax.grid(visible=False)
    ax.set_xticks(range(len(names)), names, rotation=90)
    ax.set_yticks(range(len(names)), names)
    ax.set_xlabel("under noise")
    ax.set_ylabel("label" if record.by == "label" else "without noise")
    cell = (width - _AXIS - 0.4) / len(names)
    if cell < 0.18:  # no room for numbers
        return
    for (i, j), share in np.ndenumerate(shares):
        # below half a percent a share would print as 0
        is_written = share >= 0.005 or i == j
        if np.isfinite(share) and is_written:
            # dark cells have light numbers
            ink = CARD if i != j and share > 0.6 * top else INK
            ax.text(
                j,
                i,
                f"{100 * share:.0f}",
                ha="center",
                va="center",
                color=ink,
                size=min(size.points, 30 * cell),
            )


def _turns(ax: Axes, entry: Entry[Confusion], size: PictureSize, width: float) -> None:
    """Draw the largest shares as a list, with their intervals."""
    names = entry.run.class_names
    turns = _enough(entry.record)
    for place, turn in enumerate(turns):
        ax.plot(
            turn.estimate.bounds or (),
            [place, place],
            color=RED,
            alpha=0.5,
            linewidth=2.0,
            solid_capstyle="butt",
        )
        ax.plot([turn.share], [place], marker="o", color=RED)
    texts = []
    for turn in turns:
        images = f", n {turn.images:,}"
        # the arrow and the spaces around it take three letters
        letters = (size.letters(0.5 * width) - len(images) - 3) // 2
        classes = (cut(class_name(index, names), letters) for index in (turn.start, turn.to))
        texts.append(numbers.signs(" \u2192 ".join(classes) + images))
    ax.set_yticks(range(len(turns)), texts)
    ax.set(xlim=(0.0, None), ylim=(max(len(turns), 1) - 0.4, -0.6))
    ax.axvline(0.0, color=GRID, linewidth=1.0)
    percent_scale(ax.xaxis)
