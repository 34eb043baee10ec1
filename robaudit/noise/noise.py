"""The contract of a kind of noise: options as fields, a level, and a map from standard normal
variables to pixels."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import AfterValidator, Field, ValidationInfo

from robaudit.files import expanded
from robaudit.levels import ABOUT_PLACE, FILE, INPUT, LevelName, NoisePlace
from robaudit.spec.fields import SpecSection

if TYPE_CHECKING:
    from torch import Tensor

    from robaudit.numerics.attack import Ball

Shape = tuple[int, int, int]
"""Channels, height and width of an image."""


def shape_of(images: Tensor) -> Shape:
    """Channels, height and width of images (..., channels, height, width)."""
    channels, height, width = images.shape[-3:]
    return channels, height, width


BASE_DIR = "base_dir"
"""The key of the validation context for the folder of relative paths."""


def _located(path: Path, info: ValidationInfo) -> Path:
    """The path relative to the folder of the validation context, or to the current folder."""
    context = info.context or {}
    base_dir = Path(context.get(BASE_DIR, Path.cwd()))
    # A path that is absolute, or becomes so with ~, replaces the folder.
    return base_dir / expanded(str(path))


File = Annotated[Path, AfterValidator(_located)]
"""An option that names a file or folder, relative to the spec file."""


class Noise(SpecSection, ABC):
    """A kind of noise.

    Options are fields (frozen; unknown ones are errors); everything else is declared on the class.

    A kind is a map from independent standard normal variables to noisy pixels, at a level. Other
    variables (uniform numbers, a count) are made from these: Phi(z) is uniform. So the draws belong
    to (run seed, kind, sample) and not to the level or the model, -z is as good a draw as z, and
    the failures of a network are a region in the space of z.

    Register a subclass under the entry-point group ``robaudit.noise``; the built-in ones are
    registered the same way.

    Class attributes:
        level_name: the name of its level, and its key in the spec.
        least, most: the smallest and the largest possible level.
        whole: whether levels are whole numbers.
        differentiable: whether the noisy pixels have a meaningful gradient with respect to z.
        guided: whether pixels jump as z moves, and :meth:`noisy` gives the gradient of a smooth
            approximation, which chains may follow.
        nearly_normal: whether the noise is a sum of many small independent contributions, so that
            the margins of a network are close to jointly normal. Where it is not, estimators that
            fit a normal distribution to them count votes instead.
        scales_only: whether the noisy pixels are x + level * z, with a z for each value.
        quantises: whether its pixels are always in [0, 1], so that ``clip`` would be a mistake.
        bounded: whether the noise has a limit at each level, so that a largest loss exists.
        empirical: whether it is recorded noise, at level 1 as strong as recorded; models of noise
            are judged against it.
        summary: its effect on a pixel x, in one line.
        prefer: what it models, in one line.
        source: paper or standard of the noise model.
    """

    level_name: ClassVar[LevelName]
    least: ClassVar[float]
    most: ClassVar[float]
    whole: ClassVar[bool] = False
    differentiable: ClassVar[bool] = False
    guided: ClassVar[bool] = False
    nearly_normal: ClassVar[bool] = False
    scales_only: ClassVar[bool] = False
    quantises: ClassVar[bool] = False
    bounded: ClassVar[bool] = False
    empirical: ClassVar[bool] = False
    summary: ClassVar[str]
    prefer: ClassVar[str]
    source: ClassVar[str]

    name: str = Field(
        "", pattern=r"^[\w.-]*$", description="label in the results; default: the kind"
    )
    clip: bool = Field(False, description="clip the noisy pixels to [0, 1]")
    at: NoisePlace = Field(INPUT, description=ABOUT_PLACE)

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        # What a class says of its noisy() does not hold for that of a subclass.
        if "noisy" in vars(cls) and "scales_only" not in vars(cls):
            cls.scales_only = False

    @property
    def on_file(self) -> bool:
        """Whether it is on the decoded image file, before resize and crop."""
        return self.at == FILE

    @property
    def random(self) -> bool:
        """Whether two draws of an image differ; if not, estimators compute a single copy."""
        return True

    @property
    def uniform_variables(self) -> bool:
        """Whether the pixels depend on each z through the uniform variable 2 Phi(z) - 1, nearly
        linearly.

        Samplers of large losses then tilt uniform distributions instead of normal ones.
        """
        return False

    @property
    def files(self) -> tuple[Path, ...]:
        """Files that the noise is made from; a run is not continued when one has changed."""
        return ()

    def check(self, shape: Shape, levels: Sequence[float]) -> None:
        """Check the options and levels against the images.

        Args:
            shape: channels, height, width of the images.
            levels: the run's levels, each already in range.

        Raises:
            SpecError: they do not fit; ``where`` is the option, such as ``scale``, or the level's
                name.
        """
        return

    def check_labels(self, labels: Iterable[tuple[str, int | None]]) -> None:
        """Check the labels against the noise's own, if it has any.

        Args:
            labels: sample ids and their labels; None or a negative number: unknown.

        Raises:
            DataError: they differ.
        """
        return

    def latent_shape(self, shape: Shape) -> tuple[int, ...]:
        """The shape of z for one image: the shape of the image, unless the kind needs more or fewer
        variables."""
        return shape

    def ball(self, level: float) -> Ball | None:
        """The ball of possible noisy images at a level; None if they are not a ball about the
        image."""
        return None

    @abstractmethod
    def noisy(self, x: Tensor, z: Tensor, level: float, *, ids: Sequence[str]) -> Tensor:
        """The noisy pixels; each row depends only on its own image and z: the same bits in any
        batch.

        Args:
            x: pixels in [0, 1] (n, channels, height, width), or (1, ...) if all rows are noisy
                copies of one image.
            z: independent standard normal variables (n, *latent_shape), of the dtype of x.
            level: of the noise.
            ids: sample ids of the rows of x, as many as it has.

        Returns:
            (n, channels, height, width), of the dtype of x. Neither x nor z is changed.
        """

    @property
    def by_row(self) -> bool:
        """Whether :meth:`noisy_rows` is implemented: many levels at once, in one launch on a
        GPU."""
        return False

    def noisy_rows(self, x: Tensor, z: Tensor, levels: Tensor) -> Tensor:
        """:meth:`noisy` with a level for each row (n, 1, 1, 1), and an image for each."""
        raise NotImplementedError


class AdditiveNoise(Noise):
    """Noise x + a(level) * e(x, z), with e of mean 0 and a covariance S(x) of known structure.

    If e is not exactly normal, the margins of a linear model are only nearly normal (matched
    variance).
    """

    nearly_normal = True

    @abstractmethod
    def amplitude(self, level: float, shape: Shape) -> float:
        """a(level), the number that scales the noise."""

    def shrunk(self, level: float, factor: float) -> float:
        """The level whose amplitude is ``factor`` times as large."""
        return level * factor

    @abstractmethod
    def gram(self, gradients: Tensor, x: Tensor) -> Tensor:
        """u_i^T S(x) u_j for the gradients u of an image's margins, without forming S.

        Args:
            gradients: (n, margins, pixels), of any floating dtype.
            x: the images (n, channels, height, width), pixels = channels * height * width.

        Returns:
            (n, margins, margins), float64.
        """


class SigmaNoise(AdditiveNoise):
    """Additive noise whose level sigma is its standard deviation, or scales it."""

    level_name = LevelName.SIGMA
    least = 1e-6
    most = 1e3
    differentiable = True

    def amplitude(self, level: float, shape: Shape) -> float:
        """Sigma itself."""
        return level
