"""Invalid specs and options: one line, exit 2, nothing written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cli.conftest import Refuse
from tests.conftest import RunCli
from tests.golden import Golden
from tests.specs import NETWORK, digits, write

FILES = {
    "wrong YAML": "model: [1, 2\nnoise: }",
    "key twice": "model:\n  path: a\nmodel:\n  path: b\n",
    "self-reference": "model: &a [*a]",
    "Python object": "model: !!python/object/apply:os.system ['touch canary']",
}


@pytest.mark.parametrize("text", FILES.values(), ids=list(FILES))
def test_unreadable_file(text: str, tmp_path: Path, refuse: Refuse) -> None:
    refuse("estimate", write(tmp_path, text))


def test_missing_file_names_its_neighbour(tmp_path: Path, refuse: Refuse) -> None:
    write(tmp_path, digits(), "cifar.yaml")
    refuse("estimate", "cifra.yaml")


def test_too_large(tmp_path: Path, refuse: Refuse) -> None:
    refuse("estimate", write(tmp_path, "#" * (2**20 + 1)))


def without(section: str) -> dict[str, Any]:
    return {key: value for key, value in digits().items() if key != section}


def renamed(section: str, key: str, wrong: str) -> dict[str, Any]:
    document = digits(run={"seed": 0})
    document[section] = {
        wrong if name == key else name: value for name, value in document[section].items()
    }
    return document


DOCUMENTS: dict[str, dict[str, Any]] = {
    "no model": without("model"),
    "no dataset": without("dataset"),
    "no noise": without("noise"),
    "unknown section": {**without("noise"), "nois": {"sigma": 1}},
    "unknown noise key": renamed("noise", "sigma", "sigm"),
    "model is text": digits(model="model.pt"),
    "model without path": digits(model={"mean": [0.5]}),
    "model format": digits(model={**NETWORK, "format": "keras"}),
    "limit and sample": digits(dataset={"kind": "digits", "limit": 3, "sample": {"size": 3}}),
    "noise without levels": digits(noise={"clip": True}),
    "noise of another level": digits(noise={"eps": 0.1}),
    "noise level": digits(noise={"sigma": [0.1, 2000]}),
    "noise is empty": {**digits(), "noise": None},
    "no estimator": digits(estimators=[]),
    "unknown estimator": digits(estimators=["taylorr"]),
    "missing dash": digits(estimators=[{"mc": None, "draws": 9}]),
    "odd number of samples": digits(estimators=[{"mmse": {"draws": 5}}]),
    "constant": digits(estimators=[{"margin_radius": {"lipschitz": {"source": "x"}}}]),
    "noise of a radius": digits(noise=None, estimators=[{"radius_attack": {"noise": "gaussian"}}]),
    "precision": digits(run={"precision": "fp16"}),
    "device": digits(run={"device": "tpu"}),
}


@pytest.mark.parametrize("document", DOCUMENTS.values(), ids=list(DOCUMENTS))
def test_invalid_document(document: dict[str, Any], tmp_path: Path, refuse: Refuse) -> None:
    refuse("estimate", write(tmp_path, document))


@pytest.mark.parametrize("sigma", [".nan", "[0.1, 0]", "[8/255, 0.1, 8/255]", "[]"])
def test_invalid_sigma(sigma: str, tmp_path: Path, refuse: Refuse) -> None:
    text = yaml.safe_dump(without("noise")) + f"noise:\n  sigma: {sigma}\n"
    line = refuse("estimate", write(tmp_path, text))
    assert f"spec.yaml:{len(text.splitlines())}: " in line, "the line of the key is named"


def test_no_cuda(tmp_path: Path, refuse: Refuse, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    refuse(
        "estimate",
        write(tmp_path, digits()),
        "--device",
        "cuda",
    )


OPTIONS = {
    "unknown command": ["estimat"],
    "no spec": ["estimate"],
    "unknown option": ["estimate", "ok.yaml", "--limt", "3"],
    "--on-error": ["estimate", "ok.yaml", "--on-error", "ignore"],
    "--sigma 0": ["estimate", "ok.yaml", "--sigma", "0"],
    "--set without value": ["estimate", "ok.yaml", "--set", "mc.draws"],
    "--set without option": ["estimate", "ok.yaml", "--set", "mc=3"],
    "--set not YAML": ["estimate", "ok.yaml", "--set", "model.mean=[0.5"],
    "--sigma alone": ["estimate", "ok.yaml", "--sigma"],
    "another case": ["estimate", "ok.yaml", "--estimator", "Logit-Gaussian"],
    "--report": ["estimate", "ok.yaml", "--report", "x"],
    "--set of text": ["estimate", "ok.yaml", "--set", 'noise.sigma="0.02, 0.05"'],
    "--set beyond the list": ["estimate", "ok.yaml", "--set", "estimators.9=mc"],
}


@pytest.mark.parametrize("args", OPTIONS.values(), ids=list(OPTIONS))
def test_invalid_option(args: list[str], tmp_path: Path, refuse: Refuse) -> None:
    write(tmp_path, digits(), "ok.yaml")
    refuse(*args)


def test_a_folder_that_takes_no_files_is_refused_before_the_model_runs(
    tmp_path: Path, refuse: Refuse
) -> None:
    """Without a model, which an audit would miss first."""
    write(tmp_path, digits(model={"path": "none.pt"}), "ok.yaml")
    for out in ("ok.yaml/run", "/proc/run"):
        assert out in refuse("estimate", "ok.yaml", "--out", out)


def test_a_missing_file_is_not_a_folder(tmp_path: Path, refuse: Refuse) -> None:
    write(tmp_path, digits(model={"path": "net.pt"}), "ok.yaml")
    (tmp_path / "net").mkdir()
    assert "'net'" not in refuse("estimate", "ok.yaml")
    (tmp_path / "nets.pt").touch()
    assert "did you mean 'nets.pt'?" in refuse("estimate", "ok.yaml")


def test_no_command_prints_the_help(run_cli: RunCli, golden: Golden) -> None:
    code, out, err = run_cli()
    assert code == 2
    golden.lines(err)
    assert "flag-samples" in out
