"""How often an interval of any look misses the truth, and how often a gate is decided wrongly."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from robaudit.auditing.audit import audit
from robaudit.auditing.rounds import draws_of_rounds
from robaudit.auditing.until import GateAnalyses, sample_until_decided
from robaudit.estimates import Bounds
from robaudit.gates.decide import Decision, judge
from robaudit.gates.sources import parsed
from robaudit.runs.info import UntilDecided
from robaudit.runs.run import Run
from tests.research.benchmarks.report import Table
from tests.research.verdict.pairs import MOST, Pair, truth_of, whole_truth_of

CONFIDENCE = 0.95
STATISTICS = ("mean", "worst_class")
DISTANCES = (0.0, 0.002, 0.01)
"""Of a gate's threshold from the truth. At the truth every verdict is wrong."""
GROWING_DRAWS = 16
"""The most copies of each image where the images are what grows."""


class Watch(GateAnalyses):
    """The analyses of a run that takes all of its copies whatever they say.

    Attributes:
        bounds: of each gate's statistic, at each look.
    """

    def __init__(self, pair: Pair, until: UntilDecided, *, population: bool) -> None:
        gates = parsed([f"{statistic} >= 0.5" for statistic in STATISTICS], "gates")
        super().__init__(
            pair.spec(), gates, until, population=population, point=False, tell=self._take
        )
        self.bounds: list[list[Bounds]] = [[] for _ in STATISTICS]

    def __call__(self, run: Run) -> None:
        super().__call__(run)

    def _take(self, _: str, decisions: Sequence[Decision]) -> None:
        for bounds, decision in zip(self.bounds, decisions, strict=True):
            assert decision.estimate.bounds is not None
            bounds.append(decision.estimate.bounds)


@dataclass(frozen=True, slots=True)
class Errors:
    """The looks of many audits at one statistic.

    Attributes:
        name: of what.
        audits: number of seeds.
        high, low: number of audits with an interval above the truth, or below it, at any look.
        wrong: number of wrong verdicts, by the distance of the threshold from the truth; none
            where audits end at the first.
        width: mean width of the last interval.
    """

    name: str
    audits: int
    high: int
    low: int
    wrong: Sequence[int]
    width: float

    def row(self) -> list[str]:
        """The row of the table."""
        missed = self.high + self.low
        wrong = [str(number) for number in self.wrong] or ["-"] * len(DISTANCES)
        return [
            self.name,
            f"{self.audits}",
            f"{missed}",
            f"{missed / self.audits:.3f}",
            f"{self.high} / {self.low}",
            *wrong,
            f"{self.width:.4f}",
        ]


HEADERS = (
    "network, noise, images",
    "audits",
    "missed at any look",
    "share",
    "above / below",
    *(f"wrong gates, {distance:g} from the truth" for distance in DISTANCES),
    "last width",
)


def schedule(draws: int = MOST) -> UntilDecided:
    """Looks after every round."""
    possible = list(draws_of_rounds(draws))
    return UntilDecided(confidence=CONFIDENCE, possible=possible, draws=[], point=False)


def errors(
    name: str,
    seen: Sequence[Sequence[Bounds]],
    truth: float,
    distances: Sequence[float] = DISTANCES,
) -> Errors:
    """Count what is wrong.

    Args:
        name: of the statistic.
        seen: its bounds at all looks, by audit.
        truth: its true value.
        distances: of gates from the truth.
    """
    wrong = []
    for distance in distances:
        verdicts = [_wrong(bounds, truth, side * distance) for bounds in seen for side in (-1, 1)]
        # At the truth, both sides are the same gate.
        wrong.append(sum(verdicts) // (1 if distance else 2))
    return Errors(
        name=name,
        audits=len(seen),
        high=sum(any(lower > truth for lower, _ in bounds) for bounds in seen),
        low=sum(any(upper < truth for _, upper in bounds) for bounds in seen),
        wrong=wrong,
        width=sum(bounds[-1][1] - bounds[-1][0] for bounds in seen) / len(seen),
    )


def _wrong(bounds: Sequence[Bounds], truth: float, distance: float) -> bool:
    """Whether the first look that decides a gate at this distance from the truth decides
    wrongly."""
    right = "fail" if distance > 0 else "pass"
    for lower, upper in bounds:
        verdict = judge(">=", truth + distance, lower, upper)
        if verdict != "inconclusive":
            return distance == 0 or verdict != right
    return False


def of_these_images(pair: Pair, cache: Path, seeds: int, draws: int = MOST) -> list[Errors]:
    """All looks at the same images with other noise."""
    truth = truth_of(pair, cache)
    watches = [_watched(pair, seed, draws, None) for seed in range(seeds)]
    truths = (truth.mean, truth.worst_class)
    return [
        errors(f"{pair.name}: {statistic}", [watch.bounds[k] for watch in watches], truths[k])
        for k, statistic in enumerate(STATISTICS)
    ]


def of_the_population(
    pair: Pair, cache: Path, seeds: int, images: int, draws: int = MOST
) -> Errors:
    """All looks at random subsets of the whole data set."""
    truth = whole_truth_of(pair, cache)
    watches = [_watched(pair, seed, draws, images) for seed in range(seeds)]
    bounds = [watch.bounds[0] for watch in watches]
    return errors(f"{pair.name}, {images} of all: mean, population", bounds, truth)


def _watched(pair: Pair, seed: int, draws: int, subset: int | None) -> Watch:
    """An audit with all its looks; of a random subset of this size, for the population."""
    watch = Watch(pair, schedule(draws), population=subset is not None)
    with tempfile.TemporaryDirectory() as folder:
        spec = pair.spec(draws=draws, seed=seed, subset=subset)
        audit(spec, out=Path(folder) / "run", analyse=watch)
    return watch


def growing(pair: Pair, cache: Path, seeds: int, images: int) -> Errors:
    """Random subsets that double until a gate at the truth is decided, which is wrong, or the whole
    data set is taken."""
    truth = whole_truth_of(pair, cache)
    gates = parsed([f"mean >= {truth!r}"], "gates")
    seen = []
    for seed in range(seeds):
        bounds: list[Bounds] = []

        def take(_: str, decisions: Sequence[Decision], bounds: list[Bounds] = bounds) -> None:
            (decision,) = decisions
            assert decision.estimate.bounds is not None
            bounds.append(decision.estimate.bounds)

        spec = pair.spec(draws=GROWING_DRAWS, seed=seed, subset=images)
        with tempfile.TemporaryDirectory() as folder:
            sample_until_decided(
                spec, gates, Path(folder) / "run", audit, population=True, on_analysis=take
            )
        seen.append(bounds)
    return errors(f"{pair.name}, {images} of all, doubled: mean, population", seen, truth, ())


def table(found: Sequence[Errors]) -> Table:
    """All audits."""
    return Table(HEADERS, [each.row() for each in found], "**Looks at the truth**")
