"""Linear corruption: the image fades into grey noise."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field
from torch import Tensor

from robaudit.levels import LevelName
from robaudit.noise.noise import Noise
from robaudit.spec.fields import Number


class LinearCorruption(Noise):
    """(1 - share) x + share n, with n = mean + std z independent on every value: a share gamma = 1
    - share of the image is left.

    The level is the share of noise: 1 is noise alone. In the experiments that it comes from, people
    name half of the images correctly at gamma of about .25, a share of .75.

    Source: Jang, McCormack and Tong 2021, Noise-trained deep neural networks effectively predict
        human vision and its neural responses to challenging images; Smoothed robustness analysis,
        section 3.4.
    """

    level_name = LevelName.SHARE
    least = 1e-6
    most = 1.0
    differentiable = nearly_normal = True
    summary = "(1 - share) x + share n, with n grey noise of mean 0.5 and standard deviation 6/255"
    prefer = "fading contrast, and comparison with people, who tolerate a share of about 0.75"
    source = "Jang et al. 2021; Smoothed robustness analysis, section 3.4"

    # Grey noise of Jang et al.: mean 0.5, standard deviation 6 of 255 steps.
    mean: Number = Field(0.5, ge=0.0, le=1.0, description="of the noise; 0.5 is grey")
    std: Number = Field(
        6 / 255, ge=0.0, le=10.0, description="standard deviation of the noise; 0: plain grey"
    )

    @property
    def random(self) -> bool:
        """Whether the noise has any spread."""
        return self.std > 0

    def noisy(self, x: Tensor, z: Tensor, level: float, *, ids: Sequence[str]) -> Tensor:
        """(1 - share) x + share (mean + std z)."""
        grey = z.mul(self.std).add_(self.mean)
        return grey.mul_(level).add_(x * (1.0 - level))
