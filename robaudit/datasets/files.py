"""Image files on disk, with labels, as a data set."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from robaudit.datasets.arrays import ArrayDataset
from robaudit.datasets.base import Labels
from robaudit.spec.model import ImageOptions

if TYPE_CHECKING:
    from torch import Tensor


class FileDataset(ArrayDataset):
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
        super().__init__(where[0], paths, labels, ids=paths if ids is None else ids, class_names=class_names)
        self._before, self._folder, self._root, self._options = where[1], folder, root, options

    def _pixels(self, index: int, where: str) -> Tensor:
        from robaudit.datasets.decode import read_image  # imports torch, which reading a spec does not need

        path = self._images[index]
        return read_image(self._folder / path, self._before + name_text(path), self._options, self._root)


def name_text(name: str) -> str:
    """A file name as text that can be written: bytes that are not UTF-8 and lone surrogates become escapes."""
    if name.isascii():
        return name
    try:
        return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    except UnicodeEncodeError:
        return name.encode("utf-8", "backslashreplace").decode()
