"""`robaudit scores`: scores of the radii of a run, or of two side by side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

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
    from collections.abc import Sequence

    from rich.console import RenderableType

    from robaudit.gates.decide import Decision, Verdict
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
    from robaudit.gates.decide import EXIT_CODES, check_confidence, decide, overall
    from robaudit.spec.gates import QUANTITIES, parse_gate
    from robaudit.stats.scores import radii_of, scores_of
    from robaudit.store.run import read_run

    level = 0.95 if confidence is None else confidence
    check_confidence(level)
    asked = [parse_gate(one, QUANTITIES, "--gate") for one in gates or ()]
    opened = [read_run(run) for run in runs]
    found = [[_kept(one, run, only_correct) for one in radii_of(run, estimator or (), LevelChoice(tuple(noise or ())))] for run in opened]
    decisions = decide(opened[-1], asked, population=population, point=point, confidence=level) if asked else ()
    counts: Verdict = "inconclusive" if inconclusive is None else inconclusive.value
    if len(found) == 1:
        one_run = [scores_of(one, level) for one in found[0]]
        _emit(format_, *_of_one(one_run), decisions, counts, output)
    else:
        _emit(format_, *_of_two(_paired(opened, found, level), opened), decisions, counts, output)
    raise typer.Exit(EXIT_CODES[overall(decisions, counts)] if decisions else 0)


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


def _of_one(every: Sequence[Scores]) -> tuple[list[RenderableType], str, list[dict[str, Any]]]:
    from robaudit.report.score_tables import score_table, scores_csv

    return [score_table(one) for one in every], scores_csv(every), [one.document() for one in every]


def _of_two(every: Sequence[ScoreChanges], runs: Sequence[Run]) -> tuple[list[RenderableType], str, list[dict[str, Any]]]:
    from robaudit.report.score_tables import change_table, changes_csv

    names = [run.info["name"] for run in runs]
    shown = names if names[0] != names[1] else ["base", "new"]
    return [change_table(one, shown) for one in every], changes_csv(every), [one.document() for one in every]


def _emit(
    format_: TextFormat,
    tables: Sequence[RenderableType],
    csv: str,
    documents: Sequence[dict[str, Any]],
    decisions: Sequence[Decision],
    inconclusive: Verdict,
    to: Path | None,
) -> None:
    """Print or write the scores; tables have the gates below them, JSON has them beside."""
    from rich.text import Text

    from robaudit.cli.console import output, plain_text, say
    from robaudit.cli.streams import emit, reader_may_leave
    from robaudit.gates.text import lines
    from robaudit.store.serialise import document_json

    verdicts = [line for _, line in lines(decisions, inconclusive)] if decisions else []
    if format_ is TextFormat.JSON:
        emit(document_json({"results": list(documents), "gates": [one.document() for one in decisions]}), to)
    elif format_ is TextFormat.CSV:
        emit(csv, to)
        for line in verdicts:
            say(line)
    elif to is not None:
        emit(plain_text(*tables) + "".join(f"{line}\n" for line in verdicts), to)
    else:
        with reader_may_leave():
            for table in tables:
                output().print(table)
            for line in verdicts:
                output().print(Text(line), soft_wrap=True)
