"""What the README shows runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from robaudit import AuditSpec, Estimator, audit
from robaudit.noise.registry import build
from robaudit.spec.load import load_spec
from tests.estimators.tools import curved, values, work_on
from tests.levels import sigma
from tests.specs import digits

README = (Path(__file__).resolve().parents[1] / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


def test_the_spec_is_a_valid_one() -> None:
    text, _ = blocks("yaml")
    spec = AuditSpec.model_validate(yaml.safe_load(text))
    assert spec.levels == (sigma(0.05), sigma(8 / 255))


def test_the_list_of_noises_is_a_valid_one() -> None:
    spec = AuditSpec.model_validate({**digits(), **yaml.safe_load(blocks("yaml")[1])})
    assert [noise.label for noise in build(spec.noise, Path())] == ["gaussian", "night", "fog", "jpeg"]


def test_the_estimator_of_fifteen_lines_works() -> None:
    names: dict[str, Any] = {}
    exec(blocks("python")[1], names)  # noqa: S102 - the README's own code
    estimator = names["Margin"].model_validate({"factor": 2.0})
    assert isinstance(estimator, Estimator)
    estimates = values(estimator, work_on(curved()))
    assert {one.value for (one,) in estimates} <= {0.0, 1.0}


def test_the_python_api_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    text = "model: {path: m.safetensors, architecture: 'robaudit:digits_cnn'}\ndataset: {kind: digits, limit: 4}\n"
    Path("spec.yaml").write_text(text + "noise: {sigma: 0.1}\nestimators: [{mc: {samples: 20}}]\n", encoding="utf-8")
    import robaudit.demo

    folder = Path(robaudit.demo.__file__).parent
    Path("m.safetensors").write_bytes((folder / "digits_cnn.safetensors").read_bytes())
    names: dict[str, Any] = {}
    exec(blocks("python")[0], names)  # noqa: S102 - the README's own code
    assert capsys.readouterr().out.startswith("mc sigma 0.1 ")
    assert names["run"].path == Path("runs/mine")
    assert len(names["run"].rows) == len(audit(load_spec(Path("spec.yaml")), out="runs/mine").rows) == 4


def test_no_placeholder_is_left() -> None:
    assert "@@" not in README
