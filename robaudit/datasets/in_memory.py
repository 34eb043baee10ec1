"""Samples of a Python program: arrays, lists, torch and Hugging Face data sets and loaders, as a data set of an audit."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from robaudit.datasets.base import Dataset, Labels, Sample, first_samples
from robaudit.datasets.decode import as_label, as_pixels, image_pixels
from robaudit.errors import DataError, SampleError, did_you_mean
from robaudit.python_code import describe
from robaudit.spec.data_files import USUAL_LABELS
from robaudit.spec.model import ImageOptions
from robaudit.text import clipped, printable

Layout = Literal["nchw", "nhwc"]

_IMAGE_KEYS = ("image", "images", "img", "pixel_values", "pixels", "x", "input", "inputs")
_LABEL_KEYS = (*USUAL_LABELS, "targets", "fine_label")
_CHANNELS = (1, 3)
_SPLITS = "pass one of them, for example data['test']"
_TABLES = ("DataFrame", "LazyFrame", "Table", "RecordBatch")  # of pandas, polars and Arrow
_FORMS = "a torch or Hugging Face data set, a DataLoader, (x, y), or a list of images or of (image, label)"
_CHECKED = 32  # of the first images; each is read twice
_MOST_OBJECTS = 1000  # in which a normalisation is searched
_ONE_BY_ONE = threading.RLock()


@dataclass(frozen=True, slots=True)
class Reading:
    """How a program's samples are read; None: found out from the samples.

    Attributes:
        limit: read at most this many.
        class_names: by class index.
        ids: of the samples, in their order; default: their indices.
        layout: of arrays and tensors.
        image_key, label_key: of samples that are mappings; the columns of a Hugging Face data set.
    """

    limit: int | None = None
    class_names: Sequence[str] | None = None
    ids: Sequence[object] | None = None
    layout: Layout | None = None
    image_key: str | None = None
    label_key: str | None = None


def open_in_memory(data: object, reading: Reading | None = None) -> Dataset:
    """The samples of a Python program as a data set; only those of something that cannot be indexed are read now.

    Args:
        data: a :class:`~robaudit.datasets.base.Dataset`; a torch data set or loader; a Hugging Face data set; arrays or tensors (x, y), or
            x alone; a sequence of images (PIL, arrays, tensors), of (image, label) or of mappings; or an iterable of such, with a limit.
        reading: how.

    Raises:
        DataError: it is none of these, or labels, ids or keys do not fit.
    """
    how = reading or Reading()
    if _is_dataset(data):
        return data  # type: ignore[return-value]
    data = _loaded(data, how)
    if isinstance(data, Mapping):
        data = _columns(data, how)
    where, features = _name(data), _features(data)
    images, labels = _parted(data)
    if _is_array(images):
        return _Stack(where, images, labels, how)
    if not _is_indexed(images):
        images = _read_in(images, where, how)
    return _Items(where, images, labels, how, features)


def refuse_unfit(dataset: Dataset, data: object, *, skip_bad: bool, as_given: bool = False) -> None:
    """Refuse samples whose transform normalises them, or that differ from one reading to the next.

    Args:
        dataset: the opened data set.
        data: what the program passed, where a torchvision Normalize is looked for.
        skip_bad: pass over unusable samples.
        as_given: take normalised pixels as they are given.

    Raises:
        DataError: they are.
    """
    found = None if as_given else _normalisation(data)
    if found is not None:
        mean, std = found
        what = f"its transform has Normalize(mean={mean}, std={std}), but noise is added to pixels in [0, 1], before any normalisation"
        raise DataError("dataset", what, f"take Normalize out of the transform, and give audit(..., mean={mean}, std={std})")
    for first, again in zip(*(first_samples(dataset, _CHECKED, skip_bad=skip_bad) for _ in range(2)), strict=False):
        if not torch.equal(first.pixels, again.pixels):
            what = f"image {first.id} has other pixels each time it is read: its transform is random"
            raise DataError("dataset", what, "pass the data with the transform of evaluation, without augmentation")


class _Samples:
    """What both forms share: ids, class names, labels."""

    def __init__(self, where: str, length: int, reading: Reading, names: Sequence[str] | None) -> None:
        self.where, self._how = where, reading
        self._length = length if reading.limit is None else min(length, reading.limit)
        given = reading.class_names if reading.class_names is not None else names
        self.class_names: tuple[str, ...] | None = None if given is None else tuple(str(name) for name in given)
        self._ids = None if reading.ids is None else _checked_ids(reading.ids, length)

    def __len__(self) -> int:
        return self._length

    def sample_id(self, index: int) -> str:
        """The given id, or the index as text."""
        index = range(self._length)[index]
        return str(index) if self._ids is None else self._ids[index]

    def _label(self, value: object, where: str) -> int | None:
        """A class index; the name of a class is understood, and -1 is no label."""
        if isinstance(value, str):
            if self.class_names is None:
                raise SampleError(where, f"the label is {value!r}, not a class index", "give class_names=[...], in the order of the logits")
            if value not in self.class_names:
                raise SampleError(where, f"the label {value!r} is not in class_names", did_you_mean(value, self.class_names))
            if self.class_names.count(value) > 1:
                raise SampleError(where, f"several classes are called {value!r}", "give class indices as labels")
            return self.class_names.index(value)
        if isinstance(value, Tensor | np.ndarray) and tuple(value.shape) == (1,):
            value = value[0]
        if isinstance(value, Tensor | np.ndarray) and value.ndim == 1:
            raise SampleError(where, f"the label has {len(value)} entries", "labels are class indices: label.argmax() of a one-hot vector")
        plain = value.item() if isinstance(value, Tensor | np.ndarray) and value.ndim == 0 else value
        return None if isinstance(plain, int | np.integer) and not isinstance(plain, bool) and plain == -1 else as_label(plain, where)


class _Stack(_Samples):
    """Images in one array or tensor, and labels beside them."""

    def __init__(self, where: str, images: Any, labels: object, reading: Reading) -> None:
        shape = tuple(images.shape)
        if len(shape) not in (3, 4) or 0 in shape:
            raise DataError("dataset", f"the images have shape {shape}", "they are (n, c, h, w), (n, h, w, c) or (n, h, w)")
        super().__init__(where, shape[0], reading, None)
        self._images = images
        self._layout = _layout_of(shape[1:], reading.layout, "dataset", plain=isinstance(images, Tensor)) if len(shape) == 4 else "nchw"
        self._labels = _label_list(labels, shape[0], self)

    def labels(self) -> Labels | None:
        """All labels."""
        return None if self._labels is None else self._labels[: self._length]

    def __getitem__(self, index: int) -> Sample:
        """Read one sample.

        Raises:
            SampleError: its pixels are unusable.
        """
        index = range(self._length)[index]
        where = f"{self.where}, sample {self.sample_id(index)}"
        pixels = as_pixels(_channels_first(self._images[index], self._layout), where)
        label = None if self._labels is None else int(self._labels[index])
        return Sample(self.sample_id(index), pixels, None if label == -1 else label)


class _Items(_Samples):
    """Samples that are read one by one, by one thread at a time: the program's code may never have met a second one."""

    def __init__(self, where: str, items: Any, labels: object, reading: Reading, features: Mapping[str, Any]) -> None:
        super().__init__(where, len(items), reading, _names(items))
        self._items = items
        self._labels = _label_list(labels, len(items), self)
        self._image_key, self._label_key, self._channels = reading.image_key, reading.label_key, 0
        self._first: tuple[str, tuple[int, ...]] | None = None
        if self._length:
            self._find_keys(features)

    def labels(self) -> Labels | None:
        """All labels, where they stand beside the images."""
        return None if self._labels is None else self._labels[: self._length]

    def __getitem__(self, index: int) -> Sample:
        """Read one sample.

        Raises:
            SampleError: the program's code raised something, or it is not an image (with a label).
        """
        index = range(self._length)[index]
        where = f"{self.where}, sample {self.sample_id(index)}"
        self._look_at_first(index)
        image, label = self._parts(self._item(index, where), where)
        pixels = self._pixels(image, where)
        shape = tuple(pixels.shape)
        first_id, first = self._first = self._first or (self.sample_id(index), shape)
        if shape != first:
            what = f"its shape is {shape}, but that of the first sample {first_id!r} is {first}"
            raise SampleError(where, what, "bring all to one size and one number of channels, for example with Resize((224, 224))")
        if self._labels is not None:
            label = int(self._labels[index])
        return Sample(self.sample_id(index), pixels, self._label(label, where))

    def _look_at_first(self, index: int) -> None:
        """Read the first readable sample, whose shape the others must have, whichever is asked for first."""
        for earlier in range(index if self._first is None else 0):
            try:
                self[earlier]
            except SampleError:
                continue
            return

    def _item(self, index: int, where: str) -> Any:
        try:
            with _ONE_BY_ONE:
                return self._items[index]
        except Exception as error:  # noqa: BLE001  the program's code may raise anything
            raise SampleError(where, f"raised {describe(error)}", "repair or leave out this sample") from None

    def _parts(self, item: Any, where: str) -> tuple[Any, Any]:
        """Image and label of an item."""
        if isinstance(item, Mapping):
            keys = (self._image_key, self._label_key)
            for key in keys:
                if key is not None and key not in item:
                    raise SampleError(where, f"has no {key!r}", f"it has {', '.join(map(str, item))}")
            return item[self._image_key], None if self._label_key is None else item[self._label_key]
        if isinstance(item, tuple | list):
            if len(item) == 0:
                raise SampleError(where, "is empty", "samples are images, (image, label) or mappings")
            return item[0], item[1] if len(item) > 1 else None
        return item, None

    def _find_keys(self, features: Mapping[str, Any]) -> None:
        """Find out the keys of image and label, from the first readable sample that is a mapping, and the types of its columns.

        What a transform has added to the columns is what the network is meant to get.
        """
        known: Sequence[str] = list(features)
        for index in range(self._length):
            try:
                item = self._item(index, "dataset")
            except SampleError:
                continue
            known = [str(key) for key in item] if isinstance(item, Mapping) else []
            break
        if not known:
            return
        of_image, of_class = ([name for name, one in features.items() if type(one).__name__ == kind] for kind in ("Image", "ClassLabel"))
        added = [name for name in _IMAGE_KEYS if features and name in known and name not in features]
        self._image_key = _key("image_key", self._image_key, known, added[:1] or [name for name in of_image if name in known], _IMAGE_KEYS)
        if self._image_key is None:
            raise DataError(
                "dataset", f"its samples have the keys {', '.join(known)}, none of which is usual for images", "give image_key="
            )
        self._label_key = _key("label_key", self._label_key, known, [name for name in of_class if name in known], _LABEL_KEYS)
        labels = self._label_key if self._label_key in features else of_class[0] if len(of_class) == 1 else ""
        names = getattr(features.get(labels or ""), "names", None)
        if self._how.class_names is None and features:
            self.class_names = None if names is None else tuple(names)

    def _pixels(self, image: Any, where: str) -> Tensor:
        if isinstance(image, Image.Image):
            if not self._channels:  # of the first one: the others follow
                self._channels = len(image_pixels(image, where, ImageOptions.model_construct(channels=None)))  # type: ignore[arg-type]
            return image_pixels(image, where, ImageOptions(channels=self._channels))
        if not _is_array(image):
            remedy = "convert it in the transform, for example with ToTensor()" if not isinstance(image, str | bytes | Path) else "open it"
            raise SampleError(where, f"the image is {type(image).__name__}", f"images are PIL images, arrays or tensors: {remedy}")
        if image.ndim == 2:
            return as_pixels(image, where)
        if image.ndim != 3:
            raise SampleError(where, f"the image has shape {tuple(image.shape)}", "it must be (c, h, w), (h, w, c) or (h, w)")
        layout = _layout_of(tuple(image.shape), self._how.layout, where, plain=isinstance(image, Tensor))
        return as_pixels(_channels_first(image, layout), where)


def _is_dataset(data: object) -> bool:
    """Whether it follows our own protocol."""
    return all(hasattr(data, name) for name in ("where", "class_names", "sample_id", "labels", "__getitem__", "__len__"))


def _is_indexed(data: object) -> bool:
    """Whether its samples can be counted, and read in any order."""
    from torch.utils.data import IterableDataset

    return hasattr(data, "__len__") and hasattr(data, "__getitem__") and not isinstance(data, IterableDataset)


def _is_array(value: object) -> bool:
    return isinstance(value, Tensor | np.ndarray)


def _name(data: object) -> str:
    """What messages call it."""
    if isinstance(data, _ReadIn):
        return data.name
    kind = type(data)
    plain = kind.__module__ in ("builtins", "numpy", "torch")
    return "data in memory" if plain else f"{kind.__name__} in memory"


def _loaded(data: object, how: Reading) -> object:
    """The data set of a loader, where the loader only batches it; else the samples of its batches."""
    if isinstance(data, str | bytes | Path):
        raise DataError("dataset", f"is a path, {clipped(printable(str(data)), 80)}", f"pass {_FORMS}; or name files in a spec")
    if data is None:
        raise DataError("dataset", "is missing", f"robaudit.audit(net, dataset, ...) takes {_FORMS}")
    if isinstance(data, type):
        raise DataError("dataset", f"is the class {data.__name__}", f"pass {_FORMS}")
    if type(data).__name__ in _TABLES and not isinstance(data, Mapping) and hasattr(data, "columns"):
        raise DataError("dataset", f"is a {type(data).__name__}", "pass its columns: (list(table['image']), list(table['label']))")
    from torch.utils.data import DataLoader, IterableDataset, RandomSampler, SequentialSampler, Subset, SubsetRandomSampler, default_collate
    from torch.utils.data._utils.collate import default_convert

    if isinstance(data, DataLoader):
        plain = data.collate_fn in (default_collate, default_convert) and not isinstance(data.dataset, IterableDataset)
        sampler: object = getattr(data, "sampler", None)
        if plain and (isinstance(sampler, SequentialSampler) or (isinstance(sampler, RandomSampler) and not sampler.replacement)):
            return data.dataset
        if plain and isinstance(sampler, SubsetRandomSampler):
            return Subset(data.dataset, sorted(int(i) for i in sampler.indices))
        return _ReadIn(f"{type(data.dataset).__name__} in memory", list(islice(_of_batches(data), how.limit)))
    return data


class _ReadIn(list[Any]):
    """Samples that were read from something that cannot be indexed, and what it is called."""

    def __init__(self, name: str, samples: Iterable[Any]) -> None:
        super().__init__(samples)
        self.name = name


def _of_batches(loader: Iterable[Any]) -> Iterator[Any]:
    """The samples of batches (images, labels), of mappings of such, or of images alone."""
    for batch in loader:
        if isinstance(batch, Mapping):
            sizes = [len(value) for value in batch.values() if hasattr(value, "__len__")]
            yield from ({key: value[i] for key, value in batch.items()} for i in range(min(sizes, default=0)))
        elif _is_array(batch) or (isinstance(batch, list) and all(isinstance(one, Mapping) for one in batch)):
            yield from batch
        elif isinstance(batch, tuple | list) and batch and all(hasattr(part, "__len__") for part in batch):
            yield from zip(*batch, strict=False)
        else:
            raise DataError("dataset", f"its loader gives {type(batch).__name__}, not batches (images, labels)", "pass the data set itself")


def _columns(data: Mapping[Any, Any], how: Reading) -> object:
    """A mapping of arrays as (x, y)."""
    known = [str(key) for key in data]
    if any(hasattr(value, "features") or (hasattr(value, "__getitem__") and _is_map_style(value)) for value in data.values()):
        raise DataError("dataset", f"has the splits {', '.join(known)}", _SPLITS)
    image, label = (_key(f"{what}_key", given, known, (), usual) for what, given, usual in (
        ("image", how.image_key, _IMAGE_KEYS), ("label", how.label_key, _LABEL_KEYS)))  # fmt: skip
    if image is None:
        raise DataError(
            "dataset", f"is a mapping with the keys {', '.join(known) or '(none)'}", "pass (x, y), or name the array: image_key="
        )
    return data[image], None if label is None else data[label]


def _is_map_style(value: object) -> bool:
    from torch.utils.data import Dataset as TorchDataset

    return isinstance(value, TorchDataset)


def _parted(data: object) -> tuple[Any, object]:
    """Images and the labels beside them; the labels are None where the samples hold them."""
    from torch.utils.data import TensorDataset

    if isinstance(data, TensorDataset) and len(data.tensors) in (1, 2):
        return data.tensors[0], data.tensors[1] if len(data.tensors) == 2 else None
    if isinstance(data, tuple | list) and len(data) == 2 and not isinstance(data, _ReadIn):
        images, labels = data
        if not _is_array(labels) and hasattr(labels, "to_numpy"):  # a series of pandas or polars, an Arrow array
            labels = labels.to_numpy()
        flat = _is_array(images) and images.ndim == 2 and not (_is_array(labels) and labels.ndim > 1)  # refused later
        stacked = flat or (_is_array(images) and images.ndim in (3, 4))
        if (stacked or isinstance(images, list | tuple)) and (labels is None or _like_labels(labels, None if stacked else len(images))):
            return images, labels
    return data, None


def _like_labels(labels: Any, count: int | None) -> bool:
    """Whether it is a list of labels rather than a sample."""
    if _is_array(labels):
        return int(labels.ndim) in (1, 2) and (count is None or len(labels) == count)
    fits = isinstance(labels, list | tuple) and all(isinstance(one, int | np.integer | str | None) or _is_scalar(one) for one in labels)
    return fits and (count is None or len(labels) == count)


def _is_scalar(value: object) -> bool:
    return isinstance(value, Tensor | np.ndarray) and value.ndim == 0


def _read_in(data: Any, where: str, how: Reading) -> _ReadIn:
    """The first ``limit`` samples of something that cannot be indexed.

    Raises:
        DataError: it is no such thing, has no end, or raises.
    """
    if hasattr(data, "__getitem__") and not hasattr(data, "__len__") and not hasattr(data, "__iter__"):
        raise DataError("dataset", f"{type(data).__name__} has no __len__", "define it: the number of samples")
    if not hasattr(data, "__iter__"):
        raise DataError("dataset", f"is {type(data).__name__}", f"pass {_FORMS}")
    if how.limit is None and hasattr(data, "__len__"):
        how = replace(how, limit=len(data))
    if how.limit is None:
        raise DataError(
            "dataset", f"{type(data).__name__} has no length: how many samples to read is not known", "give limit=, for example 1000"
        )
    try:
        return _ReadIn(where, islice(iter(data), how.limit))
    except Exception as error:
        raise DataError("dataset", f"reading it raised {describe(error)}", "repair it, or pass a list") from error


def _checked_ids(ids: Sequence[object], length: int) -> tuple[str, ...]:
    texts = tuple(str(one) for one in ids)
    if len(texts) != length:
        raise DataError("ids", f"there are {len(texts)} for {length} samples", "give each sample one")
    if len(set(texts)) != len(texts):
        twice = next(one for one in texts if texts.count(one) > 1)
        raise DataError("ids", f"{twice!r} appears twice", "ids must differ")
    return texts


def _label_list(labels: Any, length: int, samples: _Samples) -> Labels | None:
    """Labels beside the images as int64, -1 where there is none."""
    if labels is None:
        return None
    if len(labels) != length:
        raise DataError("dataset", f"there are {length} images and {len(labels)} labels", "give each image one")
    if _is_array(labels):
        values = labels.detach().cpu().numpy() if isinstance(labels, Tensor) else labels
        if values.ndim == 2 and values.shape[1] == 1:
            values = values[:, 0]
        if values.ndim != 1:
            raise DataError("dataset", f"the labels have shape {tuple(values.shape)}", "they are (n,) class indices: labels.argmax(1)")
        if values.dtype.kind in "iu":
            found: Labels = values.astype(np.int64)
            if int(found.min(initial=0)) < -1:
                raise DataError("dataset", f"a label is {int(found.min())}", "class indices start at 0; -1 is no label")
            return found
        labels = values.tolist()
    found = np.full(length, -1, dtype=np.int64)
    for index, value in enumerate(labels):
        label = samples._label(value, f"dataset, label {index}")
        found[index] = -1 if label is None else label
    return found


def _layout_of(shape: Sequence[int], wanted: Layout | None, where: str, *, plain: bool) -> Layout:
    """The layout of an image with three axes: as wanted, else by which of them has 1 or 3 entries; ``plain``: channels first in doubt.

    Raises:
        DataError: it is unknown.
    """
    if wanted is not None:
        if wanted not in ("nchw", "nhwc"):
            raise DataError("layout", f"{wanted!r} is unknown", "'nchw' or 'nhwc'")
        return wanted
    first, last = shape[0] in _CHANNELS, shape[-1] in _CHANNELS
    if first == last and not plain:
        raise DataError(where, f"cannot tell the layout of images of shape {tuple(shape)}", "give layout='nchw' or layout='nhwc'")
    return "nhwc" if last and not first else "nchw"


def _channels_first(image: Any, layout: Layout) -> Any:
    if layout == "nchw" or image.ndim == 2:
        return image
    return image.movedim(-1, 0) if isinstance(image, Tensor) else np.moveaxis(image, -1, 0)


def _key(argument: str, given: str | None, known: Sequence[str], of_type: Sequence[str], usual: Sequence[str]) -> str | None:
    """The key as given, else the only one of the right type, else the first usual one.

    Raises:
        DataError: the given key does not exist.
    """
    if given is not None:
        if given not in known:
            raise DataError(argument, f"the samples have no {given!r}", did_you_mean(given, known))
        return given
    if len(of_type) == 1:
        return of_type[0]
    return next((key for key in usual if key in (of_type or known)), None)


def _features(items: object) -> Mapping[str, Any]:
    """The columns of a Hugging Face data set with their types."""
    features = getattr(items, "features", None)
    return features if isinstance(features, Mapping) and hasattr(items, "column_names") else {}


def _names(items: Any) -> Sequence[str] | None:
    """Class names that a torch data set, or the one it is a part of, knows."""
    for _ in range(_MOST_OBJECTS):
        classes = getattr(items, "classes", None)
        if isinstance(classes, list | tuple) and classes:
            return [str(name[0] if isinstance(name, tuple | list) and name else name) for name in classes]
        if (items := getattr(items, "dataset", None)) is None:
            return None
    return None


def _normalisation(data: object) -> tuple[list[float], list[float]] | None:
    """Mean and standard deviation of the first Normalize, or of torchvision's transforms of weights, in the transforms of a data set."""
    waiting, seen = [data], set[int]()
    while waiting and len(seen) < _MOST_OBJECTS:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if type(one).__name__ in ("Normalize", "ImageClassification") and hasattr(one, "mean") and hasattr(one, "std"):
            mean, std = ([round(x, 6) for x in torch.as_tensor(values).double().flatten().tolist()] for values in (one.mean, one.std))
            if any(mean) or any(x != 1 for x in std):
                return mean, std
        if isinstance(one, torch.nn.Module):
            waiting += list(one.children())
        for name in ("transform", "transforms", "dataset", "datasets"):
            part = getattr(one, name, None)
            waiting += list(part) if isinstance(part, list | tuple) else [] if part is None else [part]
    return None
