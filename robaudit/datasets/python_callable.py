"""A collection that the user's Python function returns, as a data set."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from robaudit.errors import DataError
from robaudit.python_code import describe, user_function
from robaudit.spec.model import BaseDatasetSpec

if TYPE_CHECKING:
    from robaudit.datasets.in_memory import Items


class PythonDatasetSpec(BaseDatasetSpec):
    """A Python function that returns an indexable collection of (pixels, label) or (pixels, label, id); needs --trust."""

    kind: Literal["python"] = "python"
    target: str = Field(description="package.module:function")
    options: dict[str, Any] = Field(default_factory=dict)

    def open(self, base_dir: Path, *, trust: bool) -> Items:
        """Call ``function(**options)``; samples are as in :func:`robaudit.audit`, or have their id as a third element.

        Either all samples have an id or none has; with ids, the selected samples are read now. The collection's attribute ``class_names``
        is used if present.

        Raises:
            DataError: the code is not trusted, raises an exception, or returns no such collection.
        """
        from robaudit.datasets.in_memory import Items, Reading  # which imports torch

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
        return Items(self.target, items, None, Reading(class_names=getattr(items, "class_names", None)), {}, own_ids=True)
