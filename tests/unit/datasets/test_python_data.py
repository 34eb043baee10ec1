"""A Python function as a data set: trust, imports, items, and every way it can be wrong."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from robaudit.datasets.dataset import Dataset
from tests.golden import Golden
from tests.unit.datasets import reading

MODULE = """
import torch

def plain(n=3, side=4):
    return [(torch.full((1, side, side), i / 10), i) for i in range(n)]

class Named(list):
    ids, class_names = ["x", "y", "z"], ["cat", "dog", "owl"]

def named(): return Named(plain())
def a_set(): return {1, 2}
def raises(): raise ValueError("no data\\ntoday")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "audited_images.py").write_text(MODULE)
    (tmp_path / "audited_broken.py").write_text("1 / 0")
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith("audited_")]:
        del sys.modules[name]


def opened(
    folder: Path, function: str, module: str = "audited_images", trust: bool = True, **more: Any
) -> Dataset:
    return reading.opened(folder, trust=trust, kind="python", target=f"{module}:{function}", **more)


def message(folder: Path, function: str, module: str = "audited_images", trust: bool = True) -> str:
    return reading.refusal(folder, trust=trust, kind="python", target=f"{module}:{function}")


def test_code_needs_trust(folder: Path, golden: Golden) -> None:
    golden(message(folder, "plain", trust=False))
    assert "audited_images" not in sys.modules


def test_items_and_options(folder: Path) -> None:
    dataset = opened(folder, "plain", options={"n": 5}, limit=4)
    assert len(dataset) == 4
    assert [dataset.sample_id(i) for i in range(4)] == ["0", "1", "2", "3"]
    assert dataset.labels() is None
    assert dataset[3].label == 3
    torch.testing.assert_close(
        dataset[3].pixels, torch.full((1, 4, 4), 0.3, dtype=torch.float64), rtol=0, atol=1e-6
    )


def test_ids_and_class_names_of_the_collection(folder: Path) -> None:
    dataset = opened(folder, "named", sample={"size": 2, "seed": 0})
    assert dataset.class_names == ("cat", "dog", "owl")
    assert [(dataset[i].id, dataset[i].label) for i in range(2)] == [
        (dataset.sample_id(i), "xyz".index(dataset.sample_id(i))) for i in range(2)
    ]


@pytest.mark.parametrize(
    ("function", "module"),
    [
        ("plian", "audited_images"),
        ("a_set", "audited_images"),
        ("raises", "audited_images"),
        ("f", "audited_nowhere"),
        ("f", "audited_broken"),
        ("f()", "audited_images"),
    ],
)
def test_wrong_targets(folder: Path, function: str, module: str, golden: Golden) -> None:
    before = list(sys.path)
    golden(message(folder, function, module))
    assert sys.path == before
