"""Passes for the list of images below one half, and whether it names the same images."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from robaudit.auditing.audit import audit
from robaudit.runs.run import Run
from robaudit.stats.flags import Certainty, certainties_of
from tests.research.benchmarks.report import Table, target
from tests.research.verdict.gates import NEVER, fraction
from tests.research.verdict.pairs import MOST, Pair, truth_of, with_all_copies

AIM = 1 / 10
"""Of the passes of all copies, in the median."""
FLAG = 0.5


@dataclass(frozen=True, slots=True)
class Line:
    """The list of a pair beside that of all copies.

    Attributes:
        pair: network and noise.
        images: number of images.
        passes: of the audit with a flag.
        below: number of images below the flag by the long audit.
        confirmed: number of images that the audit with a flag confirms.
        lost: of those that all copies confirm, the number that it does not; None: all copies
            of each image were too many.
        added: of those that it confirms, the number that all copies do not.
        wrong: of those that it confirms, the number that the long audit puts on the other side.
    """

    pair: str
    images: int
    passes: int
    below: int
    confirmed: int
    lost: int | None
    added: int | None
    wrong: int

    @property
    def ratio(self) -> float:
        """The passes, of those of all copies."""
        return self.passes / self.images / (1 + MOST)

    def row(self) -> list[str]:
        """The row of the table."""
        return [
            self.pair,
            f"{self.below}",
            f"{self.confirmed}",
            "-" if self.lost is None else f"{self.lost}",
            "-" if self.added is None else f"{self.added}",
            f"{self.wrong}",
            f"{self.passes:,}",
            fraction(self.ratio),
        ]


HEADERS = (
    "network, noise",
    "below .5",
    "confirmed",
    "confirmed by 1,000 copies only",
    "not by 1,000 copies",
    "wrong",
    "passes",
    "of 1,000 copies",
)


def confirmed(run: Run) -> frozenset[str]:
    """The samples that a run confirms to be below the flag."""
    (columns,) = run.table.values()
    certainties = certainties_of(columns, FLAG, 1.0)
    pairs = zip(columns.names, certainties, strict=True)
    return frozenset(name for name, certainty in pairs if certainty is Certainty.CONFIRMED)


def line(pair: Pair, cache: Path, *, beside_all: bool) -> Line:
    """The list of a pair.

    Args:
        pair: network and noise.
        cache: the folder of long audits.
        beside_all: compare it with the list of all copies.
    """
    truth = truth_of(pair, cache)
    with tempfile.TemporaryDirectory() as folder:
        run = audit(pair.spec(flag=FLAG), out=Path(folder) / "run")
        found = confirmed(run)
    of_all = confirmed(with_all_copies(pair, cache, seed=0)) if beside_all else None
    return Line(
        pair=pair.name,
        images=len(truth.values),
        passes=run.info.totals.forwards,
        below=sum(value < FLAG for value in truth.values.values()),
        confirmed=len(found),
        lost=None if of_all is None else len(of_all - found),
        added=None if of_all is None else len(found - of_all),
        wrong=sum(truth.values[sample] > FLAG for sample in found),
    )


def table(lines: Sequence[Line]) -> Table:
    """All pairs."""
    return Table(HEADERS, [each.row() for each in lines], "**Images below .5**")


def targets(lines: Sequence[Line]) -> list[list[str]]:
    """The aims of lists."""
    ratios = [each.ratio for each in lines]
    return [
        target("list of images: median of passes", AIM, statistics.median(ratios)),
        target("list of images: most passes", NEVER, max(ratios)),
    ]
