"""Image files on disk, with labels, as a data set."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from robaudit.datasets.base import Labels, Sample
from robaudit.spec.model import ImageOptions


class FileDataset:
    """Image files, decoded on request.

    Args:
        where: the data set's name in messages, also before a path.
        folder: the folder of relative paths.
        root: the folder that must contain the files, links followed.
        paths: of the image files.
        labels: of the files (-1: none); None without labels.
        options: for decoding.
        class_names: by class index.
        ids: by index; default: the paths.
    """

    def __init__(
        self,
        where: tuple[str, str],
        folder: Path,
        root: Path,
        paths: Sequence[str],
        labels: Labels | None,
        options: ImageOptions,
        class_names: tuple[str, ...] | None,
        ids: Sequence[str] | None = None,
    ) -> None:
        (self.where, self._before), self.class_names = where, class_names
        self._folder, self._root, self._paths, self._labels, self._options = folder, root, paths, labels, options
        self._ids = paths if ids is None else ids

    def __len__(self) -> int:
        return len(self._paths)

    def sample_id(self, index: int) -> str:
        """The id, or the path."""
        return self._ids[index]

    def labels(self) -> Labels | None:
        """The class of every file, or None without labels."""
        return self._labels

    def __getitem__(self, index: int) -> Sample:
        """Decode one image.

        Raises:
            SampleError: it cannot be decoded, or lies outside the root.
        """
        from robaudit.datasets.decode import read_image  # imports torch, which reading a spec does not need

        path, label = self._paths[index], -1 if self._labels is None else int(self._labels[index])
        pixels = read_image(self._folder / path, self._before + name_text(path), self._options, self._root)
        return Sample(self._ids[index], pixels, None if label < 0 else label)


def name_text(name: str) -> str:
    """A file name as text that can be written: bytes that are not UTF-8 and lone surrogates become escapes."""
    if name.isascii():
        return name
    try:
        return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    except UnicodeEncodeError:
        return name.encode("utf-8", "backslashreplace").decode()
