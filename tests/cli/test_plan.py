"""`robaudit plan`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from robaudit.advice import pilot
from robaudit.advice import plan as proposal
from robaudit.advice.plan import Plan
from robaudit.spec.model import AuditSpec
from tests.cli.conftest import Refuse
from tests.conftest import RunCli
from tests.specs import digits, tree, write

PLAN = Plan("mc", "mc", {"samples": 64}, 64, 20, 1.0, 0.1, 0.1, 0.1)


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(proposal, "SHARE", 0.01)
    monkeypatch.setattr(proposal, "SHORTEST", 0.2)
    monkeypatch.setattr(pilot, "_LEAST_OTHERS", 20.0)  # nothing is left out, however busy the machine
    return write(tmp_path, digits(limit=40, noise={"sigma": [0.25]}, estimators=["taylor", {"mmse": {"samples": 4}}, "softmax"]))


@pytest.mark.parametrize("question", [pytest.param("images", marks=pytest.mark.slow), "mean"])
def test_a_plan_and_the_run_it_proposes(question: str, spec: Path, run_cli: RunCli, tmp_path: Path) -> None:
    before = tree(tmp_path)
    code, out, err = run_cli("plan", spec, "--budget", "60s", "--for", question)
    assert code == 0
    assert tree(tmp_path) == before, "a plan writes nothing"
    assert "note: trying the estimators for about" in err
    (marked,) = [line for line in out.splitlines() if line.startswith("->") and "recommended" not in line]
    for name in ("mc ", "logit_gaussian ", "taylor ", "mmse "):
        assert any(line.removeprefix("->").strip().startswith(name) for line in out.splitlines()), name
    assert "softmax" not in out
    pasted = yaml.safe_load(out.partition("Paste into the spec:\n")[2])
    (entry,) = pasted["estimators"]
    name = entry if isinstance(entry, str) else next(iter(entry))
    assert marked.removeprefix("->").strip().startswith(name)
    document = yaml.safe_load(spec.read_text())
    whole = {**document, **pasted, "dataset": {**document["dataset"], **pasted.get("dataset", {})}}
    assert AuditSpec.model_validate(whole).estimators[0].name == name
    if question == "mean":  # cheap
        assert run_cli("estimate", write(tmp_path, whole, "pasted.yaml"), "--out", "run").code == 0


@pytest.mark.slow
def test_json(spec: Path, run_cli: RunCli) -> None:
    outcome = run_cli("plan", spec, "--budget", "60s", "--format", "json", "-q")
    assert outcome.code == 0
    assert all(line.startswith("warning: only") for line in outcome.err.splitlines()), outcome.err
    found = json.loads(outcome.out)
    assert (found["schema_version"], found["for"], found["budget_seconds"], found["images"]) == (1, "images", 60.0, 40)
    assert found["recommended"] in found["alternatives"]
    assert found["recommended"]["seconds"] <= 60.0
    assert 0 < found["recommended"]["error"] < 0.5, found
    assert found["pilot"]["seconds"] < 20


def test_the_snippet_keeps_the_kind_of_choice_the_spec_has() -> None:
    def spec_of(**options: object) -> AuditSpec:
        return AuditSpec.model_validate(digits(dataset={"kind": "digits", **options}))

    assert yaml.safe_load(proposal.snippet(spec_of(), PLAN, 20)) == {"estimators": [{"mc": {"samples": 64}}]}
    for options, expected in (
        ({}, {"sample": {"size": 20, "seed": 0}}),
        ({"limit": 40}, {"limit": 20}),
        ({"sample": {"size": 40, "seed": 7}}, {"sample": {"size": 20, "seed": 7}}),
    ):
        found = yaml.safe_load(proposal.snippet(spec_of(**options), PLAN, 40))
        assert found == {"estimators": [{"mc": {"samples": 64}}], "dataset": expected}


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("--budget", "fast"), "--budget fast: is not a duration; give one such as 90s, 10m, 2h or 1h30m"),
        ((), "Missing option '--budget'"),
        (("--budget", "5s", "--for", "everything"), "Invalid value for '--for'"),
        (("--budget", "0.001s"), "--budget 0.001s: is too short: the start alone takes"),
        pytest.param(("--budget", "0.00001m"), "--budget 0.00001m: is too short", marks=pytest.mark.slow),
        (("--budget", "60s", "--set", "dataset.limit=1"), "a plan needs 2 usable images, and there is 1; give it more"),
    ],
)
def test_bad_options(args: tuple[str, ...], says: str, spec: Path, refuse: Refuse) -> None:
    assert says in refuse("plan", spec, *args)


def test_no_spec(refuse: Refuse) -> None:
    refuse("plan", "nowhere.yaml", "--budget", "1m", says="nowhere.yaml: no such file")
