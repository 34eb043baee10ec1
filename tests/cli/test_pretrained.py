"""Models of timm and Transformers by their folder alone."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from tests.conftest import RunCli
from tests.golden import Golden
from tests.unit.models.pictures import CLASSES
from tests.unit.models.test_timm import home as timm_home
from tests.unit.models.test_transformers import home as transformers_home

__all__ = ["timm_home", "transformers_home"]


def test_a_model_of_timm(timm_home: Path, tmp_path: Path, run_cli: RunCli, golden: Golden) -> None:
    for name in ("test_resnet", "images"):
        (tmp_path / name).symlink_to(timm_home / name)
    code, _, err = run_cli(
        "init",
        "spec.yaml",
        "--model",
        "test_resnet",
        "--data",
        "images",
        "--draws",
        "4",
        "--no-check",
    )
    assert code == 0, err
    assert (
        '# the rest, the size of images and the class names are from "test_resnet/config.json"'
        in (tmp_path / "spec.yaml").read_text()
    )
    code, _, err = run_cli("estimate", "spec.yaml", "--out", "run")
    assert code == 0, err
    golden.lines(err)
    recorded = json.loads((tmp_path / "run" / "run.json").read_text())
    assert recorded["spec"]["model"]["architecture"] == "timm:test_resnet"
    assert recorded["spec"]["dataset"]["class_names"] == list(CLASSES)


def test_a_model_of_transformers_with_gradients_and_an_unnamed_head(
    transformers_home: Path, tmp_path: Path, run_cli: RunCli, golden: Golden
) -> None:
    """By path alone; classes that nobody named (LABEL_0) get no names, and the folders' order
    counts."""
    shutil.copytree(transformers_home / "vit", tmp_path / "vit")
    (tmp_path / "images").symlink_to(transformers_home / "images")
    config = json.loads((tmp_path / "vit" / "config.json").read_text())
    config["id2label"] = {str(index): f"LABEL_{index}" for index in range(3)}
    config["dtype"] = "float16"
    (tmp_path / "vit" / "config.json").write_text(json.dumps(config))
    (tmp_path / "spec.yaml").write_text(
        "model: {path: vit}\ndataset: {kind: images, path: images}\nnoise: {sigma: "
        "0.02}\nestimators: [taylor]\n"
    )
    code, _, err = run_cli("estimate", "spec.yaml", "--out", "run")
    assert code == 0, err
    golden.lines(err)
    recorded = json.loads((tmp_path / "run" / "run.json").read_text())
    assert recorded["spec"]["dataset"]["class_names"] is None
    config["layer_norm_eps"] = 0.1  # another network with the same weights
    (tmp_path / "vit" / "config.json").write_text(json.dumps(config))
    code, _, err = run_cli("verify", "run")
    assert code == 2
    golden.lines(err)
