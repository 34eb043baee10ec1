"""What is an estimator: its options as fields, its quantity, its needs, and one method over a chunk of images."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from robaudit.estimators import sizes

if TYPE_CHECKING:
    from robaudit.estimators.work import Work
    from robaudit.rows import Row

Need = Literal["logits", "gradients", "labels"]


@dataclass(frozen=True, slots=True)
class Quantity:
    """What a value means. Values of different quantities never share a mean, a table or a gate.

    Attributes:
        name: the column ``quantity`` of a row.
        unit: probability, score, loss, input l2 norm, ...
        low, high: the range of possible values.
        higher_is_better: whether a larger value is more robust.
    """

    name: str
    unit: str
    low: float
    high: float
    higher_is_better: bool = True


P_ROBUST = Quantity("p_robust", "probability", 0.0, 1.0)
"""P[argmax f(x + eps) = argmax f(x)] (spec 1): a probability relative to the class predicted on the clean image."""

CONFIDENCE = Quantity("confidence", "score", 0.0, 1.0)
"""A softmax score of the clean image: no noise enters it, so it is no probability of robustness."""

LOG10_P_FAIL = Quantity("log10_p_fail", "log10 of a probability", -math.inf, 0.0, higher_is_better=False)
"""log10 P[argmax f(x + eps) != argmax f(x)] = log10(1 - p_robust): -6 is one failure in a million noisy images."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """One image's estimate at one noise level.

    Attributes:
        value: in the units of the estimator's quantity.
        lower, upper: 95 % interval, or None where none is claimed.
        std_error: standard error of the value, or None.
        flips_to: index of the class the image most likely flips to, or None when none was seen.
        forwards, backwards: passes behind the value, the clean one included.
        interval: how the interval was made ("clopper-pearson", "jackknife:sampling-only", "none").
        note: one short remark for the reader of the row, usually empty.
        votes: noisy copies by class, for estimators that count them.
        details: further numbers for samples.json, by name.
        kept: which of the independent draws kept the class, as :func:`robaudit.kept.packed` gives it.
    """

    value: float
    flips_to: int | None
    forwards: int
    backwards: int
    lower: float | None = None
    upper: float | None = None
    std_error: float | None = None
    interval: str = "none"
    note: str = ""
    votes: tuple[int, ...] | None = None
    details: Mapping[str, float] | None = None
    kept: str | None = None


class Review(Protocol):
    """Sees the rows of an estimator at one noise level, one by one."""

    def add(self, row: Row) -> None:
        """Take one more row."""

    def warnings(self) -> list[str]:
        """What there is to say about all of them, one line each."""
        ...


class Estimator(BaseModel, ABC):
    """An estimator plugin. Options are fields (frozen; unknown ones are errors); everything else is declared on the class.

    Register a subclass under the entry-point group ``robaudit.estimators``; the built-in ones are registered the same way.

    Class attributes:
        quantity: what the values mean.
        needs: logits (any model), gradients (a differentiable model), labels.
        linearises_clean: whether it reads :attr:`Work.clean` gradients, so that the clean pass records them once for all.
        summary: one line: what it computes.
        prefer: one line: when to prefer it.
        source: paper and equation.
        interval: how its interval is made, and what it covers.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    quantity: ClassVar[Quantity]
    needs: ClassVar[frozenset[Need]]
    linearises_clean: ClassVar[bool] = False
    summary: ClassVar[str]
    prefer: ClassVar[str]
    source: ClassVar[str]
    interval: ClassVar[str] = "none"

    label: str | None = Field(
        None, min_length=1, pattern=r"^[\w.-]+$", description="name in the results; needed to run one estimator twice"
    )

    @abstractmethod
    def passes(self, classes: int) -> tuple[int, int]:
        """(forwards, backwards) one image costs at one noise level, the clean pass included; for planning and progress."""

    def with_draws(self, draws: int) -> Self | None:
        """The same estimator with so many draws of each image and no stopping rule.

        Args:
            draws: noisy copies of each image.

        Returns:
            None if its number of draws cannot be chosen, or cannot be this one.
        """
        return None

    def _redrawn(self, draws: int, *stopping: str) -> Self | None:
        """With other ``samples`` and without the options that ``stopping`` names; None where ``samples`` cannot be so many."""
        options = self.model_dump(exclude_unset=True, exclude={"samples", *stopping})
        try:
            return self.model_validate({**options, "samples": draws})
        except ValidationError:
            return None

    def review(self) -> Review | None:
        """What looks at all rows of this estimator at one noise level together, for warnings at the end of a run; usually nothing."""
        return None

    def differentiated(self, classes: int) -> int:
        """With gradients: margins of an image whose gradients are held at once; the chunks are sized by it."""
        return classes - 1

    def held(self, classes: int, values: int) -> int:
        """Bytes that one image of a chunk takes at the peak of :meth:`estimate`; a number too large costs speed, one too small memory.

        Passes through the network, which the engine bounds, and the chunk's pixels are not counted. This default is for an estimator
        that holds the logits of all its passes, eight groups of moments with their normal CDFs and, if it needs gradients, those of
        all margins in eight groups, with copies.

        Args:
            classes: number of logits.
            values: channels * height * width, of 4 bytes each.
        """
        k = classes - 1
        moments = 8 * sizes.normal_cdf(min(k, 64)) + sizes.normal_cdf(k)
        copies = 4 * values * (4 + ("gradients" in self.needs) * 18 * k)
        return sizes.RECORD + sizes.votes(classes, 10**6) + sizes.logits(sum(self.passes(classes)), classes) + moments + copies

    def held_once(self, classes: int, values: int) -> int:
        """Bytes that :meth:`estimate` takes however few the images are."""
        return sizes.WORK_SPACE

    @abstractmethod
    def estimate(self, work: Work) -> Sequence[Estimate]:
        """One estimate for each image of ``work``, in order."""
