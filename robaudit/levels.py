"""Noise levels: the noise's label, and the level's name and number."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Any, Literal

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
NoisePlace = Literal["input", "file"]
INPUT: NoisePlace = "input"
FILE: NoisePlace = "file"
"""The place of noise on the decoded image file, before resize and crop."""
ABOUT_PLACE = (
    "input: on the network's input, after resize and crop; file: on the decoded image file, before "
    "them"
)
_ON_FILE = "_file"  # the end of the label of such a noise
_ROUNDING = 0.005  # the largest relative error of a number with three figures, as tables print it


def noise_label(name: str, place: NoisePlace) -> str:
    """The label of a noise: its name or kind; on files it ends with ``_file``, so that every row
    and table says where the noise is."""
    if place != FILE or name.endswith(_ON_FILE):
        return name
    return name + _ON_FILE


def name_in_label(label: str, place: NoisePlace) -> str:
    """The name of a noise without the end that :func:`noise_label` adds."""
    return label.removesuffix(_ON_FILE) if place == FILE else label


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
        """A number that grows with the strength of the noise; 0 without a level."""
        # Fewer photons are more noise.
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


@lru_cache(maxsize=4096)  # runs rarely have more levels, but may have millions of rows
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
    """A noise of a spec's document without its levels.

    Results with equal entries are of the same noise.
    """
    return {key: value for key, value in entry.items() if key not in LEVEL_KEYS}


@dataclass(frozen=True, slots=True)
class LevelChoice:
    """A selection of a run's noise levels; an empty field excludes nothing.

    Attributes:
        noises: labels of noises.
        levels: numbers of levels, under any name.
        sigmas: numbers of levels named sigma.
    """

    noises: tuple[str, ...] = ()
    levels: tuple[float, ...] = ()
    sigmas: tuple[float, ...] = ()

    @staticmethod
    def from_levels(chosen: LevelChoice | Iterable[float]) -> LevelChoice:
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
        noises: list[str] = []
        levels: list[float] = []
        sigmas: list[float] = []
        for choice in parts:
            noises += choice.noises
            levels += choice.levels
            sigmas += choice.sigmas
        return LevelChoice(tuple(noises), tuple(levels), tuple(sigmas))

    def among(self, present: Iterable[NoiseLevel], where: str) -> list[NoiseLevel]:
        """The chosen levels among the present ones, in their order.

        A number means the equal level, or else the only level within half a percent of it: tables
        print 8/255 as 0.0314.

        Args:
            present: the levels to choose from.
            where: the place of the choice, for messages.

        Raises:
            RunError: no level has this label or number.
        """
        matching = list(dict.fromkeys(present))
        if self.noises:
            labels = dict.fromkeys(at.noise or NONE for at in matching)
            for label in self.noises:
                if label not in labels:
                    raise RunError(where, f"has no noise {label!r}", "it has " + ", ".join(labels))
            matching = [at for at in matching if (at.noise or NONE) in self.noises]
        if self.sigmas:
            sigmas = [at for at in matching if at.name is LevelName.SIGMA]
            matching = _with_numbers(sigmas, self.sigmas, matching, where, "sigma")
        if self.levels:
            numbered = [at for at in matching if at.level is not None]
            matching = _with_numbers(numbered, self.levels, matching, where, "level")
        return matching


def _with_numbers(
    candidates: Sequence[NoiseLevel],
    wanted: Sequence[float],
    present: Sequence[NoiseLevel],
    where: str,
    what: str,
) -> list[NoiseLevel]:
    """The candidates with one of the wanted numbers.

    Args:
        candidates: the levels to choose from.
        wanted: their numbers, as a user wrote them.
        present: all levels, for the message.
        where: the place of the choice, for the message.
        what: the kind of the number, for the message: sigma or level.

    Raises:
        RunError: no candidate has a wanted number.
    """
    numbers = list(dict.fromkeys(at.level for at in candidates if at.level is not None))
    meant = [_nearest(number, numbers) for number in wanted]
    for number in meant:
        if number not in numbers:
            # The numbers alone say enough where all noise is the usual one.
            known = numbers if all(at.usual for at in present) else present
            named = ", ".join(map(str, known))
            raise RunError(where, f"has no {what} {number}", f"it has {named}")
    return [at for at in candidates if at.level in meant]


def _nearest(number: float, present: Sequence[float]) -> float:
    """The present level that a number means; the number itself if there is none, or several."""
    if number in present:
        return number
    near = [level for level in present if abs(level - number) <= _ROUNDING * level]
    return near[0] if len(near) == 1 else number


EVERY_LEVEL = LevelChoice()
"""The choice that excludes nothing."""
