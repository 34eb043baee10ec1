"""`robaudit verify`: check that the numbers of a run can be reproduced and agree with each
other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from robaudit.cli.options import (
    OutputOption,
    RunArgument,
    SummaryFormatOption,
    TrustOption,
)
from robaudit.errors import RobauditError
from robaudit.settings import RUNNING
from robaudit.text import printable

if TYPE_CHECKING:
    from rich.console import RenderableType

    from robaudit.auditing.verification import Verification
    from robaudit.runs.run import Run
    from robaudit.stats.consistency import Consistency

DIFFERENT = 1
"""Exit code: rows are not reproduced."""
FALSE_DECLARATION = 2
"""Exit code: results contradict each other because of a false declaration in the spec; as for any
mistake of the user."""
CONTRADICTED = 3
"""Exit code: results contradict each other because of a bug in an estimator; as for any internal
error."""
_MOST_SHOWN = 20
_BOUND = 10**9
"""Above the size of any data set."""


def verify(
    run: RunArgument,
    samples: Annotated[
        str,
        typer.Option(
            metavar="N|all",
            rich_help_panel=RUNNING,
            help="How many samples to recompute, drawn at random; 0: check the files, and "
            "compare results with each other.",
        ),
    ] = "20",
    seed: Annotated[
        int | None,
        typer.Option(
            min=0, rich_help_panel=RUNNING, help="Seed of that draw. Default: a new one each time."
        ),
    ] = None,
    device: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=RUNNING,
            help="cpu, cuda or cuda:1. Default: the kind of device the run was made on.",
        ),
    ] = None,
    trust: TrustOption = False,
    format_: SummaryFormatOption = "text",
    output: OutputOption = None,
    quiet: Annotated[
        bool,
        typer.Option(
            "--quiet",
            "-q",
            rich_help_panel="Output",
            help="Print only differences, contradictions, warnings and errors.",
        ),
    ] = False,
) -> None:
    """Recompute rows of a run from its weights and data, and compare its results with each other.

    Numbers may differ by float rounding: by 5e-4 of their distance to the nearer end of their
    range, and by two votes. Exit code 1: a row differs; 3: results exclude each other, which only a
    bug in an estimator explains; 2: the run cannot be recomputed (its weights are gone, say;
    results are still compared), or results are wrong because the spec declares something false of
    the network.

    Example: robaudit verify runs/spec-1a2b3c4d --samples all
    """
    # Before the imports that follow, which take a while.
    most = _number_of_samples(samples)
    from robaudit.stats.reading import read_run

    # With the draws that kept the class, which are recomputed, too.
    opened = read_run(run, kept=True)
    if output is not None:
        from robaudit.cli.output_streams import check_output

        check_output(output)
    from robaudit.stats.consistency import check

    result, missing = _recomputed(opened, most, seed, device, trust=trust, quiet=quiet)
    consistency = check(opened)
    if format_ == "json":
        _write_json(result, missing, consistency, output)
    else:
        _print(_lines(opened, result, quiet=quiet), consistency, output, quiet=quiet)
    raise typer.Exit(_exit_code(result, missing, consistency))


def _write_json(
    result: Verification, missing: RobauditError | None, consistency: Consistency, to: Path | None
) -> None:
    """Write what was checked as JSON."""
    from robaudit.cli.output_streams import emit
    from robaudit.records import json_values
    from robaudit.runs.serialise import document_json

    document = {
        "recomputed": json_values(result),
        "not_recomputed": None if missing is None else str(missing),
        "checks": consistency.document(),
    }
    emit(document_json(document), to)


def _exit_code(
    result: Verification, missing: RobauditError | None, consistency: Consistency
) -> int:
    """The exit code, by the worst that was found; what is to blame is printed to standard error.

    Args:
        result: of the recomputed rows.
        missing: why none were recomputed.
        consistency: of the results with each other.

    Raises:
        RobauditError: the rows could not be recomputed, and nothing else is wrong.
    """
    from robaudit.cli.console import say
    from robaudit.report.consistency_tables import blame_lines
    from robaudit.stats.relations import Verdict

    if not result.good:
        # Rows that cannot be reproduced are no evidence against an estimator.
        return DIFFERENT
    for line in blame_lines(consistency):
        say(line)
    if consistency.violations:
        return CONTRADICTED
    # After the contradictions: they are found without the weights, too.
    if missing is not None:
        raise missing
    return FALSE_DECLARATION if consistency.with_verdict(Verdict.DECLARED) else 0


def _recomputed(
    run: Run, samples: int | None, seed: int | None, device: str | None, *, trust: bool, quiet: bool
) -> tuple[Verification, RobauditError | None]:
    """The result, and the error that kept samples from being recomputed.

    What needs no recomputed samples is checked all the same.
    """
    from robaudit.auditing.verification import verify as check
    from robaudit.cli.console import Reporter

    # Not patient: nothing is written, so Ctrl-C ends it at once.
    try:
        with Reporter(quiet=quiet, patient=False) as reporter:
            result = check(run, samples, seed=seed, device=device, trust=trust, listener=reporter)
            return result, None
    except RobauditError as error:
        # With no samples, neither model nor data are opened.
        return check(run, 0), error


def _lines(run: Run, result: Verification, *, quiet: bool) -> Iterator[str]:
    """How many rows were reproduced, and the differences."""
    yield from (f"{run.path}/{name} has changed since it was written" for name in result.altered)
    for difference in result.differences[:_MOST_SHOWN]:
        where = f"{difference.row.sample_id}, {difference.row.estimator} at {difference.row.at}"
        written = _shown(difference.recorded)
        recomputed = _shown(difference.recomputed)
        yield f"{printable(where)}: {difference.field} is {written} in the run and {recomputed} now"
    if len(result.differences) > _MOST_SHOWN:
        yield f"and {len(result.differences) - _MOST_SHOWN} more"
    if result.samples and (not quiet or not result.good):
        verdict = f"all as written, {_bits(result)}"
        if result.differences:
            verdict = f"{len(result.differences)} numbers differ"
        yield f"{result.rows} rows of {result.samples} samples recomputed: {verdict}"


def _print(lines: Iterable[str], consistency: Consistency, to: Path | None, *, quiet: bool) -> None:
    """Print the lines and, below them, the consistency of the results."""
    from rich.text import Text

    from robaudit.cli.console import show
    from robaudit.report.consistency_tables import checks
    from robaudit.report.tables import Terminal

    renderables: list[RenderableType] = [Text(line) for line in lines]
    if consistency.contradictions or not quiet:
        if renderables:
            renderables.append(Text())
        renderables.append(Terminal(checks(consistency)))
    show(*renderables, to=to)


def _bits(result: Verification) -> str:
    """How exactly the rows were reproduced."""
    different = result.rows - result.identical
    return f"{different} of them up to rounding" if different else "bit for bit"


def _number_of_samples(text: str) -> int | None:
    """The value of ``--samples``; None: all.

    Raises:
        RobauditError: it is not a whole number.
    """
    if text == "all":
        return None
    # isdecimal alone takes the digits of every script.
    is_number = text.isascii() and text.isdecimal()
    if not is_number or int(text) >= _BOUND:
        raise RobauditError(
            f"--samples {text}", "is not a number of samples", "give a whole number, or all"
        )
    return int(text)


def _shown(value: object) -> str:
    """A number of a row, or a text with control characters as escapes."""
    return ascii(value) if isinstance(value, str) else str(value)
