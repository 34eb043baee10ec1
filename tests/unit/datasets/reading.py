"""Data sets opened from the keys of a spec."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from robaudit.datasets import open_dataset
from robaudit.datasets.dataset import Dataset
from robaudit.errors import DataError
from robaudit.spec.model import DatasetSpec


def opened(folder: Path, **spec: Any) -> Dataset:
    """The data set of a spec; ``trust`` allows its Python code."""
    trust = spec.pop("trust", False)
    return open_dataset(
        TypeAdapter(DatasetSpec).validate_python(spec), base_dir=folder, trust=trust
    )


def refusal(folder: Path, **spec: Any) -> str:
    """The line that says why the data set of a spec cannot be opened."""
    with pytest.raises(DataError) as caught:
        opened(folder, **spec)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def ids(dataset: Dataset) -> list[str]:
    return [dataset.sample_id(index) for index in range(len(dataset))]


def labels(dataset: Dataset) -> list[int] | None:
    found = dataset.labels()
    return None if found is None else [int(label) for label in found]
