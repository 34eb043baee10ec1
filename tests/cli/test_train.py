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
from robaudit.methods.training import load_training, train, trainer, training_spec
from robaudit.methods.training.cross_entropy import CrossEntropy
from robaudit.methods.training.training_objective import Batch
from robaudit.models.architectures import mlp
from robaudit.stats.summary import summary_of
from tests.cli.conftest import Refuse
from tests.conftest import RunCli
from tests.golden import Golden
from tests.specs import save_npz, write

ROOT = Path(__file__).resolve().parents[2]
CODE = """
from torch import nn
def net(hidden=8):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, hidden), nn.ReLU(), nn.Linear(hidden, 10))
"""


def digits(**sections: Any) -> dict[str, Any]:
    """A training of a second on 200 digits, as a YAML document; ``sections`` replace whole sections
    (None: left out)."""
    document = {
        "network": {"architecture": "robaudit:digits_cnn"},
        "dataset": {"kind": "digits", "split": "train", "limit": 200},
        "epochs": 2,
        "batch_size": 50,
        "audit": {
            "dataset": {"kind": "digits", "limit": 20},
            "noise": {"sigma": [0.2]},
            "estimators": [{"mc": {"draws": 20}}],
        },
        **sections,
    }
    return {key: value for key, value in document.items() if value is not None}


def test_a_trained_model_is_audited_as_it_is(run_cli: RunCli, tmp_path: Path) -> None:
    whole = {"kind": "digits", "split": "train"}
    spec = digits(
        objective={"augmentation": {"noise": {"sigma": 0.3}}},
        dataset=whole,
        epochs=4,
        lr=0.005,
        schedule="cosine",
        seed=1,
    )
    spec["audit"]["dataset"]["limit"] = 200
    done = run_cli("train", write(tmp_path, spec, "noise.yaml"))
    assert (done.code, done.err) == (0, "")
    assert "robaudit estimate models/noise/audit.yaml" in done.out
    assert sorted(path.name for path in (tmp_path / "models" / "noise").iterdir()) == [
        "audit.yaml",
        "model.safetensors",
        "training.json",
    ]
    record = json.loads((tmp_path / "models" / "noise" / "training.json").read_text())
    assert record["accuracy"] > 0.9
    assert record["loss"] == sorted(record["loss"], reverse=True)
    audited = run_cli("estimate", "models/noise/audit.yaml", "-o", "run")
    assert audited.code == 0
    assert f"clean accuracy  {record['accuracy']:.1%}" in audited.out
    assert json.loads((tmp_path / "run" / "run.json").read_text())["name"] == "noise"


def test_the_same_command_again(
    run_cli: RunCli, tmp_path: Path, golden: Golden, refuse: Refuse
) -> None:
    path = write(tmp_path, digits())
    assert run_cli("train", path, "-o", "model").code == 0
    before = (tmp_path / "model" / "model.safetensors").stat().st_mtime_ns
    again = run_cli("train", path, "-o", "model")
    assert again.code == 0
    golden.lines(again.err)
    assert (tmp_path / "model" / "model.safetensors").stat().st_mtime_ns == before
    refuse("train", path, "-o", "model", "--set", "seed=5")


def test_an_orthogonal_network_is_audited_as_a_plain_one(run_cli: RunCli, tmp_path: Path) -> None:
    sizes = [64, 32, 10]
    network = {
        "architecture": "robaudit:mlp",
        "architecture_options": {"sizes": sizes},
        "orthogonal": True,
        "mean": 0.5,
        "std": 2.0,
    }
    audit = {"noise": {"sigma": [0.2]}, "estimators": ["margin_radius"]}
    path = write(
        tmp_path, digits(network=network, objective={"mscr": {"d": 0.3}}, lr=0.01, audit=audit)
    )
    assert run_cli("train", path, "-o", "model").code == 0
    plain = mlp(sizes)
    plain.load_state_dict(load_file(tmp_path / "model" / "model.safetensors"))
    assert torch.linalg.svdvals(plain[1].weight.detach()).amax() == pytest.approx(1.0, abs=1e-4)  # type: ignore[operator]
    assert run_cli("estimate", "model/audit.yaml", "-o", "run").code == 0
    assert {
        one.key.estimator.partition(":")[0] for one in summary_of(read_run(tmp_path / "run"))
    } == {"margin_radius"}


def test_files_of_the_training_spec_are_found_from_the_audit(
    run_cli: RunCli, tmp_path: Path
) -> None:
    (tmp_path / "specs").mkdir()
    save_npz(tmp_path / "specs" / "images.npz", count=30)
    path = write(
        tmp_path / "specs",
        digits(dataset={"kind": "npz", "path": "images.npz"}, audit=None, epochs=1, out="out"),
    )
    assert run_cli("train", path).code == 0
    written = yaml.safe_load((tmp_path / "specs" / "out" / "audit.yaml").read_text())
    assert written["dataset"] == {"kind": "npz", "path": str(tmp_path / "specs" / "images.npz")}
    assert (
        run_cli(
            "estimate",
            tmp_path / "specs" / "out" / "audit.yaml",
            "--set",
            "mc.draws=5",
            "-o",
            "run",
        ).code
        == 0
    )


def test_own_code_needs_trust(run_cli: RunCli, tmp_path: Path, refuse: Refuse) -> None:
    (tmp_path / "trained_net.py").write_text(CODE)
    path = write(
        tmp_path,
        digits(network={"architecture": "trained_net:net", "architecture_options": {"hidden": 5}}),
    )
    refuse("train", path, "-o", "model")
    assert run_cli("train", path, "-o", "model", "--trust").code == 0


MISTAKES: dict[str, dict[str, Any]] = {
    "unknown key": {"epoch": 3},
    "objective": {"objective": "pdg"},
    "option": {"objective": {"pgd": {"esp": 0.3}}},
    "two objectives": {"objective": {"pgd": {}, "mcr": {}}},
    "level": {"objective": {"augmentation": {"noise": {"sigma": [0.1, 0.2]}}}},
    "classes": {
        "network": {
            "architecture": "robaudit:digits_cnn",
            "architecture_options": {"num_classes": 4},
        }
    },
    "network": {"network": {"architecture": "robaudit:lenet"}},
    "images": {"network": {"architecture": "robaudit:mlp"}},
    "audit": {"audit": {"noise": {"sigma": [-1]}}},
    "estimator": {"audit": {"estimators": ["mcc"]}},
    "gate": {"audit": {"gates": ["mean(sigma=0.7) >= 0.5"]}},
}


@pytest.mark.parametrize("sections", MISTAKES.values(), ids=list(MISTAKES))
def test_a_mistake_is_one_line(sections: dict[str, Any], tmp_path: Path, refuse: Refuse) -> None:
    refuse("train", write(tmp_path, digits(**sections)))


def test_a_training_that_diverges_leaves_no_weights(
    run_cli: RunCli, tmp_path: Path, golden: Golden
) -> None:
    done = run_cli("train", write(tmp_path, digits(lr=1e30, optimizer="sgd")))
    assert (done.code, done.out) == (2, "")
    golden.lines(done.err)
    assert not list(tmp_path.rglob("*.safetensors"))


def test_settings(tmp_path: Path, refuse: Refuse) -> None:
    path = write(tmp_path, digits(objective={"pgd": {"eps": 0.1}}))
    spec = load_training(path, settings=["objective.pgd.eps=0.2", "epochs=1"])
    assert spec.objective.options == {"eps": 0.2}
    assert spec.epochs == 1
    refuse("train", path, "--set", "objective")


def test_without_labels(tmp_path: Path, refuse: Refuse) -> None:
    save_npz(tmp_path / "images.npz")
    refuse(
        "train",
        write(tmp_path, digits(dataset={"kind": "npz", "path": "images.npz", "labels_key": None})),
    )


class Faulty(CrossEntropy):
    """An objective of another package, whose loss raises an exception."""

    error: ClassVar[Exception]

    def loss(self, batch: Batch) -> Tensor:
        raise self.error


@pytest.mark.parametrize(
    "error",
    [KeyError("x"), torch.OutOfMemoryError("out of memory")],
    ids=lambda error: type(error).__name__,
)
def test_faults_of_an_objective(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, golden: Golden
) -> None:
    monkeypatch.setattr(Faulty, "error", error, raising=False)
    monkeypatch.setattr(trainer, "build_objective", lambda _: Faulty())
    with pytest.raises(RobauditError) as fault:
        train(training_spec(digits()), out=tmp_path / "model")
    golden(fault.value)


@pytest.mark.parametrize(
    "path", sorted((ROOT / "configs" / "training").iterdir()), ids=lambda path: path.stem
)
def test_ready_specs(path: Path, run_cli: RunCli, tmp_path: Path) -> None:
    shutil.copy(path, tmp_path)
    for part in ("train", "test"):
        save_npz(tmp_path / f"mnist_{part}.npz", count=20, shape=(1, 28, 28))
    small = ["--set", "epochs=1", "--set", "dataset.limit=20", "--set", "audit.dataset.limit=10"]
    if "mscr" in path.stem:
        small += ["--set", "network.architecture_options.sizes=[784, 16, 10]"]
    assert run_cli("train", path.name, *small).code == 0
    assert (tmp_path / "models" / path.stem / "audit.yaml").exists()
