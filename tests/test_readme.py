"""What the README shows runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from robaudit import AuditSpec
from tests.levels import sigma
from tests.unit.api.nets import arrays, network

README = (Path(__file__).resolve().parents[1] / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


def test_the_spec_is_a_valid_one() -> None:
    (text,) = blocks("yaml")
    spec = AuditSpec.model_validate(yaml.safe_load(text))
    assert spec.levels == (sigma(0.05), sigma(8 / 255))


def test_the_python_api_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"net": network(), "dataset": arrays(30), "mean": 0.0, "std": 1.0}
    exec(blocks("python")[0], names)  # noqa: S102 - the README's own code
    assert names["run"].gate().verdict == "pass"
    assert len(names["run"].to_pandas()) == 2 * 30
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def test_no_placeholder_is_left() -> None:
    assert "@@" not in README
