"""What is a gate: every way to write one, every line that refuses one, and no traceback whatever is
written."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from robaudit.errors import SpecError
from robaudit.levels import LevelName
from robaudit.spec.gate_grammar import QUANTITIES, Gate, parse_gate
from tests.golden import Golden
from tests.unit.gates.tools import gate


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("mean >= 0.9", Gate("mean", ">=", 0.9)),
        (
            "  worst_class(sigma = 8/255)<=.7 ",
            Gate("worst_class", "<=", 0.7, level=8 / 255, level_name=LevelName.SIGMA),
        ),
        ("mean(noise=rain, level=3) >= 0.5", Gate("mean", ">=", 0.5, noise="rain", level=3)),
        (
            "share_below(t=0.5, estimator='mc') <= 1/20",
            Gate("share_below", "<=", 0.05, estimator="mc", arguments={"t": 0.5}),
        ),
        ("mean() >= -3e-1", Gate("mean", ">=", -0.3)),
        ("p05(estimator=mc-2.x) >= 1", Gate("p05", ">=", 1.0, estimator="mc-2.x")),
    ],
)
def test_gates_that_are(text: str, expected: Gate) -> None:
    assert gate(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0.9 <= mean",
        "maen >= 0.9",
        "mean > 0.9",
        "share_below <= 0.9",
        "mean(sigam=0.5) <= 0.9",
        "mean(0.5) <= 0.9",
        "mean(sigma=1, sigma=2) <= 0.9",
        "mean(sigma=-1) <= 0.9",
        "mean(sigma=1, level=1) <= 0.9",
        "mean >= ninety",
        "share_below(t=inf) <= 1",
    ],
)
def test_gates_that_are_none(text: str, golden: Golden) -> None:
    with pytest.raises(SpecError) as error:
        gate(text)
    golden(error.value)


@given(
    st.sampled_from(sorted(QUANTITIES)),
    st.text("(),=<>mean sigma0.5/t\x1b\n'", max_size=30),
    st.sampled_from([">=", "<=", ">", "=", ""]),
    st.text("0123456789.eE+-/naif", max_size=12),
)
def test_nearly_gates_are_gates_or_errors(
    quantity: str, middle: str, relation: str, number: str
) -> None:
    with contextlib.suppress(SpecError):
        found = gate(f"{quantity}{middle}{relation}{number}")
        assert gate(str(found)) == found


@given(
    st.sampled_from(sorted(QUANTITIES)),
    st.sampled_from([">=", "<="]),
    st.floats(-1e300, 1e300, allow_nan=False),
    st.one_of(st.none(), st.floats(1e-6, 1e3)),
    st.booleans(),
    st.one_of(st.none(), st.from_regex(r"[\w.-]+", fullmatch=True)),
    st.one_of(st.none(), st.from_regex(r"[\w.-]+", fullmatch=True)),
    st.floats(-1e3, 1e3),
)
def test_a_printed_gate_reads_as_itself(
    quantity: str,
    relation: str,
    threshold: float,
    level: float | None,
    is_sigma: bool,
    estimator: str | None,
    noise: str | None,
    t: float,
) -> None:
    needed = QUANTITIES[quantity]
    one = parse_gate(
        f"{quantity}({', '.join(f'{argument}=0' for argument in needed)}) {relation} 0",
        QUANTITIES,
        "",
    )
    name = LevelName.SIGMA if is_sigma and level is not None else None
    plain = Gate(one.quantity, one.relation, threshold, estimator, noise, level, name)
    own = replace(plain, arguments=dict.fromkeys(needed, t))
    assert gate(str(own)) == own
