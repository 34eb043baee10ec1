"""Estimators: options as fields, a quantity, needs, and one method over a chunk of images."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from enum import Enum, auto
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Protocol, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from robaudit.names import Part
from robaudit.quantities import NO_INTERVAL, Interval, Quantity
from robaudit.spec.fields import as_tuple

if TYPE_CHECKING:
    from torch import Tensor

    from robaudit.estimators.batch import ImageBatch
    from robaudit.models.logits import LogitModel
    from robaudit.noise.base import NoiseKind
    from robaudit.results import Result
    from robaudit.rows import Row

Need = Literal["logits", "gradients", "labels"]
NoiseNeed = Literal["random", "covariance", "bounded"]


class Scope(Enum):
    """What an estimator gives one result for, of each image."""

    LEVEL = auto()
    """Every level of every noise."""
    NOISE = auto()
    """Every noise, whatever its levels."""
    IMAGE = auto()
    """The image: no noise is involved."""


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
        needs_noise: what it asks of the noise: random draws, a known covariance (additive noise), or a limit to what it can do.
            Nothing, for estimators that only look at noisy copies.
        scope: whether it gives a result for each noise level, for each noise, or one that no noise has to do with.
        linearises_clean: whether it reads :attr:`ImageBatch.clean` gradients, so that the clean pass records them once for all.
        summary: one line: what it computes.
        prefer: one line: when to prefer it.
        source: paper and equation.
        interval: how its interval is made, and what it covers.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    quantity: ClassVar[Quantity]
    needs: ClassVar[frozenset[Need]]
    needs_noise: ClassVar[frozenset[NoiseNeed]] = frozenset()
    scope: ClassVar[Scope] = Scope.LEVEL
    linearises_clean: ClassVar[bool] = False
    summary: ClassVar[str]
    prefer: ClassVar[str]
    source: ClassVar[str]
    interval: ClassVar[Interval] = NO_INTERVAL

    label: str | None = Field(
        None, min_length=1, pattern=r"^[\w.-]+$", description="name in the results; needed to run one estimator twice"
    )

    noise: Annotated[tuple[str, ...], BeforeValidator(as_tuple)] = Field(
        (), description="labels of the noises that it is computed for; default: all of the run"
    )

    @abstractmethod
    def passes(self, classes: int) -> tuple[int, int]:
        """(forwards, backwards) one image costs at one noise level, the clean pass included; for planning and progress."""

    @property
    def needs_labels(self) -> bool:
        """Whether every image must have a label, with these options."""
        return "labels" in self.needs

    @property
    def parts(self) -> tuple[Part, ...]:
        """The values that one computation gives of an image, where it gives several: each is a result of its own, ``label:q=100``.

        They share a quantity, and one computation's passes. Nothing (the default): one value, named by the label alone.
        """
        return ()

    @property
    def rows_at_once(self) -> int | None:
        """Rows of an image in a pass, where one pass waits for another (chains); None: all of its passes can be made at once.

        So many images share a chunk that their rows fill a pass: the time of a chunk hardly depends on their number.
        """
        return None

    @property
    def fixed_draws(self) -> int | None:
        """Noisy copies of each image; None where images stop adaptively, or no single option sets the number."""
        return None

    def with_draws(self, draws: int) -> Self | None:
        """The same estimator with so many noisy copies of each image and no stopping rule.

        Args:
            draws: noisy copies of each image.

        Returns:
            None if its number of draws cannot be chosen, or cannot be this one.
        """
        return None

    def having(self, *without: str, **options: Any) -> Self | None:
        """The estimator with some options changed, and those named left at their defaults; None where that is not valid."""
        kept = self.model_dump(exclude_unset=True, exclude={*without, *options})
        try:
            return type(self).model_validate({**kept, **options})
        except ValidationError:
            return None

    def unfit(self, form: NoiseKind) -> str:
        """Why it cannot work with a noise although its needs are met, in a few words; usually nothing."""
        return ""

    def unfit_at(self, form: NoiseKind, level: float) -> str:
        """Why it cannot work at a level of a noise that it can work with, in a few words; usually nothing."""
        return ""

    def check_model(self, model: LogitModel, image: Tensor) -> None:
        """Refuse a model that it cannot work with although its needs are met; usually none.

        Args:
            model: pixels to logits.
            image: one image (channels, height, width) on the model's device.

        Raises:
            ModelError: it is refused.
        """

    def review(self) -> Review | None:
        """What looks at all rows of this estimator at one noise level together, for warnings at the end of a run; usually nothing."""
        return None

    @abstractmethod
    def estimate(self, batch: ImageBatch) -> Sequence[Result] | Sequence[tuple[Result, ...]]:
        """One result for each image of ``batch``, in order.

        With :attr:`parts`, one tuple of results for each image, in their order; each states the passes of the whole computation.
        """
