"""Samples of a Python program: every form gives the same samples, and what cannot be read is
refused in one line."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pandas
import pyarrow
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from torch.utils.data import DataLoader, IterableDataset, Subset
from torch.utils.data import Dataset as TorchDataset
from torchvision import transforms

from robaudit.datasets.dataset import Dataset
from robaudit.datasets.in_memory import open_in_memory, refuse_random
from robaudit.errors import DataError, RobauditError, SampleError
from tests.golden import Golden

COUNT = 5
IMAGES: NDArray[np.uint8] = np.random.default_rng(3).integers(
    0, 256, (COUNT, 6, 7, 3), dtype=np.uint8
)
LABELS = [2, 0, 1, 2, 0]
FIRST: NDArray[np.uint8] = np.moveaxis(IMAGES, -1, 1)  # channels first
FLOATS = torch.from_numpy(FIRST.copy()).float() / 255


class Items(TorchDataset[Any]):
    """A map-style data set of anything."""

    def __init__(self, items: Sequence[Any]) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Any:
        return self.items[index]


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        yield from zip(FLOATS, LABELS, strict=True)


def pictures() -> list[Image.Image]:
    return [Image.fromarray(image) for image in IMAGES]


def keyed(image: str, label: str) -> list[dict[str, Any]]:
    return [{image: one, label: two} for one, two in zip(pictures(), LABELS, strict=True)]


def bytes_of(dataset: Dataset) -> list[Any]:
    return [
        ((dataset[i].pixels * 255).round().to(torch.uint8).tolist(), dataset[i].label)
        for i in range(len(dataset))
    ]


PAIRS = list(zip(FLOATS, LABELS, strict=True))
FORMS: dict[str, Callable[[], Any]] = {
    "arrays nhwc": lambda: (IMAGES, np.array(LABELS)),
    "arrays nchw": lambda: (FIRST, LABELS),
    "tensors": lambda: (torch.from_numpy(FIRST.copy()), torch.tensor(LABELS)),
    "floats": lambda: (FLOATS, torch.tensor(LABELS)[:, None]),
    "a data set of pairs": lambda: Items(PAIRS),
    "a data set of mappings": lambda: Items(
        [{"pixel_values": image, "labels": label} for image, label in PAIRS]
    ),
    "a subset": lambda: Subset(Items([PAIRS[0], *PAIRS]), range(1, COUNT + 1)),
    "pictures": lambda: list(zip(pictures(), LABELS, strict=True)),
    "pictures, labels beside": lambda: (pictures(), LABELS),
    "mappings in a list": lambda: keyed("img", "target"),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS.values(), ids=list(FORMS))
def test_every_form_gives_the_same_samples(form: Callable[[], Any]) -> None:
    dataset = open_in_memory(form())
    expected = [(image.tolist(), label) for image, label in zip(FIRST, LABELS, strict=True)]
    assert bytes_of(dataset) == expected
    assert [dataset.sample_id(i) for i in range(COUNT)] == ["0", "1", "2", "3", "4"]
    known = dataset.labels()
    assert known is None or known.tolist() == LABELS
    with pytest.raises(IndexError):
        dataset[COUNT]
    refuse_random(dataset, skip_bad=False)


def test_ids() -> None:
    dataset = open_in_memory(PAIRS[:3], ids=["a", "b", "c"])
    assert [dataset[i].id for i in range(len(dataset))] == ["a", "b", "c"]


def test_without_labels() -> None:
    for form in (
        IMAGES,
        FLOATS,
        pictures(),
        list(IMAGES),
        (IMAGES, None),
        (pictures(), None),
        (IMAGES, [-1] * COUNT),
    ):
        dataset = open_in_memory(form)
        assert [dataset[i].label for i in range(COUNT)] == [None] * COUNT


def test_grey_and_colour() -> None:
    grey = open_in_memory(
        [Image.fromarray(IMAGES[0, :, :, 0]), Image.fromarray(IMAGES[1, :, :, 0])]
    )
    assert grey[0].pixels.shape == (1, 6, 7)
    for mixed in ([IMAGES[0], IMAGES[1, :, :, 0]], [IMAGES[1, :, :, 0], IMAGES[0]]):
        images = [Image.fromarray(image) for image in mixed]
        forms = (
            images,
            (images, [0, 1]),
            [(image, 0) for image in images],
            Items([{"image": image} for image in images]),
        )
        for form in forms:
            shapes = [open_in_memory(form)[i].pixels.shape for i in range(2)]
            assert shapes == [(3, 6, 7), (3, 6, 7)], (
                "grey among colour is colour, as from files, also where it is first"
            )
    assert open_in_memory(IMAGES[:, :, :, 0])[0].pixels.shape == (1, 6, 7)


def test_colour_after_many_grey_images(golden: Golden) -> None:
    """What is not a list is read one by one, so only the first images are looked at."""
    grey = Image.fromarray(IMAGES[0, :, :, 0])
    colour = Image.fromarray(IMAGES[0])
    assert open_in_memory([*[grey] * 40, colour])[0].pixels.shape == (3, 6, 7)
    dataset = open_in_memory(Items([*[grey] * 40, colour]))
    assert dataset[0].pixels.shape == (1, 6, 7)
    with pytest.raises(SampleError) as caught:
        dataset[40]
    golden(caught.value)


def test_names_of_classes() -> None:
    named = Items(PAIRS)
    named.classes = ["a", "b", "c"]  # type: ignore[attr-defined]
    assert open_in_memory(Subset(named, [0])).class_names == ("a", "b", "c")
    assert open_in_memory(named, class_names=["x", "y", "z"]).class_names == ("x", "y", "z")
    by_name = open_in_memory(
        [(image, "abc"[label]) for image, label in PAIRS], class_names=["a", "b", "c"]
    )
    assert [by_name[i].label for i in range(COUNT)] == LABELS


REFUSED: dict[str, tuple[Any, dict[str, Any]]] = {
    "a path": ("data/test.npz", {}),
    "a stream without end": (Stream(), {}),
    "too few ids": ((IMAGES, LABELS), {"ids": list("ab")}),
    "a loader": (DataLoader(Items(PAIRS)), {}),
    "other lengths": ((IMAGES, LABELS[:-1]), {}),
    "one-hot": ((IMAGES, np.eye(5)), {}),
    "text labels": (Items([(FLOATS[0], "cat")]), {}),
    "another name": (Items([(FLOATS[0], "cta")]), {"class_names": ["cat"]}),
    "splits": ({"train": Items(PAIRS), "test": Items(PAIRS)}, {}),
    "unusual keys": ([{"foto": FLOATS[0]}], {}),
    "no such key": ([{"img": FLOATS[0]}], {"image_key": "imq"}),
    "a flat image": (Items([(FLOATS[0].flatten(), 1)]), {}),
    "ambiguous": ((np.zeros((2, 3, 8, 3), dtype=np.uint8), [0, 1]), {}),
    "text": (["a.png", "b.png"], {}),
    "ids twice": ((IMAGES, LABELS), {"ids": list("aabcd")}),
    "a layout": ((IMAGES, LABELS), {"layout": "hwc"}),
    "a table": (pandas.DataFrame({"image": pictures(), "label": LABELS}), {}),
}  # fmt: skip


@pytest.mark.parametrize(("data", "options"), REFUSED.values(), ids=list(REFUSED))
def test_refused_in_one_line(data: Any, options: dict[str, Any], golden: Golden) -> None:
    with pytest.raises(RobauditError) as caught:
        list(open_in_memory(data, **options))  # type: ignore[call-overload]
    golden(caught.value)


@pytest.mark.parametrize(
    "labels",
    [
        pandas.Series(LABELS),
        pandas.Series(LABELS, index=range(7, 7 + COUNT)),
        pyarrow.array(LABELS),
    ],
)
def test_labels_as_a_column_of_a_table(labels: Any) -> None:
    for images in (FIRST, IMAGES, pictures()):
        assert bytes_of(open_in_memory((images, labels))) == bytes_of(
            open_in_memory((IMAGES, LABELS))
        )


def test_an_item_that_raises(golden: Golden) -> None:
    class Broken(Items):
        def __getitem__(self, index: int) -> Any:
            if index == 1:
                raise KeyError("gone")
            return super().__getitem__(index)

    dataset = open_in_memory(Broken(PAIRS))
    with pytest.raises(RobauditError) as caught:
        dataset[1]
    golden(caught.value)
    assert dataset[2].label == LABELS[2]


def test_augmentation(golden: Golden) -> None:
    class Random(Items):
        def __getitem__(self, index: int) -> Any:
            image, label = super().__getitem__(index)
            return (image + 0.1 * torch.rand(1)).clamp(0, 1), label

    data = Random(PAIRS)
    with pytest.raises(DataError) as caught:
        refuse_random(open_in_memory(data), skip_bad=False)
    golden(caught.value)


def hugging_face(**columns: Any) -> Any:
    datasets = pytest.importorskip("datasets")
    names = datasets.ClassLabel(names=["ant", "bee", "cat"])
    features = datasets.Features(
        {"picture": datasets.Image(), "kind": names, "note": datasets.Value("string")}
    )
    content = {"picture": pictures(), "kind": LABELS, "note": ["x"] * COUNT, **columns}
    return datasets.Dataset.from_dict(content, features=features)


def test_hugging_face(golden: Golden) -> None:
    data = hugging_face()
    expected = [(image.tolist(), label) for image, label in zip(FIRST, LABELS, strict=True)]
    for form in (data, data.with_format("torch")):
        dataset = open_in_memory(form)
        assert bytes_of(dataset) == expected
    assert open_in_memory(data).class_names == ("ant", "bee", "cat")
    splits = sys.modules["datasets"].DatasetDict({"train": data, "test": data})
    with pytest.raises(DataError) as caught:
        open_in_memory(splits)
    golden(caught.value)


def test_hugging_face_with_a_transform() -> None:
    def floats(batch: dict[str, Any]) -> dict[str, Any]:
        return {
            "pixel_values": [transforms.ToTensor()(image) for image in batch["picture"]],
            "labels": batch["kind"],
        }

    def added(batch: dict[str, Any]) -> dict[str, Any]:
        return {
            **batch,
            "pixel_values": [
                transforms.CenterCrop(4)(one) for one in floats(batch)["pixel_values"]
            ],
        }

    data = hugging_face()
    expected = bytes_of(open_in_memory(PAIRS))
    assert bytes_of(open_in_memory(data.with_transform(floats))) == expected
    assert (
        bytes_of(
            open_in_memory(
                data.with_transform(floats), image_key="pixel_values", label_key="labels"
            )
        )
        == expected
    )
    assert open_in_memory(data.with_transform(floats)).class_names == ("ant", "bee", "cat")
    with_both = open_in_memory(data.with_transform(added))
    assert with_both[0].pixels.shape == (3, 4, 4), (
        "what the transform has added, not the picture as it was"
    )
    assert with_both.class_names == ("ant", "bee", "cat")
