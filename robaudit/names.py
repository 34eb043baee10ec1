"""Names of results: the estimator and, if it computes several values, the one of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache


class PartName(StrEnum):
    """The property that distinguishes the values of an estimator; a key of gates."""

    Q = "q"
    """The order of a norm of losses: 1 is the mean, infinity the maximum."""
    NORM = "norm"
    """The norm of perturbations: l1, l2 or linf."""


_NORMS = {"l1": 1.0, "l2": 2.0, "linf": math.inf}


@dataclass(frozen=True, slots=True)
class Part:
    """One of several values of an estimator: ``q=100``, ``norm=linf``."""

    name: PartName
    number: float

    @property
    def value(self) -> str:
        """The number as text: ``100``; for a norm ``l1``, ``l2`` or ``linf``."""
        if self.name is PartName.NORM:
            for name, order in _NORMS.items():
                if order == self.number:
                    return name
        return f"{self.number:.15g}"  # as many digits as a float always keeps

    def __str__(self) -> str:
        return f"{self.name}={self.value}"

    @staticmethod
    def norm(name: str) -> Part:
        """The part of a norm: l1, l2 or linf.

        Raises:
            ValueError: it is none of them.
        """
        if name not in _NORMS:
            raise ValueError(f"{name!r} is none of l1, l2, linf")
        return Part(PartName.NORM, _NORMS[name])

    @staticmethod
    def parse(name: str, value: str) -> Part:
        """The inverse of ``str``, from the texts on both sides of "=".

        Raises:
            ValueError: the name is unknown, or the value does not fit it.
        """
        known = PartName(name)
        return Part.norm(value) if known is PartName.NORM else Part(known, float(value))


@dataclass(frozen=True, slots=True)
class ResultName:
    """The name of a result: the column ``estimator`` of a row, ``qnorm_path:q=100``.

    Attributes:
        estimator: the label of the estimator.
        part: the value that is meant; None for an estimator with a single value.
    """

    estimator: str
    part: Part | None = None

    @property
    def norm(self) -> Part | None:
        """The norm of its values; None where the name does not say."""
        return self.part if self.part is not None and self.part.name is PartName.NORM else None

    def __str__(self) -> str:
        return self.estimator if self.part is None else f"{self.estimator}:{self.part}"

    @staticmethod
    @lru_cache(maxsize=1024)  # millions of rows have a few names
    def parse(text: str) -> ResultName:
        """The inverse of ``str``; text without a part is an estimator's name."""
        estimator, _, rest = text.rpartition(":")
        name, _, number = rest.partition("=")
        if not estimator:
            return ResultName(text)
        try:
            return ResultName(estimator, Part.parse(name, number))
        except ValueError:
            return ResultName(text)


def matches(name: str, wanted: str) -> bool:
    """Whether ``wanted`` means the result ``name``.

    It is this name, or the estimator's, which means all of its values.
    """
    return str(ResultName.parse(wanted)) in (name, ResultName.parse(name).estimator)


def series(names: Iterable[str]) -> dict[tuple[str, PartName], Sequence[tuple[float, str]]]:
    """Results that differ only in a number.

    Returns:
        For each estimator and name of a part, the ascending numbers with the results' names.
    """
    groups: dict[tuple[str, PartName], dict[float, str]] = {}
    for name in names:
        parsed = ResultName.parse(name)
        if parsed.part is not None:
            groups.setdefault((parsed.estimator, parsed.part.name), {})[parsed.part.number] = name
    return {key: sorted(numbers.items()) for key, numbers in groups.items()}
