"""Accuracy by corruption and severity as a table and CSV."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from robaudit.levels import LevelName
from robaudit.report.sections import Ask, Found, Section, Sheet
from robaudit.report.tables import Column, Table, Terminal, cells
from robaudit.stats.corruption import ALEXNET, Baseline, CorruptionReport, baseline_of, corruption_report, mean_error
from robaudit.store.run import Run, read_run

_ALEXNET = "alexnet"


class CorruptionSection(Section[CorruptionReport]):
    """Accuracy by corruption and severity, the mean error and, against a baseline, the mean corruption error (mCE)."""

    uses = frozenset({"estimators", "baseline"})

    def applies(self, run: Run) -> bool:
        """Whether it has labels, and votes under noise whose level is a severity."""
        levels = {entry["level_name"] for entry in run.info["noisy_accuracy"]}
        return run.info["clean_accuracy"] is not None and LevelName.SEVERITY in levels

    def records(self, run: Run, ask: Ask) -> list[CorruptionReport]:
        """A report for each estimator asked for, else for the first that counts votes."""
        return [corruption_report(run, estimator, _baseline(ask.baseline, estimator)) for estimator in ask.estimators or (None,)]

    def table(self, one: Found[CorruptionReport], ask: Ask) -> Terminal:
        """See :func:`corruption_table`."""
        return corruption_table(one.record)

    def sheet(self, one: Found[CorruptionReport], ask: Ask) -> Sheet:
        """See :func:`corruption_sheet`."""
        return corruption_sheet(one.record)

    def document(self, one: Found[CorruptionReport], ask: Ask) -> dict[str, Any]:
        """Accuracies, mean error and mCE."""
        return one.record.document()


def _baseline(name: str | None, estimator: str | None) -> tuple[str, Baseline] | None:
    """AlexNet on ImageNet-C, or another run, by its name."""
    if name is None or name == _ALEXNET:
        return None if name is None else ("AlexNet", ALEXNET)
    other = read_run(Path(name))
    return other.info["name"], baseline_of(corruption_report(other, estimator))


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


def corruption_sheet(report: CorruptionReport) -> Sheet:
    """A line for each noise and severity."""
    lines = [
        (report.estimator, label, level, cell.value, cell.lower, cell.upper)
        for label, by_level in report.cells.items()
        for level, cell in by_level.items()
    ]
    return Sheet(["estimator", "noise", "severity", "accuracy", "lower", "upper"], lines)
