"""The handwritten digits of scikit-learn, and the split held out for testing."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from robaudit.datasets.base import Labels, Sample
from robaudit.datasets.decode import as_pixels
from robaudit.spec.model import DigitsSpec

TEST_SHARE = 0.4
SPLIT_SEED = 20


def split_indices(targets: NDArray[np.int64], split: Literal["train", "test", "all"]) -> Labels:
    """The indices of one split, in increasing order: of every class, a seeded random 40 % is the test split.

    The generator is NumPy's legacy one, whose stream is frozen: the split is the same with every version.
    """
    if split == "all":
        return np.arange(len(targets), dtype=np.int64)
    rng = np.random.RandomState(SPLIT_SEED)
    chosen = []
    for label in np.unique(targets):
        order = rng.permutation(np.flatnonzero(targets == label))
        test = round(TEST_SHARE * len(order))
        chosen.append(order[:test] if split == "test" else order[test:])
    return np.sort(np.concatenate(chosen)).astype(np.int64)


class DigitsDataset:
    """1,797 digits of 1 x 8 x 8 pixels (0 to 16 in the source); a sample's id is its index among all of them."""

    class_names: tuple[str, ...] | None = tuple("0123456789")

    def __init__(self, spec: DigitsSpec) -> None:
        from sklearn.datasets import load_digits

        source = load_digits()
        targets = np.asarray(source.target, dtype=np.int64)
        self.where = f"digits ({spec.split})"
        self._indices = split_indices(targets, spec.split)
        self._images = np.asarray(source.images, dtype=np.float64)[self._indices]
        self._labels = targets[self._indices]

    def __len__(self) -> int:
        return len(self._indices)

    def sample_id(self, index: int) -> str:
        """The index among all 1,797 digits, as text, whatever the split."""
        return str(self._indices[index])

    def labels(self) -> Labels | None:
        """The digits themselves."""
        return self._labels

    def __getitem__(self, index: int) -> Sample:
        """One digit."""
        pixels = as_pixels(self._images[index], f"{self.where}, sample {index}", scale=16.0)
        return Sample(self.sample_id(index), pixels, int(self._labels[index]))
