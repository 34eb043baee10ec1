"""Class indices from the names of folders and classes, from texts, and from arrays."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from robaudit.datasets.dataset import Labels
from robaudit.errors import DataError, SampleError, did_you_mean
from robaudit.text import clipped

_MOST_SHOWN = 6  # names in a message
_IMAGENET = 1000  # classes, whose names come with an architecture of timm or torchvision
# Also signed and fractional numbers: these are refused as indices, and never taken for names.
_NUMBER = re.compile(r"[-+]?\d+(\.\d*)?", re.ASCII)
_MOST_DIGITS = 9  # of a class index: far more classes than any network has, and within int64


class ClassIndex:
    """Class indices by name.

    A text matches an id or a name exactly. Otherwise it matches a name or one of its synonyms
    (separated by commas), ignoring case and underscores: ``golden_retriever`` and ``Goldie`` both
    match "golden retriever, goldie". A text that fits several classes matches none.

    Args:
        names: by class index.
        ids: other names of the classes, by class index (synsets).
    """

    def __init__(self, names: Sequence[str], ids: Sequence[str] | None = None) -> None:
        self._total = len(names)
        self._exact = {name: index for index, name in enumerate(names)}
        # An id takes precedence over the same text as a name.
        self._exact.update({class_id: index for index, class_id in enumerate(ids or ())})
        # By folded name and synonym. Synonyms may be shared: ImageNet has two classes "crane".
        self._loose: dict[str, set[int]] = {}
        for index, name in enumerate(names):
            for text in (name, *name.split(",")):
                self._loose.setdefault(_folded(text), set()).add(index)

    def find(self, text: str) -> int | None:
        """The index of the class; None if there is none, or more than one."""
        if text in self._exact:
            return self._exact[text]
        indices = self._loose.get(_folded(text), set())
        return next(iter(indices)) if len(indices) == 1 else None

    def index(self, text: str, where: str, what: str) -> int:
        """The index of the class.

        Raises:
            DataError: there is no class, or more than one; ``what`` names the text.
        """
        index = self.find(text)
        if index is None:
            raise DataError(where, f"{what} is not in class_names", self.remedy(text))
        return index

    def remedy(self, text: str) -> str:
        """The remedy for an unknown text."""
        # The names of a fine-tuned network are its architecture's unless the spec has the number
        # of classes.
        fine_tuned = ""
        if self._total == _IMAGENET:
            fine_tuned = (
                "; or, if these are ImageNet's and the model has others, state "
                "model.architecture_options: {num_classes: ...}"
            )
        hint = did_you_mean(text, self._exact)
        if hint.startswith("did"):
            return f"{hint}; or write class_names in the order of the logits{fine_tuned}"
        names = sorted(self._exact)
        known = f"known: {', '.join(names[:_MOST_SHOWN])}"
        if len(names) > _MOST_SHOWN:
            known += f" and {len(names) - _MOST_SHOWN:,} more"
        remedy = (
            "rename it, or write class_names in the order of the logits (null: in the order "
            "of the folders' or labels' names)"
        )
        return f"{known}; {remedy}{fine_tuned}"


def _folded(text: str) -> str:
    """The text in lower case, with single blanks for underscores and other blanks."""
    return " ".join(text.replace("_", " ").casefold().split())


def text_labels(
    texts: Sequence[str],
    where: str,
    class_names: tuple[str, ...] | None,
    class_ids: tuple[str, ...] | None,
) -> tuple[Labels, tuple[str, ...] | None]:
    """Class indices from labels written as text; an empty text is no label.

    Texts that ``class_names`` has are names. Otherwise either all are class indices, or all are
    names, which are then sorted.

    Args:
        texts: one per image.
        where: the table's name in messages.
        class_names: the user's names by class index.
        class_ids: other names of the classes in labels.

    Returns:
        The labels (n,), -1 for none, and the class names (None if the labels are integers without
        names).

    Raises:
        DataError: negative or fractional numbers, names not in ``class_names``, or names mixed with
            integers.
    """
    present = [text for text in dict.fromkeys(texts) if text]
    numbers = [text for text in present if _NUMBER.fullmatch(text)]
    names = [text for text in present if not _NUMBER.fullmatch(text)]
    # Numbers are indices unless all of them are names: class 3 may be called "7".
    known_names = {*(class_names or ()), *(class_ids or ())}
    if class_names is not None and (names or known_names.issuperset(numbers)):
        classes = ClassIndex(class_names, class_ids)
        index = {text: classes.index(text, where, f"the label {text!r}") for text in present}
    elif names and numbers:
        raise DataError(
            where,
            f"mixes labels that are names ({names[0]!r}) and numbers ({numbers[0]!r})",
            "use one kind in the whole file",
        )
    elif names:
        class_names = tuple(sorted(names))
        index = {text: number for number, text in enumerate(class_names)}
    else:
        for text in numbers:
            if not text.isdecimal() or len(text.lstrip("0")) > _MOST_DIGITS:
                problem = f"the label {clipped(text, 60)!r} is not a class index"
                remedy = "class indices are 0, 1, 2, ...; leave it empty for none"
                raise DataError(where, problem, remedy)
        index = {text: int(text) for text in numbers}
    labels = np.fromiter((index.get(text, -1) for text in texts), np.int64, len(texts))
    return labels, class_names


def label_array(
    values: Any, where: str, total: int, class_names: Sequence[str] | None = None
) -> Labels:
    """Class indices from a list, an array, a tensor or a column of a table.

    Args:
        values: one for each image, as class indices or class names; None, NaN and -1: none.
        where: the data set, for messages.
        total: the number of images.
        class_names: by class index, for labels that are names.

    Returns:
        int64 (n,), -1 for none.

    Raises:
        DataError: the labels have another length, are not whole numbers, or are less than -1.
        SampleError: an entry of a list is not a label.
    """
    array = np.asarray(values.detach().cpu() if hasattr(values, "detach") else values)
    # A column of a matrix, as NumPy and MATLAB files have it.
    if array.shape[1:] == (1,):
        array = array[:, 0]
    if array.ndim != 1:
        raise DataError(
            where,
            f"the labels have shape {array.shape}",
            "they are (n,) class indices: labels.argmax(1)",
        )
    if len(array) != total:
        raise DataError(
            where, f"there are {total} images and {len(array)} labels", "give each image one"
        )
    # A column of integers with gaps is one of floats in pandas, with NaN in the gaps.
    if array.dtype.kind == "f":
        array = np.where(np.isnan(array), -1.0, array)
        array = array if (array % 1).any() else array.astype(np.int64)
    if array.dtype.kind not in "iu":
        entries = []
        for index, value in enumerate(array):
            label = as_label(value, f"{where}, label {index}", class_names)
            entries.append(-1 if label is None else label)
        array = np.array(entries)
    labels: Labels = array.astype(np.int64)
    if len(labels) and int(labels.min()) < -1:
        what = f"the label of sample {int(labels.argmin())} is {int(labels.min())}"
        raise DataError(where, what, "class indices start at 0; -1 is no label")
    return labels


def as_label(value: Any, where: str, class_names: Sequence[str] | None = None) -> int | None:
    """A label as a plain int, also from the name of a class; None and -1 are no label.

    Args:
        value: an integer, an array or tensor with one integer, or a name.
        where: the sample, for messages.
        class_names: by class index, for a name.

    Raises:
        SampleError: it is not an integer, or negative, or no class has this name.
    """
    if isinstance(value, str):
        if class_names is None:
            raise SampleError(
                where,
                f"the label is {value!r}, not a class index",
                "give class_names=[...], in the order of the logits",
            )
        if class_names.count(value) != 1:
            raise SampleError(
                where,
                f"the label {value!r} is not the name of one class",
                did_you_mean(value, class_names),
            )
        return class_names.index(value)
    # Scalars and arrays of one entry, of NumPy and of torch.
    if getattr(value, "shape", None) in ((), (1,)):
        value = value.item()
    # The exact type: a bool is an int in Python, and no class index.
    if value is None or (type(value) is int and value >= -1):
        return None if value == -1 else value
    text = repr(value) if len(repr(value)) < 40 else type(value).__name__
    raise SampleError(
        where,
        f"the label {text} is not a class index",
        "give 0, 1, 2, ..., and None or -1 for no label; not one-hot vectors",
    )
