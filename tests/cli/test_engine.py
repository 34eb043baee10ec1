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
from tests.specs import digits, read_info, write

__all__ = ["refuse"]


@pytest.mark.parametrize(
    ("option", "says"),
    [
        (("--gpus-per-worker", "1"), "run: gpus_per_worker is for engine: ray; add it, or leave gpus_per_worker out"),
        (("--workers", "2"), "run: workers is for engine: ray; add it, or leave workers out"),
        (("--ray-address", "head:6379"), "--ray-address: is for engine: ray; add --engine ray, or leave it out"),
    ],
    ids=["gpus", "workers", "address"],
)
def test_options_of_ray_without_it_are_refused(option: tuple[str, ...], says: str, tmp_path: Path, refuse: Refuse) -> None:
    refuse("estimate", write(tmp_path, digits()), "--out", "run", *option, says=says)


@pytest.mark.parametrize("settings", [{"gpus_per_worker": 0.5}, {"ray_address": "auto"}], ids=repr)
def test_arguments_of_ray_without_it_are_refused(settings: dict[str, Any], tmp_path: Path) -> None:
    spec = write(tmp_path, digits())
    for what in (spec, robaudit.load_spec(spec)):
        with pytest.raises(SpecError, match="is for engine: ray"):
            robaudit.audit(what, out=tmp_path / "run", **settings)
    images = torch.rand(2, 1, 2, 2)
    with pytest.raises(SpecError, match="is for engine: ray"):
        robaudit.audit(torch.nn.Flatten(), (images, [0, 1]), sigma=0.1, out=tmp_path / "run", **settings)
    assert not (tmp_path / "run").exists()


def test_a_spec_does_not_choose_the_cluster(tmp_path: Path, refuse: Refuse) -> None:
    """Whoever wrote it would get the model, and have code run in this process."""
    spec = write(tmp_path, digits(run={"engine": "ray", "ray_address": "evil:6379"}))
    refuse("estimate", spec, "--out", "run", says="is for the command line alone: --ray-address")


def test_a_spec_for_a_cluster_can_be_computed_here(tmp_path: Path, run_cli: RunCli) -> None:
    spec = write(tmp_path, digits(run={"engine": "ray", "gpus_per_worker": 1}))
    assert run_cli("estimate", spec, "--out", "run", "-q", "--engine", "local").code == 0
    assert read_info(tmp_path / "run")["sessions"][0].get("workers") is None
