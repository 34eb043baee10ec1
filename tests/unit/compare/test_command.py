"""robaudit compare: what it prints and writes, and its exit codes."""

from __future__ import annotations

import csv
import io
import json
import shutil
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from jsonschema import Draft202012Validator

from robaudit.files import file_sha256, json_bytes
from robaudit.report.ci.document import published
from robaudit.runs.info import UntilDecided
from robaudit.runs.run import Run
from tests.conftest import RunCli
from tests.specs import laid_out, read_info

pytestmark = pytest.mark.families


def validate(text: str) -> dict[str, Any]:
    schema = json.loads(published("compare"))
    Draft202012Validator.check_schema(schema)
    found: dict[str, Any] = json.loads(text, parse_constant=pytest.fail)
    Draft202012Validator(schema).validate(found)
    return found


def test_table(trained: Run, ordinary: Run, run_cli: RunCli) -> None:
    code, out, err = run_cli("compare", trained.path, ordinary.path)
    assert (code, err) == (0, "")
    assert out.splitlines()[1].startswith("clean accuracy  ")
    for words in (
        "mc at sigma 0.3: p_robust",
        "paired on the same 120 noise draws each",
        "taylor at sigma 0.3",
        "unpaired",
        "Classes, largest",
    ):
        assert words in out
    assert "Traceback" not in out


def test_gates_decide_the_exit_code(trained: Run, ordinary: Run, run_cli: RunCli) -> None:
    base = ("compare", trained.path, ordinary.path, "--estimator", "mc", "--gate")
    assert run_cli(*base, "mean_drop <= 0.9").code == 0
    code, out, _ = run_cli(*base, "mean_drop <= -0.9", "--gate", "accuracy_drop <= 1")
    assert code == 1
    assert out.splitlines()[-1].startswith("fail: of 2 gates 1 passed, 1 failed")
    value = json.loads(run_cli(*base[:-1], "--format", "json").out)["comparison"]["groups"][0][
        "mean"
    ]["difference"]
    close = (*base, f"mean_drop <= {-value!r}")
    assert run_cli(*close).code == 4
    assert run_cli(*close, "--inconclusive", "pass").code == 0
    assert run_cli(*close, "--inconclusive", "fail").code == 1


def test_formats(
    trained: Run, ordinary: Run, run_cli: RunCli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    command = (
        "compare",
        trained.path,
        ordinary.path,
        "--gate",
        "worst_class_drop(estimator=mc) <= -1",
        "--format",
    )
    document = validate(run_cli(*command, "json").out)
    assert (document["verdict"], document["exit_code"], len(document["gates"])) == ("fail", 1, 1)
    assert len(document["comparison"]["groups"]) == 2
    one = document["comparison"]["groups"][0]["changed"][0]
    classes = ("label", "base_predicted", "predicted")
    assert [one[f"{name}_name"] for name in classes] == [str(one[name]) for name in classes], (
        "digits name themselves"
    )
    lines = list(csv.DictReader(io.StringIO(run_cli(*command, "csv").out)))
    assert [line["what"] for line in lines[:3]] == ["clean_accuracy", "mean", "noisy_accuracy"]
    assert {line["class_name"] for line in lines if line["what"] == "class_mean"} == set(
        "0123456789"
    )
    assert len(lines) == 1 + 2 * 11 + 1
    suite = ElementTree.fromstring(run_cli(*command, "junit").out)[0]  # noqa: S314  ours
    assert (suite.attrib["tests"], suite.attrib["failures"]) == ("1", "1")
    assert not (tmp_path / "summary.md").exists()
    assert run_cli(*command, "github").out.startswith(
        "::error title=robaudit compare%3A worst_class_drop("
    )
    summary = (tmp_path / "summary.md").read_text(encoding="utf-8")
    assert summary.startswith("### ❌ robaudit compare: fail\n")
    assert "### new against base" in summary
    code, out, _ = run_cli(*command, "md", "-o", tmp_path / "report.md")
    assert (code, out) == (1, "")
    assert "| class | images |" in (tmp_path / "report.md").read_text(encoding="utf-8")


def test_confidence(trained: Run, ordinary: Run, run_cli: RunCli, tmp_path: Path) -> None:
    command = ("--estimator", "mc", "--format", "json", "--gate", "mean_drop <= 0.5")
    usual = validate(run_cli("compare", trained.path, ordinary.path, *command).out)
    wide = validate(
        run_cli("compare", trained.path, ordinary.path, *command, "--confidence", "0.999").out
    )
    for document, confidence in ((usual, 0.95), (wide, 0.999)):
        assert (
            document["gates"][0]["confidence"]
            == document["comparison"]["groups"][0]["confidence"]
            == confidence
        )
    assert wide["gates"][0]["lower"] < usual["gates"][0]["lower"]
    like_these = validate(
        run_cli("compare", trained.path, ordinary.path, *command, "--population").out
    )
    assert [document["gates"][0]["covers"] for document in (usual, like_these)] == [
        "measurement",
        "population",
    ]
    looked = tmp_path / "looked"
    shutil.copytree(ordinary.path, looked)
    until = UntilDecided(
        confidence=0.95, possible=[100, 200, 400, 800, 1600], draws=[100], point=False
    )
    info = {**read_info(looked), "until_decided": until.model_dump()}
    (looked / "run.json").write_bytes(json_bytes(info))
    code, out, err = run_cli("compare", trained.path, looked, *command)
    assert code == 0
    assert "sampled until its gates were decided" in err
    assert validate(out)["gates"][0]["confidence"] == until.each
    assert (
        validate(run_cli("compare", trained.path, looked, *command, "--confidence", "0.9").out)[
            "gates"
        ][0]["confidence"]
        == 0.9
    )


def test_skipped_samples_are_told(
    trained: Run, ordinary: Run, run_cli: RunCli, tmp_path: Path
) -> None:
    path = tmp_path / "skipped"
    shutil.copytree(ordinary.path, path)
    samples = json.loads((path / "samples.json").read_text())
    gone = sorted({row["sample_id"] for row in samples["rows"]})[:20]
    samples["rows"] = [row for row in samples["rows"] if row["sample_id"] not in gone]
    (path / "samples.json").write_bytes(laid_out(samples))
    info = read_info(path)
    info["skipped"] = [{"sample_id": one, "reason": "unreadable"} for one in gone]
    info["totals"]["skipped"] = len(gone)
    info["files"]["samples.json"] = file_sha256(path / "samples.json")
    (path / "run.json").write_bytes(json_bytes(info))
    command = (
        "compare",
        trained.path,
        path,
        "--estimator",
        "mc",
        "--gate",
        "mean_drop <= 0.3",
        "--format",
    )
    code, out, _ = run_cli(*command, "json")
    document = validate(out)
    assert (code, document["verdict"]) == (4, "inconclusive")
    counts = {
        "skipped": 20,
        "base_skipped": 0,
        "only_base": 20,
        "only_new": 0,
        "other_images": 0,
        "not_finite": 0,
    }
    assert document["left_out"] == counts
    assert document["comparison"]["skipped"] == sorted(
        gone, key=document["comparison"]["skipped"].index
    )
    assert "20 samples left out: skipped by the new run" in run_cli(*command, "table").out


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["BASE", "nowhere"], "is not a run folder"),
        (["BASE", "NEW", "--estimator", "mmc"], "has no estimator mmc"),
        (["BASE", "NEW", "--threshold", "7"], "7 is outside the range of"),
        (["BASE", "NEW", "--gate", "accuracy_drop <= -7"], "lies from -1 to 1, never -7"),
        (["BASE", "NEW", "--format", "junit"], "there is no gate to report"),
    ],
)
def test_refusals(
    options: list[str], says: str, trained: Run, ordinary: Run, run_cli: RunCli
) -> None:
    paths = {"BASE": str(trained.path), "NEW": str(ordinary.path)}
    code, out, err = run_cli("compare", *(paths.get(one, one) for one in options))
    assert (code, out) == (2, "")
    assert says in err
    assert err.count("\n") == 1
