"""Noise levels: the noise's label, and the level's name and number."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Any

from robaudit.errors import RunError

GAUSSIAN = "gaussian"
"""The default kind of noise, and its label."""


class LevelName(StrEnum):
    """The meaning of a noise's level: its key in the spec."""

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
    """Anything else, as the kind's documentation says."""


LEVEL_KEYS = tuple(LevelName)
"""The keys of levels in a spec."""
NONE = "none"
"""No noise, or no level, in the columns of a row; never the label of a noise."""


@dataclass(frozen=True, slots=True)
class NoiseLevel:
    """A noise of a run at one of its levels: the address of a result, together with its estimator.

    Attributes:
        noise: label of the noise: the spec's ``name``, or its kind; None for a result without
            noise.
        level: the number; None for a result about the noise as a whole, or without noise.
        name: meaning of the level; None without a level.
        text: for people: "sigma 0.05" for the noise labelled "gaussian", "rain severity 3" for
            others.
    """

    noise: str | None = None
    level: float | None = None
    name: LevelName | None = None

    @property
    def text(self) -> str:
        """The level with its name, and the label unless the noise is isotropic Gaussian."""
        return self.worded(f"{self.number:.6g}")

    @property
    def number(self) -> float:
        """The level; 0 without one."""
        return self.level or 0.0

    @property
    def usual(self) -> bool:
        """Whether it is a level of isotropic Gaussian noise, whose label is left out."""
        return self.noise == GAUSSIAN and self.level is not None

    def worded(self, number: str) -> str:
        """:attr:`text` with another text for the number."""
        if self.level is None:
            return self.noise or "no noise"
        return f"{self.name} {number}" if self.usual else f"{self.noise} {self.name} {number}"

    @property
    def choice(self) -> LevelChoice:
        """The choice of this level or, without a level, of all results of the noise."""
        return LevelChoice((self.noise or NONE,), () if self.level is None else (self.level,))

    @property
    def strength(self) -> float:
        """A number that grows with the strength of the noise (fewer photons are more noise); 0
        without a level."""
        return -self.number if self.name is LevelName.PHOTONS else self.number

    @property
    def argument(self) -> str:
        """The name of the level in gates and on the command line: sigma or level."""
        return "sigma" if self.name is LevelName.SIGMA else "level"

    @property
    def key(self) -> str:
        """The address for machines: "gaussian:sigma=0.05"."""
        return f"{self.noise or NONE}:{self.name or NONE}={self.number!r}"

    @staticmethod
    def from_key(key: str) -> NoiseLevel:
        """The inverse of :attr:`key`.

        Raises:
            ValueError: it is not a key.
        """
        label, _, rest = key.rpartition(":")
        name, _, level = rest.partition("=")
        return noise_level(label, float(level), name)

    def document(self) -> dict[str, Any]:
        """The three columns of a row; :func:`noise_level` is the inverse."""
        return {"noise": self.noise or NONE, "level_name": self.name or NONE, "level": self.number}

    def __str__(self) -> str:
        return self.text


def from_weak_to_strong(levels: Iterable[NoiseLevel]) -> list[NoiseLevel]:
    """Each level once: noises in order of first appearance, the levels of each from weak to
    strong."""
    distinct = list(dict.fromkeys(levels))
    labels = list(dict.fromkeys(at.noise for at in distinct))
    return sorted(distinct, key=lambda at: (labels.index(at.noise), at.strength))


@lru_cache(maxsize=4096)
def noise_level(noise: str, level: float, name: str) -> NoiseLevel:
    """The noise level from a row's columns; rows share one object.

    Raises:
        ValueError: the name is unknown.
    """
    label = None if noise == NONE else noise
    return NoiseLevel(label) if name == NONE else NoiseLevel(label, level, LevelName(name))


def level_name_in(entry: Mapping[str, Any]) -> LevelName:
    """The key of a noise's levels in a spec or its document.

    Raises:
        ValueError: it has none.
    """
    for name in LEVEL_KEYS:
        if name in entry:
            return name
    raise ValueError("the noise has no levels")


def without_levels(entry: Mapping[str, Any]) -> dict[str, Any]:
    """A noise of a spec's document without its levels; results with equal entries are of the same
    noise."""
    return {key: value for key, value in entry.items() if key not in LEVEL_KEYS}


@dataclass(frozen=True, slots=True)
class LevelChoice:
    """A selection of a run's noise levels; an empty field excludes nothing.

    Attributes:
        noises: labels.
        levels: numbers, under any name.
        sigmas: numbers of levels named sigma.
    """

    noises: tuple[str, ...] = ()
    levels: tuple[float, ...] = ()
    sigmas: tuple[float, ...] = ()

    @staticmethod
    def of(chosen: LevelChoice | Iterable[float]) -> LevelChoice:
        """The choice itself, or a choice of these numbers."""
        return chosen if isinstance(chosen, LevelChoice) else LevelChoice(levels=tuple(chosen))

    def __bool__(self) -> bool:
        return bool(self.noises or self.levels or self.sigmas)

    @property
    def parts(self) -> list[LevelChoice]:
        """One choice for each label and number."""
        return [
            *(LevelChoice(noises=(label,)) for label in self.noises),
            *(LevelChoice(levels=(number,)) for number in self.levels),
            *(LevelChoice(sigmas=(number,)) for number in self.sigmas),
        ]

    @staticmethod
    def joined(parts: Iterable[LevelChoice]) -> LevelChoice:
        """The union of choices."""
        choices = list(parts)
        return LevelChoice(
            tuple(label for choice in choices for label in choice.noises),
            tuple(number for choice in choices for number in choice.levels),
            tuple(number for choice in choices for number in choice.sigmas),
        )

    def among(self, present: Iterable[NoiseLevel], where: str) -> list[NoiseLevel]:
        """The chosen levels, in their order.

        A number means the equal level, or else the only level within half a percent of it: tables
        print 8/255 as 0.0314.

        Raises:
            RunError: no level has this label or number.
        """
        matching = list(dict.fromkeys(present))
        for label in self.noises:
            if label not in (names := dict.fromkeys(at.noise or NONE for at in matching)):
                raise RunError(where, f"has no noise {label!r}", "it has " + ", ".join(names))
        matching = [at for at in matching if not self.noises or (at.noise or NONE) in self.noises]
        for what, wanted in (("sigma", self.sigmas), ("level", self.levels)):
            if not wanted:
                continue
            able = [
                at
                for at in matching
                if (what == "level" and at.level is not None) or at.name is LevelName.SIGMA
            ]
            numbers = list(dict.fromkeys(at.level for at in able if at.level is not None))
            meant = [_nearest(number, numbers) for number in wanted]
            for number in meant:
                if number not in numbers:
                    named = ", ".join(
                        map(str, numbers if all(at.usual for at in matching) else matching)
                    )
                    raise RunError(where, f"has no {what} {number}", f"it has {named}")
            matching = [at for at in able if at.level in meant]
        return matching


def _nearest(number: float, present: Sequence[float]) -> float:
    near = [level for level in present if abs(level - number) <= 0.005 * level]
    return near[0] if number not in present and len(near) == 1 else number


EVERY_LEVEL = LevelChoice()
