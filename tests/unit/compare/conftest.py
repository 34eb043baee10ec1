"""Runs to compare: the embedded networks on the same digits."""

from __future__ import annotations

from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from robaudit import audit
from robaudit.runs.run import Run
from robaudit.stats.reading import read_run
from tests.specs import digits, located

Make = Callable[..., Path]
ESTIMATORS = [{"mc": {"draws": 120}}, "taylor"]


@pytest.fixture(scope="session")
def make(tmp_path_factory: pytest.TempPathFactory) -> Make:
    """Audit an embedded network ("digits_cnn", "digits_cnn_noise"), once for each set of
    options."""
    folder = tmp_path_factory.mktemp("compared")
    made: dict[str, Path] = {}

    def run(weights: str = "digits_cnn", **options: Any) -> Path:
        name = f"{weights}-{options}".replace("/", "_")
        if name not in made:
            options = {"limit": 40, "noise": {"sigma": [0.3]}, "estimators": ESTIMATORS, **options}
            path = str(files("robaudit.demo") / f"{weights}.safetensors")
            document = digits(**options) | {
                "model": {"path": path, "architecture": "robaudit:digits_cnn"}
            }
            spec = located(document, folder, weights)
            made[name] = audit(spec, out=folder / f"run{len(made)}").path
        return made[name]

    return run


@pytest.fixture(scope="session")
def trained(make: Make) -> Run:
    """The network trained with noise."""
    return read_run(make("digits_cnn_noise"), kept=True)


@pytest.fixture(scope="session")
def ordinary(make: Make) -> Run:
    """The ordinary network."""
    return read_run(make(), kept=True)
