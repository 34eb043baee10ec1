"""The data set behind every kind: a sequence of items, decoded on demand."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from robaudit.datasets.class_names import as_label
from robaudit.datasets.dataset import Labels, Sample
from robaudit.errors import SampleError
from robaudit.python_code import describe

if TYPE_CHECKING:
    from torch import Tensor


READ_LOCK = threading.RLock()
"""Lock around reads by code of a program or library that may not be thread-safe.

Reentrant, because a data set in memory may read samples of another one.
"""


class ImageSet:
    """Images with their labels and ids, read on demand.

    Args:
        where: its name in messages.
        items: images by index, or, with ``parts``, samples.
        decode: returns the pixels of an image; its second argument is the sample's name in
            messages.
        labels: class indices (n,), -1 for none; None: no labels, or labels in the samples, unknown
            until they are read.
        ids: by index; default: the index as text.
        class_names: by class index.
        parts: splits a sample into image and label; its second argument is the sample's name in
            messages.
        turned: whether an image is turned upright as it is decoded, from the arguments of
            ``decode``; None: no image is.
        parallel: whether several threads may read items at once.
        notes, warnings: lines for the user about how the data were read, and about what was left
            out.
    """

    def __init__(
        self,
        where: str,
        items: Any,
        decode: Callable[[Any, str], Tensor],
        *,
        labels: Labels | None = None,
        ids: Sequence[str] | None = None,
        class_names: tuple[str, ...] | None = None,
        parts: Callable[[Any, str], tuple[Any, Any]] | None = None,
        turned: Callable[[Any, str], bool] | None = None,
        parallel: bool = True,
        notes: tuple[str, ...] = (),
        warnings: tuple[str, ...] = (),
    ) -> None:
        self.where = where
        self.class_names = class_names
        self.notes = notes
        self.warnings = warnings
        self._items = items
        self._decode = decode
        self._labels = labels
        self._ids = ids
        self._parts = parts
        self._turned = turned
        self._parallel = parallel

    def __len__(self) -> int:
        return len(self._items)

    def sample_id(self, index: int) -> str:
        """The id, or the index as text."""
        # Makes a negative index positive, and raises IndexError beyond the end, so that a `for`
        # loop over the data set ends.
        index = range(len(self))[index]
        return str(index) if self._ids is None else self._ids[index]

    def labels(self) -> Labels | None:
        """All labels, or None if they are not known without reading images."""
        return self._labels

    def __getitem__(self, index: int) -> Sample:
        """Read one sample.

        Raises:
            SampleError: its image is unusable, its label is not a class, or reading it raises an
                exception.
        """
        sample_id = self.sample_id(index)
        where = f"{self.where}, sample {sample_id}"
        image, label = self._image_and_label(index, where)
        if self._labels is not None:
            label = self._labels[index]
        # Outside the lock of `_item`: several threads may decode at once.
        pixels = self._decode(image, where)
        return Sample(sample_id, pixels, as_label(label, where, self.class_names))

    def is_turned(self, index: int) -> bool:
        """Whether a file's own orientation turns the image upright as it is read."""
        if self._turned is None:
            return False
        where = f"{self.where}, sample {self.sample_id(index)}"
        return self._turned(self._image_and_label(index, where)[0], where)

    def _image_and_label(self, index: int, where: str) -> tuple[Any, Any]:
        item = self._item(index, where)
        return (item, None) if self._parts is None else self._parts(item, where)

    def _item(self, index: int, where: str) -> Any:
        lock = contextlib.nullcontext() if self._parallel else READ_LOCK
        try:
            with lock:
                return self._items[index]
        except Exception as error:  # noqa: BLE001  libraries and programs may raise anything
            raise SampleError(
                where, f"raised {describe(error)}", "repair or leave out this sample"
            ) from None


def sample_parts(
    item: Any, where: str, keys: tuple[str, str | None] = ("", None)
) -> tuple[Any, Any]:
    """Split a sample into image and label.

    A sample is an image, a pair (image, label), or a mapping. Without a label, the second value is
    None.

    Args:
        item: the sample.
        where: its name, for messages.
        keys: the keys of image and label in a mapping; None: no label.

    Raises:
        SampleError: it has another form.
    """
    if isinstance(item, Mapping):
        image_key, label_key = keys
        missing = [key for key in keys if key is not None and key not in item]
        if missing:
            raise SampleError(
                where, f"has no {missing[0]!r}", f"it has {', '.join(map(str, item))}"
            )
        image = item[image_key]
        return image, None if label_key is None else item[label_key]
    if isinstance(item, tuple | list):
        if not item:
            raise SampleError(where, "is empty", "samples are images, (image, label) or mappings")
        # A tuple may have further parts, which an audit does not need.
        return item[0], item[1] if len(item) > 1 else None
    return item, None
