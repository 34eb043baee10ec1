"""The handwritten digits of scikit-learn, and the split held out for testing."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from robaudit.datasets.dataset import Labels
from robaudit.datasets.image_set import ImageSet
from robaudit.spec.model import BaseDatasetSpec

TEST_SHARE = 0.4
SPLIT_SEED = 20


class DigitsSpec(BaseDatasetSpec):
    """scikit-learn's handwritten digits, 1 x 8 x 8, 10 classes: embedded, needs no file."""

    kind: Literal["digits"] = "digits"
    split: Literal["train", "test", "all"] = "test"

    def open(self, base_dir: Path, *, trust: bool) -> ImageSet:
        """Open the split; ids are indices among all 1,797 digits."""
        # Imports torch, which reading a spec does not need.
        from robaudit.datasets.decode import as_pixels

        all_images, targets = _digits()
        chosen = split_indices(targets, self.split)
        images = all_images[chosen]  # (n, 8, 8), from 0 to 16
        decode = functools.partial(as_pixels, scale=16.0)
        ids = [str(index) for index in chosen]
        return ImageSet(
            f"digits ({self.split})",
            images,
            decode,
            labels=targets[chosen],
            ids=ids,
            class_names=tuple("0123456789"),
        )


@functools.cache
def _digits() -> tuple[NDArray[np.float64], Labels]:
    """Images (1,797, 8, 8) and classes, from the text file of scikit-learn."""
    from sklearn.datasets import load_digits

    source = load_digits()
    return np.asarray(source.images, dtype=np.float64), np.asarray(source.target, dtype=np.int64)


def split_indices(targets: NDArray[np.int64], split: Literal["train", "test", "all"]) -> Labels:
    """The indices of one split, in increasing order.

    A seeded random 40 % of every class is the test split. The generator is NumPy's legacy one,
    whose stream is frozen: every version gives the same split.

    Args:
        targets: the classes of all digits (n,).
        split: which indices to return.
    """
    if split == "all":
        return np.arange(len(targets), dtype=np.int64)
    rng = np.random.RandomState(SPLIT_SEED)
    chosen = []
    for label in np.unique(targets):
        order = rng.permutation(np.flatnonzero(targets == label))
        test_size = round(TEST_SHARE * len(order))
        chosen.append(order[:test_size] if split == "test" else order[test_size:])
    return np.sort(np.concatenate(chosen)).astype(np.int64)
