"""Open the data set of a spec."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from robaudit.datasets.base import Dataset
from robaudit.datasets.select import Selected, choose
from robaudit.errors import DataError
from robaudit.spec.model import DatasetSpec, DigitsSpec, MemorySpec, PythonDatasetSpec


def open_dataset(spec: DatasetSpec, *, base_dir: Path, trust: bool) -> Dataset:
    """Open the data set of a spec and choose the samples it asks for; no image is read yet.

    Args:
        spec: the dataset section.
        base_dir: the folder that its relative paths start from.
        trust: whether Python code named in the spec may run (``--trust``).

    Raises:
        DataError: the data set is missing, damaged or not as the spec says.
    """
    names = spec.class_names
    if names is not None and len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise DataError("dataset.class_names", f"{twice!r} appears twice", "names must differ")
    if names is not None and spec.class_ids is not None and len(spec.class_ids) != len(names):
        raise DataError("dataset.class_ids", f"has {len(spec.class_ids)} entries for {len(names)} class_names", "give one for each class")
    whole = _open_whole(spec, base_dir, trust)
    chosen = choose(whole, spec)
    if spec.kind == "python":
        _refuse_duplicates(whole, chosen)
    return Selected(whole, chosen, names)


_OF_FILES = {
    "npz": ("robaudit.datasets.npz", "NpzDataset"),
    "images": ("robaudit.datasets.images", "open_images"),
    "csv": ("robaudit.datasets.csv_file", "CsvDataset"),
    "hf": ("robaudit.datasets.hf", "HfDataset"),
    "torchvision": ("robaudit.datasets.torchvision_set", "TorchvisionDataset"),
}  # by kind: the module and what opens it there; imported when it is needed


def _open_whole(spec: DatasetSpec, base_dir: Path, trust: bool) -> Dataset:
    if isinstance(spec, MemorySpec):
        what = "the data were objects in the memory of a Python program, and are not kept"
        raise DataError("dataset", what, "pass them again: robaudit.audit(net, dataset, ..., out=RUN) checks that they are the same")
    if isinstance(spec, DigitsSpec):
        from robaudit.datasets.digits import DigitsDataset

        return DigitsDataset(spec)
    if isinstance(spec, PythonDatasetSpec):
        from robaudit.datasets.python_callable import PythonDataset

        return PythonDataset(spec, base_dir=base_dir, trust=trust)
    module, name = _OF_FILES[spec.kind]
    dataset: Dataset = getattr(import_module(module), name)(spec, base_dir=base_dir)
    return dataset


def _refuse_duplicates(dataset: Dataset, indices: Sequence[int]) -> None:
    """Check ids that come with the items among the chosen samples only, so that the others need not be read."""
    seen: dict[str, int] = {}
    for index in indices:
        first = seen.setdefault(dataset.sample_id(index), index)
        if first != index:
            raise DataError(dataset.where, f"items {first} and {index} have the same id {dataset.sample_id(index)!r}", "ids must differ")
