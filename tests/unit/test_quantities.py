"""Quantities and intervals: what they say as text and as JSON, and back."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from robaudit import Interval, IntervalKind
from robaudit.quantities import CONFIDENCE, LOG10_P_FAIL, NO_INTERVAL, P_ROBUST, Quantity

TEXTS = {
    "none": NO_INTERVAL,
    "clopper-pearson": Interval(IntervalKind.CLOPPER_PEARSON),
    "antithetic pairs": Interval(IntervalKind.ANTITHETIC),
    "jackknife:approximate": Interval(IntervalKind.JACKKNIFE, covers_bias=False),
    "lognormal:chains:approximate": Interval(
        IntervalKind.LOGNORMAL, covers_bias=False, remark="chains"
    ),
    "lognormal:4 repeats": Interval(IntervalKind.LOGNORMAL, remark="4 repeats"),
    "bootstrap": Interval(IntervalKind.OTHER, remark="bootstrap"),
    "bootstrap:approximate": Interval(IntervalKind.OTHER, covers_bias=False, remark="bootstrap"),
}


@pytest.mark.parametrize("text", TEXTS)
def test_texts(text: str) -> None:
    assert Interval.parse(text) == TEXTS[text]
    assert TEXTS[text].text == str(TEXTS[text]) == text


@given(
    st.text()
    | st.lists(
        st.sampled_from(["", "none", "other", "jackknife", "approximate", "x"]), max_size=4
    ).map(":".join)
)
def test_any_text_reads_back(text: str) -> None:
    assert Interval.parse(text).text == text


@pytest.mark.parametrize(
    ("kind", "remark"),
    [
        (IntervalKind.OTHER, "none"),
        (IntervalKind.JACKKNIFE, "x:approximate"),
        (IntervalKind.OTHER, "lognormal:3"),
    ],
)
def test_a_remark_that_reads_as_something_else_is_refused(kind: IntervalKind, remark: str) -> None:
    with pytest.raises(ValueError, match="choose another remark"):
        Interval(kind, remark=remark)


@pytest.mark.parametrize(
    "quantity",
    [P_ROBUST, CONFIDENCE, LOG10_P_FAIL, Quantity("margin", "logits", 0.0, float("inf"))],
)
def test_quantities_read_back_from_json(quantity: Quantity) -> None:
    assert (
        Quantity.from_document(json.loads(json.dumps(quantity.document(), allow_nan=False)))
        == quantity
    )
