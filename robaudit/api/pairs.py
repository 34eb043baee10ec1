"""Comparison and verification of runs from Python."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from robaudit.api import arguments
from robaudit.api.printed import Decisions, Results
from robaudit.api.run import Numbers, Texts
from robaudit.compare.result import Comparison, GroupComparison
from robaudit.gates.decide import Verdict
from robaudit.gates.sources import confidence_of
from robaudit.report.comparison_tables import comparison_tables
from robaudit.runs import run as stored
from robaudit.stats import reading

if TYPE_CHECKING:
    from robaudit.auditing.verification import Verification
    from robaudit.progress import Listener

AnyRun = stored.Run | str | Path
"""A run, or its folder."""


class Compared(Results[GroupComparison]):
    """The differences between two runs, one for each estimator and noise level; the repr is their
    tables.

    Attributes:
        comparison: the whole comparison, with the clean accuracies and how the samples match.
    """

    comparison: Comparison

    @arguments.naming_arguments()
    def gate(
        self,
        *gates: str | Sequence[str],
        population: bool = False,
        point: bool = False,
        inconclusive: Verdict = "inconclusive",
    ) -> Decisions:
        """Decide gates on the differences, as ``robaudit compare --gate`` does.

        Args:
            gates: such as ``"mean_drop(estimator=mc) <= 0.01"``.
            population: the intervals also cover the choice of the images.
            point: let values without an interval decide.
            inconclusive: what an inconclusive gate counts as.

        Raises:
            SpecError: a gate is not valid, or does not say which results it is about.
        """
        from robaudit.compare.gate_changes import QUANTITIES, decide
        from robaudit.spec.gate_grammar import parse_gate

        written: list[str] = []
        for gate in gates:
            written += arguments.texts("gates", gate, 'for example "mean_drop <= 0.01"')
        conditions = [parse_gate(text, QUANTITIES, "gates") for text in written]
        decisions = decide(self.comparison, conditions, population=population, point=point)
        return Decisions(decisions, inconclusive)


@arguments.naming_arguments()
def compare_runs(
    base: AnyRun,
    new: AnyRun,
    *,
    threshold: float | None = None,
    estimator: Texts = None,
    noise: Texts = None,
    level: Numbers = None,
    sigma: Numbers = None,
    confidence: float | None = None,
) -> Compared:
    """Compare a run with a reference, as ``robaudit compare`` does.

    They are compared sample by sample and on the same noise draws.

    Args:
        base: the reference.
        new: a run on the same samples.
        threshold: below it (of a loss: above it) a sample counts as flagged; default: the
            quantity's own.
        estimator, noise, level, sigma: only these results.
        confidence: of the intervals; default 0.95, or of one analysis if a run was sampled until
            its gates were decided.

    Raises:
        RobauditError: a run cannot be read, or the two have nothing in common.
    """
    from robaudit.compare.difference import compare

    base_run = _read(base)
    new_run = _read(new)
    comparison = compare(
        base_run,
        new_run,
        estimators=arguments.several(estimator),
        levels=arguments.levels(noise, level, sigma),
        below=None if threshold is None else arguments.number("threshold", threshold),
        # A run that was sampled until its gates were decided asks for more than 0.95.
        confidence=max(confidence_of(run.info, confidence) for run in (base_run, new_run)),
    )
    names = new_run.class_names or base_run.class_names
    tables = comparison_tables(comparison, base_run.info, new_run.info, names)
    result = Compared(comparison.groups, tables)
    # Set afterwards: a tuple takes its arguments in __new__, which all results share.
    result.comparison = comparison
    return result


def _read(run: AnyRun) -> stored.Run:
    """A run from its folder, with the draws that kept the class.

    A run that is open already may have been read without them.
    """
    path = Path(run) if isinstance(run, str | Path) else run.path
    return reading.read_run(path, kept=True)


@arguments.naming_arguments()
def verify_run(
    run: AnyRun,
    samples: int | None = 20,
    *,
    seed: int | None = None,
    device: str | None = None,
    trust: bool = False,
    listener: Listener | None = None,
) -> Verification:
    """Recompute rows of a run from its weights and data, as ``robaudit verify`` does.

    Args:
        run: a finished run.
        samples: how many samples, drawn at random; None: all.
        seed: of the draw; default: a new one each time.
        device: default: the kind of device that the run was made on.
        trust: allow Python code that the run's spec names.
        listener: receives notes and progress.

    Returns:
        What was recomputed; ``good`` says whether all of it agrees.

    Raises:
        RobauditError: the model or the data have changed, or cannot be read.
    """
    # Here, because it imports torch.
    from robaudit.auditing.verification import verify

    return verify(_read(run), samples, seed=seed, device=device, trust=trust, listener=listener)
