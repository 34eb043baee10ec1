"""Open the data set of a spec."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from robaudit.datasets.dataset import Dataset, refuse_controls
from robaudit.datasets.select import Selected, choose
from robaudit.errors import DataError
from robaudit.plugins import BrokenContractError, blaming, shown
from robaudit.spec.model import BaseDatasetSpec


def open_dataset(spec: BaseDatasetSpec, *, base_dir: Path, trust: bool) -> Dataset:
    """Open the data set of a spec and select its samples; no image is read yet.

    Args:
        spec: the dataset section.
        base_dir: the base of its relative paths.
        trust: whether Python code named in the spec may run (``--trust``).

    Raises:
        DataError: the data set is missing, damaged or not as the spec says.
    """
    names = spec.class_names
    if names is not None and len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise DataError("dataset.class_names", f"{twice!r} appears twice", "names must differ")
    if names is not None and spec.class_ids is not None and len(spec.class_ids) != len(names):
        raise DataError(
            "dataset.class_ids",
            f"has {len(spec.class_ids)} entries for {len(names)} class_names",
            "give one for each class",
        )
    whole = open_whole(spec, base_dir, trust=trust)
    return Selected(whole, choose(whole, spec), names)


_MEMBERS = ("where", "sample_id", "labels", "__len__", "__getitem__")
"""The members that the data set of a plugin must have."""


def open_whole(spec: BaseDatasetSpec, base_dir: Path, *, trust: bool) -> Dataset:
    """The whole data set.

    Raises:
        DataError: it is missing, damaged or not as the spec says.
        PluginError: a plugin raised an exception, or opened something else.
    """
    with blaming(f"data set kind {spec.kind}", type(spec)):
        whole: Dataset = spec.open(base_dir, trust=trust)
        if not all(hasattr(whole, name) for name in _MEMBERS):
            raise BrokenContractError(f"open() returned {shown(whole)}, not a Dataset")
    return whole


def column_of(
    spec: BaseDatasetSpec, name: str, *, base_dir: Path, ids: Sequence[str]
) -> dict[str, str]:
    """The values of a column of a data set, by sample id; no code runs, and nothing is downloaded.

    Raises:
        DataError: the column is missing, or lacks a sample.
    """
    if type(spec).column is BaseDatasetSpec.column:
        # The kind has no columns, and this raises. Opening it first could run code or download.
        spec.column(name, base_dir)
    whole = open_whole(spec, base_dir, trust=False)
    index_of = {whole.sample_id(index): index for index in range(len(whole))}
    missing = [sample_id for sample_id in ids if sample_id not in index_of]
    if missing:
        raise DataError(
            whole.where,
            f"no longer has a sample {missing[0]!r}",
            "name the spec of the right data: --data SPEC.yaml",
        )
    values = spec.column(name, base_dir)
    if len(values) != len(whole):
        raise DataError(
            whole.where,
            f"{name!r} has {len(values):,} values for {len(whole):,} images",
            "it needs one for each image",
        )
    what = f"value of {name}"
    return {
        sample_id: refuse_controls(values[index_of[sample_id]].strip(), whole.where, what)
        for sample_id in ids
    }
