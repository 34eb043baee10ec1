"""Mistakes that new users make on the command line: one line each, with what to write instead."""

from __future__ import annotations

from pathlib import Path

import pytest

from robaudit import audit, load_spec
from tests.cli.conftest import Refuse, refuse
from tests.specs import digits, write

__all__ = ["refuse"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--sigma"], "Option '--sigma' requires an argument; see robaudit estimate --help"),
        (["--sigma", "0.05,8/255"], "is not a number; give a noise level such as 0.05 or 8/255; several: --sigma 0.05 --sigma 8/255"),
        (["--sigma", "5%"], "--sigma 5%: is not a number; give a noise level such as 0.05 or 8/255"),
        (["--limit", "all"], "Invalid value for '--limit': must be a valid integer; see robaudit estimate --help"),
        (["--gate", "mean", "0.9"], 'write a gate in quotes: --gate "mean >= 0.9"; see robaudit estimate --help'),
        (["--gate", "mean >= 0.9", "extra"], "Got unexpected extra argument(s) (extra); see robaudit estimate --help"),
        (["--estimator", "MC"], "estimators[0]: unknown estimator 'MC'; did you mean 'mc'?"),
        (["--estimator", "Logit-Gaussian"], "did you mean 'logit_gaussian'?"),
        (["--set", "sigma=0.1"], "--set sigma=0.1: unknown key 'sigma'; write --set noise.sigma=0.1"),
        (["--set", "limit=3"], "--set limit=3: unknown key 'limit'; write --set dataset.limit=3"),
        (["--set", "nosuch=3"], "--set nosuch=3: unknown key 'nosuch'; known: "),
        (["--report", "report"], "--report report: a report is HTML or Markdown; name a file that ends in .html or .md"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_estimate(options: list[str], says: str, tmp_path: Path, refuse: Refuse) -> None:
    assert says in refuse("estimate", write(tmp_path, digits()), *options)


def test_a_file_of_a_run_is_not_the_run(tmp_path: Path, refuse: Refuse) -> None:
    spec = write(tmp_path, digits(limit=2, estimators=[{"mc": {"samples": 2}}]))
    audit(load_spec(spec), out=tmp_path / "run")
    for name in ("run.json", "samples.csv"):
        assert refuse("show", f"run/{name}").endswith("is not a run folder; name its folder, run")
    assert refuse("show", spec).endswith("is not a run folder; name a folder that robaudit estimate has written")


def test_the_share_of_init_is_no_gate_to_quote(refuse: Refuse) -> None:
    assert refuse("init", "--gate", "0.9", "--nosuch").startswith("error: No such option: --nosuch")
