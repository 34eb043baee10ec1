"""Accepted findings: new, persisting, fixed and stale ones, and the file of them."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from robaudit.compare import accepted as accepted_module
from robaudit.compare.accepted import STATES, BaselineReport, against_accepted, decisions, read_accepted
from robaudit.errors import RunError
from robaudit.quantities import NO_INTERVAL
from robaudit.report.ci import published
from robaudit.store.run import Run
from tests.conftest import RunCli
from tests.levels import sigma

AT = sigma(0.3)
MC = ("mc", AT)
NOISES = {"gaussian": {"kind": "gaussian", "name": "gaussian", "clip": False}}


def with_values(run: Run, **values: tuple[float, float]) -> Run:
    """The run's mc rows, one sample each, with these values and half widths."""
    rows = [row for row in run.rows if row.estimator == "mc"]
    found = []
    for row, (name, (value, half)) in zip(rows, values.items(), strict=False):
        found.append(replace(row, sample_id=name, value=value, lower=value - half, upper=value + half, votes=None, kept=None))
    return replace(run, rows=found, path=Path("nowhere"))


def accepted_by(folder: Path, standing: BaselineReport, **reasons: str) -> Any:
    """The file that --update writes, with reasons added by hand, read again."""
    from robaudit.compare.accepted import write_accepted

    path = folder / "accepted.json"
    header = {"model": {"name": "m", "sha256": "0"}, "noises": NOISES, "include": "confirmed"}
    write_accepted(path, header, standing.thresholds, standing.accepted_now())
    document = json.loads(path.read_text())
    for one in document["findings"]:
        if one["sample_id"] in reasons:
            one["reason"] = reasons[one["sample_id"]]
    path.write_text(json.dumps(document))
    return read_accepted(path)


def states(standing: BaselineReport) -> dict[str, list[str]]:
    return {state: [one.sample_id for one in standing.of(state)] for state in STATES if standing.of(state)}


def test_findings_and_their_states(tmp_path: Path, ordinary: Run) -> None:
    first = against_accepted(
        with_values(ordinary, a=(0.1, 0.05), b=(0.2, 0.05), c=(0.3, 0.05), d=(0.9, 0.05), e=(0.48, 0.05)), None, None, (), (), every=False
    )
    assert states(first) == {"new": ["a", "b", "c"]}, "e is undecided"
    (gate,) = decisions(first, [MC])
    assert (gate.verdict, gate.value) == ("fail", 3)
    accepted = accepted_by(tmp_path, first, b="known: drawn badly")
    then = with_values(ordinary, a=(0.12, 0.05), b=(0.48, 0.05), c=(0.8, 0.05), d=(0.2, 0.05))
    second = against_accepted(then, accepted, None, (), (), every=False)
    assert states(second) == {"new": ["d"], "persisting": ["a", "b"], "fixed": ["c"]}, "b may be below still"
    assert next(one.reason for one in second.findings if one.sample_id == "b") == "known: drawn badly"
    third = accepted_by(tmp_path, second)
    assert {one.sample_id: one.reason for one in third.findings} == {"a": None, "b": "known: drawn badly", "d": None}
    assert states(against_accepted(then, third, None, (), (), every=False)) == {"persisting": ["a", "d", "b"]}
    everything = against_accepted(with_values(ordinary, e=(0.48, 0.05)), None, None, (), (), every=True)
    assert states(everything) == {"new": ["e"]}


def test_a_finding_whose_sample_or_image_is_gone_is_stale(tmp_path: Path, ordinary: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    run = with_values(ordinary, a=(0.1, 0.05), b=(0.2, 0.05), c=(0.9, 0.05))
    digests = {"a": "1" * 32, "b": "2" * 32, "c": "3" * 32}
    monkeypatch.setattr(accepted_module, "image_digests", lambda run: digests)
    accepted = accepted_by(tmp_path, against_accepted(run, None, None, (), (), every=False))
    digests["a"] = "4" * 32
    found = against_accepted(with_values(ordinary, a=(0.1, 0.05), c=(0.9, 0.05)), accepted, None, (), (), every=False)
    assert states(found) == {"new": ["a"], "stale": ["a", "b"]}
    assert {one.why for one in found.of("stale")} == {"another image", "not in this run"}


def test_what_is_not_known_is_neither_new_nor_gone(tmp_path: Path, ordinary: Run) -> None:
    run = with_values(ordinary, a=(0.1, 0.05), b=(0.9, 0.05), c=(0.9, 0.05), d=(0.2, 0.05))
    accepted = accepted_by(tmp_path, against_accepted(run, None, None, (), (), every=False), a="drawn badly")
    nothing: dict[str, Any] = {"value": math.nan, "lower": None, "upper": None, "interval": NO_INTERVAL}
    rows = [replace(row, **nothing) if row.sample_id in ("a", "b") else row for row in run.rows if row.sample_id != "d"]
    info = {**run.info, "skipped": [{"sample_id": name, "reason": "unreadable"} for name in ("d", "e")]}
    found = against_accepted(replace(run, rows=rows, info=info), accepted, None, (), (), every=False)
    assert states(found) == {"unknown": ["b", "e"], "persisting": ["a", "d"]}
    (gate,) = decisions(found, [MC])
    assert (gate.verdict, gate.lower, gate.upper) == ("inconclusive", 0, 2)
    assert "2 may be findings: 1 without a finite value and 1 skipped" in gate.evidence
    assert accepted_by(tmp_path, found, a="drawn badly") == accepted, "what was accepted stays so, its value included"
    everything = [replace(row, **nothing) for row in run.rows]
    assert states(against_accepted(replace(run, rows=everything), accepted, None, (), (), every=False)) == {
        "unknown": ["b", "c"],
        "persisting": ["a", "d"],
    }
    worse = [replace(row, value=0.1, lower=0.05, upper=0.15) if row.sample_id == "c" else row for row in rows]
    (gate,) = decisions(against_accepted(replace(run, rows=worse), accepted, None, (), (), every=False), [MC])
    assert (gate.verdict, gate.value) == ("fail", 1), "a new one, whatever the others are"


def test_update_forgets_what_is_not_in_the_run_only_when_told_to(ordinary: Run, run_cli: RunCli, tmp_path: Path) -> None:
    path = tmp_path / "accepted.json"
    command = ("compare", "--baseline", path, "--below", "0.97", "--include", "all", "--update")
    assert run_cli(*command, ordinary.path).code == 0
    document = json.loads(path.read_text())
    assert len(document["findings"]) > 3
    moved = [{**one, "sample_id": f"other {one['sample_id']}", "reason": "known"} for one in document["findings"]]
    moved += [{**one, "estimator": f"another {one['estimator']}"} for one in moved]
    path.write_text(json.dumps({**document, "findings": moved}))
    path.chmod(0o640)
    link = tmp_path / "link.json"
    link.symlink_to(path.name)
    assert run_cli(*command[:2], link, *command[3:], ordinary.path).code == 0
    assert link.is_symlink()
    assert path.stat().st_mode & 0o777 == 0o640
    after = json.loads(path.read_text())["findings"]
    assert [one for one in after if one.get("reason")] == sorted(moved, key=lambda one: (one["estimator"], one["level"], one["sample_id"]))
    assert len(after) == len(moved) + len(document["findings"])
    assert run_cli(*command, "--prune", ordinary.path).code == 0
    assert json.loads(path.read_text()) == document


def test_the_threshold_of_the_file_holds(tmp_path: Path, ordinary: Run) -> None:
    run = with_values(ordinary, a=(0.7, 0.05))
    assert states(against_accepted(run, None, None, (), (), every=False)) == {}
    accepted = accepted_by(tmp_path, against_accepted(run, None, 0.8, (), (), every=False))
    assert states(against_accepted(run, accepted, None, (), (), every=False)) == {"persisting": ["a"]}
    assert states(against_accepted(run, accepted, 0.5, (), (), every=False)) == {"fixed": ["a"]}


def test_what_a_filter_leaves_out_stays_in_the_file(tmp_path: Path, trained: Run) -> None:
    accepted = accepted_by(tmp_path, against_accepted(trained, None, 0.99, (), (), every=True))
    everything = len(accepted.findings)
    only = against_accepted(trained, accepted, None, ["taylor"], (), every=True)
    assert 0 < len(only.of("persisting")) < everything
    assert len(only.accepted_now()) == everything
    assert accepted_by(tmp_path, only) == accepted


def test_the_command(trained: Run, ordinary: Run, run_cli: RunCli, tmp_path: Path) -> None:
    path = tmp_path / "accepted.json"
    options = ("--baseline", path, "--estimator", "mc", "--below", "0.9")
    assert run_cli("compare", *options, ordinary.path).code == 2
    assert not path.exists()
    code, out, err = run_cli("compare", *options, ordinary.path, "--update")
    assert code == 0
    assert "accepted findings" in err
    assert "new  mc" in out
    assert "accepted now" in out
    first = path.read_bytes()
    assert run_cli("compare", *options, ordinary.path).code == 0
    assert run_cli("compare", *options, ordinary.path, "--update").code == 0
    assert path.read_bytes() == first, "the same findings, the same bytes"
    code, out, _ = run_cli("compare", *options, trained.path, "--format", "json")
    document = json.loads(out)
    Draft202012Validator(json.loads(published("compare"))).validate(document)
    assert code == document["exit_code"] == (1 if document["baseline"]["counts"]["new"] else 0)
    assert document["baseline"]["counts"]["fixed"] > 0
    for format_ in ("junit", "github"):
        assert run_cli("compare", *options, ordinary.path, "--format", format_).code == 0


GOOD: dict[str, Any] = {
    "schema_version": 4,
    "model": {"name": "m", "sha256": "0"},
    "noises": NOISES,
    "include": "confirmed",
    "thresholds": [{"estimator": "mc", **AT.document(), "below": 0.5}],
    "findings": [{"estimator": "mc", **sigma(1).document(), "sample_id": "a", "image": None, "value": 0.1, "reason": "\u001b[31m <b>"}],
}
FINDING = GOOD["findings"][0]


def test_a_file_written_by_hand_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps(GOOD))
    found = read_accepted(tmp_path / "a.json")
    assert found is not None
    assert found.findings[0].at == sigma(1.0)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        "null",
        "[" * 100_000,
        "\x00\xff",
        '{"schema_version": NaN}',
        json.dumps({**GOOD, "schema_version": 1}),
        json.dumps({**GOOD, "schema_version": 2}),
        json.dumps({**GOOD, "more": 1}),
        json.dumps({**GOOD, "findings": [FINDING, FINDING]}),
        json.dumps({**GOOD, "findings": [{**FINDING, "level": "0.3"}]}),
        json.dumps({**GOOD, "findings": [{**FINDING, "level_name": "loudness"}]}),
        json.dumps({**GOOD, "noises": "gaussian"}),
        json.dumps({**GOOD, "findings": [{**FINDING, "value": 1e300}]}),
        json.dumps({**GOOD, "thresholds": {}}),
        json.dumps({**GOOD, "schema_version": 4.0}),
        json.dumps({**GOOD, "schema_version": True}),
        json.dumps({**GOOD, "thresholds": [{**GOOD["thresholds"][0], "below": -5}]}),
        json.dumps({**GOOD, "thresholds": [GOOD["thresholds"][0], {**GOOD["thresholds"][0], "below": 0.4}]}),
        json.dumps(GOOD)[:-1] + ', "findings": []}',
    ],
)
def test_a_damaged_file_is_refused_and_untouched(content: str, ordinary: Run, run_cli: RunCli, tmp_path: Path) -> None:
    path = tmp_path / "accepted.json"
    path.write_text(content, encoding="latin-1")
    before = path.read_bytes()
    code, out, err = run_cli("compare", "--baseline", path, ordinary.path, "--update")
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert path.read_bytes() == before


def test_other_noise_is_refused(tmp_path: Path, ordinary: Run) -> None:
    other = {"gaussian": {**NOISES["gaussian"], "kind": "blur"}}
    (tmp_path / "a.json").write_text(json.dumps({**GOOD, "noises": other}))
    says = r"and the accepted findings differ in the noise gaussian \(kind blur and gaussian\); name another --baseline file"
    with pytest.raises(RunError, match=says):
        against_accepted(ordinary, read_accepted(tmp_path / "a.json"), None, (), (), every=False)
