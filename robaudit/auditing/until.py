"""Sampling until gates are decided: few draws first, then more, until every gate is decided or all
draws are taken.

The error is split over all possible analyses in advance (Bonferroni), so that every interval holds
whichever of them decides. All analyses are of the same run, and its run.json records them: for
each, the estimators that take more draws are computed again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

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
from robaudit.runs.info import UntilDecided
from robaudit.runs.run import Run
from robaudit.settings import GATE, OUT, UNTIL_DECIDED
from robaudit.spec.gate_grammar import Gate
from robaudit.spec.model import AuditSpec, identity

if TYPE_CHECKING:
    from robaudit.auditing.audit import SharedSetup

# A sixteenth, doubled up to all, makes five analyses at most. They share the error, so each further
# one would widen the intervals of all.
FIRST = 64
PART = 16
"""Draws at the first analysis: ``FIRST``, or 1/``PART`` of all if that is more."""


class Audit(Protocol):
    """:func:`robaudit.auditing.audit.audit` with the arguments that all analyses share."""

    def __call__(
        self,
        spec: AuditSpec,
        *,
        out: Path | None,
        until: UntilDecided | None = None,
        setup: SharedSetup | None = None,
    ) -> Run:
        """Create or resume the run of a spec in a folder, for the last of these analyses, with the
        model, data and workers of earlier ones."""


OnAnalysis = Callable[[int, int, Sequence[Decision]], None]
"""Called after an analysis, with its draws per image, the most draws, and the decisions."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """A run and the decisions on its gates.

    Attributes:
        run: the run.
        decisions: on all gates.
        draws: per image, at each analysis; empty if there was a single analysis, of all draws.
        most: the maximum of draws per image.
    """

    run: Run
    decisions: tuple[Decision, ...]
    draws: Sequence[int]
    most: int


def possible_analyses(most: int) -> tuple[int, ...]:
    """The numbers of draws after which an analysis may take place: a sixteenth of all, at least 64,
    then doubled up to all of them; at most five.

    The analyses are fixed in advance, and the error is split over all of them, including those that
    are skipped. So every interval holds, whichever analyses take place.
    """
    draws = [min(most, max(FIRST, -(-most // PART)))]
    while draws[-1] < most:
        draws.append(min(most, 2 * draws[-1]))
    return tuple(draws)


def next_analysis(draws: int, most: int, decisions: Sequence[Decision]) -> int:
    """The draws at the next analysis: the smallest possible number that probably decides the
    gates."""
    inconclusive = [decision for decision in decisions if decision.verdict == "inconclusive"]
    further_draws = [decision.more for decision in inconclusive if decision.more is not None]
    wanted = draws + max(further_draws, default=0)
    later = [possible for possible in possible_analyses(most) if possible > draws]
    return next(possible for possible in later if possible >= wanted or possible == most)


def most_draws(spec: AuditSpec) -> int:
    """The largest number of draws per image of the estimators that fix it in advance; 0 without
    such estimators."""
    return max(_fixed_draws(spec).values(), default=0)


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
    """Audit with few draws, then with more, until every gate on mc is decided, any gate fails, or
    all draws of the spec are taken.

    The error is split over the :func:`possible_analyses`: each is at 1 - (1 - confidence)/analyses.
    So all intervals of a gate hold together with ``confidence``, however many analyses take place
    and however they depend on each other. Gates on other results are decided at the same
    confidence. With ``population`` all draws are taken at once, because draws do not add images.

    Args:
        spec: what to audit; the ``draws`` of its mc are the maximum.
        gates: the gates to decide; they become the run's gates.
        out: the run folder; None: runs/<spec name>-<hash8>-gated.
        audit: creates or resumes a run.
        fresh: refuse an existing folder.
        population, point, confidence: see :func:`robaudit.gates.decide.decide`.
        on_analysis: called after each analysis.

    Raises:
        RobauditError: the audit or a gate is refused, or ``out`` holds another run.
    """
    from robaudit.auditing.audit import SharedSetup  # imports torch

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
    if population or not most:
        run = audit(_with_draws(spec, most), out=out)
        single = confidence_of(run.info, confidence)
        decisions = decide(run, gates, population=population, point=point, confidence=single)
        return Outcome(run, decisions, (), most)
    possible = possible_analyses(most)
    until = _analyses_so_far(out, spec) or UntilDecided(
        confidence=total_confidence, possible=list(possible), draws=[possible[0]], point=point
    )
    # The split of the error was fixed when the run began.
    if (until.confidence, tuple(until.possible)) != (total_confidence, possible):
        raise sampled_for_other_gates(out)
    with SharedSetup() as setup:
        # The audit writes each analysis to run.json before it draws: after a kill, the loop goes on
        # with the analysis that was under way.
        while True:
            draws = until.draws[-1]
            run = audit(_with_draws(spec, draws), out=out, until=until, setup=setup)
            decisions = decide(run, gates, point=point, confidence=until.each)
            if on_analysis is not None:
                on_analysis(draws, most, decisions)
            undecided = _decidable_by_draws(decisions, spec)
            any_failed = any(decision.verdict == "fail" for decision in decisions)
            if draws >= most or not undecided or any_failed:
                return Outcome(run, decisions, until.draws, most)
            until = until.also(next_analysis(draws, most, undecided))


def _decidable_by_draws(decisions: Sequence[Decision], spec: AuditSpec) -> list[Decision]:
    """The inconclusive decisions that more draws can decide: those on estimators that take more at
    the next analysis."""
    sampled = _fixed_draws(spec)
    return [
        decision
        for decision in decisions
        if decision.verdict == "inconclusive" and decision.gate.estimator in sampled
    ]


def _analyses_so_far(out: Path, spec: AuditSpec) -> UntilDecided | None:
    """The analyses so far of the run in a folder; None without a run.

    Raises:
        RunError: the run was not sampled for these gates.
    """
    folder = RunFolder(out)
    folder.check()
    if not folder.exists:
        return None
    info = folder.info()
    until = info.until_decided
    if until is None:
        remedy = "decide gates on it with robaudit gate, or choose another " + OUT
        raise RunError(str(out), "holds a run that was not sampled for gates", remedy)
    refuse_other_gates(out, info, spec.gates)
    return until


def _with_draws(spec: AuditSpec, draws: int) -> AuditSpec:
    """The spec with at most ``draws`` draws."""
    fixed = _fixed_draws(spec)
    entries = []
    for entry in spec.estimators:
        number = fixed.get(entry.label)
        if number is None:
            entries.append(entry)
        else:
            entries.append(registry.with_draws(entry, min(number, draws)))
    return spec.model_copy(update={"estimators": tuple(entries)})


def _fixed_draws(spec: AuditSpec) -> dict[str, int]:
    """The number of draws of each estimator with an exact interval and a number fixed in
    advance."""
    fixed = {}
    for label, estimator in registry.build(spec.estimators).items():
        # Only an exact interval holds at the confidence that each analysis gets.
        is_exact = estimator.interval.kind is IntervalKind.CLOPPER_PEARSON
        if is_exact and estimator.fixed_draws is not None:
            fixed[label] = estimator.fixed_draws
    return fixed
