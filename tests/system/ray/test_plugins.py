"""Estimators of other packages on a Ray cluster: they compute where they are installed, and a
machine without them says so."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.cli.plugin.entries import write_documented
from tests.specs import digits, read_rows, write
from tests.system.ray.clusters import Nodes, Surroundings, estimate
from tests.system.ray.test_equal import OUTPUTS

pytestmark = [pytest.mark.bits, pytest.mark.slow]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package, as pip would install it."""
    folder = tmp_path_factory.mktemp("installed") / "packages"
    write_documented(folder)
    about = folder / "robaudit_norms-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: robaudit-norms\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[robaudit.estimators]\nnorms = robaudit_norms:Norms\n")
    return folder


def seeing(installed: Path, here: Surroundings) -> dict[str, str]:
    return {"PYTHONPATH": os.pathsep.join([str(installed), here.environment["PYTHONPATH"]])}


def test_where_it_is_installed(tmp_path: Path, here: Surroundings, installed: Path) -> None:
    write(tmp_path, digits(estimators=["norms", {"mc": {"draws": 10}}]))
    environment = seeing(installed, here)
    for engine in ("local", "ray"):
        code, _, err = estimate(
            tmp_path, here, "--out", engine, "--engine", engine, environment=environment
        )
        assert code == 0, err
    for name in OUTPUTS:
        assert (tmp_path / "ray" / name).read_bytes() == (tmp_path / "local" / name).read_bytes()
    assert {row["estimator"] for row in read_rows(tmp_path / "ray")} == {
        "norms:q=1",
        "norms:q=2",
        "mc",
    }


def test_where_it_is_missing(tmp_path: Path, nodes: Nodes, installed: Path) -> None:
    write(tmp_path, digits(estimators=["norms"]))
    ray = ("--engine", "ray", "--ray-address", nodes.address)
    code, out, err = estimate(
        tmp_path, nodes.here, "--out", "ray", *ray, environment=seeing(installed, nodes.here)
    )
    assert (code, out) == (2, ""), err
    last = err.splitlines()[-1]
    assert last.startswith("error: ")
    assert "norms" in last
    assert last.endswith("give all machines the same files and packages")
