"""Choice of the estimator, draws and images that fit a time budget best, from short trials (:mod:`robaudit.advice.pilot`)."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import yaml
from torch import nn

from robaudit.advice.pilot import FEW, Candidate, Pilot, pilot, run_on
from robaudit.advice.precisions import Offer, precision_offers
from robaudit.auditing.environment import deterministic, device_name, pick_device
from robaudit.auditing.prepare import prepare
from robaudit.datasets.base import Dataset
from robaudit.errors import RobauditError
from robaudit.levels import NoiseLevel
from robaudit.models.logits import rounded_products
from robaudit.progress import Listener, Silent, duration_text
from robaudit.spec.model import AuditSpec

Question = Literal["images", "mean"]

SHARE, SHORTEST, LONGEST, CONFIRMING = 0.1, 1.0, 60.0, 0.4
"""The pilot takes about a tenth of the budget, from one second to one minute, and a trial of the chosen plan four tenths of that."""

SPARE = 0.9
"""Share of the budget that is planned for: the speed of a machine varies."""

TOLERATED = 1.1
"""Plans with at most this multiple of the smallest error count as equally good: the cheapest of them is recommended."""

ROUNDS = 3
"""Most plans that are tried: a corrected time may lead to another plan."""

_FEWEST_IMAGES = 2


@dataclass(frozen=True, slots=True)
class Plan:
    """One way to spend the budget.

    Attributes:
        estimator, kind, options: its name, its label in the table, and its options for the spec.
        draws: per image and noise level (0: the estimator has no such option).
        images: number of images.
        seconds: predicted, including the start.
        error: predicted RMSE of an image's value, at the worst noise level.
        error_of_mean: predicted standard error of the mean, for the population.
        noise_of_mean: the same for exactly the images of the plan.
    """

    estimator: str
    kind: str
    options: Mapping[str, Any]
    draws: int
    images: int
    seconds: float
    error: float
    error_of_mean: float
    noise_of_mean: float

    def answers(self, question: Question) -> float:
        """The error that matters for the question."""
        return self.error if question == "images" else self.error_of_mean


def plans(candidate: Candidate, images: int, budget: float, start: float) -> list[Plan]:
    """A plan for every setting of an estimator, with as many images as fit.

    Args:
        candidate: the estimator.
        images: number in the data set.
        budget: seconds.
        start: seconds before the first image.
    """
    chosen, possible = candidate.chosen, []
    for draws, estimator in candidate.settings:
        one = candidate.seconds(draws)
        count = min(images, int((SPARE * budget - start) / one)) if one else images
        if count < min(_FEWEST_IMAGES, images):
            break
        possible.append(
            Plan(
                estimator=chosen.name,
                kind=chosen.label,
                options=estimator.model_dump(mode="json", exclude_unset=True),
                draws=draws,
                images=count,
                seconds=start + count * one,
                error=candidate.error(draws),
                error_of_mean=candidate.error_of_mean(draws, count, sampled=True),
                noise_of_mean=candidate.error_of_mean(draws, count, sampled=False),
            )
        )
    return possible


def best(possible: Sequence[Plan], question: Question, images: int) -> Plan | None:
    """The plan to take: the cheapest whose error is within 10 % of the least; None if nothing fits.

    For a decision about each image, plans that leave images out are considered only if none has all of them, and then those with most.
    """
    if not possible:
        return None
    able = list(possible)
    if question == "images":
        most = max(plan.images for plan in able)
        able = [plan for plan in able if plan.images == images] or [plan for plan in able if plan.images >= 0.95 * most]
    least = min(plan.answers(question) for plan in able)
    good = [plan for plan in able if plan.answers(question) <= TOLERATED * least]
    return min(good, key=lambda plan: (plan.seconds, plan.answers(question)))


def confirmed(
    candidates: Sequence[Candidate], choose: Callable[[Sequence[Candidate]], Plan | None], measure: Callable[[Candidate, Plan], float]
) -> list[Candidate]:
    """Correct the candidates' times by the measured time of the chosen setting.

    A pilot of short trials extrapolates to many draws, which caches and other load on the machine can put off by a factor of two. So
    the chosen setting itself is tried, its estimator's times are multiplied by measured / predicted, and the choice is made again,
    until it falls on a setting that was tried (at most three times).

    Args:
        candidates: from the pilot.
        choose: the best plan of all candidates.
        measure: seconds of one image with a plan of a candidate.
    """
    corrected, tried = list(candidates), set[tuple[str, int]]()
    for _ in range(ROUNDS):
        plan = choose(corrected)
        if plan is None or (plan.kind, plan.draws) in tried:
            break
        tried.add((plan.kind, plan.draws))
        i = next(i for i, one in enumerate(corrected) if one.chosen.label == plan.kind)
        if not (predicted := corrected[i].seconds(plan.draws)):
            break
        factor = measure(corrected[i], plan) / predicted
        corrected[i] = replace(corrected[i], fixed=corrected[i].fixed * factor, each=corrected[i].each * factor)
    return corrected


@dataclass(frozen=True, slots=True)
class Proposal:
    """The plan to take, and the others.

    Attributes:
        question: whether a value for each image is wanted, or a mean over images.
        budget: seconds.
        available: number of images in the data set.
        tried: the pilot.
        start: seconds before the first image.
        chosen: the plan to take.
        alternatives: the best plan of each estimator, by error; the chosen one is among them.
        precisions: effects of a lower precision of the noisy passes; the times above are for the spec's precision.
        snippet: YAML for the spec.
        device: where it was tried.
        levels: noise levels.
    """

    question: Question
    budget: float
    available: int
    tried: Pilot
    start: float
    chosen: Plan
    alternatives: Sequence[Plan]
    precisions: Sequence[Offer]
    snippet: str
    device: str
    levels: Sequence[NoiseLevel]

    def document(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "for": self.question,
            "budget_seconds": self.budget,
            "device": self.device,
            "noise": [at.document() for at in self.levels],
            "images": self.available,
            "pilot": {"images": self.tried.images, "touched": self.tried.affected, "seconds": self.tried.seconds},
            "start_seconds": self.start,
            "recommended": asdict(self.chosen),
            "alternatives": [asdict(plan) for plan in self.alternatives],
            "precisions": [asdict(offer) for offer in self.precisions],
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
    """Try every estimator briefly, and recommend the setting that fits the budget best.

    ``mc`` and ``logit_gaussian`` are always tried, others if the spec names them. Nothing is written.

    Args:
        spec: model, data, noise levels, and further estimators to consider.
        budget: seconds that the run may take, without this pilot.
        question: ``images``: a value for each image; ``mean``: a mean over images, in which errors average out.
        trust: allow Python code that the spec names.
        skip_bad: leave unusable samples out.
        model, dataset: in place of those the spec names.
        listener: receives notes and warnings.
        already: seconds that loading the program took, which the run will take as well.
        typed: the budget as the user wrote it.

    Raises:
        RobauditError: spec, model or data are not usable, or nothing fits.
    """
    listener, device = listener or Silent(), pick_device(spec.run.device)
    with deterministic(spec.run.deterministic, device), rounded_products(False):
        started = time.perf_counter()
        ready = prepare(spec, None, "", model, dataset, device, listener, trust=trust, skip_bad=skip_bad).at_levels(listener)
        start, count = already + time.perf_counter() - started, len(ready.samples)
        allowed = min(LONGEST, max(SHORTEST, SHARE * budget))
        listener.note(f"trying the estimators for about {duration_text(allowed)}")
        tried = pilot(ready, allowed, skip_bad=skip_bad)
        for note in tried.notes:
            listener.note(note)

        def choose(candidates: Sequence[Candidate]) -> Plan | None:
            return best([plan for one in candidates for plan in plans(one, count, budget, start)], question, count)

        def measure(candidate: Candidate, plan: Plan) -> float:
            one, most = candidate.seconds(plan.draws), CONFIRMING * allowed
            fitting = int(most / one) if FEW * one <= most else FEW if FEW * one <= 2 * most else 1
            images = min(plan.images, fitting)
            _, spent = run_on(ready, images, dict(candidate.settings)[plan.draws], "confirm", skip_bad=skip_bad)
            return spent / images

        candidates = confirmed(tried.candidates, choose, measure)
        offers = precision_offers(ready, skip_bad=skip_bad)
    if tried.affected < max(3, tried.images / 20):
        listener.warn(f"this noise affects only {tried.affected} of the pilot's {tried.images} images: the predicted errors are uncertain")
    chosen = choose(candidates)
    if chosen is None:
        where = f"--budget {typed or duration_text(budget)}"
        raise RobauditError(where, f"is too short: the start alone takes {start:.0f} s", "give it more time")
    bests = [best(plans(one, count, budget, start), question, count) for one in candidates]
    alternatives = {(plan.kind, plan.draws, plan.images): plan for plan in [chosen, *bests] if plan is not None}
    return Proposal(
        question=question,
        budget=budget,
        available=count,
        tried=tried,
        start=start,
        chosen=chosen,
        alternatives=sorted(alternatives.values(), key=lambda plan: (-plan.images, plan.answers(question))),
        precisions=offers,
        snippet=snippet(spec, chosen, count, offers),
        device=device_name(device),
        levels=spec.levels,
    )


def snippet(spec: AuditSpec, plan: Plan, available: int, offers: Sequence[Offer] = ()) -> str:
    """The changed sections of the spec, as YAML."""
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
