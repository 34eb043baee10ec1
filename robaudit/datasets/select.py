"""Select the samples of an audit: all, the first N, a seeded random subset, or given ids."""

from __future__ import annotations

import contextlib
import hashlib
from array import array
from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np

from robaudit.datasets.dataset import Dataset, Labels, Sample, refuse_controls
from robaudit.datasets.image_set import ImageSet
from robaudit.errors import DataError, SampleError, ShapeError, did_you_mean
from robaudit.settings import IN_INIT
from robaudit.spec.model import BaseDatasetSpec


def random_subset(total: int, size: int, seed: int) -> array[int]:
    """``size`` indices drawn from ``range(total)`` without replacement, in increasing order.

    With the same seed, a smaller subset is part of a larger subset. NumPy's legacy generator has a
    frozen stream: every version draws the same samples.
    """
    # "<u4": the same seed on machines of either byte order. The prefix separates this stream from
    # other uses of the same seed.
    digest = hashlib.sha256(f"sample {seed}".encode()).digest()
    seed_words = np.frombuffer(digest, dtype="<u4").astype(np.uint32)
    # A beginning of one permutation, so that subsets of one seed are nested.
    order = np.random.RandomState(seed_words).permutation(total)
    # A selection may have millions of indices: four bytes each if possible.
    typecode = "i" if total <= 2**31 else "q"
    return array(typecode, np.sort(order[:size]).astype(typecode).tobytes())


def choose(dataset: Dataset, spec: BaseDatasetSpec) -> Sequence[int]:
    """The indices selected by ``limit``, ``sample`` or ``ids``, in the order of the data set.

    Raises:
        DataError: the data set is empty, smaller than ``sample.size``, or lacks an id.
    """
    total = len(dataset)
    if total == 0:
        raise DataError(dataset.where, "has no samples", "give a data set with at least one")
    if spec.ids is not None:
        index_of = {dataset.sample_id(index): index for index in range(total)}
        missing = [sample_id for sample_id in spec.ids if sample_id not in index_of]
        if missing:
            problem = f"has no sample {missing[0]!r}"
            if len(missing) > 1:
                problem += f", nor {len(missing) - 1} more of dataset.ids"
            raise DataError(dataset.where, problem, did_you_mean(missing[0], index_of))
        return sorted(index_of[sample_id] for sample_id in spec.ids)
    if spec.sample is None:
        return range(total if spec.limit is None else min(spec.limit, total))
    if spec.sample.size > total:
        raise DataError(
            dataset.where,
            f"sample.size {spec.sample.size} is larger than the data set ({total} samples)",
            f"at most {total}",
        )
    return random_subset(total, spec.sample.size, spec.sample.seed)


class Selected:
    """The selected samples of a data set, with their ids and labels in the whole set.

    Three checks hold for all kinds of data: all images have one shape; ids and class names are
    lines of text without control characters; labels have a class name if there are any.

    Args:
        whole: the data set.
        indices: of the selected samples, in order.
        class_names: the user's names by class index; default: the data set's.

    Attributes:
        notes, warnings: lines for the user, from data sets that have them.
    """

    def __init__(
        self, whole: Dataset, indices: Sequence[int], class_names: tuple[str, ...] | None = None
    ) -> None:
        self._whole = whole
        self._indices = indices
        self.where = whole.where
        self.class_names = class_names or whole.class_names
        self.notes: tuple[str, ...] = ()
        self.warnings: tuple[str, ...] = ()
        # The interface of plugins has no notes and warnings.
        if isinstance(whole, ImageSet | Selected):
            self.notes = whole.notes
            self.warnings = whole.warnings
        # The user's own names are in the order that the user wants.
        if class_names is None:
            self.notes += tuple(_order_notes(self.where, self.class_names or ()))
        for name in self.class_names or ():
            refuse_controls(name, self.where, "class name")
        # Labels that are known without reading images are all checked before the audit begins;
        # others as their samples are read.
        labels = self.labels()
        if labels is not None:
            self._refuse_beyond(int(labels.argmax()), int(labels.max()), DataError)

    def further(self, size: int) -> Selected | None:
        """A random subset of the samples of the whole data set that are not selected, at most
        ``size``; None if there are none."""
        rest = np.setdiff1d(np.arange(len(self._whole)), np.asarray(self._indices))
        chosen = rest[np.asarray(random_subset(len(rest), size, 0))]
        return Selected(self._whole, chosen.tolist(), self.class_names) if len(chosen) else None

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
        indices = self._indices
        if labels is None:
            return None
        selected: Labels
        # A slice is a view; an array of indices would copy the labels.
        if isinstance(indices, range):
            selected = labels[indices.start : indices.stop : indices.step]
        else:
            selected = labels[np.asarray(indices)]
        return selected

    def is_turned(self, index: int) -> bool:
        """Whether a file's own orientation turns the image upright as it is read."""
        if not isinstance(self._whole, ImageSet | Selected):
            return False
        return self._whole.is_turned(self._indices[index])

    def __getitem__(self, index: int) -> Sample:
        """Read one sample.

        Raises:
            SampleError: it is unreadable, differs in shape from the first readable sample, or its
                label has no class name.
        """
        sample = self._whole[self._indices[index]]
        name = self.sample_id(index)
        # The shape of the first sample, in whatever order samples are read: which ones are
        # refused must not depend on workers or on an interruption.
        first_id, first_shape = self._first
        shape = tuple(sample.pixels.shape)
        if shape != first_shape:
            what = f"its shape is {shape}, but the first sample {first_id!r} has {first_shape}"
            remedy = (
                "resize the shorter side and crop, as in training: resize: 256 and crop: 224 in "
                "the spec" + IN_INIT + ", or transforms such as Resize(256) and CenterCrop(224)"
            )
            raise ShapeError(f"{self.where}, sample {name!r}", what, remedy)
        if sample.label is not None:
            self._refuse_beyond(index, sample.label, SampleError)
        return sample

    @cached_property
    def _first(self) -> tuple[str, tuple[int, ...]]:
        """Id and shape of the first readable sample."""
        for index in self._indices:
            with contextlib.suppress(SampleError):
                sample = self._whole[index]
                return sample.id, tuple(sample.pixels.shape)
        raise SampleError(self.where, "no sample can be read a second time", "repair the data set")

    def _refuse_beyond(self, index: int, label: int, error: type[DataError]) -> None:
        """Refuse the label of a sample if it has no class name."""
        if self.class_names is not None and label >= len(self.class_names):
            what = f"has the label {label}, but class_names has {len(self.class_names)} names"
            raise error(
                f"{self.where}, sample {self.sample_id(index)!r}", what, "add the missing names"
            )


def _order_notes(where: str, names: Sequence[str]) -> Iterator[str]:
    """A note on class names that are numbers in the order of texts: 0, 1, 10, 11, 2."""
    numbers = [int(name) for name in names if name.isdecimal()]
    if len(numbers) < len(names) or numbers == sorted(numbers):
        return
    in_order = enumerate(sorted(numbers))
    index = next(index for index, number in in_order if number != numbers[index])
    yield (
        f"{where}: class {index} is called {names[index]!r}: the numbers are sorted as text; "
        "class_names sets another order"
    )
