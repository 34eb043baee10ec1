"""The spec's models: short forms, defaults, what makes a run another run."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from robaudit.spec.model import AuditSpec, ModelSpec, base_identity, identity
from tests.levels import sigma
from tests.specs import digits


def spec(**sections: Any) -> AuditSpec:
    return AuditSpec.model_validate(digits(**sections))


def test_defaults() -> None:
    found = AuditSpec.model_validate({key: digits()[key] for key in ("model", "dataset", "noise")})
    assert [(one.name, one.options) for one in found.estimators] == [("mc", {})]
    assert (found.run.seed, found.run.device, found.run.batch_size, found.run.precision) == (
        0,
        "auto",
        "auto",
        "fp32",
    )
    assert [(one.kind, one.label, one.clip) for one in found.noise] == [
        ("gaussian", "gaussian", False)
    ]


def test_short_forms() -> None:
    found = spec(
        model={"path": "m.pt", "mean": 0.5, "std": "1/4"},
        noise={"sigma": "8/255"},
        estimators=[
            "taylor",
            {"mc": None},
            {"mmse": {"draws": 4}},
            {"name": "softmax", "options": {"temperature": 2}},
        ],
    )
    assert (found.model.mean, found.model.std, found.levels) == ((0.5,), (0.25,), (sigma(8 / 255),))
    assert [(one.name, one.options) for one in found.estimators] == [
        ("taylor", {}),
        ("mc", {}),
        ("mmse", {"draws": 4}),
        ("softmax", {"temperature": 2}),
    ]


@pytest.mark.parametrize("text", ["8/255", " 8 / 255 ", "0.5/2", "1e-2/3"])
def test_fractions(text: str) -> None:
    over, under = text.split("/")
    assert spec(noise={"sigma": [text]}).levels == (sigma(float(over) / float(under)),)


@given(
    sigmas=st.lists(st.floats(1e-6, 10), min_size=1, max_size=4, unique=True),
    limit=st.none() | st.integers(1, 10**6),
    seed=st.integers(0, 2**63 - 1),
    mean=st.lists(st.floats(-10, 10), max_size=3),
)
def test_document_round_trip(
    sigmas: list[float], limit: int | None, seed: int, mean: list[float]
) -> None:
    first = spec(
        dataset={"kind": "digits", "limit": limit},
        noise={"sigma": sigmas},
        run={"seed": seed},
        model={"path": "m.pt", "mean": mean},
    )
    second = AuditSpec.model_validate(first.document())
    assert second.document() == first.document()
    assert identity(second.document()) == identity(first.document())


SAME: dict[str, dict[str, Any]] = {
    "device": {"run": {"device": "cpu"}},
    "batch size": {"run": {"batch_size": 3}},
    "spelling of sigma": {"noise": {"sigma": ["1/5"]}},
    "name": {"name": "ours"},
    "gates": {"gates": ["mean >= 0.9"]},
}
EXTENSION: dict[str, dict[str, Any]] = {
    "limit": {"limit": 9},
    "sigma": {"noise": {"sigma": [0.3]}},
    "estimator": {"estimators": ["mc", "taylor"]},
    "option": {"estimators": [{"mc": {"draws": 21}}]},
    "another noise": {
        "noise": [{"sigma": [0.2]}, {"name": "clipped", "sigma": [0.2], "clip": True}]
    },
    "an option of the noise, which its own check refuses": {
        "noise": {"sigma": [0.2], "clip": True}
    },
}
ANOTHER: dict[str, dict[str, Any]] = {
    "seed": {"run": {"seed": 1}},
    "precision": {"run": {"precision": "fp64"}},
    "mean": {"model": {**digits()["model"], "mean": [0.5]}},
    "split": {"dataset": {"kind": "digits", "limit": 8, "split": "all"}},
    "sample": {"dataset": {"kind": "digits", "sample": {"size": 8}}},
}


@pytest.mark.parametrize(
    "change",
    [*SAME.values(), *EXTENSION.values(), *ANOTHER.values()],
    ids=[*SAME, *EXTENSION, *ANOTHER],
)
def test_identity(change: dict[str, Any]) -> None:
    old = spec().document()
    new = spec(**change).document()
    assert (identity(new) == identity(old)) == (change in SAME.values())
    assert (base_identity(new) == base_identity(old)) == (change not in ANOTHER.values())


def test_the_usual_order_of_channels_leaves_no_key_in_the_document() -> None:
    # A run of an earlier version keeps the identity of its spec.
    assert "channels" not in ModelSpec(path="a.pt").model_dump()
    assert "channels" not in ModelSpec(path="a.pt", channels="rgb").model_dump(mode="json")
    assert ModelSpec(path="a.pt", channels="bgr").model_dump()["channels"] == "bgr"
