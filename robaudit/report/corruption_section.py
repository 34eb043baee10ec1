"""Accuracy by corruption and severity."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from robaudit.estimates import Estimate
from robaudit.levels import LevelName
from robaudit.numerics.image_intervals import LIKE_THESE
from robaudit.report import numbers
from robaudit.report.pictures.page import Drawing, PictureSize, paneled, percent_scale, told_apart
from robaudit.report.pictures.style import line_style, ring
from robaudit.report.sections import Entry, Section, SectionRequest
from robaudit.report.typed import SHARE, Beside, Kind, TypedColumn, TypedTable
from robaudit.runs.run import Run
from robaudit.stats.corruption_error import CorruptionReport, corruption_report, mean_error
from robaudit.text import count

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class CorruptionSection(Section[CorruptionReport]):
    """Accuracy by corruption and severity, and the mean error."""

    title = "Accuracy by corruption and severity"
    place = 50
    words = "The share of noisy copies that are classified correctly."
    uses = frozenset({"estimators"})

    def applies(self, run: Run) -> bool:
        """Whether it has labels, and votes under noise whose level is a severity."""
        levels = {entry.level_name for entry in run.info.noisy_accuracy}
        return run.info.clean_accuracy is not None and LevelName.SEVERITY in levels

    def records(self, run: Run, request: SectionRequest) -> list[CorruptionReport]:
        """A report for each requested estimator, else for the first that counts votes."""
        return [corruption_report(run, estimator) for estimator in request.estimators or (None,)]

    def table(self, entry: Entry[CorruptionReport], request: SectionRequest) -> TypedTable:
        """A row for each noise and severity; people see a line for each noise and run, a column for
        each severity, and the mean error."""
        report = entry.record
        means = report.mean_errors()
        rows = []
        for label, by_level in report.cells.items():
            mean = means.get(label)
            rows += [(label, level, cell, mean) for level, cell in by_level.items()]
        return TypedTable(
            "Accuracy by severity: share of noisy copies classified correctly "
            f"({report.estimator})",
            _COLUMNS,
            rows,
            about={"estimator": report.estimator},
            facts=(f"without noise {report.clean:.1%}",),
            notes=(
                f"[ ] 95 % interval, {LIKE_THESE}; of errors over severities and noises: "
                "bootstrap (percentiles).",
            ),
            remarks=tuple(_conclusions(report)),
            beside=Beside.KEYS,
        )

    def figure(
        self, entries: Sequence[Entry[CorruptionReport]], request: SectionRequest
    ) -> Drawing:
        """Error against severity: a panel for the mean of the corruptions and for each, a line for
        each of the first eight reports."""
        every_name = told_apart([(entry.name, entry.record.estimator) for entry in entries])
        names = every_name[:_MOST_LINES]
        lines = [(name, entry.record) for name, entry in zip(names, entries, strict=False)]
        panels = list(dict.fromkeys(chain.from_iterable(report.cells for _, report in lines)))
        if any(len(report.errors) > 1 for _, report in lines):
            panels.insert(0, _MEAN)
        styles = [line_style(i, marks=True) for i in range(len(lines))]

        def draw(ax: Axes, label: str, _: PictureSize) -> None:
            for style, line in zip(styles, lines, strict=True):
                _line(ax, label, line[1], style)
            # a little more than the data, so that marks at the ends are whole
            ax.set(xlim=(-0.2, 5.2), ylim=(0.0, 1.02), xticks=range(6))
            percent_scale(ax.yaxis)

        return paneled(
            "Error by severity of the corruption",
            _caption(lines, panels[_MOST_PANELS:]),
            panels[:_MOST_PANELS],
            draw,
            wide=1.55,
            high=1.55,
            titles=panels[:_MOST_PANELS],
            styles=dict(zip(names, styles, strict=True)),
            xlabel="severity",
            sharex=True,
            sharey=True,
        )


def _conclusions(report: CorruptionReport) -> list[str]:
    """The mean error, and the noises that it leaves out."""
    left_out = [label for label in report.cells if label not in report.errors]
    lines = []
    if report.mean_error is not None:
        over = count(len(report.errors), "noise")
        lines.append(f"mean error {_percent(report.mean_error)}, over {over} and 5 severities.")
    if left_out:
        lines.append(f"Not at all five severities, and in no mean: {', '.join(left_out)}.")
    return lines


def _percent(error: Estimate) -> str:
    """An error with its interval, if it has one."""
    return numbers.percents(error) if error.has_interval else f"{error.value:.1%}"


_SEVERITY = Kind(lambda level: f"{level:g}")
_COLUMNS = (
    TypedColumn("noise"),
    TypedColumn("severity", _SEVERITY),
    TypedColumn("accuracy", SHARE, across="severity", missing="", bare_ends=True),
    TypedColumn("", Kind(_percent), head="mean error", missing=""),
)


# --- the figure

_MOST_PANELS = 20  # enough for the 19 corruptions of CIFAR-10-C and their mean
_MOST_LINES = 8  # as many as there are colours
_MEAN = "mean"


def _caption(lines: Sequence[tuple[str, CorruptionReport]], left: Sequence[str]) -> Iterator[str]:
    """The sentences of the caption; ``left``: the corruptions that are not drawn."""
    yield (
        f"Share of noisy copies classified wrongly. Bands: 95 % intervals, {LIKE_THESE}. Ring: "
        "error without noise."
    )
    # runs may have other corruptions: the number says so
    means = [
        f"{name} {mean_error(report.errors):.1%} (over {len(report.errors)})"
        for name, report in lines
        if report.errors
    ]
    if means:
        yield f"Mean error over the corruptions with all five severities: {', '.join(means)}."
    if left:
        yield f"Not shown: {', '.join(left)}."


def _line(ax: Axes, label: str, report: CorruptionReport, style: Mapping[str, Any]) -> None:
    """Draw the error by severity of a corruption, or the mean over all of them."""
    # severity 0 is no corruption, the same in every panel
    ax.plot([0], [1 - report.clean], **ring(style["color"]))
    if label == _MEAN:
        if report.errors:
            ax.plot(range(1, 6), np.mean(list(report.errors.values()), axis=0), **style)
    elif label in report.cells:
        cells = sorted(report.cells[label].items())
        at = [level for level, _ in cells]
        bounds = [cell.bounds or (cell.value, cell.value) for _, cell in cells]
        ax.fill_between(
            at,
            [1 - upper for _, upper in bounds],
            [1 - lower for lower, _ in bounds],
            color=style["color"],
            alpha=0.15,
            lw=0,
        )
        ax.plot(at, [1 - cell.value for _, cell in cells], **style)
