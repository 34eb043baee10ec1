"""Accuracy by corruption and severity."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from robaudit.levels import LevelName
from robaudit.report import numbers
from robaudit.report.sections import Ask, Found, Section
from robaudit.report.tables import Column, Table, cells
from robaudit.stats.corruption import ALEXNET, Baseline, CorruptionError, CorruptionReport, baseline_of, corruption_report, mean_error
from robaudit.stats.intervals import LIKE_THESE, Bounds
from robaudit.store.run import Run, read_run

_ALEXNET = "alexnet"


class CorruptionSection(Section[CorruptionReport]):
    """Accuracy by corruption and severity, the mean error and, against a baseline, the mean corruption error (mCE)."""

    title = "Accuracy by corruption and severity"
    words = "The share of noisy copies that are classified correctly."
    uses = frozenset({"estimators", "baseline"})

    def applies(self, run: Run) -> bool:
        """Whether it has labels, and votes under noise whose level is a severity."""
        levels = {entry["level_name"] for entry in run.info["noisy_accuracy"]}
        return run.info["clean_accuracy"] is not None and LevelName.SEVERITY in levels

    def records(self, run: Run, ask: Ask) -> list[CorruptionReport]:
        """A report for each estimator asked for, else for the first that counts votes."""
        return [corruption_report(run, estimator, _baseline(ask.baseline, estimator)) for estimator in ask.estimators or (None,)]

    def tables(self, found: Sequence[Found[CorruptionReport]], ask: Ask) -> Iterator[Table]:
        """A line for each noise and run, a column for each severity, then the mean error and the error relative to the baseline."""
        for estimator in dict.fromkeys(one.record.estimator for one in found):
            yield _table([one for one in found if one.record.estimator == estimator])

    def lines(self, one: Found[CorruptionReport], ask: Ask) -> Iterator[Mapping[str, Any]]:
        """A line for each noise and severity."""
        for label, by_level in one.record.cells.items():
            for level, cell in by_level.items():
                ends = {"lower": cell.lower, "upper": cell.upper}
                yield {"estimator": one.record.estimator, "noise": label, "severity": level, "accuracy": cell.value, **ends}


def _baseline(name: str | None, estimator: str | None) -> tuple[str, Baseline] | None:
    """AlexNet on ImageNet-C, or another run, by its name."""
    if name is None or name == _ALEXNET:
        return None if name is None else ("AlexNet", ALEXNET)
    other = read_run(Path(name))
    return other.info["name"], baseline_of(corruption_report(other, estimator))


def _table(found: Sequence[Found[CorruptionReport]]) -> Table:
    several = len(found) > 1
    reports = [one.record for one in found]
    levels = sorted({level for report in reports for level in report.levels})
    against = any(report.against for report in reports)
    rows, intervals = [], [one.record.error_intervals() for one in found]
    for label in dict.fromkeys(label for report in reports for label in report.cells):
        for one, ends in zip(found, intervals, strict=True):
            report, errors = one.record, one.record.errors
            by_level = report.cells.get(label, {})
            values = (
                numbers.with_percents(cell.value, cell.lower, cell.upper) if (cell := by_level.get(level)) is not None else ""
                for level in levels
            )
            mean = _percent(sum(errors[label]) / len(errors[label]), ends.get(label)) if label in errors else ""
            relative = [] if not against else ["" if report.against is None else _relative(report.against[1], label)]
            rows.append(cells((label, *([one.name] if several else []), *values, mean, *relative)))
    heads = (*(f"{level:g}" for level in levels), "mean error", *(["CE"] if against else []))
    named = [(f"{one.name}: " if several else "", one.record) for one in found]
    return Table(
        f"Accuracy by severity: share of noisy copies classified correctly ({reports[0].estimator})",
        (Column("noise"), *([Column("run")] if several else []), *(Column(head, number=True) for head in heads)),
        tuple(rows),
        lines=tuple(f"{name}without noise {report.clean:.1%}" for name, report in named),
        notes=(
            f"[ ] 95 % interval, {LIKE_THESE}; of errors over severities and noises: bootstrap (percentiles).",
            *(f"{name}{text}" for name, report in named for text in _conclusions(report)),
        ),
    )


def _conclusions(report: CorruptionReport) -> list[str]:
    left_out = [label for label in report.cells if label not in report.errors]
    over = "1 noise" if len(report.errors) == 1 else f"{len(report.errors)} noises"
    found = []
    if report.errors:
        found.append(f"mean error {_percent(mean_error(report.errors), report.mean_error_interval)}, over {over} and 5 severities.")
    if left_out:
        found.append(f"Not at all five severities, and in no mean: {', '.join(left_out)}.")
    if report.against is not None:
        name, absolute, relative = report.against
        found.append(
            f"mCE {_percent(absolute.value, absolute.interval)}, relative mCE {_percent(relative.value, relative.interval)} "
            f"(against {name}: the mean over {len(absolute.by_corruption)})."
        )
        if absolute.missing:
            few = ", ".join(absolute.missing)
            found.append(
                f"Not measured: {few}. The published mCE is the mean over all {len(absolute.missing) + len(absolute.by_corruption)}."
            )
    return found


def _relative(error: CorruptionError, label: str) -> str:
    value = error.by_corruption.get(label)
    return "" if value is None else _percent(value, error.intervals.get(label))


def _percent(value: float, ends: Bounds | None) -> str:
    return f"{value:.1%}" if ends is None else numbers.with_percents(value, *ends)
