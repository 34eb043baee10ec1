"""Sampling until gates are decided: an analysis after each round of an audit, until every gate is
decided or all draws are taken.

The error is spent on all possible analyses in advance (:mod:`robaudit.numerics.looks`), so that
every interval holds whichever of them decides. All analyses are of the same run, and its run.json
records them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from robaudit.auditing.rounds import draws_of_rounds
from robaudit.engine import registry
from robaudit.errors import RunError, SpecError
from robaudit.gates.decide import Decision, check_confidence, decide
from robaudit.gates.sources import confidence_of, refuse_beyond
from robaudit.quantities import IntervalKind
from robaudit.runs.folder import (
    RunFolder,
    in_runs,
    refuse_existing,
    refuse_other_gates,
    sampled_for_other_gates,
)
from robaudit.runs.info import RunInfo, Stop, UntilDecided
from robaudit.runs.run import Run
from robaudit.settings import GATE, OUT, UNTIL_DECIDED
from robaudit.spec.gate_grammar import Gate
from robaudit.spec.model import IN_MEMORY, AuditSpec, SampleSpec, identity

if TYPE_CHECKING:
    from robaudit.auditing.audit import Analyses

# More copies are no help to a gate on the population once the error of these images is below this
# share of the whole: at a half, endless copies would make the interval an eighth narrower.
_MEASURED_SHARE = 0.5
_MEANS = frozenset({"mean", "noisy_accuracy"})
"""Quantities for which a further image is worth more than further copies of one. With variance B
between images and W within them, the mean of m images with n copies has variance (B + W / n) / m.
Twice as many images halve it for m (n + 1) passes. From n = 1 to 8 copies take 7 m passes, and
leave an eighth at best."""


class Audit(Protocol):
    """:func:`robaudit.auditing.audit.audit` with the arguments that all of its calls share."""

    def __call__(
        self,
        spec: AuditSpec,
        *,
        out: Path | None,
        analyse: Analyses | None = None,
        extend: bool = False,
    ) -> Run:
        """Create, resume or extend the run of a spec in a folder, with analyses after its
        rounds."""


OnAnalysis = Callable[[str, Sequence[Decision]], None]
"""Called after an analysis, with how far the run is, and the decisions."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """A run and the decisions on its gates.

    Attributes:
        run: the run.
        decisions: on all gates.
        analyses: how many there were in this session; 0: a single one, of the complete run.
    """

    run: Run
    decisions: tuple[Decision, ...]
    analyses: int = 0


def most_draws(spec: AuditSpec) -> int:
    """The largest number of draws per image of the estimators that take them in rounds; 0 without
    such estimators."""
    return max(_in_rounds(spec).values(), default=0)


def sample_until_decided(
    spec: AuditSpec,
    gates: Sequence[Gate],
    out: Path | None,
    audit: Audit,
    *,
    fresh: bool = False,
    population: bool = False,
    point: bool = False,
    confidence: float | None = None,
    on_analysis: OnAnalysis | None = None,
) -> Outcome:
    """Audit in rounds until every gate on mc is decided, any gate fails, or all draws of the spec
    are taken.

    All intervals of a gate hold together with ``confidence``, however many analyses take place.
    Gates on estimators without rounds are decided at the same confidence, after the first round.
    With ``population`` a gate may lack images rather than draws: a random subset of the data
    (``dataset.sample``) then doubles, up to the whole data set.

    Args:
        spec: what to audit; the ``draws`` of its mc are the maximum.
        gates: the gates to decide; they become the run's gates.
        out: the run folder; None: runs/<spec name>-<hash8>-gated.
        audit: creates, resumes or extends a run.
        fresh: refuse an existing folder.
        population, point, confidence: see :func:`robaudit.gates.decide.decide`.
        on_analysis: called after each analysis.

    Raises:
        RobauditError: the audit or a gate is refused, or ``out`` holds another run.
    """
    if not gates:
        raise SpecError(
            UNTIL_DECIDED,
            "the spec has no gates",
            "add " + GATE + ' "mean(sigma=0.05) >= 0.9", or gates: to the spec',
        )
    total_confidence = 0.95 if confidence is None else confidence
    check_confidence(total_confidence)
    refuse_beyond(spec, gates)
    if out is None:
        out = in_runs(f"{spec.stem}-{identity(spec.document())[:8]}-gated")
    if fresh:
        refuse_existing(out)
    spec = spec.model_copy(update={"gates": tuple(map(str, gates))})
    most = most_draws(spec)
    if not most:
        run = audit(spec, out=out)
        single = confidence_of(run.info, confidence)
        decisions = decide(run, gates, population=population, point=point, confidence=single)
        return Outcome(run, decisions)
    sizes = _sizes(spec) if population else ()
    until = UntilDecided(
        confidence=total_confidence,
        possible=list(draws_of_rounds(most)),
        growths=len(sizes),
        draws=[],
        point=point,
    )
    begun = _begun(out, spec)
    if begun is not None and begun.until_decided is not None:
        earlier = begun.until_decided
        # The error was spent when the run began.
        if earlier.model_copy(update={"draws": []}) != until:
            raise sampled_for_other_gates(out)
        until = earlier
        spec = _of_size(spec, begun.spec["dataset"]["sample"])
    analyses = GateAnalyses(
        spec, gates, until, population=population, point=point, tell=on_analysis
    )
    # A run that is resumed has its present size already.
    larger = _larger(spec, sizes)
    analyses.can_grow = larger is not None
    run = audit(spec, out=out, analyse=analyses)
    while larger is not None and analyses.needs_images(run):
        spec = larger
        larger = _larger(spec, sizes)
        analyses.can_grow = larger is not None
        run = audit(spec, out=out, analyse=analyses, extend=True)
    return Outcome(run, analyses.decide(run), analyses.number)


class GateAnalyses:
    """The analyses of a run after its rounds.

    Args:
        spec: of the run.
        gates: to decide.
        until: the schedule.
        population, point: see :func:`robaudit.gates.decide.decide`.
        tell: called after each analysis.

    Attributes:
        until: the schedule, with the analyses so far.
        number: analyses by this process.
        needs_others: whether a gate may be about an estimator that computes an image at once.
        can_grow: whether there are more images to take.
        first_gate: the first gate and its verdict at the last analysis.
    """

    def __init__(
        self,
        spec: AuditSpec,
        gates: Sequence[Gate],
        until: UntilDecided,
        *,
        population: bool,
        point: bool,
        tell: OnAnalysis | None,
    ) -> None:
        self.until = until
        self._in_rounds = _in_rounds(spec)
        self._gates = gates
        self._population = population
        self._point = point
        self._tell = tell
        self.number = 0
        self.can_grow = False
        self.first_gate = ""
        names = {gate.estimator for gate in gates} - {None}
        only_in_rounds = set(registry.build(spec.estimators)) <= set(self._in_rounds)
        self.needs_others = not (only_in_rounds or (names and names <= set(self._in_rounds)))

    def decide(self, run: Run) -> tuple[Decision, ...]:
        """The decisions on the gates, at the confidence of a single analysis."""
        return decide(
            run,
            self._gates,
            population=self._population,
            point=self._point,
            schedule=self.until,
        )

    def __call__(self, run: Run) -> Stop | None:
        """Analyse a run after a round; return why it should end, or None."""
        reached = run.info.reached
        if reached is not None and reached.most in self.until.possible:
            self.until = self.until.also(reached.most)
        decisions = self.decide(run)
        self.number += 1
        self.first_gate = f"{self._gates[0]} {decisions[0].verdict}"
        if self._tell is not None:
            self._tell(run.info.how_far, decisions)
        any_failed = any(decision.verdict == "fail" for decision in decisions)
        if any_failed:
            return Stop.DECIDED
        if self.needs_images(run):
            return Stop.UNDECIDED
        return None if any(map(self._is_open, decisions)) else Stop.DECIDED

    def needs_images(self, run: Run) -> bool:
        """Whether a gate is undecided for the population, and more images would do more for it than
        more copies of these."""
        if not self._population or run.info.stopped is Stop.TIME:
            return False
        measured = decide(run, self._gates, point=self._point, schedule=self.until)
        lacking = []
        for decision, of_images in zip(self.decide(run), measured, strict=True):
            if decision.verdict == "inconclusive":
                gains_most = self.can_grow and decision.gate.quantity in _MEANS
                share = _MEASURED_SHARE * _width(decision)
                lacking.append(gains_most or _width(of_images) <= share)
        # Where no more images can be had, copies may still decide the other gates.
        return any(lacking) if self.can_grow else bool(lacking) and all(lacking)

    def _is_open(self, decision: Decision) -> bool:
        """Whether a gate is undecided, and further rounds may decide it."""
        return decision.verdict == "inconclusive" and self._is_sampled(decision.gate)

    def _is_sampled(self, gate: Gate) -> bool:
        """Whether a gate, with its estimator filled in, is about one that takes draws in rounds."""
        return gate.estimator in self._in_rounds


def _width(decision: Decision) -> float:
    """The width of the interval of a gate's quantity; infinite without one."""
    bounds = decision.estimate.bounds
    if bounds is None:
        return math.inf
    lower, upper = bounds
    return upper - lower


def _sizes(spec: AuditSpec) -> tuple[int, ...]:
    """The sizes to which a random subset may grow: doubled, up to the whole data set; none if the
    spec has no subset, or its data are in memory."""
    subset = spec.dataset.sample
    # Code of a stranger is run by the audit alone, which asks for trust.
    is_on_disk = spec.dataset.kind not in (IN_MEMORY, "python")
    if subset is None or not is_on_disk or spec.dataset.limit is not None:
        return ()
    from robaudit.datasets.open_dataset import open_dataset

    whole_spec = spec.dataset.model_copy(update={"sample": None})
    whole = len(open_dataset(whole_spec, base_dir=spec.base_dir, trust=False))
    sizes = []
    size = subset.size
    while size < whole:
        size = min(whole, 2 * size)
        sizes.append(size)
    return tuple(sizes)


def _larger(spec: AuditSpec, sizes: Sequence[int]) -> AuditSpec | None:
    """The spec with the next larger subset; None if there is none."""
    subset = spec.dataset.sample
    if subset is None:
        return None
    size = next((size for size in sizes if size > subset.size), None)
    return None if size is None else _of_size(spec, {"size": size, "seed": subset.seed})


def _of_size(spec: AuditSpec, subset: object) -> AuditSpec:
    """The spec with another random subset, as in a spec's document."""
    if subset is None:
        return spec
    sample = SampleSpec.model_validate(subset)
    return spec.model_copy(update={"dataset": spec.dataset.model_copy(update={"sample": sample})})


def _begun(out: Path, spec: AuditSpec) -> RunInfo | None:
    """The run.json of the run in a folder; None without a run.

    Raises:
        RunError: the run was not sampled for these gates.
    """
    folder = RunFolder(out)
    folder.check()
    if not folder.exists:
        return None
    info = folder.info()
    if info.until_decided is None:
        remedy = "decide gates on it with robaudit gate, or choose another " + OUT
        raise RunError(str(out), "holds a run that was not sampled for gates", remedy)
    refuse_other_gates(out, info, spec.gates)
    return info


def _in_rounds(spec: AuditSpec) -> dict[str, int]:
    """The number of draws of each estimator that takes them in rounds, with an exact interval."""
    draws = {}
    for label, estimator in registry.build(spec.estimators).items():
        # Only an exact interval holds at the confidence that each analysis gets.
        is_exact = estimator.interval.kind is IntervalKind.CLOPPER_PEARSON
        if is_exact and estimator.most_draws is not None:
            draws[label] = estimator.most_draws
    return draws
