"""`robaudit scores`: scores of the radii of a run, or of two side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
    NoiseFilter,
    OutputOption,
    PointOption,
    PopulationOption,
    TextFormat,
)
from robaudit.errors import NothingLeftError, RunError, SpecError
from robaudit.levels import LevelChoice

if TYPE_CHECKING:
    from rich.console import RenderableType

    from robaudit.stats.scores import Radii, ScoreChanges, Scores
    from robaudit.store.run import Run


def scores(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN [NEW]", help="A run with radii, or two on the same images to compare.")],
    estimator: EstimatorFilter = None,
    noise: NoiseFilter = None,
    only_correct: Annotated[
        bool, typer.Option("--only-correct", help="Leave misclassified images out instead of counting them as 0.")
    ] = False,
    gates: GatesOption = None,
    population: PopulationOption = False,
    point: PointOption = False,
    confidence: ConfidenceOption = None,
    inconclusive: InconclusiveOption = None,
    format_: FormatOption = TextFormat.TABLE,
    output: OutputOption = None,
) -> None:
    """Summarise radii: mean (r_m) and minimum (r_w), relative to how difficult the images are (r_nu), and on easy against hard images.

    Of two runs, both and the difference on the images they share. Gates are about the last run and all its images: exit code as of
    robaudit gate.

    Example: robaudit scores runs/spec-1a2b3c4d --gate "r_m(norm=l2) >= 0.3"
    """
    if len(runs) > 2:
        raise SpecError("robaudit scores", f"one run or two, not {len(runs)}", "write: robaudit scores RUN [NEW]")
    from robaudit.stats.scores import radii_of, scores_of
    from robaudit.store.run import read_run

    asked = AskedGates.of(gates, population, point, confidence, inconclusive)
    opened = [read_run(run) for run in runs]
    found = [[_kept(one, run, only_correct) for one in radii_of(run, estimator or (), LevelChoice(tuple(noise or ())))] for run in opened]
    decisions = asked.decided(opened[-1])
    if len(found) == 1:
        shown = _of_one([scores_of(one, asked.confidence) for one in found[0]])
    else:
        shown = _of_two(_paired(opened, found, asked.confidence), opened)
    emit_gated(format_, *shown, decisions, asked, output, opened)
    asked.leave(decisions)


def _kept(radii: Radii, run: Run, only_correct: bool) -> Radii:
    """The radii, or those of the correct images.

    Raises:
        NothingLeftError: there is none.
    """
    if not only_correct:
        return radii
    if not radii.correct.any():
        raise NothingLeftError(str(run.path), f"{radii.key}: every image is misclassified", "leave --only-correct out")
    return radii.only_correct()


def _paired(runs: Sequence[Run], found: Sequence[Sequence[Radii]], confidence: float) -> list[ScoreChanges]:
    """The results that both runs have, compared.

    Raises:
        RunError: there is none, or the runs have different images under the same ids, or different noise under the same name.
    """
    from robaudit.compare.matching import check_same_images, check_same_noise
    from robaudit.stats.scores import score_changes

    check_same_images(*runs)
    check_same_noise(*runs)
    new = {one.key: one for one in found[1]}
    pairs = [(one, new[one.key]) for one in found[0] if one.key in new]
    if not pairs:
        there = ", ".join(str(one.key) for one in found[1])
        raise RunError(str(runs[1].path), f"has no radii that {runs[0].path} has", f"it has {there}")
    return [score_changes(*pair, f"{runs[0].path} and {runs[1].path}", confidence) for pair in pairs]


Shown = tuple[list["RenderableType"], Callable[[], str], Callable[[], list[dict[str, Any]]]]


def _of_one(every: Sequence[Scores]) -> Shown:
    from robaudit.report.score_tables import score_table, scores_csv

    return [score_table(one) for one in every], lambda: scores_csv(every), lambda: [one.document() for one in every]


def _of_two(every: Sequence[ScoreChanges], runs: Sequence[Run]) -> Shown:
    from robaudit.report.score_tables import change_table, changes_csv

    names = [run.info["name"] for run in runs]
    shown = names if names[0] != names[1] else ["base", "new"]
    return [change_table(one, shown) for one in every], lambda: changes_csv(every), lambda: [one.document() for one in every]
