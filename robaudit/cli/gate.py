"""`robaudit gate`: does a run meet its thresholds?"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from robaudit.cli.options import OutputOption, RunArgument, write_output
from robaudit.text import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from robaudit.gates.result import Decision, Verdict
    from robaudit.store.run import Run


class GateFormat(StrEnum):
    """How decisions are printed."""

    TEXT = "text"
    JSON = "json"
    JUNIT = "junit"
    GITHUB = "github"


class Inconclusive(StrEnum):
    """What an inconclusive gate counts as."""

    PASS = "pass"  # noqa: S105  no password
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"


GatesOption = Annotated[
    list[str] | None,
    typer.Option("--gate", metavar="GATE", help='What must hold, as "mean(estimator=mc, sigma=0.05) >= 0.9" (repeatable).'),
]
PopulationOption = Annotated[
    bool, typer.Option("--population", help="Intervals for images of this kind; else for the measurement of these images.")
]
PointOption = Annotated[bool, typer.Option("--point", help="Let a value without an interval (taylor, softmax) decide by itself.")]
InconclusiveOption = Annotated[
    Inconclusive | None, typer.Option(help="What a gate counts as that cannot be told: exit 0, 1 or 4. Default: inconclusive.")
]
ConfidenceOption = Annotated[float | None, typer.Option(metavar="P", help="Of each gate's interval. Default: 0.95.")]


def gate(
    run: RunArgument,
    gates: GatesOption = None,
    population: PopulationOption = False,
    point: PointOption = False,
    inconclusive: InconclusiveOption = None,
    confidence: ConfidenceOption = None,
    spec: Annotated[Path | None, typer.Option(metavar="SPEC.yaml", help="Take the gates of this spec.")] = None,
    pyproject: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Take those of tool.robaudit in this file. Default: ./pyproject.toml.")
    ] = None,
    format_: Annotated[GateFormat, typer.Option("--format", help="How to print it.")] = GateFormat.TEXT,
    output: OutputOption = None,
) -> None:
    """Decide whether a run meets its gates: exit 0 all pass, 1 one fails, 4 one cannot be told.

    Quantities: mean, median, p05, worst_class, class_gap, share_below(t=...), accuracy, noisy_accuracy.

    Example: robaudit gate runs/spec-1a2b3c4d --gate "mean(estimator=mc) >= 0.9" --gate "worst_class >= 0.7"
    """
    from robaudit.cli.console import messages
    from robaudit.gates.decide import decide
    from robaudit.gates.own import own_gates
    from robaudit.gates.record import confidence_of
    from robaudit.gates.sources import find_rules
    from robaudit.store.run import read_run

    opened = read_run(run)
    own = own_gates(opened)
    rules = find_rules(gates or (), spec=spec, pyproject=pyproject, own=own.texts, owner=own.where)
    each = confidence_of(own.looks, confidence, rules.confidence)
    decisions = decide(
        opened,
        rules.gates,
        population=population or bool(rules.population),
        point=point or bool(rules.point) or (rules.where == own.where and own.point),
        confidence=each,
    )
    if rules.where != "the command line":
        messages().print(f"gates of {printable(rules.where)}", markup=False)
    if own.looks is not None and confidence is None:
        messages().print(
            f"this run was sampled until gates were decided: each look, and so every gate, is at {100 * each:g} %", markup=False
        )
    if skipped := opened.info["totals"]["skipped"]:
        messages().print(f"{skipped} samples were skipped: the gates say nothing about them", markup=False)
    if any(one.more is not None and one.covers == "these images" for one in decisions):
        messages().print(
            "looking again after more draws is one more chance to be wrong: robaudit estimate --until-decided looks again without cheating",
            markup=False,
        )
    counts: Verdict = inconclusive.value if inconclusive is not None else rules.inconclusive or "inconclusive"
    raise typer.Exit(report(decisions, counts, format_, output, opened))


def report(
    decisions: Sequence[Decision], inconclusive: Verdict, format_: GateFormat, output: Path | None, run: Run, command: str = "gate"
) -> int:
    """Print or write the decisions; returns the exit code."""
    from robaudit.cli.console import messages
    from robaudit.cli.console import output as screen
    from robaudit.cli.printing import put
    from robaudit.cli.step_summary import append_step_summary
    from robaudit.cli.unread import unread_is_no_end
    from robaudit.gates.formats import Subject, document, github, junit, step_summary
    from robaudit.gates.result import EXIT_CODES, overall
    from robaudit.gates.text import lines

    subject, told = Subject.of(run.info, command), lines(decisions, inconclusive)
    texts = {GateFormat.JSON: document, GateFormat.JUNIT: junit, GateFormat.GITHUB: github}
    render = texts.get(format_)
    text = "".join(f"{line}\n" for _, line in told) if render is None else render(decisions, subject, inconclusive=inconclusive)
    if output is not None:
        write_output(output, text)
    else:
        with unread_is_no_end():
            if format_ is GateFormat.TEXT and screen().is_terminal:
                _coloured(told)
            else:
                put([text])
    if format_ is GateFormat.GITHUB:
        refused = append_step_summary(step_summary(decisions, subject, inconclusive=inconclusive))
        if refused is not None:
            messages().print(f"warning: {refused}", markup=False)
    return EXIT_CODES[overall(decisions, inconclusive)]


def _coloured(told: Sequence[tuple[Verdict, str]]) -> None:
    """Print lines on a terminal, the verdict that each begins with in its colour."""
    from rich.text import Text

    from robaudit.cli.console import output as screen

    colours = {"pass": "green", "fail": "red", "inconclusive": "yellow"}
    for verdict, line in told:
        shown = Text(line)
        shown.stylize(f"bold {colours[verdict]}", 0, line.index(verdict) + len(verdict))
        screen().print(shown, soft_wrap=True)
