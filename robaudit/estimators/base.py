"""Estimators: options as fields, a quantity, needs, and one method over a chunk of images."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from enum import Enum, auto
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Protocol, Self

from pydantic import BeforeValidator, Field, ValidationError

from robaudit.names import Part
from robaudit.quantities import NO_INTERVAL, Interval, Quantity
from robaudit.spec.fields import SpecSection, as_tuple

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
    """What an estimator gives one result for, per image."""

    LEVEL = auto()
    """Every level of every noise."""
    NOISE = auto()
    """Every noise, once for all its levels."""
    IMAGE = auto()
    """The image alone, without noise."""


class Review(Protocol):
    """Reviews the rows of an estimator at one noise level, one by one."""

    def add(self, row: Row) -> None:
        """Take one more row."""

    def warnings(self) -> list[str]:
        """Warnings about all of them, one line each."""
        ...


class Estimator(SpecSection, ABC):
    """An estimator plugin. Options are fields (frozen; unknown ones are errors); everything else is declared on the class.

    Register a subclass under the entry-point group ``robaudit.estimators``; the built-in ones are registered the same way.

    Class attributes:
        quantity: what the values mean.
        needs: logits (any model), gradients (a differentiable model), labels.
        needs_noise: what it needs of the noise: random draws, a known covariance (additive noise), or bounded changes of pixels.
            Empty for estimators that only look at noisy copies.
        scope: whether it gives a result for each noise level, for each noise, or one without noise.
        linearises_clean: whether it reads :attr:`ImageBatch.clean` gradients, so that the clean pass records them once for all.
        summary: one line: what it computes.
        prefer: one line: when to prefer it.
        source: paper and equation.
        interval: how its interval is made, and what it covers.
    """

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
        """(forwards, backwards) per image and noise level, including the clean pass; for planning and progress."""

    @property
    def needs_labels(self) -> bool:
        """Whether every image must have a label, with these options."""
        return "labels" in self.needs

    @property
    def parts(self) -> tuple[Part, ...]:
        """The names of the values, where one computation gives several per image: each is a separate result, ``label:q=100``.

        They share a quantity and the passes of the computation. Empty (the default): one value, named by the label.
        """
        return ()

    @property
    def rows_at_once(self) -> int | None:
        """Rows of an image in a pass, for methods whose passes depend on each other (chains); None: passes are independent.

        A chunk has enough images to fill a pass: its time hardly depends on their number.
        """
        return None

    @property
    def fixed_draws(self) -> int | None:
        """Noisy copies of each image; None if images stop adaptively, or no single option sets the number."""
        return None

    def having(self, **options: Any) -> Self | None:
        """The estimator with some options changed; None if that is invalid."""
        kept = self.model_dump(exclude_unset=True, exclude=set(options))
        try:
            return type(self).model_validate({**kept, **options})
        except ValidationError:
            return None

    def unfit(self, form: NoiseKind) -> str:
        """Why it cannot work with a noise although its needs are met, in a few words; usually ''."""
        return ""

    def unfit_at(self, form: NoiseKind, level: float) -> str:
        """Why it cannot work at this level of a noise that it can work with, in a few words; usually ''."""
        return ""

    def check_model(self, model: LogitModel, image: Tensor) -> None:
        """Refuse a model that it cannot work with although its needs are met; by default accept any.

        Args:
            model: pixels to logits.
            image: one image (channels, height, width) on the model's device.

        Raises:
            ModelError: the model does not fit.
        """

    def review(self) -> Review | None:
        """A review of all rows of this estimator at one noise level, for warnings at the end of a run; usually None."""
        return None

    @abstractmethod
    def estimate(self, batch: ImageBatch) -> Sequence[Result] | Sequence[tuple[Result, ...]]:
        """One result for each image of ``batch``, in order.

        With :attr:`parts`, one tuple of results per image, in that order; each states the passes of the whole computation.
        """
