"""Results that print as the tables of the command line, and show as Markdown in a notebook."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Self, TypeVar

from robaudit.gates.decide import Decision, Verdict, overall
from robaudit.gates.decision_text import lines
from robaudit.report.html.facts import decision_table
from robaudit.report.tables import Table, Terminal, markdown_text
from robaudit.settings import in_python

T = TypeVar("T")


class Results(tuple[T, ...]):
    """A tuple of results; its repr is their tables."""

    _tables: tuple[Table, ...]

    def __new__(cls, items: Iterable[T], tables: Iterable[Table]) -> Self:
        """The results and their tables."""
        results = super().__new__(cls, items)
        results._tables = tuple(tables)
        return results

    def __repr__(self) -> str:
        return str(Terminal(self._tables)) or "()"

    def _repr_markdown_(self) -> str:
        return markdown_text(self._tables)

    def __reduce__(self) -> tuple[Any, ...]:
        # Copies and pickles are plain tuples, without the tables.
        return tuple, (tuple(self),)


class Decisions(tuple[Decision, ...]):
    """The decisions on gates; the repr is one line for each, and one for all.

    Attributes:
        inconclusive: what an inconclusive gate counts as.
    """

    inconclusive: Verdict

    def __new__(
        cls, decisions: Sequence[Decision], inconclusive: Verdict = "inconclusive"
    ) -> Decisions:
        """The decisions."""
        results = super().__new__(cls, decisions)
        results.inconclusive = inconclusive
        return results

    @property
    def verdict(self) -> Verdict:
        """``fail`` if a gate fails, else ``inconclusive`` if one is, else ``pass``."""
        return overall(self, self.inconclusive)

    @property
    def passed(self) -> bool:
        """Whether all pass."""
        return self.verdict == "pass"

    def __repr__(self) -> str:
        return "\n".join(in_python(line) for _, line in lines(self, self.inconclusive))

    def _repr_markdown_(self) -> str:
        # The last line is about all gates together.
        _, conclusion = lines(self, self.inconclusive)[-1]
        gates = decision_table([decision.document() for decision in self])
        # Gates on the same results have the same evidence, which is said once.
        evidence = dict.fromkeys(
            in_python(decision.evidence) for decision in self if decision.evidence
        )
        table = Table(
            "Gates",
            gates.columns,
            gates.rows,
            lines=(in_python(conclusion),),
            notes=tuple(evidence),
        )
        return markdown_text([table])

    def __reduce__(self) -> tuple[Any, ...]:
        return Decisions, (tuple(self), self.inconclusive)


class Page(str):
    """A report as HTML; a notebook shows it in a frame of its own."""

    __slots__ = ()

    def __repr__(self) -> str:
        # The page itself would fill the screen.
        size = len(self.encode()) / 1e6
        return f"<HTML report, {size:.2f} MB: run.report('report.html') writes it>"

    def _repr_html_(self) -> str:
        from html import escape

        style = "width:100%;height:40em;border:1px solid #8884"
        page = escape(self, quote=True)
        # Sandboxed: its scripts cannot reach the notebook.
        return f'<iframe srcdoc="{page}" style="{style}" sandbox="allow-scripts"></iframe>'
