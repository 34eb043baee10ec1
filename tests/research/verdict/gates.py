"""Passes and seconds until a gate is decided, on the right side of the truth and on the wrong
one."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from robaudit.auditing.audit import audit
from robaudit.auditing.until import sample_until_decided
from robaudit.gates.sources import parsed
from tests.research.benchmarks.report import Table, number, target
from tests.research.verdict.pairs import MOST, PUBLISHED, Pair, Truth, truth_of, whole_truth_of

AIM = 1 / 50
"""Of the passes of all copies, in the median."""
NEVER = 1.1
"""Of the passes of all copies."""


@dataclass(frozen=True, slots=True)
class Question:
    """A gate beside the truth.

    Attributes:
        statistic: of the gate.
        distance: of its threshold from the truth.
        population: whether it is about images like these.
    """

    statistic: str
    distance: float
    population: bool = False

    @property
    def text(self) -> str:
        """The question as the caption of a table."""
        images = "images like these" if self.population else "these images"
        return f"{self.statistic}, {self.distance:g} from the truth, {images}"


MEAN = Question("mean", 0.02)
OF_POPULATION = Question("mean", 0.03, population=True)
WORST_CLASS = Question("worst_class", 0.05)
QUESTIONS = (MEAN, OF_POPULATION, WORST_CLASS)


@dataclass(frozen=True, slots=True)
class Verdict:
    """An audit until a gate is decided.

    Attributes:
        wanted: the right verdict.
        found: the verdict.
        passes: forward passes.
        images: that it took.
        draws: copies of each of them.
        seconds: start-up of the process left out, checks of the input included.
    """

    wanted: str
    found: str
    passes: int
    images: int
    draws: int
    seconds: float


def truths(question: Question, pair: Pair, cache: Path) -> float | None:
    """What is true of a pair; None where the question makes no sense."""
    if question.population:
        return whole_truth_of(pair, cache) if pair.whole_draws else None
    if question.statistic == "mean":
        return truth_of(pair, cache).mean
    return truth_of(pair, cache).worst_class if pair.by_class else None


def verdicts(question: Question, pair: Pair, truth: float, images: int) -> Iterator[Verdict]:
    """Audits with a threshold below the truth and above it, each with a seed of its own.

    Args:
        question: the gate.
        pair: network and noise.
        truth: the true value of its statistic.
        images: with a question about the population, the size of the random subset.
    """
    sides = (("pass", -question.distance), ("fail", question.distance))
    for seed in range(pair.repeats):
        subset = images if question.population else None
        spec = pair.spec(seed=seed, subset=subset)
        for wanted, distance in sides:
            gates = parsed([f"{question.statistic} >= {truth + distance:.6f}"], "gate")
            with tempfile.TemporaryDirectory() as folder:
                started = time.perf_counter()
                outcome = sample_until_decided(
                    spec, gates, Path(folder) / "run", audit, population=question.population
                )
                seconds = time.perf_counter() - started
            totals = outcome.run.info.totals
            schedule = outcome.run.info.until_decided
            yield Verdict(
                wanted,
                outcome.decisions[0].verdict,
                totals.forwards,
                totals.samples,
                schedule.draws[-1] if schedule is not None else 0,
                seconds,
            )


@dataclass(frozen=True, slots=True)
class Line:
    """The verdicts on a pair.

    Attributes:
        pair: network and noise.
        truth: the true value.
        images: at the start of each audit.
        verdicts: of all audits.
        seconds_a_pass: of an audit with many copies.
    """

    pair: str
    truth: float
    images: int
    verdicts: Sequence[Verdict]
    seconds_a_pass: float

    @property
    def all_passes(self) -> int:
        """The passes of all copies of each image, and of the images themselves."""
        return self.images * (1 + MOST)

    def ratio(self, wanted: str) -> float:
        """The median passes of the audits with this right verdict, of those of all copies."""
        passes = [one.passes for one in self.verdicts if one.wanted == wanted]
        return statistics.median(passes) / self.all_passes

    @property
    def largest_ratio(self) -> float:
        """The most passes of an audit, of those of all copies."""
        return max(one.passes for one in self.verdicts) / self.all_passes

    def row(self) -> list[str]:
        """The row of the table."""
        right = sum(one.found == one.wanted for one in self.verdicts)
        open_ = sum(one.found == "inconclusive" for one in self.verdicts)
        wrong = len(self.verdicts) - right - open_
        passes = statistics.median(one.passes for one in self.verdicts)
        images = statistics.median(one.images for one in self.verdicts)
        seconds = statistics.median(one.seconds for one in self.verdicts)
        return [
            self.pair,
            f"{self.truth:.3f}",
            f"{right} / {open_} / {wrong}",
            f"{images:,.0f}",
            f"{passes:,.0f}",
            fraction(self.ratio("pass")),
            fraction(self.ratio("fail")),
            fraction(self.largest_ratio),
            fraction(passes / self.images / (1 + PUBLISHED)),
            number(seconds),
            number(self.all_passes * self.seconds_a_pass),
        ]


HEADERS = (
    "network, noise",
    "truth",
    "right / open / wrong",
    "images",
    "passes",
    "passed, of 1,000 copies",
    "failed, of 1,000 copies",
    "most, of 1,000 copies",
    "of 10,000 copies",
    "s",
    "s of 1,000 copies",
)


def line(question: Question, pair: Pair, cache: Path) -> Line | None:
    """The verdicts on a pair; None where the question makes no sense."""
    truth = truths(question, pair, cache)
    if truth is None:
        return None
    known: Truth = truth_of(pair, cache)
    images = len(known.values)
    found = tuple(verdicts(question, pair, truth, images))
    return Line(pair.name, truth, images, found, known.seconds_a_pass)


def table(question: Question, lines: Sequence[Line]) -> Table:
    """All pairs of a question."""
    return Table(HEADERS, [each.row() for each in lines], f"**{question.text}**")


def targets(question: Question, lines: Sequence[Line]) -> list[list[str]]:
    """The aims of a question."""
    ratios = [each.ratio(wanted) for each in lines for wanted in ("pass", "fail")]
    most = max(each.largest_ratio for each in lines)
    return [
        target(f"{question.text}: median of passes", AIM, statistics.median(ratios)),
        target(f"{question.text}: most passes", NEVER, most),
    ]


def fraction(ratio: float) -> str:
    """A share of passes, such as 1/50; from a half on as a number."""
    return f"1/{1 / ratio:.0f}" if ratio < 0.5 else f"{ratio:.2f}"
