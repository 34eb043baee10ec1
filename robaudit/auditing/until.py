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
from typing import TYPE_CHECKING

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
    from robaudit.auditing.audit import Kept

FIRST, PART = 64, 16
"""Draws at the first analysis: ``FIRST``, or 1/``PART`` of all if that is more."""

Audit = Callable[[AuditSpec, Path, "UntilDecided | None", "Kept | None"], Run]
"""Creates or resumes the run of a spec in a folder, for the last of these analyses, with what
earlier ones prepared."""
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
    """The draws after which an analysis may take place: a sixteenth of all, at least 64, then
    doubled up to all of them; at most five.

    The analyses are fixed in advance, and the error is split over all of them, including those that
    are skipped, so every interval holds whichever take place.
    """
    draws = [min(most, max(FIRST, -(-most // PART)))]
    while draws[-1] < most:
        draws.append(min(most, 2 * draws[-1]))
    return tuple(draws)


def next_analysis(draws: int, most: int, decisions: Sequence[Decision]) -> int:
    """The draws at the next analysis: the smallest possible number that probably decides the
    gates."""
    lacking = max(
        (
            decision.more
            for decision in decisions
            if decision.verdict == "inconclusive" and decision.more is not None
        ),
        default=0,
    )
    return next(
        possible
        for possible in possible_analyses(most)
        if possible > draws and (possible >= draws + lacking or possible == most)
    )


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

    The error is split over the :func:`possible_analyses`: each is at 1 - (1 - confidence)/analyses,
    so that all intervals of a gate hold together with ``confidence``, however many analyses take
    place and however they depend on each other. Gates on other results are decided at the same
    confidence. Draws do not add images, so all are taken at once for the population.

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
    from robaudit.auditing.audit import Kept  # imports torch

    if not gates:
        raise SpecError(
            UNTIL_DECIDED,
            "the spec has no gates",
            "add " + GATE + ' "mean(sigma=0.05) >= 0.9", or gates: to the spec',
        )
    total = 0.95 if confidence is None else confidence
    check_confidence(total)
    refuse_beyond(spec, gates)
    out = in_runs(f"{spec.stem}-{identity(spec.document())[:8]}-gated") if out is None else out
    if fresh:
        refuse_existing(out)
    spec = spec.model_copy(update={"gates": tuple(map(str, gates))})
    most = most_draws(spec)
    if population or not most:
        run = audit(_with_draws(spec, most), out, None, None)
        each = confidence_of(run.info, confidence)
        return Outcome(
            run, decide(run, gates, population=population, point=point, confidence=each), (), most
        )
    possible = possible_analyses(most)
    until = _begun(out, spec) or UntilDecided(
        confidence=total, possible=list(possible), draws=[possible[0]], point=point
    )
    if (until.confidence, tuple(until.possible)) != (total, possible):
        raise sampled_for_other_gates(out)
    sampled = _fixed_draws(spec)
    with Kept() as kept:
        while True:
            run = audit(_with_draws(spec, until.draws[-1]), out, until, kept)
            decisions = decide(run, gates, point=point, confidence=until.each)
            if on_analysis is not None:
                on_analysis(until.draws[-1], most, decisions)
            undecided = [
                decision
                for decision in decisions
                if decision.verdict == "inconclusive" and decision.gate.estimator in sampled
            ]
            if (
                until.draws[-1] >= most
                or not undecided
                or any(decision.verdict == "fail" for decision in decisions)
            ):
                return Outcome(run, decisions, until.draws, most)
            until = until.also(next_analysis(until.draws[-1], most, undecided))


def _begun(out: Path, spec: AuditSpec) -> UntilDecided | None:
    """The analyses so far of the run in a folder; None without a run.

    Raises:
        RunError: it was not sampled for these gates.
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
    entries = tuple(
        registry.with_draws(entry, min(fixed[entry.label], draws))
        if entry.label in fixed
        else entry
        for entry in spec.estimators
    )
    return spec.model_copy(update={"estimators": entries})


def _fixed_draws(spec: AuditSpec) -> dict[str, int]:
    """The number of draws of each estimator with an exact interval and a number fixed in
    advance."""
    built = registry.build(spec.estimators)
    exact = {
        label: estimator.fixed_draws
        for label, estimator in built.items()
        if estimator.interval.kind is IntervalKind.CLOPPER_PEARSON
    }
    return {label: draws for label, draws in exact.items() if draws is not None}
