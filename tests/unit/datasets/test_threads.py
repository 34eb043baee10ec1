"""Threads that read one data set at once: each gets what it would get alone, and the process is
left as it was."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
import torch
from PIL import Image

from robaudit.datasets.dataset import Dataset, Sample
from robaudit.errors import SampleError
from tests.unit.datasets.reading import opened

COUNT = 40
THREADS = 4
IMAGES = np.random.default_rng(7).integers(0, 256, (COUNT, 3, 12, 10), dtype=np.uint8)
SPECS: dict[str, dict[str, Any]] = {
    "images": {"kind": "images", "path": "images", "resize": 9, "crop": [8, 9]},
    "hf": {"kind": "hf", "path": "arrow"},
    "torchvision, files": {"kind": "torchvision", "name": "ImageFolder", "root": "images"},
    "torchvision, one random generator": {
        "kind": "torchvision",
        "name": "FakeData",
        "root": ".",
        "options": {"size": COUNT, "image_size": [3, 8, 8]},
    },
    "python": {"kind": "python", "target": "threaded_images:OneFile"},
}
MODULE = """
import io
import time
import numpy as np
import torch

class OneFile:
    class_names = [str(i) for i in range(40)]
    ids = [f"image {i}" for i in range(40)]
    def __init__(self):
        self.file = io.BytesIO(np.load("ROOT/images.npy").tobytes())
    def __len__(self):
        return 40
    def __getitem__(self, index):
        self.file.seek(index * 360)
        time.sleep(0)
        content = self.file.read(360)
        return torch.frombuffer(bytearray(content), dtype=torch.uint8).reshape(3, 12, 10), index
"""


def picture(image: Any) -> Image.Image:
    return Image.fromarray(np.moveaxis(image, 0, -1))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same images in files of all kinds; of those in folders, the first is damaged."""
    place = tmp_path_factory.mktemp("threads")
    np.save(place / "images.npy", IMAGES)
    datasets.Dataset.from_dict(
        {"image": list(map(picture, IMAGES))}, datasets.Features({"image": datasets.Image()})
    ).save_to_disk(place / "arrow")
    for index, image in enumerate(IMAGES):
        (place / "images" / str(index % 2)).mkdir(parents=True, exist_ok=True)
        picture(image).save(place / "images" / str(index % 2) / f"{index:02d}.png")
    (place / "images" / "0" / "00.png").write_bytes(b"junk")
    (place / "threaded_images.py").write_text(MODULE.replace("ROOT", str(place)))
    return place


@pytest.fixture(autouse=True)
def hasty() -> Iterator[None]:
    """Threads take turns often."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)
    sys.modules.pop("threaded_images", None)


def read(dataset: Dataset, index: int) -> Sample | str:
    try:
        return dataset[index]
    except SampleError as error:
        return str(error)


@pytest.mark.parametrize("kind", SPECS)
def test_threads_read_what_one_reads(folder: Path, kind: str) -> None:
    alone, shared = (opened(folder, trust=True, **SPECS[kind]) for _ in range(2))
    expected = [read(alone, index) for index in range(len(alone))]
    # FakeData seeds torch's own and puts it back: one thread at a time
    generator = torch.random.get_rng_state()

    def work(number: int) -> None:
        for index in random.Random(number).sample(range(len(shared)), len(shared)):
            found = read(shared, index)
            wanted = expected[index]
            if isinstance(found, str) or isinstance(wanted, str):
                assert found == wanted
                continue
            assert (found.id, found.label, shared.sample_id(index)) == (
                wanted.id,
                wanted.label,
                wanted.id,
            )
            assert found.pixels.equal(wanted.pixels)

    with ThreadPoolExecutor(THREADS) as pool:
        assert list(pool.map(work, range(THREADS))) == [None] * THREADS
    assert sum(isinstance(sample, str) for sample in expected) == (
        kind in ("images", "torchvision, files")
    )
    assert torch.random.get_rng_state().equal(generator)
