"""What workers send arrives bit for bit, as JSON."""

from __future__ import annotations

import json
import struct
from dataclasses import fields, replace

from hypothesis import given
from hypothesis import strategies as st

from robaudit.auditing.chunks import Step
from robaudit.auditing.messages import Done, Failed, decoded, encoded
from robaudit.errors import ModelError
from robaudit.quantities import Interval, IntervalKind
from robaudit.results import LARGEST, Votes
from robaudit.rows import Row

FLOATS = st.floats(-LARGEST, LARGEST, exclude_min=True, exclude_max=True)


def bits(row: Row) -> list[object]:
    values = [getattr(row, one.name) for one in fields(row)]
    return [struct.pack("d", one) if isinstance(one, float) else one for one in values]


@given(FLOATS, FLOATS, FLOATS, st.integers(-(2**62), 2**62), st.text())
def test_rows(value: float, lower: float, number: float, whole: int, note: str) -> None:
    interval = Interval(IntervalKind.CLOPPER_PEARSON, covers_bias=False)
    row = Row(
        sample_id="a",
        label=1,
        predicted=2,
        correct=False,
        noise="gaussian",
        level_name="sigma",
        level=0.1,
        estimator="mc",
        quantity="p_robust",
        value=value,
        lower=lower,
        upper=None,
        std_error=None,
        flips_to=3,
        forwards=4,
        backwards=5,
        note=note,
        interval=interval,
    )
    row = replace(row, votes=Votes((0, 1, 3), split=1), numbers={"x": number, "n": whole})
    sent = encoded(Done(Step(None, 0.1, 1, rows=[row])))
    json.loads(sent)
    found = decoded(sent, {})
    assert isinstance(found, Done)
    (there,) = found.step.rows
    assert bits(there) == bits(row)
    assert isinstance(there.numbers["n"], int)


def test_errors_are_ours_or_plain() -> None:
    found = decoded(encoded(Failed(ModelError("a", "b", "c"))), {})
    assert isinstance(found, Failed)
    assert (type(found.error), str(found.error)) == (ModelError, "a: b; c")
    odd = decoded(json.dumps(["Failed", [["Popen", "a", "b", "c"], ""]]).encode(), {})
    assert isinstance(odd, Failed)
    assert str(odd.error) == "a: b; c"
