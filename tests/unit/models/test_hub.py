"""Models of the Hugging Face Hub: downloaded only where asked for, at a commit that the run keeps. Nothing is downloaded here."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from robaudit.errors import ModelError, RobauditError
from robaudit.models.pretrained import filled
from tests.conftest import RunCli
from tests.unit.models.pictures import audited, draw, spec_of

hub = pytest.importorskip("huggingface_hub")
timm = pytest.importorskip("timm")
COMMIT, NAME = "0123456789abcdef" * 2 + "01234567", "hf:someone/net"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with images, and the model that the Hub would have."""
    folder = tmp_path_factory.mktemp("hub")
    draw(folder / "images")
    with torch.random.fork_rng(devices=[]):
        network = timm.create_model("resnet18", num_classes=3)
    timm.models.save_for_hf(network, folder / "net", safe_serialization=True, data_config={"img_size": 32})
    return folder


@pytest.fixture
def asked(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The downloads that were asked for; each leaves what it matches in a cache."""
    calls: list[dict[str, Any]] = []
    cache = tmp_path / "cache" / "snapshots" / COMMIT

    def snapshot_download(name: str, *, revision: str | None, allow_patterns: list[str], local_files_only: bool = False) -> str:
        calls.append({"name": name, "revision": revision, "patterns": allow_patterns, "local": local_files_only})
        if local_files_only and not cache.is_dir():
            raise hub.errors.LocalEntryNotFoundError("not in the cache")
        if not local_files_only:
            cache.mkdir(parents=True, exist_ok=True)
            for path in (home / "net").iterdir():
                if path.name in allow_patterns:
                    shutil.copy(path, cache)
        return str(cache)

    monkeypatch.setattr(hub, "snapshot_download", snapshot_download)
    return calls


def test_the_commit_is_kept(home: Path, asked: list[dict[str, Any]]) -> None:
    spec = spec_of(home, f"path: '{NAME}', revision: main")
    assert spec.model.revision == COMMIT
    assert f"revision {COMMIT}" in spec.origin.taken[0]
    assert all("model.safetensors" not in call["patterns"] for call in asked)  # no weights before they are needed
    assert asked[0]["revision"] == "main"
    _, logits, _ = audited(spec)
    assert torch.equal(logits, audited(spec_of(home, "path: net"))[1])
    again = filled(spec)
    assert again.document() == spec.document()
    online = sum(not call["local"] for call in asked)
    audited(again)
    assert sum(not call["local"] for call in asked) == online  # a commit that is in the cache is not asked for again


def test_a_run_by_name(home: Path, tmp_path: Path, asked: list[dict[str, Any]], run_cli: RunCli) -> None:
    (tmp_path / "images").symlink_to(home / "images")
    code, _, err = run_cli("init", "--model", NAME, "--data", "images", "--samples", "4")
    assert code == 0, err
    code, _, err = run_cli("estimate", "audit.yaml", "--out", "run", "--estimator", "softmax")
    assert code == 0, err
    recorded = json.loads((tmp_path / "run" / "run.json").read_text())["spec"]["model"]
    assert (recorded["path"], recorded["revision"]) == (NAME, COMMIT)
    assert run_cli("verify", "run").code == 0
    assert {call["name"] for call in asked} == {"someone/net"}


def test_weights_without_a_configuration(home: Path, asked: list[dict[str, Any]]) -> None:
    """The commit is kept all the same."""
    (home / "net" / "config.json").rename(home / "config.json")
    try:
        spec = spec_of(home, f"path: '{NAME}', architecture: 'torchvision:resnet18', architecture_options: {{num_classes: 3}}")
        assert spec.model.revision == COMMIT
        assert spec.origin.taken == (f"from {NAME}: revision {COMMIT}",)
        with pytest.raises(ModelError, match="holds weights only; add architecture"):
            audited(spec_of(home, f"path: '{NAME}'", "kind: digits"))
    finally:
        (home / "config.json").rename(home / "net" / "config.json")
    assert asked


def fails(error: Exception) -> Callable[..., str]:
    def snapshot_download(*_: Any, **__: Any) -> str:
        raise error

    return snapshot_download


def test_without_a_network_or_a_model(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "snapshot_download", fails(ConnectionError("no route to host\nand more")))
    with pytest.raises(ModelError) as caught:
        spec_of(home, f"path: '{NAME}'")
    said = (
        "cannot be downloaded (ConnectionError: no route to host); check the name, the revision and the network; or give the local folder"
    )
    assert str(caught.value).startswith(f"{NAME}: {said}")
    with pytest.raises(ModelError, match=r"hf:net: is not of the form hf:org/name; for example hf:timm/resnet18\.a1_in1k"):
        spec_of(home, "path: 'hf:net'")
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(RobauditError, match=r"needs huggingface_hub, which is not installed; pip install 'robaudit\[hf\]'"):
        spec_of(home, f"path: '{NAME}'")


def test_the_library_itself_offline(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own refusal to reach for the network becomes one line."""
    monkeypatch.setattr(hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(hub.constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(ModelError, match=r"hf:someone/net: cannot be downloaded \(") as caught:
        spec_of(home, f"path: '{NAME}'")
    assert "\n" not in str(caught.value)
