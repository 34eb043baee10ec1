"""Noise levels: the label of the noise, what its level is called, and the number."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

GAUSSIAN = "gaussian"
"""The kind of noise that is meant where none is named, and its label."""


class LevelName(StrEnum):
    """What the level of a kind of noise is: its key in the spec."""

    SIGMA = "sigma"
    """A standard deviation, for pixels in [0, 1]."""
    EPS = "eps"
    """A radius, for pixels in [0, 1]."""
    PHOTONS = "photons"
    """Photons that a white pixel receives: more are less noise."""
    SHARE = "share"
    """A share of the values."""
    SIZE = "size"
    """A multiple of stated ranges."""
    SEVERITY = "severity"
    """A step on a scale of 1 to 5."""
    LEVEL = "level"
    """Anything else; the kind's documentation says what."""


@dataclass(frozen=True, slots=True, order=True)
class NoiseLevel:
    """A noise of a run at one of its levels: what a result is addressed by, besides its estimator.

    Attributes:
        noise: label of the noise; the spec's ``name``, or its kind.
        level: the number.
        name: what the level is.
        text: all of it, for people: "sigma 0.05" for the noise labelled "gaussian", "rain severity 3" for others.
    """

    noise: str
    level: float
    name: LevelName = LevelName.SIGMA

    @property
    def text(self) -> str:
        """The level with its name, and the label unless it is that of isotropic Gaussian noise."""
        return self.worded(f"{self.level:.6g}")

    def worded(self, number: str) -> str:
        """:attr:`text` with the number as it is written elsewhere."""
        return f"{self.name} {number}" if self.noise == GAUSSIAN else f"{self.noise} {self.name} {number}"

    def __str__(self) -> str:
        return self.text
