"""What pydantic writes of a record, and the schema of it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

import numpy as np
from jsonschema import Draft202012Validator
from numpy.typing import NDArray
from pydantic import Field

from robaudit.records import Inline, Nested, Record, json_schema, json_values, published
from robaudit.runs.groups import GroupKey
from tests.levels import sigma


class Colour(StrEnum):
    RED = "red"


@dataclass(frozen=True, slots=True)
class Inner(Record):
    """A part.

    Attributes:
        low, high: the ends; None where
            there are none.
    """

    low: float | None
    high: float


@dataclass(frozen=True, slots=True)
class Outer(Record):
    """A whole. And more."""

    key: Annotated[GroupKey, Inline()]
    title: Annotated[str, Field(serialization_alias="name")]
    inner: Annotated[Inner | None, Inline("high", least="low")]
    part: Annotated[Inner | None, Nested("Part", "low")]
    kept: Inner
    values: NDArray[np.float64]
    predicted: int
    by_colour: Mapping[Colour, tuple[Inner, ...]]
    left_out: Annotated[object, Field(exclude=True)] = None

    @property
    @published(after="name")
    def twice(self) -> int:
        """Two times
        the class."""
        return 2 * self.predicted

    @property
    def hidden(self) -> int:
        """It is not written."""
        return 0


INNER = {"low": None, "high": 1.0}
KEY = {
    "estimator": "mc",
    "noise": "gaussian",
    "level_name": "sigma",
    "level": 0.1,
    "quantity": "p_robust",
}
PART = Inner(-math.inf, 1.0)
OUTER = Outer(
    GroupKey("mc", sigma(0.1), "p_robust"),
    "t",
    PART,
    PART,
    PART,
    np.array([0.5, math.nan]),
    1,
    {Colour.RED: (Inner(None, 1.0),)},
)
EMPTY = Outer(GroupKey("mc", sigma(0.1), "p_robust"), "t", None, None, PART, np.zeros(0), 1, {})


def test_members_are_written_in_their_order() -> None:
    found = OUTER.document(["cat", "dog"])
    inner = {
        "high": 1.0,
        "least": None,
        "part": {"low": None},
        "kept": INNER,
        "values": [0.5, None],
    }
    assert found == {
        **KEY,
        "name": "t",
        "twice": 2,
        **inner,
        "predicted": 1,
        "predicted_name": "dog",
        "by_colour": {"red": [INNER]},
    }
    assert list(found) == [
        *KEY,
        "name",
        "twice",
        *inner,
        "predicted",
        "predicted_name",
        "by_colour",
    ]
    assert OUTER.document()["predicted_name"] is None


def test_members_of_none_are_null() -> None:
    found = EMPTY.document()
    assert (found["high"], found["least"], found["part"]) == (None, None, None)


def test_values_that_are_no_records() -> None:
    assert json_values((math.nan, np.array([1.0, math.inf]), np.int64(3))) == [None, [1.0, None], 3]
    assert json_values({0.5: "half", 2.0: True, "part": [PART]}) == {
        "0.5": "half",
        "2": True,
        "part": [INNER],
    }
    assert json_values(sigma(0.1)) == {"noise": "gaussian", "level_name": "sigma", "level": 0.1}


def test_the_schema_is_that_of_the_objects() -> None:
    schema = json_schema(Outer)
    Draft202012Validator.check_schema(schema)
    assert list(schema["required"]) == list(schema["properties"])
    assert schema["description"] == "A whole. And more."
    assert schema["properties"]["twice"]["description"] == "Two times the class."
    assert schema["properties"]["least"]["description"] == "the ends; null where there are none."
    validator = Draft202012Validator(schema)
    for one in (OUTER, EMPTY):
        found = json.loads(json.dumps(one.document(), allow_nan=False))
        assert set(schema["required"]) == set(found)
        assert validator.is_valid(found)
        assert not validator.is_valid({**found, "kept": {"low": None}})
