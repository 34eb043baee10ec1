"""Samples of a Python program: arrays, lists, torch and Hugging Face data sets, as a data set of an
audit."""

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
from robaudit.datasets.image_set import ONE_BY_ONE, ImageSet, sample_parts
from robaudit.datasets.listing import USUAL_LABELS
from robaudit.errors import DataError, SampleError, did_you_mean
from robaudit.spec.model import ImageOptions

Layout = Literal["nchw", "nhwc"]

_IMAGE_KEYS = ("image", "images", "img", "pixel_values", "pixels", "x", "input", "inputs")
_LABEL_KEYS = (*USUAL_LABELS, "targets", "fine_label")
_FORMS = "a torch or Hugging Face data set, (x, y), or a list of images or of (image, label)"
_TABLES = ("DataFrame", "LazyFrame", "Table", "RecordBatch")  # of pandas, polars and Arrow
_CHECKED = 32  # the first images, which are read twice
_LOOKED_AT = 32  # the first images, which show whether all are grey; of a list, all


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
    if all(
        hasattr(data, name)
        for name in ("where", "class_names", "sample_id", "labels", "__getitem__", "__len__")
    ):
        return data  # type: ignore[return-value]
    if layout not in (None, "nchw", "nhwc"):
        raise DataError("layout", f"{layout!r} is unknown", "'nchw' or 'nhwc'")
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
    kind = type(data)
    where = where or (
        "data in memory"
        if kind.__module__ in ("builtins", "numpy", "torch")
        else f"{kind.__name__} in memory"
    )
    images, labels = data if isinstance(data, tuple) and len(data) == 2 else (data, None)
    if not (hasattr(images, "__len__") and hasattr(images, "__getitem__")) or isinstance(
        images, str | bytes | IterableDataset | type
    ):
        is_stream = hasattr(images, "__iter__") and not isinstance(images, str | bytes | type)
        remedy = (
            "read them first: list(itertools.islice(data, 1000))"
            if is_stream
            else f"pass {_FORMS}; or name files in a spec"
        )
        raise DataError(
            "dataset",
            f"is {images!r:.100}"
            + (", samples without a length and an order" if is_stream else ""),
            remedy,
        )
    items: Any = images
    names = None if ids is None else different(tuple(map(str, ids)), "ids")
    if names is not None and len(names) != len(items):
        raise DataError(
            "ids", f"there are {len(names)} for {len(items)} samples", "give each sample one"
        )
    first = next(_readable(items), None)
    if labels is not None or isinstance(items, Tensor | np.ndarray):
        known = None if labels is None else label_array(labels, "dataset", len(items), class_names)
        decode = _decoder(items, layout, lambda item: item)
        return ImageSet(
            where,
            items,
            decode,
            labels=known,
            ids=names,
            class_names=_texts(class_names),
            parallel=False,
        )
    features = getattr(images, "features", None) if hasattr(images, "column_names") else None
    features = features if isinstance(features, Mapping) else {}
    keys: tuple[str, str | None] = ("", None)
    if isinstance(first, Mapping):
        keys = _keys(first, image_key, label_key, features)
        classes = (
            [features[keys[1]]]
            if keys[1] in features
            else [feature for feature in features.values() if hasattr(feature, "names")]
        )
        class_names = class_names or (
            getattr(classes[0], "names", None) if len(classes) == 1 else None
        )
    parts = partial(sample_parts, keys=keys)
    texts = _texts(class_names or _names(images))
    decode = _decoder(items, layout, lambda item: parts(item, where)[0])
    return ImageSet(where, items, decode, ids=names, class_names=texts, parts=parts, parallel=False)


def _readable(items: Any) -> Iterator[Any]:
    """The items that can be read."""
    for index in range(len(items)):
        try:
            with ONE_BY_ONE:
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
    for first, again in zip(
        *(first_samples(dataset, _CHECKED, skip_bad=skip_bad) for _ in range(2)), strict=False
    ):
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
    """The channels that PIL images get: one if all are grey, by the first 32; of a list, by all.

    Args:
        items: the samples.
        image_of: the image of a sample.
    """
    shown = None if isinstance(items, list | tuple) else _LOOKED_AT
    grey = False
    for item in islice(_readable(items), shown):
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
            where, f"is in colour, but the first {_LOOKED_AT} images are grey", remedy
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
    """The keys of image and label: the user's, else by the column types of a Hugging Face data set,
    else the first usual keys.

    Columns added by a transform are the network's input.

    Raises:
        DataError: the user's key does not exist, or no key is usual for images.
    """
    known = [str(key) for key in first]
    for argument, key in (("image_key", image_key), ("label_key", label_key)):
        if key not in (None, *known):
            raise DataError(argument, f"the samples have no {key!r}", did_you_mean(str(key), known))
    images, classes = (
        [name for name in known if type(features.get(name)).__name__ == kind]
        for kind in ("Image", "ClassLabel")
    )
    added = [name for name in _IMAGE_KEYS if name in known and features and name not in features]
    image = image_key or next(
        iter(
            [*added, *(images if len(images) == 1 else ()), *(k for k in _IMAGE_KEYS if k in known)]
        ),
        None,
    )
    if image is None:
        raise DataError(
            "dataset",
            f"its samples have the keys {', '.join(known)}, and none of them is usual for images",
            "give image_key=",
        )
    usual = [name for name in _LABEL_KEYS if name in (classes or known)]
    return image, label_key or next(iter([*(classes if len(classes) == 1 else ()), *usual]), None)


def _texts(names: Iterable[object] | None) -> tuple[str, ...] | None:
    return (
        None
        if names is None
        else tuple(
            str(name[0] if isinstance(name, tuple | list) and name else name) for name in names
        )
    )


def _names(items: Any) -> Sequence[object] | None:
    """The class names of a torch data set, or of the data set that it is part of."""
    while items is not None and not (
        isinstance(classes := getattr(items, "classes", None), list | tuple) and classes
    ):
        items = getattr(items, "dataset", None)
    return None if items is None else items.classes
