"""`robaudit estimate --gate`: it draws until the gates are decided, and no further."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from robaudit import load_spec
from robaudit.gates.decide import decide
from robaudit.gates.looks import most_draws, next_draws, possible_looks
from robaudit.gates.result import Decision, Verdict
from robaudit.runs import read_run
from tests.cli.conftest import Refuse, refuse
from tests.conftest import RunCli
from tests.gates.tools import gate
from tests.specs import digits, write

__all__ = ["refuse"]


def spec(samples: int = 1024, **sections: Any) -> dict[str, Any]:
    return digits(**{"limit": 6, "noise": {"sigma": [0.35]}, "estimators": [{"mc": {"samples": samples}}], **sections})


def test_looks_at_least_double_and_end_at_all() -> None:
    assert [possible_looks(most) for most in (10, 64, 100)] == [(10,), (64,), (64, 100)]
    assert possible_looks(10_000) == (625, 1250, 2500, 5000, 10_000)
    assert all(len(possible_looks(most)) <= 5 for most in range(1, 3000))

    def open_(more: int | None, verdict: Verdict = "inconclusive") -> Decision:
        return Decision(gate("mean >= 0.9"), 0.9, 0.8, 1.0, "", "these images", 0.99, verdict, "", more)

    assert next_draws(625, 10_000, [open_(10)]) == 1250
    assert next_draws(625, 10_000, [open_(1600), open_(100)]) == 2500
    assert next_draws(625, 10_000, [open_(2000), open_(100)]) == 5000
    assert next_draws(625, 10_000, [open_(None)]) == 1250
    assert next_draws(625, 10_000, [open_(6000)]) == 10_000
    assert next_draws(5000, 10_000, [open_(10)]) == 10_000


def test_draws_of_a_spec(tmp_path: Path) -> None:
    def most(estimators: list[Any], limit: int | None = None) -> int:
        return most_draws(load_spec(write(tmp_path, digits(estimators=estimators))), limit)

    assert most(["mc"]) == 10_000
    assert most(["mc"], 500) == 500
    assert most([{"mc": {"samples": 50}}, {"mc": {"samples": 70, "label": "b"}}]) == 70
    assert most(["softmax", {"mc": {"decide": 0.9}}]) == 0


def test_a_clear_gate_is_decided_at_the_first_look(run_cli: RunCli, tmp_path: Path) -> None:
    write(tmp_path, spec())
    code, out, err = run_cli("estimate", "spec.yaml", "--gate", "mean >= 0.1", "--out", "run")
    assert code == 0
    assert "look after 64 of 1,024 draws an image:\n  pass  mean(estimator=mc, sigma=0.35) >= 0.1" in err
    assert "64 draws an image in all looks, 960 fewer than the 1,024 of a single run" in err
    assert out.splitlines()[-1] == "pass: of 1 gate 1 passed; intervals 99 %, each gate by itself"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run", "spec.yaml"]
    made = read_run(tmp_path / "run")
    assert {sum(row.votes or ()) for row in made.rows} == {64}
    record = json.loads((tmp_path / "run" / "gates.json").read_text(encoding="utf-8"))
    assert (record["verdict"], record["draws"]) == ("pass", [64])
    later = run_cli("gate", "run", "--gate", "mean >= 0.1")
    assert (later.code, later.out) == (0, out[out.rindex("pass  mean") :])
    assert "each look, and so every gate, is at 99 %" in later.err
    again = run_cli("estimate", "spec.yaml", "--gate", "mean >= 0.1", "--out", "run")
    assert (again.code, again.out) == (0, out)
    assert "this run is complete; nothing was recomputed" in again.err
    other = run_cli("estimate", "spec.yaml", "--gate", "mean >= 0.2", "--out", "run")
    assert other.code == 2
    assert "was sampled for other gates" in other.err


def test_a_close_gate_takes_all_draws(run_cli: RunCli, tmp_path: Path) -> None:
    write(tmp_path, spec(256, gates=["mean >= 0.5"]))
    first = run_cli("estimate", "spec.yaml", "--out", "plain")
    assert first.code == 0
    assert "the spec has 1 gate: robaudit gate plain decides them" in first.err
    write(tmp_path, spec(256, gates=["mean >= 0.6", "accuracy >= 1"]))
    assert (
        "the spec has 2 gates: robaudit gate plain --spec spec.yaml decides them" in run_cli("estimate", "spec.yaml", "--out", "plain").err
    )
    value = sum(row.value for row in read_run(tmp_path / "plain").rows) / 6
    code, out, err = run_cli("estimate", "spec.yaml", "--gate", f"mean >= {value:.6f}", "--out", "run", "--inconclusive", "fail")
    assert code == 1
    assert err.count("look after ") >= 2
    assert "look after 256 of 256" in err
    assert "(inconclusive counts as fail)" in out
    assert [row.value for row in read_run(tmp_path / "run").rows] == [row.value for row in read_run(tmp_path / "plain").rows]


def test_gates_of_the_spec_and_other_results(run_cli: RunCli, tmp_path: Path) -> None:
    """A gate on another estimator is decided at the confidence that is asked for; a failed one ends it all."""
    write(tmp_path, spec(estimators=[{"mc": {"samples": 1024}}, "softmax"], gates=["mean(estimator=softmax) >= 0.999"]))
    assert run_cli("estimate", "spec.yaml", "--until-decided").code == 2
    code, out, err = run_cli("estimate", "spec.yaml", "--until-decided", "--point", "--max-samples", "100")
    assert code == 1
    assert err.count("look after 64 of 100 draws") == 1
    assert "look after 100" not in err
    (folder,) = (tmp_path / "runs").iterdir()
    assert folder.name.endswith("-gated")
    assert "no interval" in out


def test_population_takes_all_draws_at_once(run_cli: RunCli, tmp_path: Path) -> None:
    write(tmp_path, spec(70))
    code, out, err = run_cli("estimate", "spec.yaml", "--gate", "mean >= 0.01", "--population", "--out", "run")
    assert code == 0
    assert "look after" not in err
    assert "population" in out


def test_an_interrupted_one_goes_on(run_cli: RunCli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, spec(256))

    def interrupted(run: Any, gates: Any, **options: Any) -> Any:
        if sum(run.rows[0].votes) > 64:
            raise KeyboardInterrupt
        return decide(run, gates, **options)

    probe = run_cli("estimate", "spec.yaml", "--set", "mc.samples=64", "--out", "probe")
    assert probe.code == 0
    value = sum(row.value for row in read_run(tmp_path / "probe").rows) / 6
    command = ("estimate", "spec.yaml", "--gate", f"mean >= {value:.6f}", "--out", "run")
    monkeypatch.setattr("robaudit.gates.looks.decide", interrupted)
    assert run_cli(*command).code == 130
    assert not (tmp_path / "run").exists()
    monkeypatch.setattr("robaudit.gates.looks.decide", decide)
    code, _, err = run_cli(*command)
    assert code in (0, 1, 4)
    assert "64: this run is complete; nothing was recomputed" in err
    assert (tmp_path / "run" / "samples.csv").exists()
    assert not (tmp_path / "run.looks").exists()


def test_refused_before_anything_is_computed(refuse: Refuse, tmp_path: Path) -> None:
    write(tmp_path, spec(64, estimators=[{"mc": {"samples": 64}}, "taylor"]))
    refuse("estimate", "spec.yaml", "--gate", "mean >= 0.9", says="say estimator=mc | taylor")
    refuse("estimate", "spec.yaml", "--gate", "mean(sigma=0.1) >= 0.9", says="has no sigma 0.1; it has 0.35")
    refuse("estimate", "spec.yaml", "--gate", "mean(estimator=mc) >= 9", says="never 9")
    refuse("estimate", "spec.yaml", "--gate", "accuracy >= 9", says="never 9")
    refuse("estimate", "spec.yaml", "--gate", "mean(estimator=taylor) >= 0.9", says="add --point")
    refuse("estimate", "spec.yaml", "--gate", "mean >= ", says="no number")
    refuse("estimate", "spec.yaml", "--until-decided", says="the spec has no gates")
    refuse("estimate", "spec.yaml", "--gate", "accuracy >= 1", "--extend", says="extend first")
    refuse("estimate", "spec.yaml", "--gate", "accuracy >= 1", "--confidence", "2", says="is not above 0.5")
    for option in (("--confidence", "0.9"), ("--max-samples", "9"), ("--point",), ("--population",), ("--inconclusive", "pass")):
        refuse("estimate", "spec.yaml", *option, says=f"{option[0]}: is about gates")
