"""Data sets recognised by their paths (those that have all files of a form:
tests/unit/datasets/test_forms.py)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from robaudit.spec.model import recognised


def make(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")


@pytest.mark.parametrize(
    ("files", "written", "section"),
    [
        (["a.npz"], "a.npz", {"kind": "npz", "path": "a.npz"}),
        (["x/cat/a.png", "x/dog/b.png"], "x", {"kind": "images", "path": "x"}),
        (["x/train/cat/a.png", "x/val/cat/b.png"], "x", {"kind": "images", "path": "x"}),
        (["x/Train/cat/a.png", "x/Test/cat/b.png"], "x/", {"kind": "images", "path": "x"}),
        (["x/metadata.csv", "x/a.png"], "x", {"kind": "csv", "path": "x/metadata.csv"}),
        (["x/metadata.jsonl", "x/a.png"], "x/", {"kind": "hf", "path": "x/"}),
        (["x/train/a.png"], "x", {"kind": "images", "path": "x"}),
        (["x/0.tar", "x/1.tar"], "x", {"kind": "hf", "path": "x"}),
        (["x/train-0.tar", "x/train-1.tar", "x/val-0.tar"], "x", {"kind": "hf", "path": "x"}),
        (["x/train/0.tar", "x/test/0.tar"], "x", {"kind": "hf", "path": "x"}),
        (["x.tar.gz"], "x.tar.gz", {"kind": "hf", "path": "x.tar.gz"}),
        ([], "x/*.parquet", {"kind": "hf", "path": "x/*.parquet"}),
        (["x/0.parquet", "x/1.parquet"], "x", {"kind": "hf", "path": "x"}),
        (
            ["x/test/data-00000-of-00001.arrow", "x/dataset_dict.json"],
            "x",
            {"kind": "hf", "path": "x"},
        ),
        (["a.txt"], "a.txt", None),
    ],
)
def test_by_path(
    tmp_path: Path, files: list[str], written: str, section: dict[str, Any] | None
) -> None:
    make(tmp_path, *files)
    assert recognised(written, tmp_path) == section
