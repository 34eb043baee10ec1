"""Mistakes that a review found once: models that are not functions of one image, data and code that change under a run."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from robaudit import RobauditError, Row, Run, audit
from robaudit.datasets.base import Labels, Sample
from robaudit.errors import RunError
from robaudit.levels import LevelChoice
from robaudit.results import Votes
from robaudit.stats.frame import Columns
from robaudit.stats.summary import noisy_accuracy
from tests import levels
from tests.levels import gaussian_process
from tests.specs import digits, located


class Images:
    """Random images in memory."""

    where, class_names = "images", None

    def __init__(self, count: int = 6, ids: list[str] | None = None) -> None:
        self._pixels = torch.rand(count, 1, 4, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        self._ids = ids or [str(i) for i in range(count)]

    def __len__(self) -> int:
        return len(self._ids)

    def sample_id(self, index: int) -> str:
        return self._ids[index]

    def labels(self) -> Labels | None:
        return None

    def __getitem__(self, index: int) -> Sample:
        return Sample(self._ids[range(len(self))[index]], self._pixels[index], index % 2)


class Net(nn.Module):
    """Two logits from the mean pixel, in one of several bad ways."""

    def __init__(self, way: str = "") -> None:
        super().__init__()
        self.way = way

    def forward(self, x: Tensor) -> Tensor:
        if self.way == "in place":
            x.sub_(0.5).mul_(4)
        else:
            x = (x - 0.5) * 4
        if self.way == "batch":
            x = x - x.mean(0)
        if self.way == "random":
            x = x + torch.rand_like(x)
        left = x.mean((1, 2, 3)) + 0.1
        if self.way == "nan":
            left = torch.where(x[:, 0, 0, 0] > 2.5, torch.nan, left)
        return torch.stack([left, -left], dim=1)


def run(tmp_path: Path, network: nn.Module, *, name: str = "run", data: Any = None, sigma: float = 0.3, **options: Any) -> Run:
    document = digits(estimators=[{"mc": {"samples": 50}}, {"mmse": {"samples": 4}}], noise={"sigma": [sigma]}, run={"as_given": True})
    spec = located(document, tmp_path, name)
    return audit(spec, out=tmp_path / name, model=network, dataset=data or Images(), **options)


def test_a_network_that_works_in_place_gives_the_same_rows(tmp_path: Path) -> None:
    plain, in_place = (run(tmp_path, Net(way), name=way or "plain") for way in ("", "in place"))
    for a, b in zip(plain.rows, in_place.rows, strict=True):
        assert b.value == pytest.approx(a.value, abs=1e-6)


@pytest.mark.parametrize(("way", "words"), [("", []), ("batch", ["depend on the other images"]), ("random", ["random or keeps state"])])
def test_a_model_that_is_no_function_of_the_image_warns(tmp_path: Path, way: str, words: list[str]) -> None:
    warnings = run(tmp_path, Net(way)).info.warnings
    assert len(warnings) == len(words)
    assert all(word in line for word, line in zip(words, warnings, strict=True))


def test_not_finite_under_noise_costs_one_sample_not_the_run(tmp_path: Path) -> None:
    with pytest.raises(RobauditError, match=r"mmse gave nan at sigma 2; .*on_error='skip'"):
        run(tmp_path, Net("nan"), sigma=2.0)
    skipping = run(tmp_path, Net("nan"), name="skipping", sigma=2.0, on_error="skip")
    assert 0 < len(skipping.info.skipped) < 6
    assert len(skipping.rows) == 2 * (6 - len(skipping.info.skipped))


def test_not_finite_copies_count_against_accuracy_under_noise(tmp_path: Path) -> None:
    rows = [r for r in run(tmp_path, Net("nan"), name="skipping", sigma=2.0, on_error="skip").rows if r.estimator == "mc"]
    broken = [dataclasses.replace(r, label=r.predicted, votes=Votes((20, 0), lost=30)) for r in rows]
    found = noisy_accuracy(Columns.of(dataclasses.replace(r, predicted=0, label=0) for r in broken))
    assert found is not None
    assert found.value == pytest.approx(0.4)


def test_another_prediction_of_a_known_sample_is_another_model(tmp_path: Path) -> None:
    flipped: list[bool] = []  # which the digest of a network does not see

    class Flipped(Net):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x).flip(1) if flipped else super().forward(x)

    run(tmp_path, Flipped())
    flipped.append(True)
    document = digits(estimators=["softmax"], noise={"sigma": [0.3]})
    spec = located(document, tmp_path, "run")
    with pytest.raises(RunError, match=r"was predicted \d and is \d; the data, the model's code or the machine has changed"):
        audit(spec, out=tmp_path / "run", model=Flipped(), dataset=Images(), extend=True)


def test_two_python_data_sets_of_the_same_name_do_not_mix(tmp_path: Path) -> None:
    found: dict[str, list[Row]] = {}
    for value in ("0.2", "0.8"):
        folder = tmp_path / value
        folder.mkdir()
        code = f"import numpy as np\ndef load():\n    return [(np.full((1, 8, 8), {value}, dtype=np.float32), 0)] * 2\n"
        (folder / "samedata.py").write_text(code, encoding="utf-8")
        document = digits(dataset={"kind": "python", "target": "samedata:load"}, estimators=["softmax"])
        spec = located(document, folder, "run")
        found[value] = list(audit(spec, out=folder / "run", trust=True).rows)
    assert found["0.2"][0].value != found["0.8"][0].value


def test_noise_of_a_block_does_not_depend_on_where_reading_starts() -> None:
    noise = gaussian_process(0, torch.device("cpu"))
    whole = torch.cat(list(noise.blocks("a", 300, (1, 8, 8))))
    for start, draws in ((0, 10), (250, 20), (256, 44), (299, 1)):
        assert np.array_equal(torch.cat(list(noise.blocks("a", draws, (1, 8, 8), start))), whole[start : start + draws])


class Sigmoid(nn.Module):
    """A binary network that gives a probability in the place of a logit."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.sigmoid(20 * (x.mean((1, 2, 3)) - 0.5))


def test_one_probability_in_the_place_of_a_logit_warns(tmp_path: Path) -> None:
    assert any("looks like a probability" in line for line in run(tmp_path, Sigmoid()).info.warnings)


def test_a_level_as_the_tables_print_it_is_found(tmp_path: Path) -> None:
    found = run(tmp_path, Net(), sigma=8 / 255)
    assert list(found.groups(["mc"], [0.0314])) == [("mc", levels.sigma(8 / 255))]
    with pytest.raises(RunError, match=r"has no level 0\.04; it has 0\.0313"):
        found.groups([], [0.04])
    with pytest.raises(RunError, match=r"has no sigma 0\.04; it has 0\.0313"):
        found.groups([], LevelChoice(sigmas=(0.04,)))


def test_limit_of_a_random_subset(tmp_path: Path) -> None:
    from robaudit.spec.load import load_spec
    from tests.specs import write

    path = write(tmp_path, digits(dataset={"kind": "digits", "sample": {"size": 9}}))
    small = audit(load_spec(path, overrides={("dataset", "limit"): 3}), out=tmp_path / "run")
    large = audit(load_spec(path), out=tmp_path / "run", extend=True)
    assert len({row.sample_id for row in small.rows}) == 3
    assert len({row.sample_id for row in large.rows}) == 9
    assert all(row in large.rows for row in small.rows)
