"""Audits by a Ray cluster of two nodes: the files are those of the local engine, byte for byte,
however a run is begun and continued."""

from __future__ import annotations

import re
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest

from robaudit.stats.reading import read_run
from tests.conftest import RunCli
from tests.specs import digits, read_info, read_rows, save_npz, tree, write
from tests.system.ray.clusters import Nodes, estimate

pytestmark = [pytest.mark.bits, pytest.mark.slow]

OUTPUTS = ("samples.csv", "samples.json", "summary.json")
TOGETHER = """
import torch
from robaudit.models.architectures import digits_cnn

class Together(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.norm = torch.nn.BatchNorm2d(1, track_running_stats=False)
        self.head = torch.nn.Linear(64, 10)

    def forward(self, x):
        return 3 * self.head(self.norm(x).flatten(1))

def model():
    return Together()
"""


def same(folder: Path, run_cli: RunCli, *args: str) -> None:
    """What ``ray`` holds is what the local engine computes, and can be verified."""
    outcome = run_cli("estimate", "spec.yaml", "--out", "local", *args)
    assert outcome.code == 0, outcome.err
    for name in OUTPUTS:
        assert (folder / "ray" / name).read_bytes() == (folder / "local" / name).read_bytes(), name


def by_ray(folder: Path, nodes: Nodes, *args: str, code: int = 0) -> tuple[str, str]:
    """Run the spec with Ray; returns standard output and standard error."""
    found, out, err = estimate(
        folder, nodes.here, "--out", "ray", "--engine", "ray", "--ray-address", nodes.address, *args
    )
    assert found == code, err
    return out, err


def test_several_estimators_and_noises(tmp_path: Path, nodes: Nodes, run_cli: RunCli) -> None:
    estimators = [{"mc": {"draws": 40}}, "taylor", "mmse", "noise_tolerance", "radius_attack"]
    noise = [{"sigma": [0.1, 0.3]}, {"kind": "uniform", "eps": [0.2]}]
    write(tmp_path, digits(limit=10, noise=noise, estimators=estimators))
    out, err = by_ray(tmp_path, nodes)
    assert out.startswith("clean accuracy"), "standard output is ours alone"
    assert all(
        line.startswith(("note: ", "starting workers: ", "auditing: ")) for line in err.splitlines()
    ), err
    assert "note: 2 workers: 2 on " in err
    same(tmp_path, run_cli)
    assert read_info(tmp_path / "ray")["sessions"][0]["workers"] == 2
    code, out, _ = run_cli("verify", "ray")
    assert (code, "all as written, bit for bit\n" in out) == (0, True)


def test_images_without_labels(tmp_path: Path, nodes: Nodes, run_cli: RunCli) -> None:
    save_npz(tmp_path / "x.npz", count=20)
    data = {"kind": "npz", "path": "x.npz", "labels_key": None}
    write(tmp_path, digits(dataset=data, estimators=[{"mc": {"draws": 40}}, "logit_gaussian"]))
    by_ray(tmp_path, nodes)
    same(tmp_path, run_cli)
    assert {row["label"] for row in read_rows(tmp_path / "ray")} == {""}


def test_an_unusable_sample_is_skipped_or_refused(
    tmp_path: Path, nodes: Nodes, run_cli: RunCli
) -> None:
    images = np.random.default_rng(0).random((300, 1, 8, 8), dtype=np.float32)
    images[280, 0, 0, 0] = np.nan
    np.savez(tmp_path / "x.npz", images=images, labels=np.arange(300) % 10)
    write(tmp_path, digits(dataset={"kind": "npz", "path": "x.npz"}))
    _, err = by_ray(tmp_path, nodes, code=2)
    last = err.splitlines()[-1]
    assert last.startswith("error: x.npz, sample 280: 1 of 64 pixels")
    assert "NaN" in last
    assert "--on-error skip" in last
    _, err = by_ray(tmp_path, nodes, "--on-error", "skip")
    assert err.count("warning: skipped x.npz, sample 280: ") == 1
    same(tmp_path, run_cli, "--on-error", "skip")
    assert [skip["sample_id"] for skip in read_info(tmp_path / "ray")["skipped"]] == ["280"]


def test_a_network_that_sees_the_whole_batch(tmp_path: Path, nodes: Nodes, run_cli: RunCli) -> None:
    (tmp_path / "together.py").write_text(TOGETHER, encoding="utf-8")
    write(tmp_path, digits(limit=100, model={"format": "python", "architecture": "together:model"}))
    by_ray(tmp_path, nodes, "--trust")
    assert read_info(tmp_path / "ray")["rows"]["kind"] == "mixed"
    same(tmp_path, run_cli, "--trust")


def test_begun_locally_continued_by_ray_extended_and_back(
    tmp_path: Path, nodes: Nodes, run_cli: RunCli
) -> None:
    write(tmp_path, digits(limit=12))
    assert run_cli("estimate", "spec.yaml", "--out", "ray").code == 0
    by_ray(
        tmp_path,
        nodes,
        "--extend",
        "--limit",
        "30",
        "--sigma",
        "0.2",
        "--sigma",
        "0.4",
        "--estimator",
        "mc",
        "--estimator",
        "taylor",
    )
    outcome = run_cli("estimate", "spec.yaml", "--out", "ray", "--extend", "--limit", "40")
    assert outcome.code == 0, outcome.err
    whole = digits(
        limit=40, noise={"sigma": [0.2, 0.4]}, estimators=[{"mc": {"draws": 20}}, "taylor"]
    )
    write(tmp_path, whole)
    same(tmp_path, run_cli)
    assert [session.get("workers", 1) for session in read_info(tmp_path / "ray")["sessions"]] == [
        1,
        2,
        1,
    ]


def test_until_the_gates_are_decided(tmp_path: Path, nodes: Nodes, run_cli: RunCli) -> None:
    write(tmp_path, digits(limit=20, estimators=[{"mc": {"draws": 400}}]))
    assert run_cli("estimate", "spec.yaml", "--out", "plain").code == 0
    close = (
        "--gate",
        f"mean >= {fmean(row.value for row in read_run(tmp_path / 'plain').rows)!r}",
        "--inconclusive",
        "pass",
    )
    _, err = by_ray(tmp_path, nodes, *close)
    assert err.count("interim analysis after ") > 1
    assert err.count("note: 2 workers: ") == 1
    same(tmp_path, run_cli, *close)


def test_paths_that_workers_cannot_read(tmp_path: Path, nodes: Nodes) -> None:
    """The working folder differs between processes, as a disk of one machine does between
    machines."""
    save_npz(tmp_path / "x.npz", count=10)
    model: dict[str, Any] = digits()["model"]
    weights = Path(model["path"])
    (tmp_path / weights.name).write_bytes(weights.read_bytes())
    write(tmp_path, digits(dataset={"kind": "npz", "path": "/proc/self/cwd/x.npz"}))
    out, err = by_ray(tmp_path, nodes, code=2)
    assert not out
    assert tree(tmp_path).keys() == {"spec.yaml", "x.npz", weights.name}
    last = err.splitlines()[-1]
    assert re.fullmatch(
        r"error: \S+: /proc/self/cwd/x.npz: no such file in .* \(all is well where the audit was "
        r"started\); "
        "give all machines the same files and packages",
        last,
    )
    write(tmp_path, digits(model={**model, "path": f"/proc/self/cwd/{weights.name}"}))
    _, err = by_ray(tmp_path, nodes, code=2)
    last = err.splitlines()[-1]
    assert re.fullmatch(
        rf"error: \S+: /proc/self/cwd/{weights.name}: no such file in .*; put the model where "
        r"all machines can read it",
        last,
    )
