"""The ready specs in configs/, each run on small data of the kind that it expects."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
import yaml
from PIL import Image
from safetensors.torch import save_file
from torch import Tensor, nn
from torchvision import models

from tests.conftest import RunCli
from tests.datasets.cifar10 import write_cifar10
from tests.specs import read_info, save_npz

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
RNG = np.random.default_rng(0)


class Small(nn.Module):
    """Logits of ten, or so many, classes from the mean of patches."""

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.pool, self.linear = nn.AdaptiveAvgPool2d(4), nn.Linear(48, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        out: Tensor = self.linear(self.pool(x).flatten(1))
        return out


def torchscript(path: Path) -> None:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=DeprecationWarning)
        warnings.filterwarnings("ignore", category=FutureWarning)
        torch.jit.script(Small().eval()).save(str(path))


def cifar10(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torchscript(folder / "model.pt")
    images = RNG.integers(0, 256, (12, 3, 32, 32), dtype=np.uint8)
    write_cifar10(folder / "data", images, [i % 10 for i in range(12)], monkeypatch)


def imagenet(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    save_file(models.resnet50(weights=None).state_dict(), folder / "resnet50.safetensors")
    for i in range(1000):  # as many as it has classes; most are empty
        target = folder / "imagenet" / "val" / f"n{i:08d}"
        target.mkdir(parents=True)
        if i < 2:
            Image.fromarray(RNG.integers(0, 256, (240, 250, 3), dtype=np.uint8)).save(target / f"{i}.JPEG")


def manifest(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exported = torch.export.export(Small(3).eval(), (torch.zeros(2, 3, 32, 32),), dynamic_shapes=({0: torch.export.Dim("n")},))
    torch.export.save(exported, folder / "model.pt2")
    lines = ["path,label,id"]
    for i, label in enumerate((0, 1, 2, "")):
        Image.fromarray(RNG.integers(0, 256, (40, 36, 3), dtype=np.uint8)).save(folder / f"{i}.png")
        lines.append(f"{i}.png,{label},image {i}")
    (folder / "images.csv").write_text("\n".join(lines) + "\n")


def gated(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torchscript(folder / "model.pt")
    images = RNG.integers(0, 256, (20, 3, 8, 8), dtype=np.uint8)
    with torch.inference_mode():
        labels = Small().eval()(torch.from_numpy(images).float() / 255).argmax(1).numpy()
    save_npz(folder / "test.npz", count=20, images=images, labels=labels)


def demo(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(CONFIGS.parent / "robaudit" / "demo" / "digits_cnn.safetensors", folder)


CASES: dict[str, tuple[Callable[[Path, pytest.MonkeyPatch], None], list[str]]] = {
    "cifar10-torchscript.yaml": (cifar10, ["--limit", "6", "--set", "mc.samples=40"]),
    "imagenet-resnet50.yaml": (imagenet, ["--limit", "1", "--sigma", "8/255", "--set", "logit_gaussian.samples=16"]),
    "manifest.yaml": (manifest, ["--set", "mc.max_samples=200"]),
    "ci-gate.yaml": (gated, ["--set", "mc.samples=200"]),
    "intermediate-q.yaml": (demo, ["--limit", "4", "--set", "qnorm_path.temperatures=16", "--set", "adversarial_loss.steps=5"]),
    "noise.yaml": (demo, ["--limit", "6", "--set", "mc.samples=40"]),
}


def test_every_spec_is_run() -> None:
    assert {path.name for path in CONFIGS.glob("*.yaml")} == set(CASES)


@pytest.mark.parametrize("name", CASES)
def test_it_runs(name: str, tmp_path: Path, run_cli: RunCli, monkeypatch: pytest.MonkeyPatch) -> None:
    make, options = CASES[name]
    shutil.copy(CONFIGS / name, tmp_path)
    make(tmp_path, monkeypatch)
    code, out, err = run_cli("estimate", name, "--out", "run", *options)
    assert code == 0, err
    info = read_info(tmp_path / "run")
    assert info["totals"]["samples"] > 0
    assert not [text for text in info["warnings"] if "no better than chance" not in text and "clean accuracy is" not in text]
    assert "mean [95% interval]" in out


@pytest.mark.parametrize(("least", "code"), [pytest.param("0.2", 0, marks=pytest.mark.slow), ("0.9999", 1)])
def test_the_shell_script(least: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From a spec to an exit code, JUnit XML and reports, as a pipeline would run it."""
    document = yaml.safe_load((CONFIGS / "ci-gate.yaml").read_text())
    document["estimators"] = [{"mc": {"samples": 400}}]
    document["noise"]["sigma"] = 0.5
    document["gates"] = ["accuracy >= 0.8", f"mean >= {least}"]
    (tmp_path / "audit.yaml").write_text(yaml.safe_dump(document))
    gated(tmp_path, monkeypatch)
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        ["sh", str(CONFIGS / "ci" / "gate.sh"), "audit.yaml", "results"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == code, done.stderr
    results = tmp_path / "results"
    assert sorted(path.name for path in results.iterdir()) == ["junit.xml", "report.html", "report.md", "run"]
    suites = ElementTree.parse(results / "junit.xml").getroot()  # noqa: S314  our own file
    assert len(list(suites.iter("testcase"))) == 2
    assert len(list(suites.iter("failure"))) == code
    assert "### Gates" in (results / "report.md").read_text()


def test_the_shell_script_gives_the_code_of_a_mistake(tmp_path: Path) -> None:
    """Never 1, which is that of a failed gate; and what an earlier run has left is not shown as this one's."""
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}

    def gate(*args: str) -> subprocess.CompletedProcess[str]:
        command = ["sh", str(CONFIGS / "ci" / "gate.sh"), *args]
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)

    (tmp_path / "audit").mkdir()
    (tmp_path / "audit" / "junit.xml").write_text("of an earlier run")
    (tmp_path / "file").touch()
    for args, says in (([], "usage"), (["no.yaml"], "no.yaml"), (["no.yaml", "file"], "file"), (["no.yaml", "-x"], "no.yaml")):
        done = gate(*args)
        assert done.returncode == 2
        assert says in done.stderr
    assert list((tmp_path / "audit").iterdir()) == []


def test_the_workflow_names_commands_that_there_are(run_cli: RunCli) -> None:
    document = yaml.safe_load((CONFIGS / "ci" / "github.yml").read_text())
    steps = [step["run"] for step in document["jobs"]["audit"]["steps"] if "run" in step]
    called = [line.split() for step in steps for line in step.splitlines() if line.strip().startswith("robaudit ")]
    assert {words[1] for words in called} == {"estimate", "gate", "report"}
    for words in called:
        options = [word for word in words if word.startswith("--")]
        help_ = run_cli(words[1], "--help").out
        assert all(option in help_ for option in options), words
