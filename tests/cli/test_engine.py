"""What is for another engine than the one that computes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import robaudit
from robaudit.errors import SpecError
from tests.cli.conftest import Refuse, refuse
from tests.conftest import RunCli
from tests.golden import Golden
from tests.specs import digits, read_info, write

__all__ = ["refuse"]


@pytest.mark.parametrize(
    "option",
    [
        ("--gpus-per-worker", "1"),
        ("--workers", "2"),
        ("--ray-address", "head:6379"),
    ],
    ids=["gpus", "workers", "address"],
)
def test_options_of_ray_without_it_are_refused(
    option: tuple[str, ...], tmp_path: Path, refuse: Refuse
) -> None:
    refuse("estimate", write(tmp_path, digits()), "--out", "run", *option)


@pytest.mark.parametrize("settings", [{"gpus_per_worker": 0.5}, {"ray_address": "auto"}], ids=repr)
def test_arguments_of_ray_without_it_are_refused(
    settings: dict[str, Any], tmp_path: Path, golden: Golden
) -> None:
    spec = write(tmp_path, digits())
    for what in (spec, robaudit.load_spec(spec)):
        with pytest.raises(SpecError) as caught:
            robaudit.audit(what, out=tmp_path / "run", **settings)
        golden(caught.value)
    images = torch.rand(2, 1, 2, 2)
    with pytest.raises(SpecError) as caught:
        robaudit.audit(
            torch.nn.Flatten(), (images, [0, 1]), sigma=0.1, out=tmp_path / "run", **settings
        )
    golden(caught.value)
    assert not (tmp_path / "run").exists()


def test_a_spec_does_not_choose_the_cluster(tmp_path: Path, refuse: Refuse) -> None:
    """Whoever wrote it would get the model, and have code run in this process."""
    spec = write(tmp_path, digits(run={"engine": "ray", "ray_address": "evil:6379"}))
    refuse("estimate", spec, "--out", "run")


def test_a_spec_for_a_cluster_can_be_computed_here(tmp_path: Path, run_cli: RunCli) -> None:
    spec = write(tmp_path, digits(run={"engine": "ray", "gpus_per_worker": 1}))
    assert run_cli("estimate", spec, "--out", "run", "-q", "--engine", "local").code == 0
    assert read_info(tmp_path / "run")["sessions"][0].get("workers") is None
