"""Labels by the model's own classes: every form that has names of classes follows the class names
and ids that a model brings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import datasets
import pytest

from robaudit.datasets.open_dataset import open_dataset
from robaudit.errors import DataError
from robaudit.models.pretrained import filled
from robaudit.spec.read import load_spec
from tests.golden import Golden
from tests.unit.datasets.forms import COUNT, LABELS, hub, write_files, write_parquet
from tests.unit.datasets.reading import opened

MODEL = {
    "class_names": ["ox, Bos taurus", "cat", "Fox", "dog, Canis"],
    "class_ids": ["n00000001", "n00000002", "n00000003", "n00000004"],
}
SYNSETS = ("n00000002", "n00000004", "n00000003")
PLACES = [1, 3, 2]
"""Of cat, dog and fox among the model's classes."""
EXPECTED = [PLACES[label] for label in LABELS]


def labels(folder: Path, **spec: Any) -> list[int]:
    dataset = opened(folder, **spec)
    assert dataset.class_names == tuple(spec["class_names"])
    found = dataset.labels()
    assert found is not None
    assert [dataset[index].label for index in range(3)] == found.tolist()[:3]
    return [int(label) for label in found]


@pytest.mark.parametrize("names", [("cat", "dog", "fox"), SYNSETS], ids=["names", "synsets"])
def test_every_form_with_names(tmp_path: Path, names: tuple[str, ...]) -> None:
    datasets.disable_progress_bars()
    texts = [names[label] for label in LABELS]
    hub(names=names).save_to_disk(tmp_path / "arrow")
    assert labels(tmp_path, kind="hf", path="arrow", **MODEL) == EXPECTED
    hub(names=names).to_parquet(tmp_path / "hub.parquet")
    assert labels(tmp_path, kind="hf", path="hub.parquet", **MODEL) == EXPECTED
    write_parquet(tmp_path / "plain.parquet", label=texts)
    assert labels(tmp_path, kind="hf", path="plain.parquet", **MODEL) == EXPECTED
    files = write_files(tmp_path / "images")
    lines = [
        json.dumps({"file_name": file, "label": text})
        for file, text in zip(files, texts, strict=True)
    ]
    (tmp_path / "images/metadata.jsonl").write_text("\n".join(lines))
    assert labels(tmp_path, kind="hf", path="images/metadata.jsonl", **MODEL) == EXPECTED
    rows = [f"{file},{text}" for file, text in zip(files, texts, strict=True)]
    (tmp_path / "images/list.csv").write_text("\n".join(["path,label", *rows]))
    assert labels(tmp_path, kind="csv", path="images/list.csv", **MODEL) == EXPECTED
    (tmp_path / "images/metadata.jsonl").unlink()
    for file, text in zip(files, texts, strict=True):
        (tmp_path / "folders" / text).mkdir(parents=True, exist_ok=True)
        (tmp_path / "images" / file).rename(tmp_path / "folders" / text / file)
    dataset = opened(tmp_path, kind="images", path="folders", **MODEL)
    assert {dataset.sample_id(i).split("/")[0]: dataset[i].label for i in range(COUNT)} == dict(
        zip(names, PLACES, strict=True)
    )


@pytest.mark.parametrize(
    "written", ["", ", class_names: [bird, horse, owl]"], ids=["taken", "written by init"]
)
def test_as_many_classes_of_other_names(tmp_path: Path, written: str, golden: Golden) -> None:
    """Owls, birds and horses are not the model's birds, horses and owls in this order, although
    they are as many."""
    (tmp_path / "net").mkdir()
    config = {
        "architecture": "resnet18",
        "num_classes": 3,
        "label_names": ["bird", "horse", "owl"],
        "pretrained_cfg": {},
    }
    (tmp_path / "net/config.json").write_text(json.dumps(config))
    text = (
        f"model: {{path: net}}\ndataset: {{kind: hf, path: hub.parquet{written}}}\nnoise: "
        "{sigma: 0.05}\n"
    )
    spec = filled(load_spec(tmp_path / "spec.yaml", text=text)).dataset
    hub(names=("owls", "birds", "horses")).to_parquet(tmp_path / "hub.parquet")
    with pytest.raises(DataError) as caught:
        open_dataset(spec, base_dir=tmp_path, trust=False)
    golden(caught.value)
    hub(names=("bird", "horse", "strix")).to_parquet(tmp_path / "hub.parquet")
    found = open_dataset(spec, base_dir=tmp_path, trust=False).labels()
    assert found is not None
    assert found.tolist() == LABELS


def test_folders_of_a_model_trained_on_from_imagenet(tmp_path: Path, golden: Golden) -> None:
    """The names come with the architecture, whose last layer the user has replaced: what is missing
    is the number of classes."""
    (tmp_path / "photos/sick").mkdir(parents=True)
    (tmp_path / "photos/sick/1.png").touch()
    text = (
        "model: {path: net.pth, architecture: 'timm:resnet18.a1_in1k'}\ndataset: {kind: "
        "images, path: photos}\nnoise: {sigma: 0.05}\n"
    )
    spec = filled(load_spec(tmp_path / "spec.yaml", text=text)).dataset
    with pytest.raises(DataError) as caught:
        open_dataset(spec, base_dir=tmp_path, trust=False)
    golden(caught.value)
