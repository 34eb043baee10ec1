"""The one conversion of results to JSON, and the schema of what it gives."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import numpy as np
from jsonschema import Draft202012Validator
from numpy.typing import NDArray

from robaudit.documents import Document, json_schema, json_values
from robaudit.quantities import P_ROBUST
from robaudit.runs.groups import GroupKey
from tests.levels import sigma


class Colour(StrEnum):
    RED = "red"


@dataclass(frozen=True, slots=True)
class Inner(Document):
    """A part.

    Attributes:
        low, high: the ends; None where
            there are none.
    """

    low: float | None
    high: float


@dataclass(frozen=True, slots=True)
class Outer(Document):
    """A whole. And more."""

    members = "key name=title twice *inner kept=inner inner.low predicted by_colour"

    key: GroupKey
    title: str
    inner: Inner
    predicted: int
    by_colour: Mapping[Colour, tuple[Inner, ...]]
    left_out: object = None

    @property
    def twice(self) -> int:
        """Two times the class."""
        return 2 * self.predicted


INNER = {"low": None, "high": 1.0}
OUTER = Outer(
    GroupKey("mc", sigma(0.1), "p_robust"),
    "t",
    Inner(-math.inf, 1.0),
    1,
    {Colour.RED: (Inner(None, 1.0),)},
)


def test_members_are_written_in_their_order() -> None:
    columns = {"estimator": "mc", "noise": "gaussian", "level_name": "sigma", "level": 0.1, "quantity": "p_robust"}
    middle = {"name": "t", "twice": 2, **INNER, "kept": INNER, "predicted": 1, "by_colour": {"red": [INNER]}}
    found = OUTER.document(["cat", "dog"])
    assert found == {**columns, **middle, "predicted_name": "dog"}
    assert list(found)[:6] == [*columns, "name"]
    assert OUTER.document()["predicted_name"] is None


def test_values_without_a_document() -> None:
    class Pair(NamedTuple):
        first: float
        second: NDArray[np.float64]

    assert json_values(Pair(math.nan, np.array([1.0, math.inf]))) == {"first": None, "second": [1.0, None]}
    assert json_values({0.5: P_ROBUST, 2.0: True}) == {"0.5": "p_robust", "2": True}
    assert json_values(sigma(0.1)) == {"noise": "gaussian", "level_name": "sigma", "level": 0.1}


def test_the_schema_is_that_of_the_document() -> None:
    schema = json_schema(Outer)
    Draft202012Validator.check_schema(schema)
    found = json.loads(json.dumps(OUTER.document(), allow_nan=False))
    assert list(schema["required"]) == list(schema["properties"])
    assert set(schema["required"]) == set(found)
    assert schema["description"] == "A whole. And more."
    assert schema["properties"]["twice"]["description"] == "Two times the class."
    assert schema["properties"]["low"]["description"] == "the ends; null where there are none."
    validator = Draft202012Validator(schema)
    assert validator.is_valid(found)
    assert not validator.is_valid({**found, "kept": {"low": None}})
