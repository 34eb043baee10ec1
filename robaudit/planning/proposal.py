"""What is proposed for a spec and a budget?"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml
from torch import nn

from robaudit.auditing import prepare
from robaudit.datasets.base import Dataset
from robaudit.deterministic import deterministic
from robaudit.errors import RobauditError
from robaudit.models.logits import rounded_products
from robaudit.planning.choice import Plan, Question, best, plans
from robaudit.planning.confirm import confirmed, seconds_of
from robaudit.planning.durations import text as duration
from robaudit.planning.families import Family
from robaudit.planning.pilot import pilot
from robaudit.planning.precisions import Offer, precision_offers
from robaudit.progress import Listener, Silent
from robaudit.provenance import device_name, pick_device
from robaudit.spec import AuditSpec

SHARE, SHORTEST, LONGEST, CONFIRMING = 0.1, 1.0, 60.0, 0.4
"""The pilot takes about a tenth of the budget, from one second to one minute, and a trial of what it chooses four tenths of that."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """What fits.

    Attributes:
        question: whether it is about each image, or about a mean over images.
        budget: seconds.
        available: images of the data set.
        pilot_images, pilot_touched, pilot_seconds: what was tried.
        start: seconds before the first image.
        chosen: the plan to take.
        alternatives: the best of each estimator, the chosen one included, by error.
        precisions: what a lower precision of the noisy passes would bring; the times above are those of the spec's own.
        snippet: YAML for the spec.
        device: where it was tried.
        sigmas: noise levels.
    """

    question: Question
    budget: float
    available: int
    pilot_images: int
    pilot_touched: int
    pilot_seconds: float
    start: float
    chosen: Plan
    alternatives: Sequence[Plan]
    precisions: Sequence[Offer]
    snippet: str
    device: str
    sigmas: Sequence[float]

    def document(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "for": self.question,
            "budget_seconds": self.budget,
            "device": self.device,
            "sigma": list(self.sigmas),
            "images": self.available,
            "pilot": {"images": self.pilot_images, "touched": self.pilot_touched, "seconds": self.pilot_seconds},
            "start_seconds": self.start,
            "recommended": self.chosen.document(),
            "alternatives": [plan.document() for plan in self.alternatives],
            "precisions": [offer.document() for offer in self.precisions],
            "snippet": self.snippet,
        }


def propose(
    spec: AuditSpec,
    budget: float,
    *,
    question: Question = "images",
    trust: bool = False,
    skip_bad: bool = False,
    model: nn.Module | None = None,
    dataset: Dataset | None = None,
    listener: Listener | None = None,
    already: float = 0.0,
    typed: str | None = None,
) -> Proposal:
    """Try every estimator for a moment, and say which setting of which one fits the budget best.

    ``mc`` and ``logit_gaussian`` are always among them, others where the spec names them. Nothing is written.

    Args:
        spec: model, data, noise levels, and further estimators to think of.
        budget: seconds that the run may take, without this pilot.
        question: ``images``: a value of each image; ``mean``: a mean over images, where errors average out.
        trust: allow Python code that the spec names.
        skip_bad: leave unusable samples out.
        model, dataset: in place of those the spec names.
        listener: hears notes and warnings.
        already: seconds that loading the program took, which its run will take, too.
        typed: the budget as the user wrote it.

    Raises:
        RobauditError: spec, model or data are not usable, or nothing fits.
    """
    ears, device = listener or Silent(), pick_device(spec.run.device)
    with deterministic(spec.run.deterministic, device), rounded_products(spec.run.precision == "tf32"):
        started = time.perf_counter()
        ready = prepare(spec, None, "", model, dataset, device, ears, trust=trust, skip_bad=skip_bad)
        start = already + time.perf_counter() - started
        allowed = min(LONGEST, max(SHORTEST, SHARE * budget))
        ears.note(f"trying the estimators for about {duration(allowed)}")
        tried, count = pilot(ready, allowed, skip_bad=skip_bad), len(ready.samples)
        for text in tried.notes:
            ears.note(text)

        def choose(families: Sequence[Family]) -> Plan | None:
            return best([plan for family in families for plan in plans(family, count, budget, start)], question, count)

        def measure(plan: Plan) -> float:
            return seconds_of(ready, plan, start, CONFIRMING * allowed, skip_bad=skip_bad)

        families = confirmed(tried.families, choose, measure, start)
        offers = precision_offers(ready, skip_bad=skip_bad)
    if tried.touched < max(3, tried.images / 20):
        ears.warn(
            f"only {tried.touched} of the pilot's {tried.images} images are touched by this noise: the predicted errors are uncertain"
        )
    bests = [best(plans(family, count, budget, start), question, count) for family in families]
    chosen = choose(families)
    if chosen is None:
        raise RobauditError(
            f"--budget {typed or duration(budget)}", f"is too short: the start alone takes {start:.0f} s", "give it more time"
        )
    alternatives = {(plan.kind, plan.draws, plan.images): plan for plan in [chosen, *bests] if plan is not None}
    return Proposal(
        question=question,
        budget=budget,
        available=count,
        pilot_images=tried.images,
        pilot_touched=tried.touched,
        pilot_seconds=tried.seconds,
        start=start,
        chosen=chosen,
        alternatives=sorted(alternatives.values(), key=lambda plan: (-plan.images, plan.answers(question))),
        precisions=offers,
        snippet=snippet(spec, chosen, count, offers),
        device=device_name(device),
        sigmas=spec.noise.sigma,
    )


def snippet(spec: AuditSpec, plan: Plan, available: int, offers: Sequence[Offer] = ()) -> str:
    """The sections of the spec that change, as YAML."""
    options = dict(plan.options)
    entry: Any = {plan.estimator: options} if options else plan.estimator
    text = _yaml({"estimators": [entry]})
    if plan.images < available:
        sample = spec.dataset.sample
        less: Mapping[str, Any] = (
            {"limit": plan.images}
            if spec.dataset.limit is not None
            else {"sample": {"size": plan.images, "seed": sample.seed if sample else 0}}
        )
        text += "dataset:  # the rest of this section stays as it is\n" + "".join(f"  {line}\n" for line in _yaml(less).splitlines())
    faster = max((offer for offer in offers if offer.recommended), key=lambda offer: offer.speed, default=None)
    if faster is not None:
        text += f"run:  # likewise\n  precision: {faster.precision}\n"
    return text


def _yaml(document: Mapping[str, Any]) -> str:
    return yaml.safe_dump(document, sort_keys=False, default_flow_style=None, width=100)
