"""Does the plan that looks best take the time it is said to take? Tried on more images before it is proposed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from robaudit.auditing import Ready
from robaudit.estimators import registry
from robaudit.planning.choice import Plan
from robaudit.planning.families import Family
from robaudit.planning.levels import FEW, few
from robaudit.planning.trials import trial

ROUNDS = 3
"""Plans that are tried at most: a corrected time may lead to another one."""


def confirmed(
    families: Sequence[Family], choose: Callable[[Sequence[Family]], Plan | None], measure: Callable[[Plan], float], start: float
) -> list[Family]:
    """The families, the times of those chosen corrected by what the chosen setting took.

    A pilot of short trials extrapolates to many draws; caches, and a machine with other work, make that wrong by up to a factor of
    two. So the setting that is chosen is tried itself, its family's times are multiplied by measured / predicted, and the choice is
    made again, until a setting is chosen that was tried (three times at most).

    Args:
        families: from the pilot.
        choose: the best plan of all families.
        measure: seconds of one image with a plan.
        start: seconds before the first image, which a plan's time includes.
    """
    found, tried = list(families), set[tuple[str, str]]()
    for _ in range(ROUNDS):
        plan = choose(found)
        if plan is None or (name := (plan.kind, str(dict(plan.options)))) in tried:
            break
        tried.add(name)
        predicted = (plan.seconds - start) / plan.images
        if predicted <= 0:
            break
        factor = measure(plan) / predicted
        found = [_slower(family, factor) if family.kind == plan.kind else family for family in found]
    return found


def _slower(family: Family, factor: float) -> Family:
    laws = {sigma: replace(law, fixed=law.fixed * factor, each=law.each * factor) for sigma, law in family.laws.items()}
    return replace(family, laws=laws)


def seconds_of(ready: Ready, plan: Plan, start: float, allowed: float, *, skip_bad: bool = False) -> float:
    """Seconds of one image with a plan, at all noise levels: tried on as many images as fit, four at least unless they are too dear.

    Args:
        ready: the audit.
        plan: the plan.
        start: seconds of its time that are no image's.
        allowed: seconds for the trial.
        skip_bad: leave unusable samples out.
    """
    estimator = registry.load(plan.estimator).model_validate(dict(plan.options))
    one = max(1e-9, (plan.seconds - start) / plan.images)
    least = FEW if FEW * one <= 2 * allowed else 1
    images = few(ready, max(least, min(plan.images, int(allowed / one))))
    sigmas = ready.spec.noise.sigma
    return sum(trial(ready, images, estimator, sigma, "confirm", skip_bad=skip_bad).seconds for sigma in sigmas)
