"""Which plans fit a budget, and which of them is the one to take?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from robaudit.planning.families import Family

Question = Literal["images", "mean"]
SPARE = 0.9
"""Of the budget is planned with: machines are not equally fast all the time."""
ENOUGH = 1.1
"""An error within so much of the least is as good: the cheapest of those plans is taken."""
FEWEST_IMAGES = 2


@dataclass(frozen=True, slots=True)
class Plan:
    """One way to spend the budget.

    Attributes:
        estimator, kind, options: which, what the table calls it, and its options for the spec.
        draws: of an image and noise level, on average (0: none).
        images: how many.
        seconds: predicted, start included.
        error: predicted RMSE of an image's value, at the worst noise level.
        error_of_mean: predicted standard error of the mean, for all images of this kind.
        noise_of_mean: the same for these very images.
    """

    estimator: str
    kind: str
    options: Mapping[str, Any]
    draws: float
    images: int
    seconds: float
    error: float
    error_of_mean: float
    noise_of_mean: float

    def answers(self, question: Question) -> float:
        """The error that counts."""
        return self.error if question == "images" else self.error_of_mean

    def document(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self)


def plans(family: Family, images: int, budget: float, start: float) -> list[Plan]:
    """Every setting of a family, with as many images as fit.

    Args:
        family: an estimator.
        images: of the data set.
        budget: seconds.
        start: seconds before the first image.
    """
    found = []
    for i, setting in enumerate(family.settings):
        one = family.seconds(i)
        count = min(images, int((SPARE * budget - start) / one)) if one else images
        if count < min(FEWEST_IMAGES, images):
            break
        draws = max(family.passes(i, sigma) for sigma in family.laws)
        error, mean, noise = family.error(i), family.error_of_mean(i, count), family.noise_of_mean(i, count)
        found.append(Plan(family.name, family.kind, setting.options, draws, count, start + count * one, error, mean, noise))
    return found


def best(found: Sequence[Plan], question: Question, images: int) -> Plan | None:
    """The plan to take: the cheapest whose error is within 10 % of the least; None if nothing fits.

    For a decision about each image, plans that leave images out count only where none has all of them, and then those that have most.
    """
    if not found:
        return None
    able = list(found)
    if question == "images":
        most = max(plan.images for plan in able)
        able = [plan for plan in able if plan.images == images] or [plan for plan in able if plan.images >= 0.95 * most]
    least = min(plan.answers(question) for plan in able)
    good = [plan for plan in able if plan.answers(question) <= ENOUGH * least]
    return min(good, key=lambda plan: (plan.seconds, plan.answers(question)))
