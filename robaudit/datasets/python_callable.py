"""A collection that the user's Python function returns, as a data set."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from robaudit.datasets.dataset import Dataset
from robaudit.errors import DataError
from robaudit.python_code import describe, user_function
from robaudit.settings import TRUST
from robaudit.spec.model import BaseDatasetSpec


class PythonDatasetSpec(BaseDatasetSpec):
    """A Python function that returns an indexable collection of (pixels, label); needs --trust."""

    kind: Literal["python"] = "python"
    target: str = Field(description="package.module:function")
    options: dict[str, Any] = Field(default_factory=dict)

    def open(self, base_dir: Path, *, trust: bool) -> Dataset:
        """Call ``function(**options)``; samples are as in :func:`robaudit.audit`.

        The collection's attributes ``class_names`` and ``ids`` are used if present.

        Raises:
            DataError: the code is not trusted, raises an exception, or returns something else.
        """
        # Imports torch, which reading a spec does not need.
        from robaudit.datasets.in_memory import open_in_memory

        if not trust:
            remedy = (
                "pass "
                + TRUST
                + " if you trust the code, or write the images to a .npz file (kind npz)"
            )
            raise DataError(self.target, "is Python code, which runs only when trusted", remedy)
        with user_function(self.target, base_dir, partial(DataError, self.target)) as function:
            try:
                items: Any = function(**self.options)
                len(items)
            except Exception as error:  # noqa: BLE001  the user's code may raise anything
                raise DataError(
                    self.target,
                    f"raised {describe(error)}",
                    "it must return a collection with len() and items",
                ) from None
        if not hasattr(items, "__getitem__"):
            raise DataError(
                self.target,
                f"returned {type(items).__name__}, which cannot be indexed",
                "return a list or a data set",
            )
        names = getattr(items, "class_names", None)
        ids = getattr(items, "ids", None)
        return open_in_memory(items, self.target, class_names=names, ids=ids)
