"""`robaudit estimate --budget`: the clock ends it, with all its files."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from robaudit.stats.reading import read_run
from tests.cli.conftest import Refuse, refuse
from tests.cli.stopping import time_is_over_after
from tests.conftest import RunCli
from tests.golden import Golden
from tests.specs import digits, read_info, write

__all__ = ["refuse"]

OUTPUTS = ("samples.csv", "samples.json", "summary.json")


def outputs(run: Path) -> dict[str, bytes]:
    return {name: (run / name).read_bytes() for name in OUTPUTS}


@pytest.mark.bits
@pytest.mark.parametrize("looks", [3, 6, 9, 12])
def test_it_ends_with_what_there_is_and_goes_on_where_it_ended(
    looks: int,
    tmp_path: Path,
    run_cli: RunCli,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spec = write(tmp_path, digits(estimators=[{"mc": {"draws": 40}}, "softmax"]))
    command = ("estimate", spec, "--out", "run")
    with monkeypatch.context() as patch:
        time_is_over_after(looks, patch)
        code, out, err = run_cli(*command, "--budget", "1h")
    assert code == 0
    assert re.match(r"so far          .* \(its time was over\)\n", out)
    assert "note: the time is over; to go on for as long again, run the same command again" in err
    info = read_info(tmp_path / "run")
    assert (info["status"], info["stopped"]) == ("stopped", "time")
    assert all((tmp_path / "run" / name).exists() for name in OUTPUTS)
    assert run_cli("show", "run").out == out
    assert run_cli("verify", "run", "--samples", "8").code == 0
    code, _, err = run_cli(*command, "--budget", "1h")
    assert (code, "note: resuming: " in err) == (0, True)
    assert read_info(tmp_path / "run")["status"] == "complete"
    assert run_cli("estimate", spec, "--out", "undisturbed").code == 0
    assert outputs(tmp_path / "run") == outputs(tmp_path / "undisturbed")


def test_images_come_first_where_even_a_copy_of_each_does_not_fit(
    tmp_path: Path, run_cli: RunCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = write(tmp_path, digits(limit=300, estimators=["taylor"]))
    monkeypatch.setattr("robaudit.auditing.chunk_sizes.MOST_IMAGES", 7)
    time_is_over_after(5, monkeypatch)
    code, out, _ = run_cli("estimate", spec, "--out", "run", "--budget", "1h")
    assert code == 0
    assert re.match(r"so far          .* \(its time was over\)\n", out)
    assert " of 300 images (its time" in out


def test_a_round_begins_with_the_images_that_lack_least(
    tmp_path: Path, run_cli: RunCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first image lacks the other estimator, too: 1 of 40 images, as 1 of 40 copies."""
    spec = write(tmp_path, digits(limit=40, estimators=[{"mc": {"draws": 40}}, "taylor"]))
    time_is_over_after(2, monkeypatch)
    code, out, _ = run_cli("estimate", spec, "--out", "run", "--budget", "1h")
    assert code == 0
    assert "1 of 40 copies of each of 39 of 40 images; " in out


def test_an_extension_whose_time_is_over_leaves_the_results_before_it(
    tmp_path: Path, run_cli: RunCli, monkeypatch: pytest.MonkeyPatch, golden: Golden
) -> None:
    spec = write(tmp_path, digits())
    before = run_cli("estimate", spec, "--out", "run").out
    extension = ("estimate", spec, "--out", "run", "--extend", "--sigma", "0.4", "--budget", "1h")
    with monkeypatch.context() as patch:
        time_is_over_after(4, patch)
        code, out, err = run_cli(*extension)
    assert (code, out) == (0, before)
    golden.lines(err, "note: the time")
    assert run_cli(*extension).code == 0
    assert {row["level"] for row in read_info(tmp_path / "run")["noisy_accuracy"]} == {0.2, 0.4}


def test_a_time_without_a_result_is_an_error(
    tmp_path: Path, run_cli: RunCli, refuse: Refuse, golden: Golden
) -> None:
    write(tmp_path, digits())
    code, out, err = run_cli("estimate", "spec.yaml", "--out", "begun", "--budget", "0.001s")
    assert (code, out) == (2, "")
    golden.lines(err, "error: ")
    refuse("estimate", "spec.yaml", "--out", "run", "--budget", "soon")


def test_gates_are_decided_as_far_as_the_time_allows(
    tmp_path: Path, run_cli: RunCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = write(tmp_path, digits(estimators=[{"mc": {"draws": 1000}}]))
    assert run_cli("estimate", spec, "--out", "whole").code == 0
    # So close to the mean of these images that few copies decide nothing.
    mean = read_run(tmp_path / "whole").table
    share = round(float(next(iter(mean.values())).values.mean()), 3)
    command = ("estimate", spec, "--out", "run", "--gate", f"mean >= {share}", "--budget", "1h")
    with monkeypatch.context() as patch:
        time_is_over_after(4, patch)
        code, out, _ = run_cli(*command)
    assert code == 4
    assert "(its time was over)" in out
    assert run_cli(*command).code in (0, 1, 4)
    assert read_info(tmp_path / "run")["until_decided"]["draws"][0] == 1
