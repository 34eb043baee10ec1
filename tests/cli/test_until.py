"""`robaudit estimate --gate`: it draws until the gates are decided, and no further."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from robaudit.files import json_bytes, sealed
from robaudit.gates.decide import decide
from robaudit.gates.sources import decisions_of
from robaudit.numerics.looks import confidence_of_each
from robaudit.runs.state import Flush, State
from robaudit.stats.reading import read_run
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


def test_a_clear_gate_is_decided_at_the_first_look(
    run_cli: RunCli, tmp_path: Path, golden: Golden
) -> None:
    write(tmp_path, spec())
    code, out, err = run_cli("estimate", "spec.yaml", "--gate", "mean >= 0.1", "--out", "run")
    assert code == 0
    golden.lines(err)
    made = read_run(tmp_path / "run")
    assert {row.votes.draws for row in made.rows if row.votes} == {1}
    record = known(made.info.until_decided)
    assert (record.draws, record.possible) == ([1], [1, 8, 16, 32, 64, 128, 256, 512, 1024])
    # z is 2.69 where Bonferroni's over nine looks would be 2.77
    assert record.confidence == 0.95
    assert record.each == confidence_of_each(0.95, record.possible)
    assert 0.992 < record.each < 0.994
    assert (
        out.splitlines()[-1]
        == f"pass: of 1 gate 1 passed; intervals {100 * record.each:.4g} %, each gate alone" + ONLY
    )
    assert made.info.spec["gates"] == ["mean >= 0.1"]
    assert run_cli("gate", "run").out == later_out(out)
    later = run_cli("gate", "run", "mean >= 0.1")
    assert (later.code, later.out) == (0, later_out(out))
    golden.lines(later.err)
    again = run_cli("estimate", "spec.yaml", "--gate", "mean >= 0.1", "--out", "run")
    assert (again.code, again.out) == (0, out)
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


@pytest.mark.bits
def test_an_interrupted_run_goes_on_and_is_a_run_of_all_its_draws(
    run_cli: RunCli, refuse: Refuse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its gate stays open: the threshold is the mean of all draws."""
    write(tmp_path, spec(128, estimators=[{"mc": {"draws": 128}}, {"taylor": {}}]))
    assert run_cli("estimate", "spec.yaml", "--out", "plain").code == 0
    plain = read_run(tmp_path / "plain")
    values = [row.value for row in plain.rows if row.votes]
    open_gate = f"mean(estimator=mc) >= {sum(values) / len(values)!r}"
    command = ("estimate", "spec.yaml", "--gate", open_gate, "--out", "run")
    written = State.write
    writes = iter(range(10**9))

    def interrupted(state: State, new: Flush) -> None:
        if next(writes) % 3 == 2:
            raise KeyboardInterrupt
        written(state, new)

    codes = []
    with monkeypatch.context() as patch:
        patch.setattr(State, "write", interrupted)
        while 130 in (code := [run_cli(*command).code]):
            codes += code
            first = run_cli("show", "run").out.splitlines()[0]
            assert first.startswith("so far          ")
            assert first.endswith(" (interrupted)")
            refuse(*command[:2], "--gate", "mean(estimator=mc) >= 0.1", "--out", "run")
    assert codes
    assert code[0] in (0, 1, 4)
    made = read_run(tmp_path / "run")
    assert known(made.info.until_decided).draws == [1, 8, 16, 32, 64, 128]
    assert list(made.rows) == list(plain.rows)
    assert made.info.identity == plain.info.identity
    assert {path.name for path in (tmp_path / "run").iterdir()} == {
        path.name for path in (tmp_path / "plain").iterdir()
    }


def test_a_population_gets_more_images_where_more_copies_would_not_help(
    run_cli: RunCli, tmp_path: Path
) -> None:
    document = spec(dataset={"kind": "digits", "sample": {"size": 20, "seed": 1}})
    write(tmp_path, document)
    # Close to the mean over all images.
    everything = {**document, "dataset": {"kind": "digits"}, "estimators": [{"mc": {"draws": 8}}]}
    write(tmp_path, everything, "all.yaml")
    assert run_cli("estimate", "all.yaml", "--out", "all").code == 0
    mean = float(np.mean([row.value for row in read_run(tmp_path / "all").rows]))
    images = len(read_run(tmp_path / "all").rows)
    command = ("estimate", "spec.yaml", "--gate", f"mean >= {mean - 0.02:.4f}", "--population")
    code, out, err = run_cli(*command, "--out", "run")
    made = read_run(tmp_path / "run")
    assert 20 < len(made.rows) <= images
    assert known(made.info.until_decided).growths == math.ceil(math.log2(images / 20))
    assert {row.votes.draws for row in made.rows if row.votes} != {1024}
    assert "of each of 40 images:" in err
    assert code in (0, 4)
    assert run_cli("gate", "run", "--population").code == code
    # The same command again finds the grown run, and its verdict.
    again = run_cli(*command, "--out", "run")
    assert (again.code, again.out.splitlines()[-1]) == (code, out.splitlines()[-1])


def test_each_size_of_a_growing_sample_is_looked_at_once(run_cli: RunCli, tmp_path: Path) -> None:
    """Also where its first images have all of their copies already."""
    document = spec(2, dataset={"kind": "digits", "sample": {"size": 40, "seed": 1}})
    write(tmp_path, document)
    # A percentile needs copies; they are all taken before the sample grows.
    command = ("estimate", "spec.yaml", "--gate", "p05 >= 0.9", "--population")
    _, _, err = run_cli(*command, "--out", "run")
    looks = re.findall(r"interim analysis after (.*) of 2 copies of each of (.*) images:", err)
    schedule = known(read_run(tmp_path / "run").info.until_decided)
    assert [copies for copies, _ in looks] == ["1", *["2"] * (len(looks) - 1)]
    assert len({*looks}) == len(looks)
    assert len(looks) <= len(schedule.possible) + schedule.growths
    assert err.count("clean accuracy") == 1


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
    assert run_cli("estimate", "spec.yaml", "--out", "probe").code == 0
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
    assert code == 0
    assert out.splitlines()[-1].startswith("pass: of 1 gate 1 passed; intervals 98.77 %")
    good = read_info(tmp_path / "run")
    changes: tuple[dict[str, Any], ...] = (
        {"confidence": 1.0},
        {"draws": [63]},
        {"possible": [64, 8]},
        {"growths": -1},
    )
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
            "--sigma",
            "0.2",
            "--extend",
            "--out",
            "run",
        ).code
        == 0
    )
    schedule = known(read_run(tmp_path / "run").info.until_decided)
    each = f"intervals {100 * schedule.each:.4g} %"
    assert each in run_cli("gate", "run").out
    assert each in run_cli("gate", "run", "mean(sigma=0.2) >= 0.1").out
    assert "intervals 90 %" in run_cli("gate", "run", "--confidence", "0.9").out
    decided = decisions_of(read_run(tmp_path / "run"))[0][0]
    assert decided["confidence"] == pytest.approx(schedule.each)
