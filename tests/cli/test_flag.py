"""`estimate --flag` and the spec key: lists of images for a part of the copies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Refuse
from tests.conftest import RunCli
from tests.specs import digits, write

SPEC = digits(limit=20, noise={"sigma": [0.45]}, estimators=[{"mc": {"draws": 128}}])


def listed(run_cli: RunCli, run: str, *options: str) -> dict[str, Any]:
    code, out, _ = run_cli("flag-samples", run, "--format", "json", *options)
    assert code == 0
    found: dict[str, Any]
    (found,) = json.loads(out)["results"]
    return found


def test_the_option_and_the_key_are_the_same(tmp_path: Path, run_cli: RunCli) -> None:
    spec = write(tmp_path, SPEC)
    key = write(tmp_path, {**SPEC, "flag": 0.7}, "key.yaml")
    assert run_cli("estimate", spec, "--flag", "0.7", "--out", "option").code == 0
    assert run_cli("estimate", key, "--out", "key").code == 0
    assert run_cli("estimate", spec, "--out", "all").code == 0
    option, of_key, of_all = (
        (tmp_path / name / "samples.csv").read_text() for name in ("option", "key", "all")
    )
    assert option == of_key != of_all
    assert json.loads((tmp_path / "option/run.json").read_text())["spec"]["flag"] == 0.7


def test_the_list_is_of_the_flag(tmp_path: Path, run_cli: RunCli) -> None:
    spec = write(tmp_path, SPEC)
    assert run_cli("estimate", spec, "--flag", "0.7", "--out", "some").code == 0
    assert run_cli("estimate", spec, "--out", "all").code == 0
    some = listed(run_cli, "some")
    assert some["threshold"] == 0.7
    assert listed(run_cli, "some", "--threshold", "0.5")["threshold"] == 0.5
    assert listed(run_cli, "all")["threshold"] == 0.5
    confirmed = [
        {one["id"] for one in found["samples"] if one["certainty"] == "confirmed"}
        for found in (some, listed(run_cli, "all", "--threshold", "0.7"))
    ]
    assert confirmed[0] == confirmed[1] != set()


@pytest.mark.parametrize("flag", ["0", "1", "-0.5", "nan", "half"])
def test_a_flag_lies_inside_0_and_1(flag: str, tmp_path: Path, refuse: Refuse) -> None:
    refuse("estimate", write(tmp_path, SPEC), "--flag", flag)


def test_a_key_outside_0_and_1(tmp_path: Path, refuse: Refuse) -> None:
    refuse("estimate", write(tmp_path, {**SPEC, "flag": 1.5}))


def test_another_flag_is_another_run(tmp_path: Path, run_cli: RunCli, refuse: Refuse) -> None:
    spec = write(tmp_path, SPEC)
    assert run_cli("estimate", spec, "--flag", "0.5", "--out", "run", "--limit", "2").code == 0
    refuse("estimate", spec, "--flag", "0.6", "--out", "run", "--limit", "2")
    refuse("estimate", spec, "--out", "run", "--limit", "2")
