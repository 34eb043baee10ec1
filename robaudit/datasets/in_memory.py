"""Samples of a Python program as a data set: arrays, lists, torch and Hugging Face data sets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, Literal

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset

from robaudit.datasets.class_names import label_array
from robaudit.datasets.dataset import Dataset, different, first_samples
from robaudit.datasets.decode import is_grey, object_pixels
from robaudit.datasets.image_set import READ_LOCK, ImageSet, sample_parts
from robaudit.datasets.listing import USUAL_LABELS
from robaudit.errors import DataError, SampleError, did_you_mean
from robaudit.spec.model import ImageOptions

Layout = Literal["nchw", "nhwc"]

_IMAGE_KEYS = ("image", "images", "img", "pixel_values", "pixels", "x", "input", "inputs")
_LABEL_KEYS = (*USUAL_LABELS, "targets", "fine_label")
_FORMS = "a torch or Hugging Face data set, (x, y), or a list of images or of (image, label)"
_MEMBERS = ("where", "class_names", "sample_id", "labels", "__getitem__", "__len__")

# Types of pandas, polars and Arrow by name: none of these libraries needs to be installed.
_TABLES = ("DataFrame", "LazyFrame", "Table", "RecordBatch")
_READ_TWICE = 32  # the first images; an augmentation that is applied rarely shows in some of them
_MODE_CHECKED = 32  # the first images, which show whether all are grey; of a list, all


def open_in_memory(
    data: object,
    where: str | None = None,
    *,
    class_names: Sequence[str] | None = None,
    ids: Sequence[object] | None = None,
    layout: Layout | None = None,
    image_key: str | None = None,
    label_key: str | None = None,
) -> Dataset:
    """The samples of a Python program as a data set.

    Args:
        data: a :class:`~robaudit.datasets.dataset.Dataset`; a torch or Hugging Face data set; (x,
            y), or an array or tensor x alone; or a sequence of images (PIL, arrays, tensors), of
            (image, label) or of mappings.
        where: its name in messages; default: by its type.
        class_names: by class index; default: the data's own.
        ids: of the samples, in order; default: their indices.
        layout: of arrays and tensors; default: by their shape.
        image_key, label_key: keys of samples that are mappings, columns of a Hugging Face data set;
            default: by type and name.

    Raises:
        DataError: the data have another form, or labels, ids or keys do not fit.
    """
    if all(hasattr(data, name) for name in _MEMBERS):
        return data  # type: ignore[return-value]
    if layout not in (None, "nchw", "nhwc"):
        raise DataError("layout", f"{layout!r} is unknown", "'nchw' or 'nhwc'")
    _refuse_containers(data, where)
    kind = type(data)
    if not where and kind.__module__ in ("builtins", "numpy", "torch"):
        where = "data in memory"
    where = where or f"{kind.__name__} in memory"
    images, labels = data if isinstance(data, tuple) and len(data) == 2 else (data, None)
    _refuse_unordered(images)
    items: Any = images
    own_ids = None if ids is None else different(tuple(map(str, ids)), "ids")
    if own_ids is not None and len(own_ids) != len(items):
        raise DataError(
            "ids", f"there are {len(own_ids)} for {len(items)} samples", "give each sample one"
        )
    first = next(_readable(items), None)
    # (x, y), or an array: the items are the images themselves.
    if labels is not None or isinstance(items, Tensor | np.ndarray):
        known = None if labels is None else label_array(labels, "dataset", len(items), class_names)
        decode = _decoder(items, layout, lambda item: item)
        return ImageSet(
            where,
            items,
            decode,
            labels=known,
            ids=own_ids,
            class_names=_texts(class_names),
            parallel=False,
        )
    # Labels are in the samples, and known only when these are read.
    features = getattr(images, "features", None) if hasattr(images, "column_names") else None
    features = features if isinstance(features, Mapping) else {}
    keys: tuple[str, str | None] = ("", None)
    if isinstance(first, Mapping):
        keys = _keys(first, image_key, label_key, features)
        class_names = class_names or _feature_names(features, keys[1])
    parts = partial(sample_parts, keys=keys)
    texts = _texts(class_names or _names(images))
    decode = _decoder(items, layout, lambda item: parts(item, where)[0])
    # The program's code need not be safe to call from several threads.
    return ImageSet(
        where, items, decode, ids=own_ids, class_names=texts, parts=parts, parallel=False
    )


def _refuse_containers(data: object, where: str | None) -> None:
    """Refuse tables, mappings and loaders: they hold samples, but are no sequence of them."""
    if isinstance(data, Mapping) or type(data).__name__ in _TABLES:
        remedy = (
            "pass its columns, (list(data['image']), list(data['label'])), or one of "
            "several splits, data['test']"
        )
        raise DataError(where or "dataset", f"is a {type(data).__name__}", remedy)
    if isinstance(data, DataLoader):
        raise DataError(
            "dataset",
            "is a DataLoader, and an audit makes batches of its own",
            "pass its data set: loader.dataset",
        )


def _refuse_unordered(images: object) -> None:
    """Refuse what has no length or cannot be indexed: the ids of samples are their indices."""
    indexed = hasattr(images, "__len__") and hasattr(images, "__getitem__")
    # torch gives an IterableDataset a __getitem__ that raises; a class such as `list` has one, too.
    if indexed and not isinstance(images, str | bytes | IterableDataset | type):
        return
    is_stream = hasattr(images, "__iter__") and not isinstance(images, str | bytes | type)
    problem = f"is {images!r:.100}"
    if is_stream:
        problem += ", samples without a length and an order"
        remedy = "read them first: list(itertools.islice(data, 1000))"
    else:
        remedy = f"pass {_FORMS}; or name files in a spec"
    raise DataError("dataset", problem, remedy)


def _feature_names(features: Mapping[str, Any], label_key: str | None) -> Sequence[str] | None:
    """The class names of a Hugging Face data set: the label column's, or the only column's with
    names."""
    if label_key is not None and label_key in features:
        return getattr(features[label_key], "names", None)
    named = [feature for feature in features.values() if hasattr(feature, "names")]
    return named[0].names if len(named) == 1 else None


def _readable(items: Any) -> Iterator[Any]:
    """The items that can be read."""
    for index in range(len(items)):
        try:
            with READ_LOCK:
                item = items[index]
        except Exception:  # noqa: BLE001, S112  the program's code may raise anything; an audit reports it
            continue
        yield item


def refuse_random(dataset: Dataset, *, skip_bad: bool) -> None:
    """Refuse samples that differ between two reads.

    Args:
        dataset: the opened data set.
        skip_bad: skip unusable samples.

    Raises:
        DataError: samples differ.
    """
    # Both iterators read on demand: a sample is read twice in a row, so that no images are held.
    first_reads = first_samples(dataset, _READ_TWICE, skip_bad=skip_bad)
    second_reads = first_samples(dataset, _READ_TWICE, skip_bad=skip_bad)
    for first, again in zip(first_reads, second_reads, strict=False):
        if not torch.equal(first.pixels, again.pixels):
            what = (
                f"image {first.id} has other pixels each time it is read: its transform is random"
            )
            raise DataError(
                "dataset",
                what,
                "pass the data with the transform of evaluation, without augmentation",
            )


def one_mode(items: Any, image_of: Callable[[Any], object]) -> Literal[1, 3]:
    """The channels that PIL images get: one if all are grey, otherwise three.

    Of a list all images are examined, of other collections the first 32.

    Args:
        items: the samples.
        image_of: the image of a sample.
    """
    # Images of a list are in memory already. Other collections may decode each image.
    most = None if isinstance(items, list | tuple) else _MODE_CHECKED
    grey = False
    for item in islice(_readable(items), most):
        try:
            image = image_of(item)
        except SampleError:
            continue
        grey = isinstance(image, Image.Image) and is_grey(image)
        if not grey:
            break
    return 1 if grey else 3


def pixels_in_one_mode(
    image: object, where: str, options: ImageOptions, layout: Layout | None = None
) -> Tensor:
    """The pixels of a PIL image, an array or a tensor.

    Raises:
        SampleError: it is unusable, or in colour where the first images are grey.
    """
    if isinstance(image, Image.Image) and options.channels == 1 and not is_grey(image):
        remedy = "convert all to the network's mode: image.convert('RGB') or image.convert('L')"
        raise SampleError(
            where, f"is in colour, but the first {_MODE_CHECKED} images are grey", remedy
        )
    return object_pixels(image, where, options, layout)


def _decoder(
    items: Any, layout: Layout | None, image_of: Callable[[Any], object]
) -> Callable[[object, str], Tensor]:
    """The function that decodes an image."""
    options = ImageOptions.model_construct(kind="memory", channels=one_mode(items, image_of))
    return partial(pixels_in_one_mode, options=options, layout=layout)


def _keys(
    first: Mapping[Any, Any],
    image_key: str | None,
    label_key: str | None,
    features: Mapping[str, Any],
) -> tuple[str, str | None]:
    """The keys of image and label.

    They are the user's, else by the column types of a Hugging Face data set, else the first usual
    keys. A key that no column has was added by a transform; it is the network's input, and comes
    before the columns.

    Args:
        first: the first sample that can be read.
        image_key, label_key: the user's keys.
        features: the columns of a Hugging Face data set with their types; empty for others.

    Raises:
        DataError: the user's key does not exist, or no key is usual for images.
    """
    known = [str(key) for key in first]
    for argument, key in (("image_key", image_key), ("label_key", label_key)):
        if key is not None and key not in known:
            raise DataError(argument, f"the samples have no {key!r}", did_you_mean(str(key), known))

    image_columns = [name for name in known if type(features.get(name)).__name__ == "Image"]
    usual_images = [name for name in _IMAGE_KEYS if name in known]
    candidates = []
    if features:
        candidates += [name for name in usual_images if name not in features]
    if len(image_columns) == 1:
        candidates += image_columns
    candidates += usual_images
    image = image_key or next(iter(candidates), None)
    if image is None:
        raise DataError(
            "dataset",
            f"its samples have the keys {', '.join(known)}, and none of them is usual for images",
            "give image_key=",
        )

    class_columns = [name for name in known if type(features.get(name)).__name__ == "ClassLabel"]
    if label_key or len(class_columns) == 1:
        return image, label_key or class_columns[0]
    usual_labels = [name for name in _LABEL_KEYS if name in (class_columns or known)]
    return image, next(iter(usual_labels), None)


def _texts(names: Iterable[object] | None) -> tuple[str, ...] | None:
    """Class names as texts; of several names of a class (a tuple, as ImageNet has), the first."""
    if names is None:
        return None
    firsts = (name[0] if isinstance(name, tuple | list) and name else name for name in names)
    return tuple(map(str, firsts))


def _names(items: Any) -> Sequence[object] | None:
    """The class names of a torch data set, or of the data set that it is part of."""
    # torch's Subset and ImageFolder, for example: a Subset has its data set as `dataset`.
    while items is not None:
        classes = getattr(items, "classes", None)
        if isinstance(classes, list | tuple) and classes:
            return classes
        items = getattr(items, "dataset", None)
    return None
