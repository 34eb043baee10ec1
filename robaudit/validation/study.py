"""How are the estimators of a spec validated: which images, which rows, against which reference?"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from robaudit.auditing import Ready, prepare
from robaudit.datasets.base import Dataset
from robaudit.datasets.load import open_dataset
from robaudit.datasets.select import Selected, random_subset
from robaudit.deterministic import deterministic
from robaudit.errors import NothingLeftError
from robaudit.loop import OnError
from robaudit.models.logits import rounded_products
from robaudit.progress import Listener, Silent
from robaudit.provenance import pick_device, plugins
from robaudit.rows import Row
from robaudit.run_document import first_info, history
from robaudit.spec import AuditSpec
from robaudit.validation.comparison import Comparison, compare
from robaudit.validation.compute import Computed, compute
from robaudit.validation.convergence import Point, converge
from robaudit.validation.reference import Truths, draws_within, measure
from robaudit.validation.words import advice, remarks, verdict

SAMPLES, DRAWS = 50, 10_000
_OVERRUN = 1.1


@dataclass(frozen=True)
class Validation:
    """What a validation found.

    Attributes:
        info: what was computed on what: as in run.json.
        draws: of the reference, an image and noise level.
        rows: by (sample id, sigma, label).
        truths: the reference by (sample id, sigma).
        comparisons: in the order of the spec: noise levels, then estimators.
        skipped: samples left out, with the reason.
        points: of the convergence study; empty where none was asked for.
        seconds: of the estimators, and of the reference.
    """

    info: Mapping[str, Any]
    draws: int
    rows: Mapping[tuple[str, float, str], Row]
    truths: Truths
    comparisons: Sequence[Comparison]
    skipped: Sequence[tuple[str, str]] = ()
    points: Sequence[Point] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)

    def at(self, sigma: float) -> list[Comparison]:
        """The comparisons at one noise level."""
        return [one for one in self.comparisons if one.sigma == sigma]

    @property
    def sigmas(self) -> list[float]:
        """The noise levels, in order."""
        return list(dict.fromkeys(one.sigma for one in self.comparisons))

    def words(self) -> list[dict[str, Any]]:
        """For each noise level: a verdict on every estimator, what to use, and what limits the comparison."""
        found = []
        for sigma in self.sigmas:
            group = self.at(sigma)
            known = [truth.value for (_, level), truth in self.truths.items() if level == sigma]
            verdicts = {one.estimator: verdict(one) for one in group}
            found.append({"sigma": sigma, "verdicts": verdicts, "advice": advice(group), "remarks": remarks(group, known)})
        return found


def validate(
    spec: AuditSpec,
    *,
    samples: int = SAMPLES,
    draws: int = DRAWS,
    budget: float | None = None,
    convergence: bool = False,
    trust: bool = False,
    on_error: OnError = "stop",
    model: nn.Module | None = None,
    dataset: Dataset | None = None,
    listener: Listener | None = None,
    command: str | None = None,
) -> Validation:
    """Run every estimator of a spec, and Monte Carlo with noise of its own, on a random subset of its samples, and compare.

    The subset is drawn with the run's seed from the samples that the spec chooses. The estimators get the noise that a run would
    give them; the reference gets the named stream "reference" of the same seed, which no run draws from.

    Args:
        spec: what to validate.
        samples: how many images; all, if there are fewer.
        draws: of the reference, an image and noise level.
        budget: seconds for the estimators and the reference, which gets the draws that they leave time for (at least 256); neither loading
            nor the convergence study counts. A note says by how much it was overrun.
        convergence: also measure the error of mc, mmse and logit_gaussian as a function of their draws.
        trust: allow Python code that the spec names.
        on_error: at an unusable sample: stop, or leave it out.
        model, dataset: in place of those the spec names.
        listener: hears notes, warnings and progress.
        command: what the user typed.

    Raises:
        RobauditError: spec, model or data are not usable.
        NothingLeftError: every sample was skipped.
    """
    ears = listener or Silent()
    device = pick_device(spec.run.device)
    whole = dataset if dataset is not None else open_dataset(spec.dataset, base_dir=spec.base_dir, trust=trust)
    subset = Selected(whole, random_subset(len(whole), samples, spec.run.seed))
    with deterministic(spec.run.deterministic, device), rounded_products(spec.run.precision == "tf32"):
        ready = prepare(spec, None, "", model, subset, device, ears, trust=trust, skip_bad=on_error == "skip")
        started, alone = time.perf_counter(), 0.0
        ears.note(f"the estimators on {len(subset)} of {len(whole)} images")
        found = compute(ready, ready.engine, subset, ready.tasks, ears, on_error=on_error)
        kept = _without(subset, {skip.sample_id for skip in found.skipped})
        if not found.rows:
            raise NothingLeftError(whole.where, "every sample was skipped", f"the first: {found.skipped[0].reason}")
        if budget is not None:
            alone = time.perf_counter() - started
            draws = draws_within(ready, kept, budget - alone)
        ears.note(f"the reference: mc with {draws:,} draws of its own noise")
        truths, seconds = measure(ready, kept, draws, ears)
        if budget is not None and (spent := time.perf_counter() - started) > _OVERRUN * budget:
            parts = f"the estimators {alone:.2g} s, the reference with {draws:,} draws {spent - alone:.2g} s"
            ears.note(f"--budget: it took {spent:.2g} s, not {budget:.2g} s: {parts}")
        points = converge(ready, kept, truths, ears) if convergence else ()
    info = {
        **{
            key: value for key, value in first_info(spec, ready.engine.model, whole, device, ready.check).items() if key != "schema_version"
        },
        "plugins": plugins([task.chosen for task in ready.tasks]),
        **history(None, command, device),
    }
    return Validation(
        info=info,
        draws=draws,
        rows=found.rows,
        truths=truths,
        comparisons=_comparisons(ready, found, truths),
        skipped=[(skip.sample_id, skip.reason) for skip in found.skipped],
        points=points,
        seconds={"estimators": sum(found.seconds.values()), "reference": seconds},
    )


def _without(samples: Selected, gone: set[str]) -> Selected:
    return Selected(samples, [i for i in range(len(samples)) if samples.sample_id(i) not in gone]) if gone else samples


def _comparisons(ready: Ready, found: Computed, truths: Truths) -> list[Comparison]:
    result = []
    for task in ready.tasks:
        label, sigma = task.chosen.label, task.sigma
        rows = [row for row in found.rows.values() if (row.estimator, row.sigma) == (label, sigma)]
        known = [truths[row.sample_id, sigma] for row in rows]
        result.append(compare(rows, known, task.chosen.estimator.quantity, found.seconds[label, sigma], task.chosen.name))
    return result
