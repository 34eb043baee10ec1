"""Estimators: options as fields, a quantity, needs, and one method over a chunk of images."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from enum import Flag, auto
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self

from pydantic import ValidationError

from robaudit.names import Part
from robaudit.quantities import NO_INTERVAL, Interval, Quantity
from robaudit.spec.fields import SpecSection

# Specs are checked, and estimators listed, without the seconds that torch takes to import.
if TYPE_CHECKING:
    from torch import Tensor

    from robaudit.engine.batch import ImageBatch
    from robaudit.levels import NoiseLevel
    from robaudit.models.logits import LogitModel
    from robaudit.noise.noise import Noise
    from robaudit.results import Result


class Need(Flag):
    """The needs of an estimator: properties of the noise, the model and the data."""

    NOTHING = 0
    """Only the logits of the clean image: one result per image, without noise."""
    NOISE = auto()
    """A noise: one result per noise, independent of its levels."""
    LEVEL = auto()
    """A noise level: one result per level."""
    LABELS = auto()
    """The label of every image."""
    GRADIENTS = auto()
    """A differentiable model."""
    RANDOM = auto()
    """Noise that differs from draw to draw."""
    COVARIANCE = auto()
    """Additive noise of a known covariance."""
    BOUNDED = auto()
    """Noise that is bounded at each level."""
    INPUT = auto()
    """Noise on the network's input, not on files; gradients, a covariance and a bound are of the
    input, too."""


class Review(Protocol):
    """A check of all results of an estimator at a noise level, once the run is complete."""

    def add(self, result: Result, predicted: int) -> None:
        """Add the result of an image; ``predicted`` is the class of the clean image."""

    def warnings(self, name: str, at: NoiseLevel) -> list[str]:
        """Warnings for the run, about the results of this name at this noise level."""


class Estimator(SpecSection, ABC):
    """An estimator plugin: options as fields, everything else declared on the class.

    Fields are frozen, and unknown options are errors. Register a subclass under the entry-point
    group ``robaudit.estimators``; the built-in ones are registered the same way.

    Class attributes:
        quantity: what the values mean.
        needs: what it needs from noise, model and data; also whether it has a result per noise
            level, per noise, or without noise.
        summary: what it computes, in one line.
        prefer: when to prefer it, in one line.
        source: paper and equation.
        interval: how its interval is computed, and what it covers.
    """

    quantity: ClassVar[Quantity]
    needs: ClassVar[Need]
    summary: ClassVar[str]
    prefer: ClassVar[str]
    source: ClassVar[str]
    interval: ClassVar[Interval] = NO_INTERVAL

    @abstractmethod
    def passes(self, classes: int) -> tuple[int, int]:
        """The forward and backward passes of an image at a noise level, including the clean pass.

        They are used for planning and progress.
        """

    @property
    def needs_labels(self) -> bool:
        """Whether every image needs a label with these options."""
        return Need.LABELS in self.needs

    @property
    def parts(self) -> tuple[Part, ...]:
        """The names of the values, if one computation gives several for each image.

        Each value is a separate result, ``label:q=100``. They share a quantity and the passes of
        the computation. Empty (the default): a single value, named by the label.
        """
        return ()

    @property
    def rows_at_once(self) -> int | None:
        """Rows of an image in a pass, for methods whose passes depend on each other (chains); None:
        passes are independent.

        A chunk then has enough images to fill a pass: larger batches cost almost the same.
        """
        return None

    @property
    def most_draws(self) -> int | None:
        """The number of noisy copies of each image, if a run may take them in rounds
        (:meth:`further`); None (the default): an image is computed at once."""
        return None

    def review(self) -> Review | None:
        """A new review of its results at a noise level; None (the default): it needs none."""
        return None

    def having(self, **options: Any) -> Self | None:
        """The estimator with changed options; None if they are invalid."""
        unchanged = self.model_dump(exclude_unset=True, exclude=set(options))
        try:
            return type(self).model_validate({**unchanged, **options})
        except ValidationError:
            return None

    def unfit(self, form: Noise, level: float | None = None) -> str:
        """The reason why it cannot work with a noise that meets its needs, in a few words; '' if it
        can.

        Args:
            form: the noise.
            level: a level of it; None: the noise as a whole.
        """
        return ""

    def check_model(self, model: LogitModel, image: Tensor) -> None:
        """Refuse a model that is unsuitable although it meets the needs; by default accept any
        model.

        Args:
            model: pixels to logits.
            image: one image (channels, height, width) on the model's device.

        Raises:
            ModelError: the model does not fit.
        """

    @abstractmethod
    def estimate(self, batch: ImageBatch) -> Sequence[Result] | Sequence[tuple[Result, ...]]:
        """The results of a chunk: one for each image of ``batch``, in order.

        With :attr:`parts`, a tuple of results per image, in the order of the parts; each result
        states the passes of the whole computation.
        """

    def further(
        self, batch: ImageBatch, earlier: Sequence[Result] | None, draws: int
    ) -> Sequence[Result]:
        """The results of a chunk after ``draws`` copies of each image, by an estimator with
        :attr:`most_draws`.

        They are the same in whichever rounds the copies were taken.

        Args:
            batch: the chunk.
            earlier: the results after fewer copies, equally many of each image; None: there are
                none yet.
            draws: number of copies of each image in all, at most :attr:`most_draws`.
        """
        raise NotImplementedError
