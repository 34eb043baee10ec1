"""Commands that print results and, below them, gates on these: what was asked, the decisions, and the exit code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import typer

from robaudit.cli.options import Inconclusive, TextFormat

if TYPE_CHECKING:
    from rich.console import RenderableType

    from robaudit.gates.decide import Decision, Verdict
    from robaudit.spec.gates import Gate
    from robaudit.store.run import Run


@dataclass(frozen=True, slots=True)
class AskedGates:
    """The gates on the command line, and how they are decided.

    Attributes:
        gates: in their order.
        population, point: see :func:`robaudit.gates.decide.decide`.
        confidence: of their intervals, and of all others that the command prints.
        inconclusive: what an inconclusive one counts as.
    """

    gates: Sequence[Gate]
    population: bool
    point: bool
    confidence: float
    inconclusive: Verdict

    @classmethod
    def of(
        cls, gates: Sequence[str] | None, population: bool, point: bool, confidence: float | None, inconclusive: Inconclusive | None
    ) -> AskedGates:
        """Those of the options.

        Raises:
            SpecError: one is no gate, or the confidence is out of range.
        """
        from robaudit.gates.decide import check_confidence
        from robaudit.spec.gates import QUANTITIES, parse_gate

        level = 0.95 if confidence is None else confidence
        check_confidence(level)
        parsed = [parse_gate(one, QUANTITIES, "--gate") for one in gates or ()]
        return cls(parsed, population, point, level, "inconclusive" if inconclusive is None else inconclusive.value)

    def decided(self, run: Run) -> Sequence[Decision]:
        """The decisions on a run."""
        from robaudit.gates.decide import decide

        if not self.gates:
            return ()
        return decide(run, self.gates, population=self.population, point=self.point, confidence=self.confidence)

    def leave(self, decisions: Sequence[Decision]) -> NoReturn:
        """End the command with the exit code of its gates."""
        from robaudit.gates.decide import EXIT_CODES, overall

        raise typer.Exit(EXIT_CODES[overall(decisions, self.inconclusive)] if decisions else 0)


def emit_gated(
    format_: TextFormat,
    tables: Sequence[RenderableType],
    csv: Callable[[], str],
    documents: Callable[[], Sequence[dict[str, Any]]],
    decisions: Sequence[Decision],
    asked: AskedGates,
    to: Path | None,
    runs: Sequence[Run],
) -> None:
    """Print or write results; tables have the gates below them, JSON has them beside, and with CSV they are on standard error."""
    from rich.text import Text

    from robaudit.cli.console import leading_warnings, output, plain_text, say
    from robaudit.cli.streams import emit, reader_may_leave
    from robaudit.gates.text import lines
    from robaudit.store.serialise import document_json

    tables = [*leading_warnings(runs, in_table=format_ is TextFormat.TABLE), *tables]
    verdicts = [line for _, line in lines(decisions, asked.inconclusive)] if decisions else []
    if format_ is TextFormat.JSON:
        emit(document_json({"results": list(documents()), "gates": [one.document() for one in decisions]}), to)
    elif format_ is TextFormat.CSV:
        emit(csv(), to)
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
