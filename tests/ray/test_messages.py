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
from robaudit.rows import Row

FLOATS = st.floats(allow_nan=False, allow_infinity=False)


def bits(row: Row) -> list[object]:
    values = [getattr(row, one.name) for one in fields(row)]
    return [struct.pack("d", one) if isinstance(one, float) else one for one in values]


@given(FLOATS, FLOATS, FLOATS, st.integers(), st.text())
def test_rows(value: float, lower: float, number: float, whole: int, note: str) -> None:
    interval = Interval(IntervalKind.CLOPPER_PEARSON, covers_bias=False)
    row = Row("a", 1, 2, False, "gaussian", "sigma", 0.1, "mc", "p_robust", value, lower, None, None, 3, 4, 5, note, interval)
    row = replace(row, votes=(1, 2), details={"x": number, "n": whole}, split=2)
    sent = encoded(Done(Step(None, 0.1, 1, rows=[row])))
    json.loads(sent)
    found = decoded(sent, {})
    assert isinstance(found, Done)
    (there,) = found.step.rows
    assert bits(there) == bits(row)
    assert there.details is not None
    assert isinstance(there.details["n"], int)


def test_errors_are_ours_or_plain() -> None:
    found = decoded(encoded(Failed(ModelError("a", "b", "c"))), {})
    assert isinstance(found, Failed)
    assert (type(found.error), str(found.error)) == (ModelError, "a: b; c")
    odd = decoded(json.dumps(["Failed", [["Popen", "a", "b", "c"], ""]]).encode(), {})
    assert isinstance(odd, Failed)
    assert str(odd.error) == "a: b; c"
