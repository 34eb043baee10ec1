"""A run that warned says so first, wherever it is shown, and fails where it is asked to be
strict."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from robaudit import audit, load_spec
from tests.cli.conftest import Refuse, refuse
from tests.conftest import RunCli
from tests.golden import Golden
from tests.specs import digits, read_info, save_npz, write
from tests.unit.gates.tools import ONLY

__all__ = ["refuse"]
GATE = "mean(estimator=mc) >= 0.01"
MEANT = (
    "gaussian noise: sigma 8 is 8 times the whole range of pixels in [0, 1]; "
    "8/255 = 0.0314 or 8 % = 0.08 was probably meant: write 8/255 or 0.08"
)


def spec(**changed: Any) -> dict[str, Any]:
    return digits(
        **{
            "limit": 10,
            "noise": {"sigma": [8]},
            "estimators": [{"mc": {"draws": 60}}],
            "run": {"as_given": True},
            **changed,
        }
    )


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twenty digits at sigma 8."""
    folder = tmp_path_factory.mktemp("warned")
    return audit(load_spec(write(folder, spec())), out=folder / "run").path


@pytest.fixture(scope="module")
def silent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same at sigma .1."""
    folder = tmp_path_factory.mktemp("silent")
    return audit(load_spec(write(folder, spec(noise={"sigma": [0.1]}))), out=folder / "run").path


def test_the_likely_meaning(run: Path, silent: Path) -> None:
    assert read_info(run)["warnings"] == [MEANT]
    assert read_info(silent)["warnings"] == []


def test_refused_unless_as_given(
    tmp_path: Path, run_cli: RunCli, golden: Golden, refuse: Refuse
) -> None:
    """The command does not ask; what it refuses, it audits with the option that the message
    names."""
    path = write(
        tmp_path,
        spec(limit=2, noise={"sigma": [0.1]}, estimators=[{"mc": {"draws": 2}}], run=None),
    )
    options = ("--sigma", "8")
    refuse("estimate", path, "--out", "run", *options)
    code, out, err = run_cli("estimate", path, "--out", "run", *options, "--as-given")
    assert code == 0
    golden.lines(err, "warning: ")
    assert " ".join(out.split()).startswith(f"warning {MEANT}")


@pytest.mark.parametrize(
    "command",
    [("show",), ("bias-report",), ("flag-samples",), ("report", "--format", "md"), ("gate", GATE)],
    ids=lambda c: c[0],
)
def test_it_leads(command: tuple[str, ...], run: Path, silent: Path, run_cli: RunCli) -> None:
    first, *rest = command
    text = " ".join(run_cli(first, run, *rest).out.replace("*", "").replace("\\", "").split())
    assert "sigma 8 is 8 times" in text[: 200 if first == "report" else 80]
    assert "arning" not in run_cli(first, silent, *rest).out


class Sigmoid(nn.Module):
    """A binary network that gives a probability in the place of a logit."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.sigmoid(20 * (x.mean((1, 2, 3)) - 0.5))


class Together(nn.Module):
    """A network that looks at all the images of a batch."""

    def forward(self, x: Tensor) -> Tensor:
        logits = 9 * x.flatten(1)[:, :2]
        return logits - logits.mean(0)


@pytest.mark.filterwarnings("ignore::robaudit.RobauditWarning")
def test_logits_that_are_small_on_these_images_are_no_probabilities() -> None:
    def small(x: Tensor) -> Tensor:
        return x.mean((1, 2, 3))

    images = torch.rand(6, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    assert audit(small, images, sigma=0.1, estimators="softmax").info.warnings == []
    assert (
        audit(
            lambda x: torch.stack([small(x), 1 - small(x) / 2], 1),
            images,
            sigma=0.1,
            estimators="softmax",
        ).info.warnings
        == []
    )


class Same(nn.Module):
    """A network whose head has lost its weights."""

    def forward(self, x: Tensor) -> Tensor:
        return 0 * x.flatten(1)[:, :2] + torch.tensor([0.3, 0.1])


def test_one_probability_is_no_logit(
    tmp_path: Path, refuse: Refuse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Class 1 would win for every image, with any noise, and a gate would pass."""
    # the network's own code would leave its compiled form
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    (tmp_path / "net.py").write_text(
        "import torch\nclass Net(torch.nn.Module):\n    def forward(self, x):\n        return "
        "torch.sigmoid(9 * x.mean((1, 2, 3)) - 3)\n"
    )
    document = spec(
        model={"format": "python", "architecture": "net:Net"},
        noise={"sigma": [0.1]},
        dataset={"kind": "npz", "path": "x.npz"},
    )
    save_npz(tmp_path / "x.npz", count=8, labels=[0, 1] * 4)
    refuse("estimate", write(tmp_path, document | {"run": {}}), "--trust", "--out", "run")


@pytest.mark.parametrize(
    "network", [Sigmoid(), Same(), Together()], ids=lambda network: type(network).__name__
)
def test_networks_that_no_audit_is_made_for_warn(
    network: nn.Module, tmp_path: Path, golden: Golden
) -> None:
    document = spec(noise={"sigma": [0.1]}, model={"format": "memory"}, dataset={"kind": "memory"})
    data = torch.rand(6, 1, 8, 8, generator=torch.Generator().manual_seed(0)), [0, 1] * 3
    for warning in audit(document, model=network, dataset=data, out=tmp_path / "run").info.warnings:
        golden(warning)


def test_a_masked_class_is_no_constant_output() -> None:
    """Its logit is the same for every image, and far from all others."""

    def masked(x: Tensor) -> Tensor:
        return x.flatten(1)[:, :3] * 5 + torch.tensor([0.0, 0.0, -torch.inf])

    images = torch.rand(6, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    assert audit(masked, images, sigma=0.1, estimators="mc").info.warnings == []


def test_files_that_are_not_read(tmp_path: Path, run_cli: RunCli, golden: Golden) -> None:
    for number in range(12):
        (tmp_path / f"val/{number}").mkdir(parents=True)
        Image.new("L", (8, 8), 20 * number).save(tmp_path / f"val/{number}/a.png")
    (tmp_path / "val/3/b.avif").write_bytes(b"")
    network = {"format": "python", "architecture": "net:Net"}
    (tmp_path / "net.py").write_text(
        "import torch\nclass Net(torch.nn.Module):\n    def forward(self, x):\n        return "
        "x.flatten(1)[:, :12]\n"
    )
    path = write(
        tmp_path,
        spec(
            model=network,
            dataset={"kind": "images", "path": "val", "channels": 1},
            noise={"sigma": [0.1]},
        ),
    )
    code, _, err = run_cli("estimate", path, "--out", "run", "--trust")
    assert code == 0
    golden.lines(err)
    (warning, *_) = read_info(tmp_path / "run")["warnings"]
    golden(warning)
    assert run_cli("gate", "run", "warnings <= 0").code == 1


def test_other_formats_keep_standard_output(run: Path, run_cli: RunCli, golden: Golden) -> None:
    for name in ("csv", "json"):
        _, out, err = run_cli("bias-report", run, "--format", name)
        assert "8 times" not in out
        golden.lines(err)


# --- gates


def test_strict(run: Path, silent: Path, run_cli: RunCli) -> None:
    assert run_cli("gate", run, GATE).code == 0
    code, out, _ = run_cli("gate", run, GATE, "--strict")
    first, second, last = out.splitlines()
    assert code == 1
    assert first.startswith("fail  warnings <= 0 ")
    assert first.endswith(MEANT)
    assert second.startswith("pass  mean(estimator=mc, sigma=8) >= 0.01")
    assert last == "fail: of 2 gates 1 passed, 1 failed; intervals 95 %, each gate alone" + ONLY
    assert run_cli("gate", silent, GATE, "--strict").code == 0


# --- estimate


def test_estimate_strict(tmp_path: Path, run_cli: RunCli, refuse: Refuse, golden: Golden) -> None:
    path = write(tmp_path, spec())
    code, out, err = run_cli(
        "estimate",
        path,
        "--out",
        "run",
        "--gate",
        GATE,
        "--strict",
        "--report",
        "r.md",
        "--junit",
        "gates.xml",
    )
    assert code == 1
    golden.lines(err)  # the interim analysis: no need for further draws
    assert out.splitlines()[-1].startswith("fail: of 2 gates 1 failed, 1 inconclusive")
    assert "sigma 8 is 8 times" in (tmp_path / "r.md").read_text()
    assert (tmp_path / "gates.xml").read_text().count("<failure") == 1
    assert run_cli("gate", "run").code == 1  # the run remembers what it was sampled for
    refuse("estimate", path, "--strict")


@pytest.mark.parametrize(("gate", "code"), [("mean >= 0.999", 1), ("mean >= 0.001", 0)])
def test_junit_decides_the_gates_of_the_spec(
    gate: str, code: int, tmp_path: Path, run_cli: RunCli
) -> None:
    """After an audit of all draws, so that it goes with a budget and with --extend."""
    path = write(tmp_path, spec(noise={"sigma": [0.5]}, gates=[gate]))
    command = ("estimate", path, "--out", "run", "--budget", "10m", "--junit", "gates.xml")
    done = run_cli(*command)
    assert done.code == code
    assert (tmp_path / "gates.xml").read_text().count("<failure") == code
    assert "to decide: robaudit gate" not in done.err
    assert done.out.splitlines()[-1].startswith("fail" if code else "pass")
    assert run_cli("estimate", path, "--out", "run").code == 0, "without --junit they only inform"


def test_files_beside_the_run(tmp_path: Path, run_cli: RunCli, refuse: Refuse) -> None:
    path = write(tmp_path, spec(noise={"sigma": [0.5]}, gates=["mean >= 0.999"]))
    (tmp_path / "r.md").write_text("of an earlier audit")
    files = ("--report", "r.md", "--junit", "gates.xml")
    assert run_cli("estimate", path, "--out", "run", "--until-decided", "--quiet", *files).code == 1
    assert "### Gates of the run" in (tmp_path / "r.md").read_text()
    assert (tmp_path / "gates.xml").read_text().count("<failure") == 1

    without = write(tmp_path, spec(noise={"sigma": [0.5]}), "without.yaml")
    refuse("estimate", without, "--junit", "x.xml")
    refuse("estimate", path, "--report", "none/x.html")
    refuse("estimate", path, "--until-decided", "--junit", "none/x.xml")
    refuse("estimate", "spec.yaml", "--until-decided", "--junit", "spec.yaml")
    both = ("--report", "r.md", "--junit", tmp_path / "r.md")
    refuse("estimate", path, "--until-decided", *both)
    assert "### Gates of the run" in (tmp_path / "r.md").read_text()


def test_a_place_that_takes_no_files_is_refused_before_the_audit(
    tmp_path: Path, refuse: Refuse, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(**_: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr("tempfile.TemporaryFile", full)
    path = write(tmp_path, spec(noise={"sigma": [0.5]}))
    refuse("estimate", path, "--report", "x.html", "--out", "r")


def test_an_audit_that_ends_early_leaves_no_older_report(tmp_path: Path, run_cli: RunCli) -> None:
    path = write(tmp_path, spec(dataset={"kind": "npz", "path": "none.npz"}))
    (tmp_path / "r.html").write_text("of an earlier audit")
    assert run_cli("estimate", path, "--report", "r.html").code == 2
    assert not (tmp_path / "r.html").exists()
