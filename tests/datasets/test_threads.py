"""Threads that read one data set at once: each gets what it would get alone, and the process is left as it was."""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from pydantic import TypeAdapter

from robaudit.datasets import open_dataset
from robaudit.datasets.base import Dataset, Sample
from robaudit.errors import SampleError
from robaudit.spec.model import DatasetSpec

COUNT, THREADS = 40, 4
IMAGES = np.random.default_rng(7).integers(0, 256, (COUNT, 3, 12, 10), dtype=np.uint8)
SPECS: dict[str, dict[str, Any]] = {
    "npz": {"kind": "npz", "path": "stored.npz"},
    "images": {"kind": "images", "path": "images", "resize": 9, "crop": [8, 9]},
    "csv": {"kind": "csv", "path": "list.csv"},
    "torchvision, files": {"kind": "torchvision", "name": "ImageFolder", "root": "images"},
    "torchvision, one random generator": {
        "kind": "torchvision",
        "name": "FakeData",
        "root": ".",
        "options": {"size": COUNT, "image_size": [3, 8, 8]},
    },
    "python": {"kind": "python", "target": "threaded_images:build"},
}
MODULE = """
import io
import time
import numpy as np
import torch

class OneFile:
    class_names = [str(i) for i in range(40)]
    def __init__(self):
        self.file = io.BytesIO(np.load("ROOT/stored.npz")["images"].tobytes())
    def __len__(self):
        return 40
    def __getitem__(self, index):
        self.file.seek(index * 360)
        time.sleep(0)
        content = self.file.read(360)
        return torch.frombuffer(bytearray(content), dtype=torch.uint8).reshape(3, 12, 10), index, f"image {index}"

def build():
    return OneFile()
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same images in files of all kinds; of those in folders, the first is damaged."""
    place = tmp_path_factory.mktemp("threads")
    labels = np.arange(COUNT) % 2
    np.savez(place / "stored.npz", images=IMAGES, labels=labels)
    for label in "01":
        (place / "images" / label).mkdir(parents=True)
    for index, image in enumerate(IMAGES):
        Image.fromarray(np.moveaxis(image, 0, -1)).save(place / "images" / str(index % 2) / f"{index:02d}.png")
    (place / "images" / "0" / "00.png").write_bytes(b"junk")
    rows = [f"images/{index % 2}/{index:02d}.png,{index % 2},number {index}\n" for index in range(COUNT)]
    (place / "list.csv").write_text("path,label,id\n" + "".join(rows))
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


def read_all(dataset: Dataset) -> Callable[[int], None]:
    def work(number: int) -> None:
        for index in range(len(dataset)):
            read(dataset, index)

    return work


def together(work: Callable[[int], None], threads: int = THREADS) -> None:
    """Run ``work(number)`` in threads that begin at once."""
    gate = threading.Barrier(threads)

    def begin(number: int) -> None:
        gate.wait()
        work(number)

    with ThreadPoolExecutor(threads) as pool:
        for task in [pool.submit(begin, number) for number in range(threads)]:
            task.result()


@pytest.mark.parametrize("kind", SPECS)
def test_threads_read_what_one_reads(folder: Path, kind: str) -> None:
    spec: DatasetSpec = TypeAdapter(DatasetSpec).validate_python(SPECS[kind])
    alone = open_dataset(spec, base_dir=folder, trust=True)
    expected = [read(alone, index) for index in range(len(alone))]
    shared = open_dataset(spec, base_dir=folder, trust=True)

    def work(number: int) -> None:
        order = list(range(len(shared)))
        random.Random(number).shuffle(order)
        for index in order:
            found, wanted = read(shared, index), expected[index]
            if isinstance(found, str) or isinstance(wanted, str):
                assert found == wanted
                continue
            assert (found.id, found.label, shared.sample_id(index)) == (wanted.id, wanted.label, wanted.id)
            assert found.pixels.equal(wanted.pixels)

    together(work)
    assert sum(isinstance(sample, str) for sample in expected) == (kind in ("images", "csv", "torchvision, files"))


def test_the_global_generator_is_left_alone() -> None:
    """torchvision's FakeData seeds torch's own generator and puts it back: one thread at a time."""
    spec = TypeAdapter(DatasetSpec).validate_python(SPECS["torchvision, one random generator"])
    dataset = open_dataset(spec, base_dir=Path(), trust=False)
    before = torch.random.get_rng_state()
    together(read_all(dataset))
    assert torch.random.get_rng_state().equal(before)
