"""`robaudit certified`: certified accuracy against radius, of one run or of several side by side."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from robaudit.cli.gated import AskedGates, emit_gated
from robaudit.cli.options import (
    ConfidenceOption,
    EstimatorFilter,
    FormatOption,
    GatesOption,
    InconclusiveOption,
    LevelFilter,
    NoiseFilter,
    OutputOption,
    PointOption,
    PopulationOption,
    SigmaFilter,
    TextFormat,
    levels,
)
from robaudit.errors import SpecError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from robaudit.report.certified_tables import OfRun


def certified(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Runs with certified radii; several are shown side by side.")],
    radius: Annotated[
        list[str] | None,
        typer.Option("--radius", metavar="R", help="Certified accuracy at this radius (repeatable). Default: 0, 0.25, 0.5, ..."),
    ] = None,
    curve: Annotated[bool, typer.Option("--curve", help="With CSV or JSON: every radius at which it falls.")] = False,
    estimator: EstimatorFilter = None,
    noise: NoiseFilter = None,
    level: LevelFilter = None,
    sigma: SigmaFilter = None,
    gates: GatesOption = None,
    population: PopulationOption = False,
    point: PointOption = False,
    confidence: ConfidenceOption = None,
    inconclusive: InconclusiveOption = None,
    format_: FormatOption = TextFormat.TABLE,
    output: OutputOption = None,
) -> None:
    """Report certified accuracy: the share of images whose class provably stays the same within a radius, and is the label.

    Also how often nothing or another class is certified, and the mean, median and largest certified radius. Gates are about the last
    run: exit code as of robaudit gate.

    Example: robaudit certified runs/spec-1a2b3c4d --radius 0.5 --gate "certified_accuracy(radius=0.5) >= 0.6"
    """
    if curve and (radius or format_ is TextFormat.TABLE):
        what = "has radii of its own" if radius else "is too long for a table"
        raise SpecError("--curve", what, "leave --radius out" if radius else "add --format csv or --format json")
    radii = tuple(_radii(radius or ()))
    from robaudit.report.certified_tables import certified_csv, certified_tables, curve_csv, of_runs
    from robaudit.store.run import read_run

    asked = AskedGates.of(gates, population, point, confidence, inconclusive)
    opened = [read_run(run) for run in runs]
    found = of_runs(opened, estimator or (), levels(noise, level, sigma), asked.confidence)
    decisions = asked.decided(opened[-1])
    emit_gated(
        format_,
        [certified_tables(found, radii)],
        lambda: curve_csv(found) if curve else certified_csv(found, radii),
        lambda: list(_documents(found, radii, curve=curve)),
        decisions,
        asked,
        output,
        opened,
    )
    asked.leave(decisions)


def _radii(texts: Sequence[str]) -> Iterator[float]:
    """The radii asked for, each once, ascending.

    Raises:
        SpecError: one is no number, or is negative.
    """
    from robaudit.spec.fields import as_number

    numbers = set[float]()
    for text in texts:
        try:
            number = float(str(as_number(text)))
        except ValueError:
            number = math.nan
        if not 0.0 <= number < math.inf:
            raise SpecError(f"--radius {text}", "is not a radius", "give 0 or a positive number such as 0.5 or 8/255")
        numbers.add(number)
    yield from sorted(numbers)


def _documents(every: Sequence[OfRun], radii: Sequence[float], *, curve: bool) -> Iterator[dict[str, Any]]:
    from robaudit.report.certified_tables import radii_beside

    for one in every:
        steps = {"curve": one.accuracy.curve().document()} if curve else {}
        yield {"run": one.run, **one.accuracy.document(radii or radii_beside(one, every)), **steps}
