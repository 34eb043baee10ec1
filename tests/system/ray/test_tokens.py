"""Clusters that ask for a token: Ray's do wherever the home folder has one."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.specs import digits, write
from tests.system.ray.clusters import PATIENCE, Surroundings, estimate, wait_for

pytestmark = pytest.mark.slow

OPTIONS = (
    "--num-cpus",
    "1",
    "--object-store-memory",
    "80000000",
    "--include-dashboard",
    "false",
    "--block",
)
RAY = ("--engine", "ray", "--workers", "1")


@dataclass(frozen=True, slots=True)
class Asking:
    """A cluster that asks for the token in a home folder, which is ``~`` of these surroundings."""

    here: Surroundings
    address: str
    home: dict[str, str]


@pytest.fixture
def asking(here: Surroundings) -> Iterator[Asking]:
    """As ``ray start`` makes it."""
    home = {"HOME": here.folder}
    token = Path(here.folder, ".ray", "auth_token")
    token.parent.mkdir()
    token.write_text("0123456789abcdef" * 4)
    file = Path(here.folder, "ray", "ray_current_cluster")
    log = Path(here.folder, "head.txt")
    command = [
        sys.executable,
        "-m",
        "ray.scripts.scripts",
        "start",
        "--head",
        "--port",
        "0",
        *OPTIONS,
    ]
    with (
        log.open("w") as out,
        subprocess.Popen(command, env={**here.environment, **home}, stdout=out, stderr=out) as head,
    ):
        try:
            if (
                not wait_for(
                    lambda: "Ray runtime started" in log.read_text() or head.poll() is not None
                )
                or head.poll() is not None
            ):
                pytest.skip(f"Ray cannot be started here: {log.read_text()[-500:]}")
            yield Asking(here, file.read_text().strip(), home)
        finally:
            head.terminate()
            head.wait(PATIENCE)


def test_the_cluster_of_this_node_is_shown_its_token(asking: Asking, tmp_path: Path) -> None:
    write(tmp_path, digits())
    code, _, err = estimate(
        tmp_path, asking.here, *RAY, "--ray-address", "auto", environment=asking.home
    )
    assert code == 0, err


def test_without_the_token(asking: Asking, tmp_path: Path) -> None:
    write(tmp_path, digits())
    args = ("--ray-address", asking.address)
    others = Path(asking.here.folder, "others")
    for environment in (asking.home, {"HOME": str(others), "RAY_AUTH_MODE": "token"}):
        code, out, err = estimate(tmp_path, asking.here, *RAY, *args, environment=environment)
        assert (code, out) == (2, "")
        remedy = (
            "if it asks for a token, set RAY_AUTH_MODE=token, and have the token in "
            "~/.ray/auth_token"
        )
        assert (
            err.splitlines()[-1]
            == f"error: --ray-address {asking.address}: no Ray cluster answers; {remedy}"
        )
    code, _, err = estimate(
        tmp_path, asking.here, *RAY, *args, environment={**asking.home, "RAY_AUTH_MODE": "token"}
    )
    assert code == 0, err


def test_a_cluster_of_its_own_leaves_no_token(here: Surroundings, tmp_path: Path) -> None:
    """Ray would leave one in the home folder: the next ``ray start`` would ask for it, and without
    a home folder fail."""
    home = Path(here.folder, "home")
    write(tmp_path, digits())
    code, _, err = estimate(tmp_path, here, *RAY, environment={"HOME": str(home)})
    assert code == 0, err
    assert not home.exists()
