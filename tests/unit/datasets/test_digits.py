"""The embedded digits: their split, ids and pixels."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
from sklearn.datasets import load_digits

from robaudit.datasets import open_dataset
from robaudit.datasets.dataset import Dataset
from robaudit.datasets.digits import DigitsSpec


def opened(split: Literal["train", "test", "all"]) -> Dataset:
    return open_dataset(DigitsSpec(kind="digits", split=split), base_dir=Path(), trust=False)


def test_the_split_is_stratified_and_complete() -> None:
    ids = {
        split: [dataset.sample_id(i) for i in range(len(dataset))]
        for split, dataset in ((s, opened(s)) for s in ("train", "test", "all"))
    }
    assert (len(ids["train"]), len(ids["test"]), len(ids["all"])) == (1078, 719, 1797)
    assert not set(ids["train"]) & set(ids["test"])
    assert set(ids["train"]) | set(ids["test"]) == set(ids["all"])
    assert all(names == sorted(names, key=int) for names in ids.values())
    labels = opened("test").labels()
    assert labels is not None
    counts = np.bincount(labels)
    assert counts.min() >= 70
    assert counts.max() <= 73


def test_pixels() -> None:
    dataset = opened("train")
    source = load_digits()
    sample = dataset[100]
    assert sample.pixels.shape == (1, 8, 8)
    assert np.array_equal(sample.pixels[0].numpy() * 16, source.images[int(sample.id)])
    assert sample.label == source.target[int(sample.id)]
    assert dataset.class_names == tuple("0123456789")
