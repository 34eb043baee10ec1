"""`robaudit list`: what is installed, and what may stand in a spec."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from robaudit.demo import __file__ as demo
from robaudit.engine import registry
from robaudit.spec.model import AuditSpec
from tests.conftest import RunCli
from tests.specs import digits

NAMES = ["mc", "mmse", "mmse_mvs", "softmax", "taylor", "taylor_mvs"]


def test_table_names_every_estimator(run_cli: RunCli) -> None:
    code, out, err = run_cli("list", "estimators")
    assert (code, err) == (0, "")
    words = " ".join(out.split())
    for name in NAMES:
        assert re.search(rf" {name} .* quantity: (p_robust|confidence) ", words)
    for text in (
        "needs: level",
        "needs: gradients, level",
        "1,001 forward passes",
        "draws=10",
        "clopper-pearson",
        "source: Han et al.",
    ):
        assert text in words


def test_json_names_them_too(run_cli: RunCli) -> None:
    entries = json.loads(run_cli("list", "estimators", "--format", "json").out)
    assert [entry["name"] for entry in entries] == sorted(registry.registered())
    assert all(entry[key] for entry in entries for key in ("quantity", "needs", "prefer", "source"))


@pytest.mark.parametrize(
    ("what", "names"),
    [
        ("overview", ["mc", "gaussian", "npz", "torchscript"]),
        ("noises", ["gaussian", "sensor"]),
        ("datasets", ["npz", "images", "digits"]),
        ("formats", ["torchscript", "state dict", "onnx", "timm", "Transformers"]),
    ],
)
def test_each_list(what: str, names: list[str], run_cli: RunCli) -> None:
    table = run_cli("list", what)
    entries = json.loads(run_cli("list", what, "--format", "json").out)
    assert set(names) <= {entry["name"] for entry in entries}
    assert all(entry["summary"] for entry in entries)
    assert all(re.search(rf"^ *{name} ", table.out, re.MULTILINE) for name in names)
    if what == "overview":
        assert run_cli("list").out == table.out


@pytest.fixture
def schema(run_cli: RunCli) -> dict[str, Any]:
    code, out, err = run_cli("list", "schema")
    assert (code, err) == (0, "")
    found: dict[str, Any] = json.loads(out)
    return found


GOOD = {
    "ordinary.yaml": yaml.safe_load((Path(demo).parent / "ordinary.yaml").read_text()),
    "noise_trained.yaml": yaml.safe_load((Path(demo).parent / "noise_trained.yaml").read_text()),
    "short forms": digits(
        noise={"sigma": "8/255"},
        model={"path": "m.pt", "mean": 0.5, "std": "1/2"},
        estimators=["mc", {"taylor": None}],
    ),
    "everything": {
        "model": {
            "path": "m.pt",
            "format": "torchscript",
            "mean": [0.485, 0.456, 0.406],
            "std": [0.229, 0.224, 0.225],
            "output": "logits",
        },
        "dataset": {
            "kind": "images",
            "path": "x",
            "resize": [40, 40],
            "crop": 32,
            "channels": 3,
            "sample": {"size": 10, "seed": 1},
        },
        "noise": {"kind": "gaussian", "sigma": [0.05, "8/255"], "clip": True},
        "estimators": [
            {"mc": {"draws": 100, "label": "few"}},
            {"softmax": {"temperature": 2.0}},
            {"mmse": {"draws": 4, "pairs": False}},
            {"taylor": {"noise": "gaussian"}},
            {"taylor": {"noise": ["gaussian"], "label": "again"}},
        ],
        "run": {"seed": 3, "device": "cuda:1", "batch_size": 32, "precision": "fp64"},
    },
}


@pytest.mark.parametrize("document", GOOD.values(), ids=list(GOOD))
def test_what_loads_validates(document: dict[str, Any], schema: dict[str, Any]) -> None:
    registry.build(AuditSpec.model_validate(document).estimators)
    Draft202012Validator(schema).validate(document)


BAD = {
    "no model": {key: value for key, value in digits().items() if key != "model"},
    "sigma zero": digits(noise={"sigma": [0]}),
    "unknown estimator": digits(estimators=["taylorr"]),
    "unknown option": digits(estimators=[{"mc": {"sampels": 3}}]),
    "option out of range": digits(estimators=[{"mc": {"draws": 0}}]),
}


@pytest.mark.parametrize("document", BAD.values(), ids=list(BAD))
def test_what_does_not_load_does_not_validate(
    document: dict[str, Any], schema: dict[str, Any]
) -> None:
    assert not Draft202012Validator(schema).is_valid(document)
