"""The meaning of values and intervals, shared by estimators, rows, statistics and reports."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from functools import lru_cache
from typing import Any

_APPROXIMATE = "approximate"


class Band(IntEnum):
    """The place of a quantity between the clean image and proofs.

    All results of an image are shown in this order.
    """

    CLEAN = 0
    AVERAGE = 1
    BETWEEN = 2
    TOLERANCE = 3
    OTHER = 4
    FOUND = 5
    EXACT = 6
    CERTIFIED = 7
    SMOOTHED = 8


@dataclass(frozen=True, slots=True)
class Quantity:
    """The meaning of a value.

    Values of different quantities never share a mean, a table or a gate.

    Attributes:
        name: the column ``quantity`` of a row.
        unit: probability, score, loss, input l2 norm, ...
        low, high: the range of possible values.
        higher_is_better: whether a larger value is more robust.
        meaning: a definition in one line for tables, omitted from run.json.
        band: its place between the clean image and proofs, omitted from run.json.
    """

    name: str
    unit: str
    low: float
    high: float
    higher_is_better: bool = True
    # They do not take part in comparisons: a run.json without them describes the same quantity.
    meaning: str = field(default="", compare=False)
    band: Band = field(default=Band.OTHER, compare=False)

    @property
    def is_share(self) -> bool:
        """Whether it ranges from 0 to 1; 0.5 and 0.9 are then sensible thresholds."""
        return (self.low, self.high) == (0.0, 1.0)

    def document(self) -> dict[str, Any]:
        """The quantity as JSON values; an infinite end of the range becomes null."""
        return {
            "name": self.name,
            "unit": self.unit,
            "low": None if math.isinf(self.low) else self.low,
            "high": None if math.isinf(self.high) else self.high,
            "higher_is_better": self.higher_is_better,
        }

    @classmethod
    def from_document(cls, values: Mapping[str, Any]) -> Quantity:
        """The inverse of :meth:`document`."""
        fields = dict(values)
        if fields["low"] is None:
            fields["low"] = -math.inf
        if fields["high"] is None:
            fields["high"] = math.inf
        built_in = BUILT_IN.get(values["name"])
        if built_in is not None:
            # The document lacks them; they may be worded better than when it was written.
            fields["meaning"] = built_in.meaning
            fields["band"] = built_in.band
        return cls(**fields)


P_ROBUST = Quantity(
    "p_robust",
    "probability",
    0.0,
    1.0,
    meaning="probability that noise leaves the prediction unchanged",
    band=Band.AVERAGE,
)
"""P[argmax f(x + eps) = argmax f(x)], relative to the class predicted on the clean image (Han et
al., Average-case robustness)."""

CONFIDENCE = Quantity(
    "confidence",
    "score",
    0.0,
    1.0,
    meaning="softmax score of the clean image (no noise enters it)",
    band=Band.CLEAN,
)
"""A softmax score of the clean image; no noise is involved, so it is not a probability of
robustness."""

LOG10_P_FAIL = Quantity(
    "log10_p_fail",
    "log10 of a probability",
    -math.inf,
    0.0,
    higher_is_better=False,
    meaning="probability that noise changes the prediction, as a power of ten: -6 is one in a "
    "million",
    band=Band.AVERAGE,
)
"""log10 P[argmax f(x + eps) != argmax f(x)] = log10(1 - p_robust): -6 is one failure in a million
noisy images."""


LOSS = Quantity(
    "loss",
    "nats",
    0.0,
    math.inf,
    higher_is_better=False,
    meaning="cross-entropy under noise: for q = 1 its mean, towards its maximum as q grows",
    band=Band.BETWEEN,
)
"""(E[l^q])^(1/q) of the cross-entropy l under the noise, or its maximum (Rice et al., Robustness
between the worst and average case)."""


RADIUS = Quantity(
    "radius",
    "input norm",
    0.0,
    math.inf,
    meaning="norm of the smallest change of the image that changes the prediction",
    band=Band.FOUND,
)
"""The norm of the smallest perturbation that changes the class (Giraudon et al., Intrinsic
robustness); the result's name has the norm."""

CERTIFIED = Quantity(
    "certified_radius",
    "input norm",
    0.0,
    math.inf,
    meaning="norm up to which the class provably stays the same; 0 where nothing is certified",
    band=Band.CERTIFIED,
)
"""A radius within which the class provably stays the same, 0 where nothing is certified (Cohen et
al. 2019; Smoothed robustness analysis): of the network itself, or, in a result of a noise level, of
the network smoothed by that noise."""

TOLERANCE = Quantity(
    "noise_tolerance",
    "noise level",
    0.0,
    math.inf,
    meaning="largest noise level that leaves the prediction unchanged often enough",
    band=Band.TOLERANCE,
)
"""The largest level of a noise that keeps the class with a given probability, in the level's own
unit (Giraudon et al., section 4)."""

DIFFICULTY = Quantity(
    "difficulty",
    "logit of the score",
    -math.inf,
    math.inf,
    meaning="logit of the clean score of the class: larger is easier (no noise enters it)",
    band=Band.CLEAN,
)
"""g = log(p / (1 - p)) of the score p of a class on the clean image: larger is easier (Giraudon et
al., Intrinsic robustness)."""


BUILT_IN: Mapping[str, Quantity] = {
    quantity.name: quantity
    for quantity in (
        P_ROBUST,
        CONFIDENCE,
        LOG10_P_FAIL,
        LOSS,
        RADIUS,
        CERTIFIED,
        TOLERANCE,
        DIFFICULTY,
    )
}
"""The quantities of this package by name."""


class IntervalKind(StrEnum):
    """The method behind an interval."""

    NONE = "none"
    CLOPPER_PEARSON = "clopper-pearson"
    ANTITHETIC = "antithetic pairs"
    """For votes whose copies come in pairs of opposite noise
    (:func:`robaudit.numerics.intervals.antithetic_share`)."""
    CONFIDENCE_SEQUENCE = "confidence-sequence"
    JACKKNIFE = "jackknife"
    LOGNORMAL = "lognormal"
    CHAINS = "chains"
    """From Markov chains: what they have not settled is in the interval, and may have the same
    sign in all images."""
    UPPER_BOUND = "upper bound"
    LOWER_BOUND = "lower bound"
    CENSORED = "censored"
    """The true value is larger: the search ended at this value without a result."""
    NO_VALUE = "no value"
    """No estimate (NaN); gates treat the value as unknown."""
    EXACT = "exact"
    """No uncertainty: the noise does the same to an image every time."""
    OTHER = "other"
    """Any other method; the remark names it."""


_NAMED = frozenset(kind.value for kind in IntervalKind if kind is not IntervalKind.OTHER)


@dataclass(frozen=True, slots=True)
class Interval:
    """The method of an interval and its coverage: the column ``interval`` of a row.

    Attributes:
        kind: the method.
        covers_bias: whether it covers the whole error. False for an approximate interval, which
            covers sampling only, not the estimator's own bias; no gate relies on it.
        remark: anything else of note ("4 repeats"); for :attr:`IntervalKind.OTHER` the name of the
            method.
        text: the text form: "lognormal:4 repeats" or "chains:approximate".

    Raises:
        ValueError: with this remark the text would read back as another interval.
    """

    kind: IntervalKind
    covers_bias: bool = True
    remark: str = ""
    text: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        is_other = self.kind is IntervalKind.OTHER
        parts = [] if is_other else [self.kind.value]
        if is_other or self.remark:
            parts.append(self.remark)
        if not self.covers_bias:
            parts.append(_APPROXIMATE)
        text = ":".join(parts)
        # Rows store the text alone.
        if _split(text) != (self.kind, self.covers_bias, self.remark):
            raise ValueError(
                f"an interval {self.kind} with the remark {self.remark!r} would read back as "
                "another; choose another remark"
            )
        object.__setattr__(self, "text", text)  # the only way into a frozen dataclass

    def __str__(self) -> str:
        return self.text

    @staticmethod
    def parse(text: str) -> Interval:
        """The interval with this text; a method of unknown name is :attr:`IntervalKind.OTHER`."""
        return _parsed(text)


def _split(text: str) -> tuple[IntervalKind, bool, str]:
    """The kind, the coverage of bias, and the remark in the text of an interval."""
    head = text.removesuffix(f":{_APPROXIMATE}")
    covers_bias = head == text
    name, colon, remark = head.partition(":")
    # A colon without a remark is never written, so it belongs to the name of another method.
    if name in _NAMED and bool(remark) == bool(colon):
        return IntervalKind(name), covers_bias, remark
    return IntervalKind.OTHER, covers_bias, head


@lru_cache(maxsize=1024)  # millions of rows share a few intervals
def _parsed(text: str) -> Interval:
    """The interval with this text; equal texts share one object."""
    return Interval(*_split(text))


NO_INTERVAL = Interval(IntervalKind.NONE)
"""The interval of an estimator that has none."""
