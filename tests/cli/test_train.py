"""`robaudit train`: from a spec to weights that `robaudit estimate` takes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
import yaml
from safetensors.torch import load_file
from torch import Tensor

from robaudit import read_run
from robaudit.errors import RobauditError
from robaudit.methods.training import load_training, run, train, training_spec
from robaudit.methods.training.cross_entropy import CrossEntropy
from robaudit.methods.training.objective import Batch
from robaudit.models.architectures import mlp
from robaudit.stats.summary import summary_of
from tests.conftest import RunCli
from tests.specs import save_npz, write

ROOT = Path(__file__).resolve().parents[2]
CODE = """
from torch import nn
def net(hidden=8):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, hidden), nn.ReLU(), nn.Linear(hidden, 10))
"""


def digits(**sections: Any) -> dict[str, Any]:
    """A training of a second on 200 digits, as a YAML document; ``sections`` replace whole sections (None: left out)."""
    document = {
        "network": {"architecture": "robaudit:digits_cnn"},
        "dataset": {"kind": "digits", "split": "train", "limit": 200},
        "epochs": 2,
        "batch_size": 50,
        "audit": {"dataset": {"kind": "digits", "limit": 20}, "noise": {"sigma": [0.2]}, "estimators": [{"mc": {"samples": 20}}]},
        **sections,
    }
    return {key: value for key, value in document.items() if value is not None}


def test_a_trained_model_is_audited_as_it_is(run_cli: RunCli, tmp_path: Path) -> None:
    whole = {"kind": "digits", "split": "train"}
    spec = digits(objective={"augmentation": {"noise": {"sigma": 0.3}}}, dataset=whole, epochs=4, lr=0.005, schedule="cosine", seed=1)
    spec["audit"]["dataset"]["limit"] = 200
    done = run_cli("train", write(tmp_path, spec, "noise.yaml"))
    assert (done.code, done.err) == (0, "")
    assert "robaudit estimate models/noise/audit.yaml" in done.out
    assert sorted(path.name for path in (tmp_path / "models" / "noise").iterdir()) == ["audit.yaml", "model.safetensors", "training.json"]
    record = json.loads((tmp_path / "models" / "noise" / "training.json").read_text())
    assert record["accuracy"] > 0.9
    assert record["loss"] == sorted(record["loss"], reverse=True)
    audited = run_cli("estimate", "models/noise/audit.yaml", "-o", "run")
    assert audited.code == 0
    assert f"clean accuracy  {record['accuracy']:.1%}" in audited.out
    assert json.loads((tmp_path / "run" / "run.json").read_text())["name"] == "noise"


def test_the_same_command_again(run_cli: RunCli, tmp_path: Path) -> None:
    path = write(tmp_path, digits())
    assert run_cli("train", path, "-o", "model").code == 0
    before = (tmp_path / "model" / "model.safetensors").stat().st_mtime_ns
    again = run_cli("train", path, "-o", "model")
    assert (again.code, again.err) == (0, "note: model/model.safetensors is there already\n")
    assert (tmp_path / "model" / "model.safetensors").stat().st_mtime_ns == before
    other = run_cli("train", path, "-o", "model", "--set", "seed=5")
    assert other.code == 2
    assert "model/model.safetensors: is the result of another training; choose another folder with --out" in other.err


def test_an_orthogonal_network_is_audited_as_a_plain_one(run_cli: RunCli, tmp_path: Path) -> None:
    sizes = [64, 32, 10]
    network = {"architecture": "robaudit:mlp", "architecture_options": {"sizes": sizes}, "orthogonal": True, "mean": 0.5, "std": 2.0}
    audit = {"noise": {"sigma": [0.2]}, "estimators": ["margin_radius"]}
    path = write(tmp_path, digits(network=network, objective={"mscr": {"d": 0.3}}, lr=0.01, audit=audit))
    assert run_cli("train", path, "-o", "model").code == 0
    plain = mlp(sizes)
    plain.load_state_dict(load_file(tmp_path / "model" / "model.safetensors"))
    assert torch.linalg.svdvals(plain[1].weight.detach()).amax() == pytest.approx(1.0, abs=1e-4)  # type: ignore[operator]
    assert run_cli("estimate", "model/audit.yaml", "-o", "run").code == 0
    assert {one.key.estimator.partition(":")[0] for one in summary_of(read_run(tmp_path / "run"))} == {"margin_radius"}


def test_files_of_the_training_spec_are_found_from_the_audit(run_cli: RunCli, tmp_path: Path) -> None:
    (tmp_path / "specs").mkdir()
    save_npz(tmp_path / "specs" / "images.npz", count=30)
    path = write(tmp_path / "specs", digits(dataset={"kind": "npz", "path": "images.npz"}, audit=None, epochs=1, out="out"))
    assert run_cli("train", path).code == 0
    written = yaml.safe_load((tmp_path / "specs" / "out" / "audit.yaml").read_text())
    assert written["dataset"] == {"kind": "npz", "path": str(tmp_path / "specs" / "images.npz")}
    assert run_cli("estimate", tmp_path / "specs" / "out" / "audit.yaml", "--set", "mc.samples=5", "-o", "run").code == 0


def test_own_code_needs_trust(run_cli: RunCli, tmp_path: Path) -> None:
    (tmp_path / "trained_net.py").write_text(CODE)
    path = write(tmp_path, digits(network={"architecture": "trained_net:net", "architecture_options": {"hidden": 5}}))
    refused = run_cli("train", path, "-o", "model")
    assert refused.code == 2
    assert "is Python code and would run on this machine; pass --trust" in refused.err
    assert run_cli("train", path, "-o", "model", "--trust").code == 0


MISTAKES: dict[str, tuple[dict[str, Any], str]] = {
    "unknown key": ({"epoch": 3}, "spec.yaml:19: unknown key 'epoch'; did you mean 'epochs'?"),
    "objective": ({"objective": "pdg"}, "spec.yaml:19: objective: unknown objective 'pdg'; did you mean 'pgd'?"),
    "option": ({"objective": {"pgd": {"esp": 0.3}}}, "spec.yaml:21: unknown key 'objective.pgd.esp'; did you mean 'eps'?"),
    "two objectives": ({"objective": {"pgd": {}, "mcr": {}}}, "spec.yaml:19: objective: has one key, the objective's name"),
    "level": ({"objective": {"augmentation": {"noise": {"sigma": [0.1, 0.2]}}}}, "noise has 2 levels; give one"),
    "classes": (
        {"network": {"architecture": "robaudit:digits_cnn", "architecture_options": {"num_classes": 4}}},
        "the network gives 4 logits, and the labels have 10 classes; see architecture_options",
    ),
    "network": ({"network": {"architecture": "robaudit:lenet"}}, "architecture robaudit:lenet: there is no such network"),
    "images": ({"network": {"architecture": "robaudit:mlp"}}, "spec.yaml:1: network: cannot take images of 1 x 8 x 8"),
    "audit": ({"audit": {"noise": {"sigma": [-1]}}}, "spec.yaml:12: audit.noise.sigma[0]: got -1; must be greater than 0"),
    "estimator": ({"audit": {"estimators": ["mcc"]}}, "estimators[0]: unknown estimator 'mcc'; did you mean 'mc'?"),
    "gate": ({"audit": {"gates": ["mean(sigma=0.7) >= 0.5"]}}, "gate 'mean(sigma=0.7) >= 0.5': the run has no sigma 0.7; it has 0.1, 0.25"),
    "diverged": ({"lr": 1e30, "optimizer": "sgd"}, "the loss is nan; choose a smaller lr"),
}


@pytest.mark.parametrize(("sections", "says"), MISTAKES.values(), ids=list(MISTAKES))
def test_a_mistake_is_one_line(sections: dict[str, Any], says: str, run_cli: RunCli, tmp_path: Path) -> None:
    done = run_cli("train", write(tmp_path, digits(**sections)))
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert says in done.err
    assert not list(tmp_path.rglob("*.safetensors"))


def test_settings(run_cli: RunCli, tmp_path: Path) -> None:
    path = write(tmp_path, digits(objective={"pgd": {"eps": 0.1}}))
    spec = load_training(path, settings=["objective.pgd.eps=0.2", "epochs=1"])
    assert spec.objective.options == {"eps": 0.2}
    assert spec.epochs == 1
    wrong = run_cli("train", path, "--set", "objective")
    assert (wrong.code, wrong.err) == (2, "error: --set objective: is not of the form key=value; for example --set lr=0.01\n")


def test_without_labels(run_cli: RunCli, tmp_path: Path) -> None:
    save_npz(tmp_path / "images.npz")
    done = run_cli("train", write(tmp_path, digits(dataset={"kind": "npz", "path": "images.npz", "labels_key": None})))
    assert done.code == 2
    assert "sample '0' has no label; training needs one for each image" in done.err


class Faulty(CrossEntropy):
    """An objective of another package, whose loss raises an exception."""

    error: ClassVar[Exception]

    def loss(self, batch: Batch) -> Tensor:
        raise self.error


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (
            KeyError("x"),
            r"objective cross_entropy \(tests.cli.test_train:Faulty\): raised KeyError: 'x' \(test_train.py, line",
        ),
        (torch.OutOfMemoryError("out of memory"), "training: needs more memory than cpu has; choose a smaller batch_size"),
    ],
)
def test_faults_of_an_objective(error: Exception, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Faulty, "error", error, raising=False)
    monkeypatch.setattr(run, "build_objective", lambda _: Faulty())
    with pytest.raises(RobauditError, match=says):
        train(training_spec(digits()), out=tmp_path / "model")


@pytest.mark.parametrize("path", sorted((ROOT / "configs" / "training").iterdir()), ids=lambda path: path.stem)
def test_ready_specs(path: Path, run_cli: RunCli, tmp_path: Path) -> None:
    shutil.copy(path, tmp_path)
    for part in ("train", "test"):
        save_npz(tmp_path / f"mnist_{part}.npz", count=20, shape=(1, 28, 28))
    small = ["--set", "epochs=1", "--set", "dataset.limit=20", "--set", "audit.dataset.limit=10"]
    if "mscr" in path.stem:
        small += ["--set", "network.architecture_options.sizes=[784, 16, 10]"]
    assert run_cli("train", path.name, *small).code == 0
    assert (tmp_path / "models" / path.stem / "audit.yaml").exists()
