"""Samples of a Python program: arrays, lists, torch and Hugging Face data sets and loaders, as a data set of an audit."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import (
    DataLoader,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    default_collate,
    default_convert,
)
from torch.utils.data import Dataset as TorchDataset

from robaudit.datasets.arrays import ArrayDataset, channels_first, layout_of
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
_SPLITS = "pass one of them, for example data['test']"
_TABLES = ("DataFrame", "LazyFrame", "Table", "RecordBatch")  # of pandas, polars and Arrow
_FORMS = "a torch or Hugging Face data set, a DataLoader, (x, y), or a list of images or of (image, label)"
_WITH_ID = 3  # parts of a sample
_CHECKED = 32  # number of first images, each read twice
_MOST_OBJECTS = 1000  # objects searched for a normalisation
_ONE_BY_ONE = threading.RLock()


@dataclass(frozen=True, slots=True)
class Reading:
    """Options for reading a program's samples; None: inferred from the samples.

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
    """The samples of a Python program as a data set; an iterable without indexing is read now.

    Args:
        data: a :class:`~robaudit.datasets.base.Dataset`; a torch data set or loader; a Hugging Face data set; arrays or tensors (x, y), or
            x alone; a sequence of images (PIL, arrays, tensors), of (image, label) or of mappings; or an iterable of such, with a limit.
        reading: the options.

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
        return _stack(where, images, labels, how)
    items = images if _is_indexed(images) else _read_in(images, where, how)
    return Items(where, items, labels, how, features)


def refuse_unfit(dataset: Dataset, data: object, *, skip_bad: bool, as_given: bool = False) -> None:
    """Refuse samples that a transform normalises, or that differ between two reads.

    Args:
        dataset: the opened data set.
        data: what the program passed, where a torchvision Normalize is looked for.
        skip_bad: pass over unusable samples.
        as_given: accept normalised pixels.

    Raises:
        DataError: samples are normalised, or differ.
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


def _stack(where: str, images: Any, labels: object, how: Reading) -> ArrayDataset:
    """Images in one array or tensor, with labels."""
    shape = tuple(images.shape)
    if len(shape) not in (3, 4) or 0 in shape:
        raise DataError("dataset", f"the images have shape {shape}", "they are (n, c, h, w), (n, h, w, c) or (n, h, w)")
    layout = _layout_of(shape[1:], how.layout, "dataset", plain=isinstance(images, Tensor)) if len(shape) == 4 else "nchw"
    names, end = _texts(how.class_names), how.limit
    known, ids = _label_list(labels, shape[0], names), _checked_ids(how.ids, shape[0])
    return ArrayDataset(where, images[:end], None if known is None else known[:end], layout=layout, ids=ids, class_names=names)


class Items(ArrayDataset):
    """Samples read one by one, by one thread at a time, because the program's code may not be thread-safe.

    Args:
        where: its name in messages.
        items: gives a sample for an index.
        labels: separate labels; None: the samples have them.
        how: options for reading.
        features: the columns of a Hugging Face data set with their types.
        own_ids: whether the third element of a sample is its id.
    """

    def __init__(self, where: str, items: Any, labels: object, how: Reading, features: Mapping[str, Any], *, own_ids: bool = False) -> None:
        length = len(items)
        class_names = _texts(how.class_names if how.class_names is not None else _names(items))
        known, ids = _label_list(labels, length, class_names), _checked_ids(how.ids, length)
        super().__init__(where, items, None if known is None else known[: how.limit], ids=ids, class_names=class_names)
        self._how, self._length = how, length if how.limit is None else min(length, how.limit)
        self._read_ids = dict[int, str]()
        self._image_key, self._label_key, self._channels = how.image_key, how.label_key, 0
        first = self._first_item()
        self._size = len(first) if own_ids and isinstance(first, tuple | list) else None
        if isinstance(first, Mapping) or (first is None and features):
            self._find_keys([str(key) for key in first or features], features)
        with contextlib.suppress(SampleError):  # the first image decides whether all are grey
            self._decoded(self._parts(first, where)[0], where)

    def __len__(self) -> int:
        return self._length

    def sample_id(self, index: int) -> str:
        """The given id, the sample's own, or the index as text (also of a sample that cannot be read)."""
        if self._size != _WITH_ID:
            return super().sample_id(index)
        index = range(self._length)[index]
        if index not in self._read_ids:
            try:
                self._read_ids[index] = str(self._item(index, self.where)[2])
            except (SampleError, IndexError, TypeError):
                self._read_ids[index] = str(index)
        return self._read_ids[index]

    def __getitem__(self, index: int) -> Sample:
        """Read one sample.

        Raises:
            SampleError: the program's code raised an exception, or the item is not an image (with a label).
        """
        sample_id = self.sample_id(index)
        where = f"{self.where}, sample {sample_id}"
        image, label = self._parts(self._item(index, where), where)
        pixels = self._decoded(image, where)
        if self._labels is not None:
            label = int(self._labels[index])
        return Sample(sample_id, pixels, _label(label, where, self.class_names))

    def _item(self, index: int, where: str) -> Any:
        try:
            with _ONE_BY_ONE:
                return self._images[index]
        except Exception as error:  # noqa: BLE001  the program's code may raise anything
            raise SampleError(where, f"raised {describe(error)}", "repair or leave out this sample") from None

    def _first_item(self) -> Any:
        """The first readable sample; None if there is none."""
        for index in range(self._length):
            with contextlib.suppress(SampleError):
                return self._item(index, "dataset")
        return None

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
            if self._size not in (None, len(item)):
                raise SampleError(where, f"has {len(item)} parts, the first sample has {self._size}", "give all samples an id, or none")
            return item[0], item[1] if len(item) > 1 else None
        return item, None

    def _find_keys(self, known: Sequence[str], features: Mapping[str, Any]) -> None:
        """Infer the keys of image and label from a sample's keys and the types of a Hugging Face data set's columns.

        Columns that a transform has added are the network's input.
        """
        of_image, of_class = ([name for name, one in features.items() if type(one).__name__ == kind] for kind in ("Image", "ClassLabel"))
        added = [name for name in _IMAGE_KEYS if features and name in known and name not in features]
        self._image_key = _key("image_key", self._image_key, known, added[:1] or [name for name in of_image if name in known], _IMAGE_KEYS)
        if self._image_key is None:
            what = f"its samples have the keys {', '.join(known)}, none of which is usual for images"
            raise DataError("dataset", what, "give image_key=")
        self._label_key = _key("label_key", self._label_key, known, [name for name in of_class if name in known], _LABEL_KEYS)
        labels = self._label_key if self._label_key in features else of_class[0] if len(of_class) == 1 else ""
        if self._how.class_names is None and features:
            self.class_names = _texts(getattr(features.get(labels or ""), "names", None))

    def _decoded(self, image: Any, where: str) -> Tensor:
        if isinstance(image, Image.Image):
            if not self._channels:  # decided by the first sample
                self._channels = len(image_pixels(image, where, _options(None)))
            return image_pixels(image, where, _options(self._channels))
        if not _is_array(image):
            remedy = "convert it in the transform, for example with ToTensor()" if not isinstance(image, str | bytes | Path) else "open it"
            raise SampleError(where, f"the image is {type(image).__name__}", f"images are PIL images, arrays or tensors: {remedy}")
        if image.ndim == 2:
            return as_pixels(image, where)
        if image.ndim != 3:
            raise SampleError(where, f"the image has shape {tuple(image.shape)}", "it must be (c, h, w), (h, w, c) or (h, w)")
        layout = _layout_of(tuple(image.shape), self._how.layout, where, plain=isinstance(image, Tensor))
        return as_pixels(channels_first(image) if layout == "nhwc" else image, where)


def _options(channels: int | None) -> ImageOptions:
    """Decoding options without resizing, for this number of channels; None: the image's own."""
    return ImageOptions.model_construct(kind="memory", channels=channels)  # type: ignore[arg-type]


def _texts(names: Iterable[object] | None) -> tuple[str, ...] | None:
    return None if names is None else tuple(str(name) for name in names)


def _label(value: Any, where: str, names: Sequence[str] | None) -> int | None:
    """A class index; the name of a class is understood, and -1 is no label."""
    if isinstance(value, str):
        if names is None:
            raise SampleError(where, f"the label is {value!r}, not a class index", "give class_names=[...], in the order of the logits")
        if value not in names:
            raise SampleError(where, f"the label {value!r} is not in class_names", did_you_mean(value, names))
        if names.count(value) > 1:
            raise SampleError(where, f"several classes are called {value!r}", "give class indices as labels")
        return names.index(value)
    if _is_array(value) and tuple(value.shape) == (1,):
        value = value[0]
    if _is_array(value) and value.ndim == 1:
        raise SampleError(where, f"the label has {len(value)} entries", "labels are class indices: label.argmax() of a one-hot vector")
    return as_label(value, where)


def _is_dataset(data: object) -> bool:
    """Whether it implements our data set interface."""
    return all(hasattr(data, name) for name in ("where", "class_names", "sample_id", "labels", "__getitem__", "__len__"))


def _is_indexed(data: object) -> bool:
    """Whether it has a length and random access."""
    return hasattr(data, "__len__") and hasattr(data, "__getitem__") and not isinstance(data, IterableDataset)


def _is_array(value: object) -> bool:
    return isinstance(value, Tensor | np.ndarray)


def _name(data: object) -> str:
    """Its name in messages."""
    if isinstance(data, _ReadIn):
        return data.name
    kind = type(data)
    plain = kind.__module__ in ("builtins", "numpy", "torch")
    return "data in memory" if plain else f"{kind.__name__} in memory"


def _loaded(data: object, how: Reading) -> object:
    """The data set of a loader that only batches it, otherwise the samples of its batches."""
    if isinstance(data, str | bytes | Path):
        raise DataError("dataset", f"is a path, {clipped(printable(str(data)), 80)}", f"pass {_FORMS}; or name files in a spec")
    if data is None:
        raise DataError("dataset", "is missing", f"robaudit.audit(net, dataset, ...) takes {_FORMS}")
    if isinstance(data, type):
        raise DataError("dataset", f"is the class {data.__name__}", f"pass {_FORMS}")
    if type(data).__name__ in _TABLES and not isinstance(data, Mapping) and hasattr(data, "columns"):
        raise DataError("dataset", f"is a {type(data).__name__}", "pass its columns: (list(table['image']), list(table['label']))")
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
    """Samples that were read from an iterable without indexing, and its name."""

    def __init__(self, name: str, samples: Iterable[Any]) -> None:
        super().__init__(samples)
        self.name = name


def _of_batches(loader: Iterable[Any]) -> Iterator[Any]:
    """The samples of batches: (images, labels), mappings of them, or images alone."""
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
    if any(hasattr(value, "features") or isinstance(value, TorchDataset) for value in data.values()):
        raise DataError("dataset", f"has the splits {', '.join(known)}", _SPLITS)
    image, label = (_key(f"{what}_key", given, known, (), usual) for what, given, usual in (
        ("image", how.image_key, _IMAGE_KEYS), ("label", how.label_key, _LABEL_KEYS)))  # fmt: skip
    if image is None:
        raise DataError(
            "dataset", f"is a mapping with the keys {', '.join(known) or '(none)'}", "pass (x, y), or name the array: image_key="
        )
    return data[image], None if label is None else data[label]


def _parted(data: object) -> tuple[Any, object]:
    """Images and labels; the labels are None if the samples hold them."""
    if isinstance(data, TensorDataset) and len(data.tensors) in (1, 2):
        return data.tensors[0], data.tensors[1] if len(data.tensors) == 2 else None
    if isinstance(data, tuple | list) and len(data) == 2 and not isinstance(data, _ReadIn):
        images, labels = data
        if not _is_array(labels) and hasattr(labels, "to_numpy"):  # a pandas or polars series, or an Arrow array
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
    if not isinstance(labels, list | tuple) or (count is not None and len(labels) != count):
        return False
    return all(isinstance(one, int | np.integer | str | None) or getattr(one, "ndim", 1) == 0 for one in labels)


def _read_in(data: Any, where: str, how: Reading) -> _ReadIn:
    """The first ``limit`` samples of an iterable without indexing.

    Raises:
        DataError: it is not iterable, has no end, or raises an exception.
    """
    if hasattr(data, "__getitem__") and not hasattr(data, "__len__") and not hasattr(data, "__iter__"):
        raise DataError("dataset", f"{type(data).__name__} has no __len__", "define it: the number of samples")
    if not hasattr(data, "__iter__"):
        raise DataError("dataset", f"is {type(data).__name__}", f"pass {_FORMS}")
    limit = len(data) if how.limit is None and hasattr(data, "__len__") else how.limit
    if limit is None:
        raise DataError(
            "dataset", f"{type(data).__name__} has no length: how many samples to read is not known", "give limit=, for example 1000"
        )
    try:
        return _ReadIn(where, islice(iter(data), limit))
    except Exception as error:
        raise DataError("dataset", f"reading it raised {describe(error)}", "repair it, or pass a list") from error


def _checked_ids(ids: Sequence[object] | None, length: int) -> tuple[str, ...] | None:
    texts = _texts(ids)
    if texts is not None and len(texts) != length:
        raise DataError("ids", f"there are {len(texts)} for {length} samples", "give each sample one")
    if texts is not None and len(set(texts)) != len(texts):
        twice = next(one for one in texts if texts.count(one) > 1)
        raise DataError("ids", f"{twice!r} appears twice", "ids must differ")
    return texts


def _label_list(labels: Any, length: int, names: Sequence[str] | None) -> Labels | None:
    """Separate labels as int64, -1 for none."""
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
    read = (_label(value, f"dataset, label {index}", names) for index, value in enumerate(labels))
    return np.array([-1 if label is None else label for label in read], dtype=np.int64)


def _layout_of(shape: Sequence[int], wanted: Layout | None, where: str, *, plain: bool) -> Layout:
    """The layout of an image with three axes: as requested, else by its shape; ``plain``: channels first if ambiguous.

    Raises:
        DataError: it is unknown.
    """
    if wanted not in (None, "nchw", "nhwc"):
        raise DataError("layout", f"{wanted!r} is unknown", "'nchw' or 'nhwc'")
    layout = wanted or layout_of(shape) or ("nchw" if plain else None)
    if layout is None:
        raise DataError(where, f"cannot tell the layout of images of shape {tuple(shape)}", "give layout='nchw' or layout='nhwc'")
    return layout


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
    """The class names of a torch data set, or of the data set it is a subset of."""
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
