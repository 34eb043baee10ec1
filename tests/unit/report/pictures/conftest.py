"""A run with something to show for every picture."""

from __future__ import annotations

from pathlib import Path

import pytest

from robaudit import audit
from robaudit.runs.run import Run
from robaudit.stats.reading import read_run
from tests.specs import digits, write

LEVELS = [0.5, 1.0, 2.0, 4.0, 8.0]


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the run."""
    where = tmp_path_factory.mktemp("pictures")
    document = digits(
        limit=10,
        run={"as_given": True},  # levels beyond the range of the pixels
        noise=[
            {"kind": "gaussian", "sigma": LEVELS},
            {"kind": "corruption", "name": ["contrast", "pixelate"], "severity": [1, 2, 3, 4, 5]},
        ],
        estimators=[
            {"mc": {"draws": 20}},
            "softmax",
            {"difficulty": {"target": "label"}},
            {"noise_tolerance": {"noise": "gaussian", "tolerance": 1, "most": 1000}},
            {"certified_radius": {"draws": 30, "noise": "gaussian"}},
            {"qnorm_mc": {"draws": 20, "q": [1, 10], "noise": "gaussian"}},
            {
                "radius_pgd": {
                    "label": "pgd",
                    "norm": "l2",
                    "step": 1.0,
                    "cap": 3.0,
                    "steps": 3,
                    "restarts": 1,
                }
            },
        ],
    )
    return audit(write(where, document), out=where / "run").path


@pytest.fixture(scope="session")
def made(folder: Path) -> Run:
    """The run."""
    return read_run(folder)
