"""A collection that the user's Python function returns, as a data set."""

from __future__ import annotations

import threading
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from robaudit.datasets.base import Labels, Sample
from robaudit.datasets.decode import as_label, as_pixels
from robaudit.errors import DataError, SampleError
from robaudit.python_code import describe, user_function
from robaudit.spec.model import PythonDatasetSpec

_ONE_BY_ONE = threading.RLock()


class PythonDataset:
    """What ``package.module:function(**options)`` returns: ``len`` and items (pixels, label) or (pixels, label, id).

    Pixels are uint8, or floats in [0, 1], of shape (channels, height, width); labels are class indices or None.
    Either all items have an id or none has. Without ids, their indices serve; with ids, opening reads the chosen
    items once. The collection's attribute ``class_names`` is used where there is one.

    The user's code need not be thread-safe: only one thread calls it at a time.
    """

    def __init__(self, spec: PythonDatasetSpec, *, base_dir: Path, trust: bool) -> None:
        self.where = spec.target
        if not trust:
            remedy = "pass --trust if you trust the code, or write the images to a .npz file (kind npz)"
            raise DataError(self.where, "is Python code, which runs only when trusted", remedy)
        with user_function(spec.target, base_dir, partial(DataError, self.where)) as function:
            try:
                self._items: Any = function(**spec.options)
                self._length = len(self._items)
            except Exception as error:  # noqa: BLE001  the user's code may raise anything
                raise DataError(self.where, f"raised {describe(error)}", "it must return a collection with len() and items") from None
        if not hasattr(self._items, "__getitem__"):
            raise DataError(self.where, f"returned {type(self._items).__name__}, which cannot be indexed", "return a list or a data set")
        names = getattr(self._items, "class_names", None)
        self.class_names: tuple[str, ...] | None = None if names is None else tuple(str(name) for name in names)
        self._ids: dict[int, str] = {}
        self._parts = self._usual_parts()

    def __len__(self) -> int:
        return self._length

    def sample_id(self, index: int) -> str:
        """The index as text, or the item's own id where it has one; an unreadable item has its index."""
        index = range(len(self))[index]
        if self._parts != 3:
            return str(index)
        if index not in self._ids:
            try:
                self._ids[index] = str(self._item(index)[2])
            except SampleError:
                self._ids[index] = str(index)
        return self._ids[index]

    def labels(self) -> Labels | None:
        """None: labels are known when an item is read."""
        return None

    def __getitem__(self, index: int) -> Sample:
        """Read one item.

        Raises:
            SampleError: the user's code raised something, or the item is not (pixels, label[, id]).
        """
        index = range(len(self))[index]
        item, where = self._item(index), f"{self.where}, item {index}"
        if len(item) != self._parts:
            raise SampleError(where, f"has {len(item)} parts, the first item has {self._parts}", "give all items an id, or none")
        values, label = item[:2]
        if not isinstance(values, Tensor | np.ndarray):
            raise SampleError(where, f"pixels are {type(values).__name__}", "give a tensor or a NumPy array")
        if values.ndim == 3 and values.shape[-1] in (1, 3) and values.shape[0] not in (1, 3):
            raise SampleError(where, f"pixels have shape {tuple(values.shape)}", "put the channels first: (channels, height, width)")
        sample_id = str(item[2]) if self._parts == 3 else str(index)
        return Sample(sample_id, as_pixels(values, where), as_label(label, where))

    def _item(self, index: int) -> tuple[Any, ...]:
        where = f"{self.where}, item {index}"
        try:
            with _ONE_BY_ONE:
                item = self._items[index]
        except Exception as error:  # noqa: BLE001  the user's code may raise anything
            raise SampleError(where, f"raised {describe(error)}", "repair the function or the data") from None
        if not isinstance(item, tuple | list) or len(item) not in (2, 3):
            raise SampleError(
                where, f"is {type(item).__name__}, not a tuple of two or three", "items are (pixels, label) or (pixels, label, id)"
            )
        return tuple(item)

    def _usual_parts(self) -> int:
        """2 or 3: how many parts the first readable item has."""
        for index in range(len(self)):
            try:
                return len(self._item(index))
            except SampleError:
                continue
        return 2
