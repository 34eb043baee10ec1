"""What cannot be used is refused in one line: an installation without Ray, an address where no
cluster is, more than a cluster has."""

from __future__ import annotations

import socket
import sys
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.conftest import RunCli
from tests.specs import digits, tree, write
from tests.system.ray.clusters import Nodes, estimate, needs_ray

RAY = ("--out", "run", "--engine", "ray")


def refused(tmp_path: Path, run_cli: RunCli, *args: str) -> str:
    """The only line about an audit that is refused."""
    write(tmp_path, digits())
    code, out, err = run_cli("estimate", "spec.yaml", *RAY, *args)
    assert (code, out, err.count("\n")) == (2, "", 1), err
    assert tree(tmp_path).keys() == {"spec.yaml"}, "a refused command leaves nothing behind"
    return err.removeprefix("error: ").removesuffix("\n")


def test_ray_is_not_installed(
    tmp_path: Path, run_cli: RunCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    line = refused(tmp_path, run_cli)
    assert line.startswith("--engine ray: ")
    assert "pip install 'robaudit[ray]'" in line


@pytest.fixture
def unconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray is there, and no cluster answers it."""
    needs_ray()

    class Never:
        exceptions = SimpleNamespace(AuthenticationError=PermissionError)

        @staticmethod
        def is_initialized() -> bool:
            return False

        @staticmethod
        def init(**_: object) -> None:
            raise ConnectionError("nobody answers")

    monkeypatch.setitem(sys.modules, "ray", Never)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)


@pytest.mark.usefixtures("unconnected")
@pytest.mark.parametrize(
    ("address", "line"),
    [
        ("nonsense", "is not an address; give HOST:PORT of the head node, or auto"),
        ("head:", "is not an address; give HOST:PORT of the head node, or auto"),
        ("head:port", "is not an address; give HOST:PORT of the head node, or auto"),
        (
            "ray://head:10001",
            "is the address of a client; run the audit on a node of the cluster, with HOST:PORT "
            "(ray job submit)",
        ),
    ],
)
def test_addresses_that_are_none(address: str, line: str, tmp_path: Path, run_cli: RunCli) -> None:
    assert (
        refused(tmp_path, run_cli, "--ray-address", address) == f"--ray-address {address}: {line}"
    )


@pytest.mark.usefixtures("unconnected")
def test_a_port_that_is_none(tmp_path: Path, run_cli: RunCli) -> None:
    line = refused(tmp_path, run_cli, "--ray-address", "127.0.0.1:99999")
    assert line.startswith("--ray-address 127.0.0.1:99999: no answer within 10 s (")


@pytest.mark.usefixtures("unconnected")
def test_nobody_listens(tmp_path: Path, run_cli: RunCli, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        port = listening.getsockname()[1]
    line = "no answer within 10 s (Connection refused); is the head node up, and this its port?"
    assert (
        refused(tmp_path, run_cli, "--ray-address", f"127.0.0.1:{port}")
        == f"--ray-address 127.0.0.1:{port}: {line}"
    )
    monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{port}")
    assert refused(tmp_path, run_cli) == f"RAY_ADDRESS=127.0.0.1:{port}: {line}"


@pytest.mark.slow
def test_more_than_a_cluster_has(tmp_path: Path, nodes: Nodes) -> None:
    write(tmp_path, digits())
    for args, words in {
        (
            "--workers",
            "3",
        ): "--workers: 3 were requested, each with a CPU, and the cluster has 2 CPUs; ask for 1 "
        "to 2",
        (
            "--gpus-per-worker",
            "1",
        ): "--gpus-per-worker: 1 were requested, and the cluster has 0 GPUs; ask for fewer",
        (
            "--device",
            "cuda",
        ): "run.device: cuda was requested, but the cluster has no GPU; use cpu or auto",
    }.items():
        code, out, err = estimate(tmp_path, nodes.here, *RAY, "--ray-address", nodes.address, *args)
        lines = [line for line in err.splitlines() if not line.startswith("connecting")]
        assert (code, out, lines) == (2, "", [f"error: {words}"])
    assert not nodes.here.workers()


@pytest.mark.usefixtures("unconnected")
def test_auto_without_a_cluster(tmp_path: Path, run_cli: RunCli) -> None:
    remedy = "start one with ray start --head, or leave --ray-address out to use this machine alone"
    assert (
        refused(tmp_path, run_cli, "--ray-address", "auto")
        == f"--ray-address auto: no Ray cluster answers; {remedy}"
    )
