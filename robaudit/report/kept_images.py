"""Images of the least robust samples that a run on data in memory keeps in its folder, for reports and galleries."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Literal

import numpy as np

from robaudit.datasets.base import Dataset, Labels, Sample
from robaudit.datasets.image_set import ImageSet
from robaudit.datasets.npz import NpzSpec
from robaudit.errors import DataError, RobauditError, SampleError
from robaudit.files import write_atomically
from robaudit.store.run import Run

NAME = "images.npz"
_MOST_OF_A_GROUP = 60  # as a report shows
_MOST_VALUES = 2**26  # pixel values in all: 64 MB before compression


def keep_images(run: Run, dataset: Dataset) -> None:
    """Write the images of the least robust samples of each estimator and noise level to the run folder, with 8 bits a value.

    Values outside [0, 1] are cut off. Nothing is written if the folder has them already; an extended run may need others.

    Args:
        run: a finished run.
        dataset: its data.
    """
    path = run.path / NAME
    wanted = dict.fromkeys(_least_robust(run))
    if path.exists() and wanted.keys() <= _kept_ids(run.path):
        return
    index = {name: i for i in range(len(dataset)) if (name := dataset.sample_id(i)) in wanted}
    ids, images, room = list[str](), [], _MOST_VALUES
    for name in wanted:
        try:
            pixels = dataset[index[name]].pixels if name in index else None
        except SampleError:
            continue
        if pixels is None or pixels.numel() > room:
            continue
        room -= pixels.numel()
        ids.append(name)
        images.append((pixels.clamp(0, 1) * 255).round().numpy().astype(np.uint8))
    if images:
        sink = io.BytesIO()
        names = np.frombuffer(json.dumps(ids).encode(), dtype=np.uint8)
        np.savez_compressed(sink, images=np.stack(images), ids=names.reshape(1, 1, -1))
        write_atomically(path, sink.getvalue())


class KeptImages:
    """The kept images of a run as a data set without labels; an empty one where the run kept none.

    Raises:
        DataError: the file is damaged.
    """

    class_names: tuple[str, ...] | None = None

    def __init__(self, folder: Path) -> None:
        self.where = str(folder / NAME)
        self._images: ImageSet | None = None
        self._ids: Sequence[str] = ()
        if not (folder / NAME).exists():
            return
        if (folder / NAME).is_symlink():  # it may have come with the folder, and lead to other people's images
            raise DataError(self.where, "is a symbolic link", "put the file itself there, or delete the link: it is for reports only")
        self._images = _array(folder, "images", "nchw")
        text = (_array(folder, "ids", "nhw")[0].pixels * 255).round().numpy().astype(np.uint8).tobytes()
        try:
            ids = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise self._damaged() from error
        if not (isinstance(ids, list) and all(isinstance(name, str) for name in ids) and len(ids) == len(self._images)):
            raise self._damaged()
        self._ids = ids

    def _damaged(self) -> DataError:
        return DataError(self.where, "is damaged", "delete it: it holds pictures for reports only")

    def __len__(self) -> int:
        return len(self._ids)

    def sample_id(self, index: int) -> str:
        """The id that the sample has in the run."""
        return self._ids[index]

    def labels(self) -> Labels | None:
        """None: the rows have the labels."""
        return None

    def __getitem__(self, index: int) -> Sample:
        """Read one image.

        Raises:
            DataError: the file is damaged.
        """
        if self._images is None:
            raise IndexError(index)
        return Sample(self._ids[index], self._images[index].pixels, None)


def _kept_ids(folder: Path) -> set[str]:
    """The ids of the images that are there; none where the file is damaged."""
    try:
        saved = KeptImages(folder)
        return {saved.sample_id(i) for i in range(len(saved))}
    except DataError:
        return set()


def only_the_worst(kept: int) -> RobauditError:
    """The error about an image that a run of data in memory has not kept."""
    what = "its data were in memory, and " + (
        f"it keeps the images of its {kept} least robust samples only" if kept else "it keeps no images"
    )
    return RobauditError("this run", what, "audit data on disk to see the others")


def _array(folder: Path, key: str, layout: Literal["nchw", "nhw"]) -> ImageSet:
    return NpzSpec(path=NAME, images_key=key, labels_key=None, layout=layout).open(folder, trust=False)


def _least_robust(run: Run) -> Iterator[str]:
    """Ids, the least robust of all groups first."""
    ranked = []
    for columns in run.groups().values():
        known = columns.finite
        names, sign = known.names, 1.0 if run.quantities[columns.key.quantity].higher_is_better else -1.0
        ranked.append([names[i] for i in np.argsort(sign * known.values, kind="stable")[:_MOST_OF_A_GROUP]])
    for rank in zip_longest(*ranked):
        yield from (name for name in rank if name is not None)
