"""A collection that the user's Python function returns, as a data set."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from robaudit.datasets.image_set import ONE_BY_ONE, ImageSet
from robaudit.errors import DataError
from robaudit.python_code import describe, user_function
from robaudit.spec.model import BaseDatasetSpec


class PythonDatasetSpec(BaseDatasetSpec):
    """A Python function that returns an indexable collection of (pixels, label) or (pixels, label, id); needs --trust."""

    kind: Literal["python"] = "python"
    target: str = Field(description="package.module:function")
    options: dict[str, Any] = Field(default_factory=dict)

    def open(self, base_dir: Path, *, trust: bool) -> ImageSet:
        """Call ``function(**options)``; samples are as in :func:`robaudit.audit`, or have their id as a third element.

        The first readable sample shows whether they have ids, which are read on demand. The collection's attribute ``class_names`` is
        used if present.

        Raises:
            DataError: the code is not trusted, raises an exception, or returns something else.
        """
        from robaudit.datasets.in_memory import Reading, collection, first_readable  # imports torch, which reading a spec does not need

        if not trust:
            remedy = "pass --trust if you trust the code, or write the images to a .npz file (kind npz)"
            raise DataError(self.target, "is Python code, which runs only when trusted", remedy)
        with user_function(self.target, base_dir, partial(DataError, self.target)) as function:
            try:
                items: Any = function(**self.options)
                len(items)
            except Exception as error:  # noqa: BLE001  the user's code may raise anything
                raise DataError(self.target, f"raised {describe(error)}", "it must return a collection with len() and items") from None
        if not hasattr(items, "__getitem__"):
            raise DataError(self.target, f"returned {type(items).__name__}, which cannot be indexed", "return a list or a data set")
        first = first_readable(items)
        ids = OwnIds(self.target, items) if isinstance(first, tuple | list) and len(first) == 3 else None
        return collection(self.target, items, Reading(class_names=getattr(items, "class_names", None)), ids, items)


class OwnIds:
    """Ids from the third elements of samples, read on demand.

    Args:
        where: the data set, for messages.
        items: the samples.
    """

    def __init__(self, where: str, items: Any) -> None:
        self._where, self._items = where, items
        self._ids, self._indices = dict[int, str](), dict[str, int]()

    def __getitem__(self, index: int) -> str:
        """The id of a sample; its index as text if it cannot be read.

        Raises:
            DataError: another sample has the same id.
        """
        if index not in self._ids:
            try:
                with ONE_BY_ONE:
                    name = str(self._items[index][2])
            except Exception:  # noqa: BLE001  the user's code may raise anything
                name = str(index)
            if (other := self._indices.setdefault(name, index)) != index:
                raise DataError(self._where, f"items {other} and {index} have the same id {name!r}", "ids must differ")
            self._ids[index] = name
        return self._ids[index]
