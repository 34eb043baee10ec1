"""Accuracy by corruption and severity as a table and CSV."""

from __future__ import annotations

from robaudit.report.tables import Column, Table, Terminal, cells
from robaudit.stats.corruption import CorruptionReport, mean_error
from robaudit.store.serialise import table_csv


def corruption_table(report: CorruptionReport) -> Terminal:
    """A line for each noise, a column for each severity, then the mean error and the error relative to the baseline."""
    levels, errors = report.levels, report.errors
    rows = []
    for label, by_level in report.cells.items():
        values = [f"{by_level[level].value:.1%}" if level in by_level else "" for level in levels]
        mean = f"{sum(errors[label]) / len(errors[label]):.1%}" if label in errors else ""
        relative = [] if report.against is None else [_percent(report.against[1].by_corruption.get(label))]
        rows.append(cells((label, *values, mean, *relative)))
    heads = (*(f"{level:g}" for level in levels), "mean error", *(["CE"] if report.against else []))
    table = Table(
        f"Accuracy by severity: share of noisy copies classified correctly ({report.estimator})",
        (Column("noise"), *(Column(head, number=True) for head in heads)),
        tuple(rows),
        lines=(f"without noise {report.clean:.1%}",),
        notes=tuple(_conclusions(report)),
    )
    return Terminal(lambda _: [table])


def _conclusions(report: CorruptionReport) -> list[str]:
    left_out = [label for label in report.cells if label not in report.errors]
    over = "1 noise" if len(report.errors) == 1 else f"{len(report.errors)} noises"
    found = [f"mean error {mean_error(report.errors):.1%}, over {over} and 5 severities."] if report.errors else []
    if left_out:
        found.append(f"Not at all five severities, and in no mean: {', '.join(left_out)}.")
    if report.against is not None:
        name, absolute, relative = report.against
        found.append(
            f"mCE {absolute.value:.1%}, relative mCE {relative.value:.1%} (against {name}: the mean over {len(absolute.by_corruption)})."
        )
        if absolute.missing:
            few = ", ".join(absolute.missing)
            found.append(
                f"Not measured: {few}. The published mCE is the mean over all {len(absolute.missing) + len(absolute.by_corruption)}."
            )
    return found


def _percent(value: float | None) -> str:
    return "" if value is None else f"{value:.1%}"


def corruption_csv(report: CorruptionReport) -> str:
    """A line for each noise and severity."""
    lines = [
        (report.estimator, label, level, cell.value, cell.lower, cell.upper)
        for label, by_level in report.cells.items()
        for level, cell in by_level.items()
    ]
    return table_csv(["estimator", "noise", "severity", "accuracy", "lower", "upper"], lines)
