"""Select the samples of an audit: all, the first N, a seeded random subset, or given ids."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Sequence

import numpy as np

from robaudit.datasets.base import Dataset, Labels, Sample, refuse_controls
from robaudit.errors import DataError, SampleError, did_you_mean
from robaudit.spec.model import BaseDatasetSpec


def random_subset(total: int, size: int, seed: int) -> array[int]:
    """``size`` numbers of ``range(total)`` without replacement, in increasing order.

    The subset of a smaller size is part of the subset of a larger one with the same seed. It uses NumPy's legacy generator,
    whose stream is frozen: the same samples with every version.
    """
    words = np.frombuffer(hashlib.sha256(f"sample {seed}".encode()).digest(), dtype="<u4")
    order = np.random.RandomState(words.astype(np.uint32)).permutation(total)
    kind = "i" if total <= 2**31 else "q"  # four bytes each if possible
    return array(kind, np.sort(order[:size]).astype(kind).tobytes())


def choose(dataset: Dataset, spec: BaseDatasetSpec) -> Sequence[int]:
    """The indices selected by ``limit``, ``sample`` or ``ids``, in the order of the data set.

    Raises:
        DataError: the data set is empty, smaller than ``sample.size``, or lacks an id.
    """
    total = len(dataset)
    if total == 0:
        raise DataError(dataset.where, "has no samples", "give a data set with at least one")
    if spec.ids is not None:
        names = {dataset.sample_id(index): index for index in range(total)}
        if missing := [name for name in spec.ids if name not in names]:
            what = f"has no sample {missing[0]!r}" + (f", nor {len(missing) - 1} more of dataset.ids" if len(missing) > 1 else "")
            raise DataError(dataset.where, what, did_you_mean(missing[0], names))
        return sorted(names[name] for name in spec.ids)
    if spec.sample is None:
        return range(total if spec.limit is None else min(spec.limit, total))
    if spec.sample.size > total:
        raise DataError(dataset.where, f"sample.size {spec.sample.size} is larger than the data set ({total} samples)", f"at most {total}")
    return random_subset(total, spec.sample.size, spec.sample.seed)


class Selected:
    """The selected samples of a data set, all of the same shape, with the ids and labels of the whole set.

    Names in data of all kinds are checked here: each id and class name is a line of text without control
    characters.

    Args:
        whole: the data set.
        indices: of the selected samples, in order.
        class_names: the user's names by class index; default: the data set's.
    """

    def __init__(self, whole: Dataset, indices: Sequence[int], class_names: tuple[str, ...] | None = None) -> None:
        self._whole, self._indices = whole, indices
        self._class_names = class_names or whole.class_names
        for name in self._class_names or ():
            refuse_controls(name, self.where, "class name")
        self._first: tuple[str, tuple[int, ...]] | None = None
        labels = self.labels()
        if labels is not None and self._class_names is not None and int(labels.max()) >= len(self._class_names):
            index = int(labels.argmax())
            raise DataError(self.where, f"sample {self.sample_id(index)!r} {self._beyond(int(labels[index]))}", "add the missing names")

    def again(self, spec: BaseDatasetSpec) -> Selected:
        """Another selection from the same whole data set."""
        return Selected(self._whole, choose(self._whole, spec), self._class_names)

    @property
    def where(self) -> str:
        """The data set's name in messages."""
        return self._whole.where

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """Names by class index, if there are any."""
        return self._class_names

    def __len__(self) -> int:
        return len(self._indices)

    def sample_id(self, index: int) -> str:
        """The id of the sample, as in the whole data set.

        Raises:
            DataError: it has control characters.
        """
        return refuse_controls(self._whole.sample_id(self._indices[index]), self.where, "id")

    def labels(self) -> Labels | None:
        """The labels of the selected samples, if known without reading pixels."""
        labels = self._whole.labels()
        if labels is None or not isinstance(self._indices, range):
            return None if labels is None else labels[np.asarray(self._indices)]
        return labels[self._indices.start : self._indices.stop : self._indices.step]

    def __getitem__(self, index: int) -> Sample:
        """Read one sample.

        Raises:
            SampleError: it is unreadable, of another shape than the first readable one, or its label has no class name.
        """
        sample = self._whole[self._indices[index]]
        refuse_controls(sample.id, self.where, "id")
        shape = tuple(sample.pixels.shape)
        first_id, first_shape = self._reference(index, sample)
        if shape != first_shape:
            raise SampleError(
                f"{self.where}, sample {sample.id!r}",
                f"its shape is {shape}, but the first sample {first_id!r} has {first_shape}",
                "bring all to one shape: resize: [height, width] in the spec, or a transform such as Resize((224, 224))",
            )
        if sample.label is not None and self._class_names is not None and sample.label >= len(self._class_names):
            raise SampleError(f"{self.where}, sample {sample.id!r}", self._beyond(sample.label), "add the missing names")
        return sample

    def _reference(self, index: int, sample: Sample) -> tuple[str, tuple[int, ...]]:
        """Id and shape of the first readable sample in order, independent of the order of requests."""
        if self._first is None:
            for earlier in range(index):
                try:
                    found = self._whole[self._indices[earlier]]
                except SampleError:
                    continue
                self._first = found.id, tuple(found.pixels.shape)
                break
            else:
                if index < 0:  # a negative index: not known to be the first readable one
                    return self._reference(index + len(self), sample)
                self._first = sample.id, tuple(sample.pixels.shape)
        return self._first

    def _beyond(self, label: int) -> str:
        return f"has the label {label}, but class_names has {len(self._class_names or ())} names"
