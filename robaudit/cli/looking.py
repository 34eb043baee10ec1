"""`robaudit estimate --gate`: sample until the gates are decided, and print what each look says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from robaudit.cli.console import messages
from robaudit.cli.gate import GateFormat, Inconclusive, report
from robaudit.errors import SpecError

if TYPE_CHECKING:
    from robaudit.gates.looks import Look
    from robaudit.gates.result import Verdict
    from robaudit.spec import AuditSpec
    from robaudit.store.run import Run


@dataclass(frozen=True, slots=True)
class Looking:
    """What the command line says about gates and looks; None or empty: nothing."""

    gates: Sequence[str] = ()
    max_samples: int | None = None
    population: bool = False
    point: bool = False
    inconclusive: Inconclusive | None = None
    confidence: float | None = None

    def refuse_alone(self) -> None:
        """Refuse what means nothing without gates.

        Raises:
            SpecError: such an option is given.
        """
        names = ("max_samples", "population", "point", "inconclusive", "confidence")
        for name in names:
            if getattr(self, name) not in (None, False):
                raise SpecError(f"--{name.replace('_', '-')}", "is about gates", "add --gate, or --until-decided for those of the spec")


def decide_by_sampling(spec: AuditSpec, out: Path | None, audit: Callable[[AuditSpec, Path], Run], asked: Looking, *, quiet: bool) -> int:
    """Sample until the gates are decided; print the run and the gates; returns the exit code.

    Raises:
        RobauditError: the audit or a gate is refused.
    """
    from robaudit.cli.show import print_run
    from robaudit.cli.unread import unread_is_no_end
    from robaudit.gates.beforehand import refuse_impossible
    from robaudit.gates.decide import check_confidence, decide
    from robaudit.gates.looks import most_draws, sample_until_decided, with_draws
    from robaudit.gates.record import confidence_of, read_looks
    from robaudit.gates.sources import parsed
    from robaudit.resume import default_out

    gates = parsed(asked.gates, "--gate") if asked.gates else parsed(spec.gates, "gates")
    if not gates:
        raise SpecError("--until-decided", "the spec has no gates", 'add --gate "mean >= 0.9", or gates: [mean >= 0.9] to the spec')
    confidence = 0.95 if asked.confidence is None else asked.confidence
    check_confidence(confidence)
    refuse_impossible(spec, gates, point=asked.point)
    most = most_draws(spec, asked.max_samples)
    if asked.max_samples is not None and not most:
        raise SpecError("--max-samples", "the spec has no mc with a fixed number of samples", "leave it out")
    if asked.max_samples is not None and asked.max_samples > (all_of := most_draws(spec)):
        what = f"{asked.max_samples:,} is more than the {all_of:,} samples of the spec's mc"
        raise SpecError("--max-samples", what, f"add --set mc.samples={asked.max_samples}")
    folder = out if out is not None else default_out(spec).with_name(default_out(spec).name + "-gated")
    if asked.population or not most:  # draws do not add images
        run = audit(with_draws(spec, most) if most else spec, folder)
        each = confidence_of(read_looks(run.path, run.info), asked.confidence, None)
        decisions = decide(run, gates, population=asked.population, point=asked.point, confidence=each)
    else:

        def told(look: Look, most: int) -> None:
            if not quiet:
                _say(look, most)

        sampled = sample_until_decided(
            spec, gates, folder, audit, limit=asked.max_samples, point=asked.point, confidence=confidence, told=told
        )
        run, decisions = sampled.last.run, sampled.last.decisions
        if not quiet:
            spared = most - sampled.drawn
            words = f"{spared:,} fewer than" if spared > 0 else f"{-spared:,} more than" if spared else "as many as"
            messages().print(f"{sampled.drawn:,} draws an image in all looks, {words} the {most:,} of a single run", markup=False)
    if not quiet:
        with unread_is_no_end():
            print_run(run)
    counts: Verdict = "inconclusive" if asked.inconclusive is None else asked.inconclusive.value
    return report(decisions, counts, GateFormat.TEXT, None, run, "estimate")


def _say(look: Look, most: int) -> None:
    from robaudit.gates.text import lines

    messages().print(f"look after {look.draws:,} of {most:,} draws an image:", markup=False)
    for _, line in lines(look.decisions)[:-1]:
        messages().print(f"  {line}", markup=False)
