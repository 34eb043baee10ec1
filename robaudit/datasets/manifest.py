"""How does a CSV file of image paths become a data set?"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from robaudit.datasets.base import Labels, Sample
from robaudit.datasets.class_labels import class_indices
from robaudit.datasets.decode import read_image
from robaudit.datasets.files import find
from robaudit.datasets.manifest_scan import scan
from robaudit.files import expanded
from robaudit.spec.model import ManifestSpec


class ManifestDataset:
    """Rows of a CSV file (UTF-8, commas) with the columns path and, if wanted, label and id; others are left alone.

    Paths are relative to the CSV file or absolute, and may lead anywhere, but only to regular files. A sample's id is its id,
    or its path as written. An empty label is none. Every row is found in the file anew: a million rows need about 12 MB.
    """

    def __init__(self, spec: ManifestSpec, *, base_dir: Path) -> None:
        self.where, self._spec = spec.path, spec
        path = find(spec.path, base_dir, "file")
        self._folder = path.parent
        self._table = scan(path, self.where)
        indices, names = class_indices(self._table.labels, self.where, spec.class_names)
        self.class_names: tuple[str, ...] | None = names
        by_code = np.array([*(indices[text] for text in self._table.labels), -1], dtype=np.int64)  # code -1 is the last entry
        self._by_code = by_code if "label" in self._table.places else None

    def __len__(self) -> int:
        return len(self._table)

    def sample_id(self, index: int) -> str:
        """The row's id, or its path as written."""
        return self._table.row(index)[1]

    def labels(self) -> Labels | None:
        """The class of every row (-1: none), looked up anew, or None without a label column."""
        return None if self._by_code is None else self._by_code[np.frombuffer(self._table.codes, dtype=np.int32)]

    def __getitem__(self, index: int) -> Sample:
        """Decode the image of one row.

        Raises:
            SampleError: it cannot be decoded.
        """
        path, sample_id = self._table.row(index)
        pixels = read_image(self._folder / expanded(path), f"{self.where}, {path}", self._spec)
        label = -1 if self._by_code is None else int(self._by_code[self._table.codes[index]])
        return Sample(sample_id, pixels, None if label < 0 else label)
