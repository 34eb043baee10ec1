"""Every form of data on disk keeps the contract of a data set: the same images, ids and labels, for threads, processes and pickles."""

from __future__ import annotations

import os
import pickle
import random
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from pydantic import TypeAdapter

from robaudit.datasets.base import Dataset
from robaudit.errors import RobauditError, SampleError
from robaudit.spec.model import DatasetSpec
from tests.conftest import RunCli
from tests.specs import digits, read_info, write
from tests.unit.datasets.forms import BAD, COUNT, LABELS, NAMES, PIXELS, write_all
from tests.unit.datasets.reading import opened

Forms = tuple[Path, dict[str, dict[str, object]]]
FORMS = (
    "hf, arrow",
    "hf, a split",
    "hf, parquet",
    "parquet, of the hub",
    "parquet",
    "webdataset",
    "webdataset, shards",
    "csv, metadata",
    "json lines, metadata",
    "csv, tabs",
)
UNNAMED = ("parquet", "webdataset", "csv, tabs")
"""Forms whose labels are class indices without names."""


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Forms:
    folder = tmp_path_factory.mktemp("good")
    return folder, write_all(folder)


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Forms:
    folder = tmp_path_factory.mktemp("damaged")
    return folder, write_all(folder, bad=True)


def check(dataset: Dataset, order: list[int]) -> None:
    for index in order:
        sample = dataset[index]
        assert sample.id == dataset.sample_id(index)
        assert sample.label == LABELS[index]
        assert np.array_equal(sample.pixels.numpy().transpose(1, 2, 0) * 255, PIXELS[index].astype(float))


@pytest.mark.parametrize("form", FORMS)
def test_the_contract(good: Forms, form: str) -> None:
    folder, specs = good
    dataset = opened(folder, **specs[form])
    assert len(dataset) == COUNT
    labels = dataset.labels()
    assert labels is not None
    assert labels.dtype == np.int64
    assert labels.tolist() == LABELS
    assert dataset.class_names == (None if form in UNNAMED else NAMES)
    assert len({dataset.sample_id(index) for index in range(COUNT)}) == COUNT
    with pytest.raises(IndexError):
        dataset[COUNT]
    check(dataset, [0, COUNT - 1, 3, 2, 5, 1, *range(COUNT)])
    check(pickle.loads(pickle.dumps(dataset)), [7, 2])
    stored = TypeAdapter(DatasetSpec).validate_python(specs[form]).model_dump(mode="json")  # as run.json has it
    check(opened(folder, **stored), [3])


@pytest.mark.parametrize("form", ["hf, arrow", "parquet", "webdataset"])
def test_threads_and_a_forked_process(good: Forms, form: str) -> None:
    dataset = opened(good[0], **good[1][form])
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        orders = [random.Random(seed).sample(range(COUNT), COUNT) for seed in range(4)]
        with ThreadPoolExecutor(4) as pool:
            assert list(pool.map(lambda order: check(dataset, order), orders)) == [None] * 4
    finally:
        sys.setswitchinterval(before)
    if (child := os.fork()) == 0:
        try:
            check(dataset, list(range(COUNT)))
        except BaseException:  # noqa: BLE001  the parent sees the exit code
            os._exit(1)
        os._exit(0)
    check(dataset, list(range(COUNT)))
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize("form", FORMS)
def test_one_bad_image(damaged: Forms, form: str) -> None:
    dataset = opened(damaged[0], **damaged[1][form])
    with pytest.raises(SampleError, match=r": is not an image that Pillow can read; ") as caught:
        dataset[BAD]
    assert dataset.sample_id(BAD) in str(caught.value)
    assert "\n" not in str(caught.value)
    check(dataset, [BAD - 1, BAD + 1])


@pytest.mark.parametrize("form", ["hf, a split", "parquet", "webdataset, shards", "json lines, metadata"])
def test_an_audit_skips_it(damaged: Forms, form: str, run_cli: RunCli, tmp_path: Path) -> None:
    names = [*NAMES, *(f"class {index}" for index in range(3, 10))]
    section = {**damaged[1][form], "resize": [8, 8], "channels": 1, "class_names": names}
    path = str(damaged[0] / str(section["path"]))
    spec = write(tmp_path, digits(dataset={**section, "path": path}))
    code, _, err = run_cli("estimate", spec, "--out", "run")
    assert code == 2
    assert "continue without it: robaudit estimate --on-error skip" in err
    assert run_cli("estimate", spec, "--out", "run", "--on-error", "skip").code == 0
    info = read_info(tmp_path / "run")
    assert info["totals"]["samples"] == COUNT - 1
    assert [skip["sample_id"] for skip in info["skipped"]] == [opened(damaged[0], **damaged[1][form]).sample_id(BAD)]


@pytest.mark.parametrize("form", ["hf, arrow", "parquet", "webdataset"])
def test_a_missing_library(good: Forms, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(RobauditError, match=r": needs datasets, which is not installed; pip install 'robaudit\[hf\]'$"):
        opened(good[0], **good[1][form])
