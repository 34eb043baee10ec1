"""Invalid specs and options: one line, exit 2, nothing written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cli.conftest import Refuse
from tests.conftest import RunCli
from tests.specs import NETWORK, digits, write

FILES = {
    "wrong YAML": ("model: [1, 2\nnoise: }", "spec.yaml:2: not valid YAML"),
    "key twice": ("model:\n  path: a\nmodel:\n  path: b\n", "spec.yaml:3: not valid YAML: the key 'model' appears twice"),
    "self-reference": ("model: &a [*a]", "too many or too deeply nested values"),
    "Python object": ("model: !!python/object/apply:os.system ['touch canary']", "could not determine a constructor"),
}


@pytest.mark.parametrize(("text", "says"), FILES.values(), ids=list(FILES))
def test_unreadable_file(text: str, says: str, tmp_path: Path, refuse: Refuse) -> None:
    refuse("estimate", write(tmp_path, text), says=says)


def test_missing_file_names_its_neighbour(tmp_path: Path, refuse: Refuse) -> None:
    write(tmp_path, digits(), "cifar.yaml")
    refuse("estimate", "cifra.yaml", says="cifra.yaml: no such file; did you mean 'cifar.yaml'?")


def test_too_large(tmp_path: Path, refuse: Refuse) -> None:
    refuse("estimate", write(tmp_path, "#" * (2**20 + 1)), says="is larger than 1 MB")


def without(section: str) -> dict[str, Any]:
    return {key: value for key, value in digits().items() if key != section}


def renamed(section: str, key: str, wrong: str) -> dict[str, Any]:
    document = digits(run={"seed": 0})
    document[section] = {wrong if name == key else name: value for name, value in document[section].items()}
    return document


DOCUMENTS: dict[str, tuple[dict[str, Any], str]] = {
    "no model": (without("model"), "the key 'model' is missing; the trained network, for example"),
    "no dataset": (without("dataset"), "the key 'dataset' is missing; the labelled images, for example"),
    "no noise": (
        without("noise"),
        "the key 'noise' is missing, and mc needs it; what is done to the pixels, for example {sigma: [0.05, 8/255]}",
    ),
    "unknown section": ({**without("noise"), "nois": {"sigma": 1}}, "spec.yaml:10: unknown key 'nois'; did you mean 'noise'?"),
    "unknown noise key": (renamed("noise", "sigma", "sigm"), "the key 'noise.sigma' is missing; standard deviations in pixel units"),
    "model is text": (digits(model="model.pt"), "model: got 'model.pt'; must be a mapping (key: value)"),
    "model without path": (digits(model={"mean": [0.5]}), "model: needs a path"),
    "model format": (digits(model={**NETWORK, "format": "keras"}), "model.format: got 'keras'; must be 'torchscript', 'pt2'"),
    "limit and sample": (digits(dataset={"kind": "digits", "limit": 3, "sample": {"size": 3}}), "limit and sample cannot be combined"),
    "noise without levels": (digits(noise={"clip": True}), "spec.yaml:7: the key 'noise.sigma' is missing; standard deviations in pixel"),
    "noise of another level": (
        digits(noise={"eps": 0.1}),
        "spec.yaml:8: noise.eps: the level of gaussian is called sigma, not eps; write sigma: 0.1",
    ),
    "noise level": (
        digits(noise={"sigma": [0.1, 2000]}),
        "spec.yaml:8: noise.sigma: 2000 is not a level of gaussian; give one from 1e-06 to 1000",
    ),
    "noise is empty": ({**digits(), "noise": None}, "noise: is empty; must be a mapping"),
    "no estimator": (digits(estimators=[]), "estimators: must have at least 1 in the list"),
    "unknown estimator": (
        digits(estimators=["taylorr"]),
        "spec.yaml:11: estimators[0]: unknown estimator 'taylorr'; did you mean 'taylor'",
    ),
    "missing dash": (digits(estimators=[{"mc": None, "samples": 9}]), "an entry of the list has one key, the estimator's name"),
    "odd number of samples": (digits(estimators=[{"mmse": {"samples": 5}}]), "pairs need an even number of samples, got 5; take 6"),
    "constant": (digits(estimators=[{"margin_radius": {"lipschitz": {"source": "x"}}}]), "give the constant: l2, linf or both"),
    "noise of a radius": (digits(noise=None, estimators=[{"radius_attack": {"noise": "gaussian"}}]), "noise: it uses no noise"),
    "precision": (digits(run={"precision": "fp16"}), "run.precision: got 'fp16'; must be 'fp32', 'tf32', 'bf16' or 'fp64'"),
    "device": (
        digits(run={"device": "tpu"}),
        "run.device: unknown device 'tpu'; use cpu, cuda, cuda:N, several as cuda:0,cuda:1, ",
    ),
}


@pytest.mark.parametrize(("document", "says"), DOCUMENTS.values(), ids=list(DOCUMENTS))
def test_invalid_document(document: dict[str, Any], says: str, tmp_path: Path, refuse: Refuse) -> None:
    refuse("estimate", write(tmp_path, document), says=says)


SIGMAS = {
    ".nan": "noise.sigma[0]: got nan; must be a finite number",
    "[0.1, 0]": "noise.sigma[1]: got 0; must be greater than 0",
    "[8/255, 0.1, 8/255]": "noise.sigma: the same sigma appears twice",
    "[]": "noise.sigma: is empty, and mc needs a level",
}


@pytest.mark.parametrize(("sigma", "says"), SIGMAS.items(), ids=list(SIGMAS))
def test_invalid_sigma(sigma: str, says: str, tmp_path: Path, refuse: Refuse) -> None:
    text = yaml.safe_dump(without("noise")) + f"noise:\n  sigma: {sigma}\n"
    line = refuse("estimate", write(tmp_path, text), says=says)
    assert f"spec.yaml:{len(text.splitlines())}: " in line, "the line of the key is named"


def test_no_cuda(tmp_path: Path, refuse: Refuse, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    refuse(
        "estimate",
        write(tmp_path, digits()),
        "--device",
        "cuda",
        says="cuda was requested, but torch finds no CUDA device here; use cpu or auto",
    )


OPTIONS = {
    "unknown command": (["estimat"], "No such command 'estimat'. Did you mean 'estimate'"),
    "no spec": (["estimate"], "Missing argument 'SPEC.yaml'; see robaudit estimate --help"),
    "unknown option": (["estimate", "ok.yaml", "--limt", "3"], "--limt"),
    "--on-error": (["estimate", "ok.yaml", "--on-error", "ignore"], "'ignore' is not one of 'stop', 'skip'"),
    "--sigma 0": (
        ["estimate", "ok.yaml", "--sigma", "0"],
        "--sigma: '0' is not a positive number; give one noise level, such as 0.05 or 8/255",
    ),
    "--set without value": (
        ["estimate", "ok.yaml", "--set", "mc.samples"],
        "is not of the form key=value; for example --set mc.samples=2000",
    ),
    "--set without option": (
        ["estimate", "ok.yaml", "--set", "mc=3"],
        "does not name an option of the estimator; for example --set mc.samples=2000",
    ),
    "--set not YAML": (["estimate", "ok.yaml", "--set", "model.mean=[0.5"], "the value is not valid YAML; quote it"),
    "--sigma alone": (["estimate", "ok.yaml", "--sigma"], "Option '--sigma' requires an argument; see robaudit estimate --help"),
    "another case": (["estimate", "ok.yaml", "--estimator", "Logit-Gaussian"], "did you mean 'logit_gaussian'?"),
    "--report": (["estimate", "ok.yaml", "--report", "x"], "--report x: a report is HTML or Markdown; name a file that ends in .html or"),
    "--set beyond the list": (["estimate", "ok.yaml", "--set", "estimators.9=mc"], "9 is not an index of the list"),
}


@pytest.mark.parametrize(("args", "says"), OPTIONS.values(), ids=list(OPTIONS))
def test_invalid_option(args: list[str], says: str, tmp_path: Path, refuse: Refuse) -> None:
    write(tmp_path, digits(), "ok.yaml")
    refuse(*args, says=says)


def test_no_command_prints_the_help(run_cli: RunCli) -> None:
    code, out, err = run_cli()
    assert (code, err) == (2, "error: no command given; see robaudit --help\n")
    assert "flag-samples" in out
