"""Audits from Python by a Ray cluster of this machine that lasts as long as they do: of a spec, of
objects in memory, of plugins."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor, nn

import robaudit
from robaudit.errors import ModelError
from robaudit.models.architectures import digits_cnn
from robaudit.progress import Listener
from tests.specs import digits
from tests.system.ray.clusters import ROOT, Surroundings
from tests.unit.api.nets import arrays, network

OUTPUTS = ("samples.csv", "samples.json", "summary.json")
RAY = {"engine": "ray", "workers": 2, "device": "cpu"}


@pytest.fixture
def alone(
    here: Surroundings, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Iterator[Surroundings]:
    """Where this process starts a cluster with two places for workers; nothing is printed but by
    us, which have nothing to say."""
    monkeypatch.setenv("RAY_TMPDIR", here.folder)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    )
    monkeypatch.setattr(
        "robaudit.auditing.ray_cluster._PRIVATE_CLUSTER_OPTIONS",
        {"include_dashboard": False, "num_cpus": 2, "object_store_memory": 80 * 2**20},
    )
    yield here
    assert capfd.readouterr() == ("", ""), "nothing of Ray's gets among our output"


def same(a: Path, b: Path) -> None:
    for name in OUTPUTS:
        assert (a / name).read_bytes() == (b / name).read_bytes()


@pytest.mark.bits
def test_the_same_files_as_by_this_process(tmp_path: Path, alone: Surroundings) -> None:
    local = digits(limit=6, estimators=[{"mc": {"draws": 10}}, "taylor"])
    robaudit.audit(
        {**local, "run": {**RAY, "workers": 1}}, out=tmp_path / "ray", listener=Listener()
    )
    robaudit.audit(local, out=tmp_path / "local", listener=Listener())
    same(tmp_path / "ray", tmp_path / "local")
    assert alone.deserted(), "the cluster ends with the audit"


@pytest.mark.slow
def test_objects_in_memory(tmp_path: Path, alone: Surroundings) -> None:
    """A class that only this process knows, and more images than are checked at the start."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = network()

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = 2 * self.inner(x)
            return out

    net = Net()
    data = arrays(300)
    local: dict[str, Any] = {
        key: value for key, value in digits().items() if key not in ("model", "dataset")
    }
    spec: dict[str, Any] = {**local, "model": {"format": "memory"}, "dataset": {"kind": "memory"}}
    by_ray = robaudit.audit(
        {**spec, "run": RAY}, model=net, dataset=data, out=tmp_path / "ray", listener=Listener()
    )
    robaudit.audit(spec, model=net, dataset=data, out=tmp_path / "local", listener=Listener())
    same(tmp_path / "ray", tmp_path / "local")
    assert by_ray.info.sessions[0].workers == 2


@pytest.mark.slow
def test_objects_that_cannot_be_sent(tmp_path: Path, alone: Surroundings) -> None:
    net: Any = digits_cnn()
    net.lock = threading.Lock()
    spec: dict[str, Any] = {**digits(), "model": {"format": "memory"}, "run": RAY}
    with pytest.raises(
        ModelError,
        match=r"^the model or data in memory: cannot be sent to workers \(TypeError: .*lock",
    ):
        robaudit.audit(spec, model=net, out=tmp_path / "ray", listener=Listener())
    assert alone.deserted(), "the cluster ends with the error"
