"""`robaudit show`: print a run's tables again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from robaudit.cli.options import EstimatorFilter, RunArgument, SigmaFilter, sigmas

if TYPE_CHECKING:
    from collections.abc import Sequence

    from robaudit.store.run import Run


def show(run: RunArgument, estimator: EstimatorFilter = None, sigma: SigmaFilter = None) -> None:
    """Print the tables of a finished run again.

    Example: robaudit show runs/spec-1a2b3c4d
    """
    from robaudit.store.run import read_run

    print_run(read_run(run), estimator or (), sigmas(sigma))


def print_run(run: Run, estimators: Sequence[str] = (), levels: Sequence[float] = ()) -> None:
    """The header, the tables and where the files are."""
    from rich.markup import escape

    from robaudit.cli.console import output
    from robaudit.reports.headline import headline
    from robaudit.reports.tables import overall_tables

    console = output()
    found = {(group.key.estimator, group.key.sigma): group for group in run.summary()}
    groups = [found[key] for key in run.chosen(found, estimators, levels)]
    for line in headline(run.info):
        console.print(escape(line))
    console.print()
    console.print(overall_tables(groups, run.seconds, run.quantities))
    console.print()
    console.print(escape(f"Files: {run.path}/samples.csv, samples.json, summary.json, run.json"))
