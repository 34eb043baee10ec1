"""`robaudit estimate --gate`: it draws until the gates are decided, and no further."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from robaudit.auditing.until import next_analysis, possible_analyses
from robaudit.estimates import Estimate
from robaudit.files import json_bytes, sealed
from robaudit.gates.decide import Decision, Verdict, decide
from robaudit.gates.sources import decisions_of
from robaudit.runs.run import read_run
from robaudit.runs.state import State
from tests.cli.conftest import Refuse, refuse
from tests.conftest import RunCli
from tests.golden import Golden
from tests.specs import digits, read_info, write
from tests.unit.engine.tools import known
from tests.unit.gates.tools import ONLY, gate

__all__ = ["refuse"]


def spec(samples: int = 1024, **sections: Any) -> dict[str, Any]:
    return digits(
        **{
            "limit": 4,
            "noise": {"sigma": [0.35]},
            "estimators": [{"mc": {"draws": samples}}],
            **sections,
        }
    )


def later_out(out: str) -> str:
    """What robaudit gate prints of what estimate has printed."""
    return out[out.rindex("pass  mean") :]


def test_looks_at_least_double_and_end_at_all() -> None:
    assert [possible_analyses(most) for most in (10, 64, 100)] == [(10,), (64,), (64, 100)]
    assert possible_analyses(10_000) == (625, 1250, 2500, 5000, 10_000)
    assert all(len(possible_analyses(most)) <= 5 for most in range(1, 3000))

    def open_(more: int | None, verdict: Verdict = "inconclusive") -> Decision:
        return Decision(
            gate("mean >= 0.9"), Estimate.measured(0.9, (0.8, 1.0), ""), 0.99, verdict, "", more
        )

    assert next_analysis(625, 10_000, [open_(10)]) == 1250
    assert next_analysis(625, 10_000, [open_(1600), open_(100)]) == 2500
    assert next_analysis(625, 10_000, [open_(2000), open_(100)]) == 5000
    assert next_analysis(625, 10_000, [open_(None)]) == 1250
    assert next_analysis(625, 10_000, [open_(6000)]) == 10_000
    assert next_analysis(5000, 10_000, [open_(10)]) == 10_000


def test_a_clear_gate_is_decided_at_the_first_look(
    run_cli: RunCli, tmp_path: Path, golden: Golden
) -> None:
    write(tmp_path, spec())
    code, out, err = run_cli("estimate", "spec.yaml", "--gate", "mean >= 0.1", "--out", "run")
    assert code == 0
    golden.lines(err)
    assert (
        out.splitlines()[-1] == "pass: of 1 gate 1 passed; intervals 99 %, each gate alone" + ONLY
    )
    made = read_run(tmp_path / "run")
    assert {row.votes.draws for row in made.rows if row.votes} == {64}
    record = known(made.info.until_decided)
    assert (record.draws, record.possible, record.confidence) == (
        [64],
        [64, 128, 256, 512, 1024],
        0.95,
    )
    assert made.info.spec["gates"] == ["mean >= 0.1"]
    assert run_cli("gate", "run").out == later_out(out)
    later = run_cli("gate", "run", "mean >= 0.1")
    assert (later.code, later.out) == (0, later_out(out))
    golden.lines(later.err)
    again = run_cli("estimate", "spec.yaml", "--gate", "mean >= 0.1", "--out", "run")
    assert (again.code, again.out) == (0, out)
    golden.lines(again.err)
    other = run_cli("estimate", "spec.yaml", "--gate", "mean >= 0.2", "--out", "run")
    assert other.code == 2
    golden.lines(other.err)
    without = run_cli("estimate", "spec.yaml", "--out", "run")
    assert without.code == 2
    golden.lines(without.err)


def test_a_close_gate_takes_all_draws(run_cli: RunCli, tmp_path: Path, golden: Golden) -> None:
    write(tmp_path, spec(128, gates=["mean >= 0.5"]))
    first = run_cli("estimate", "spec.yaml", "--out", "plain")
    assert first.code == 0
    golden.lines(first.err)
    write(tmp_path, spec(128, gates=["mean >= 0.999", "accuracy >= 1"]))
    golden.lines(run_cli("estimate", "spec.yaml", "--out", "plain").err)
    assert read_run(tmp_path / "plain").info.spec["gates"] == ["mean >= 0.999", "accuracy >= 1"]
    assert run_cli("gate", "plain").code == 1  # not the gates of then
    value = sum(row.value for row in read_run(tmp_path / "plain").rows) / 4
    code, out, err = run_cli(
        "estimate",
        "spec.yaml",
        "--gate",
        f"mean >= {value:.6f}",
        "--out",
        "run",
        "--inconclusive",
        "fail",
    )
    assert code == 1
    golden.lines(err)  # one clean accuracy: model and data are prepared once
    assert "(inconclusive counts as fail)" in out
    assert [row.value for row in read_run(tmp_path / "run").rows] == [
        row.value for row in read_run(tmp_path / "plain").rows
    ]


def test_gates_of_the_spec_and_other_results(
    run_cli: RunCli, tmp_path: Path, golden: Golden
) -> None:
    """A failed gate on another estimator ends it all."""
    write(
        tmp_path,
        spec(
            estimators=[{"mc": {"draws": 1024}}, "softmax"],
            gates=["mean(estimator=softmax) >= 0.999"],
        ),
    )
    code, out, err = run_cli(
        "estimate", "spec.yaml", "--until-decided", "--point", "--set", "mc.draws=100"
    )
    assert code == 1
    golden.lines(err)
    (folder,) = (tmp_path / "runs").iterdir()
    assert folder.name.endswith("-gated")
    assert "no interval" in out


def test_an_interrupted_run_goes_on_and_is_a_run_of_all_its_draws(
    run_cli: RunCli, refuse: Refuse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, golden: Golden
) -> None:
    """Interrupted between the new run.json and the removal of the old results, and while the new
    ones are computed.

    The gate is open at the first analysis: its threshold is the mean after 64 draws.
    """
    assert run_cli("estimate", write(tmp_path, spec(64)), "--out", "probe").code == 0
    write(tmp_path, spec(128, estimators=[{"mc": {"draws": 128}}, {"taylor": {}}]))
    open_gate = (
        f"mean(estimator=mc) >= {sum(row.value for row in read_run(tmp_path / 'probe').rows) / 4!r}"
    )
    command = ("estimate", "spec.yaml", "--gate", open_gate, "--out", "run")
    written = State.write

    def interrupted(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    for method, stop in (
        ("forget_others", lambda state, _: state.images() and interrupted()),
        (
            "write",
            lambda state, new: (
                interrupted() if any(row.votes for row in new.rows) else written(state, new)
            ),
        ),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(State, method, stop)
            assert run_cli(*command).code == 130
        refuse("show", "run")
        refuse(*command[:2], "--gate", "mean(estimator=mc) >= 0.1", "--out", "run")
    code, _, err = run_cli(*command)
    assert code in (0, 1, 4)
    golden.lines(err)
    assert run_cli("estimate", "spec.yaml", "--out", "plain").code == 0
    made = read_run(tmp_path / "run")
    plain = read_run(tmp_path / "plain")
    record = known(made.info.until_decided)
    assert record.draws == [64, 128]
    assert list(made.rows) == list(plain.rows)
    assert made.info.identity == plain.info.identity
    assert {path.name for path in (tmp_path / "run").iterdir()} == {
        path.name for path in (tmp_path / "plain").iterdir()
    }


def test_refused_before_anything_is_computed(refuse: Refuse, tmp_path: Path) -> None:
    write(tmp_path, spec(64, estimators=[{"mc": {"draws": 64}}, "taylor"]))
    refuse("estimate", "spec.yaml", "--gate", "mean >= 0.9")
    refuse("estimate", "spec.yaml", "--gate", "mean(sigma=0.1) >= 0.9")
    refuse("estimate", "spec.yaml", "--gate", "mean(estimator=mc) >= 9")
    refuse("estimate", "spec.yaml", "--until-decided")
    refuse("estimate", "spec.yaml", "--gate", "accuracy >= 1", "--extend")
    refuse("estimate", "spec.yaml", "--gate", "accuracy >= 1", "--confidence", "2")
    for option in (
        ("--confidence", "0.9"),
        ("--point",),
        ("--population",),
        ("--inconclusive", "pass"),
    ):
        refuse("estimate", "spec.yaml", *option)


def test_estimate_and_gate_decide_alike_for_several_estimators(
    run_cli: RunCli, tmp_path: Path, golden: Golden
) -> None:
    """All is at the confidence of a look: a gate between the ends at 95 and at 99 % is inconclusive
    in both."""
    estimators = ["softmax", {"logit_gaussian": {"draws": 64}}, {"mc": {"draws": 1024}}]
    write(tmp_path, spec(estimators=estimators))
    assert run_cli("estimate", "spec.yaml", "--set", "mc.draws=64", "--out", "probe").code == 0
    probe = read_run(tmp_path / "probe")
    wide, narrow = (
        decide(probe, [gate("mean(estimator=logit_gaussian) >= 0.1")], confidence=confidence)[
            0
        ].estimate.lower
        for confidence in (0.99, 0.95)
    )
    assert wide is not None
    assert narrow is not None
    assert wide < narrow
    gates = [
        f"mean(estimator=logit_gaussian) >= {(wide + narrow) / 2!r}",
        "mean(estimator=mc) >= 0.1",
        "mean(estimator=softmax) >= 0.1",
    ]
    write(tmp_path, spec(estimators=estimators, gates=gates))
    code, out, _ = run_cli("estimate", "spec.yaml", "--until-decided", "--point", "--out", "run")
    later = run_cli("gate", "run")
    assert (code, later.code) == (4, 4)
    assert out.endswith(later.out)
    golden.lines(later.err)
    assert decisions_of(read_run(tmp_path / "run"))[0][0]["verdict"] == "inconclusive"


def test_a_sampled_run_takes_no_other_gates_and_no_damaged_record(
    run_cli: RunCli, refuse: Refuse, tmp_path: Path
) -> None:
    write(tmp_path, spec(64, gates=["mean >= 0.1"]))
    assert run_cli("estimate", "spec.yaml", "--until-decided", "--out", "run").code == 0
    write(tmp_path, spec(64, gates=["mean >= 0.9999"]))
    for options in ((), ("--until-decided",), ("--extend", "--sigma", "0.2")):
        refuse("estimate", "spec.yaml", "--out", "run", *options)
    write(tmp_path, spec(64))
    at_another = ("--gate", "mean >= 0.1", "--confidence", "0.99")
    refuse("estimate", "spec.yaml", "--out", "run", *at_another)
    # the same gate, said elsewhere
    code, out, _ = run_cli("estimate", "spec.yaml", "--gate", "mean >= 0.1", "--out", "run")
    assert (code, out.splitlines()[-1]) == (
        0,
        "pass: of 1 gate 1 passed; intervals 95 %, each gate alone" + ONLY,
    )
    good = read_info(tmp_path / "run")
    changes: tuple[dict[str, Any], ...] = ({"confidence": 1.0}, {"draws": [63]})
    for change in changes:
        info = {**good, "until_decided": {**good["until_decided"], **change}}
        (tmp_path / "run" / "run.json").write_bytes(json_bytes(sealed(info)))
        refuse("gate", "run")


def test_an_extended_one_keeps_the_confidence_of_its_looks(run_cli: RunCli, tmp_path: Path) -> None:
    write(tmp_path, spec(128, gates=["mean(sigma=0.35) >= 0.1"]))
    assert run_cli("estimate", "spec.yaml", "--until-decided", "--out", "run").code == 0
    assert (
        run_cli(
            "estimate",
            "spec.yaml",
            "--set",
            "mc.draws=64",
            "--sigma",
            "0.2",
            "--extend",
            "--out",
            "run",
        ).code
        == 0
    )
    assert "intervals 97.5 %" in run_cli("gate", "run").out
    assert "intervals 97.5 %" in run_cli("gate", "run", "mean(sigma=0.2) >= 0.1").out
    assert "intervals 90 %" in run_cli("gate", "run", "--confidence", "0.9").out
    assert decisions_of(read_run(tmp_path / "run"))[0][0]["confidence"] == pytest.approx(0.975)
