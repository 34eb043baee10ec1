"""The page on noise and its example spec: every kind and option is there, and what is written there
works."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from pydantic import BaseModel

from robaudit.noise.corrupted_set import CorruptedSet
from robaudit.noise.corruption import FORMS, Corruption
from robaudit.noise.covariance import CovarianceGaussian
from robaudit.noise.noise import AdditiveNoise, Noise
from robaudit.noise.scaled import ScaledGaussian
from robaudit.noise.spatial import Spatial
from robaudit.spec.model import AuditSpec, NoiseSpec
from tests.unit.noise.kinds import kinds, made
from tests.unit.noise.test_distributions import NOT_NORMAL

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "noise.md").read_text(encoding="utf-8")


def built(entry: dict[str, Any], folder: Path) -> Noise:
    """A noise as it is written in a spec: its kind, its level's name and all its levels fit."""
    spec = NoiseSpec.model_validate(entry)
    form = made(kinds()[spec.kind], folder, name=spec.label, clip=spec.clip, **spec.options)
    assert spec.level_name == form.level_name
    assert all(form.least <= level <= form.most for level in spec.levels)
    assert not (spec.clip and form.quantises)
    return form


def test_the_example_spec_is_valid(tmp_path: Path) -> None:
    document = yaml.safe_load((ROOT / "configs" / "noise.yaml").read_text())
    spec = AuditSpec.model_validate(document)
    assert len(spec.levels) == 15
    for entry in document["noise"]:
        built(entry, tmp_path).check((1, 8, 8), [])


def test_the_examples_of_the_page_are_valid(tmp_path: Path) -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    assert len(blocks) >= 7
    for block in blocks:
        noise = yaml.safe_load(block)["noise"]
        for entry in noise if isinstance(noise, list) else [noise]:
            if (
                entry["kind"] in kinds() and entry["kind"] != "corrupted_set"
            ):  # which reads the set's files
                names = entry.get("name", entry["kind"])
                for name in names if isinstance(names, list) else [names]:
                    built({**entry, "name": name}, tmp_path)


@pytest.mark.parametrize("name", kinds())
def test_every_kind_has_a_section_with_its_options_and_a_row(name: str) -> None:
    cls = kinds()[name]
    row = next(line for line in PAGE.splitlines() if re.match(rf"\| \[`{name}`\]\(#{name}\)", line))
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[1] == f"`{cls.level_name}`"
    additive = issubclass(cls, AdditiveNoise)
    yes = {True: "yes", False: "no"}
    assert cells[3:] == [
        yes[additive],
        yes[additive and cls not in NOT_NORMAL],
        yes[cls.differentiable],
    ]
    section = PAGE.split(f"\n## {name}\n")[1].split("\n## ")[0]
    for option in cls.model_fields.keys() - Noise.model_fields.keys():
        assert f"| `{option}` |" in section


def test_the_recipes_for_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From frames with bands and uneven noise, the recipes make files that describe them."""
    monkeypatch.chdir(tmp_path)
    shape = (2, 4, 5)
    random = np.random.default_rng(0)
    deviation = random.uniform(0.01, 0.03, shape)
    band = 0.05 * np.cos(np.arange(4))[None, :, None] * np.ones(shape)
    frames = (
        0.5
        + random.normal(size=(20_000, *shape)) * deviation
        + random.normal(size=(20_000, 1, 1, 1)) * band
    )
    np.save("frames.npy", frames)
    scaled, whole = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[:2]
    exec(scaled, {"print": lambda *_: None})  # noqa: S102  the page's own code
    exec(whole.replace("rank = 5", "rank = 1"), {})  # noqa: S102
    expected = np.sqrt(deviation**2 + band**2)
    scale = np.load("scale.npy")
    # a deviation's error is 1 / sqrt(2 n) = .5 %
    assert np.allclose(scale, expected / np.median(expected), rtol=5 * 0.005 * 2)
    made(ScaledGaussian, tmp_path, scale="scale.npy").check(shape, [])
    form = made(CovarianceGaussian, tmp_path, file="banding.npz")
    form.check(shape, [])
    file = np.load("banding.npz")
    found = file["factor"] @ file["factor"].T + np.diag(file["diagonal"] ** 2)
    right = np.diag(deviation.flatten() ** 2) + np.outer(band.flatten(), band.flatten())
    # standard errors of a covariance
    assert np.abs(found - right).max() < 10 * right.max() / np.sqrt(20_000)


def table_rows(first: str) -> list[list[str]]:
    """The cells of the table rows that begin with a match of this pattern."""
    table = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in PAGE.splitlines()
        if line.startswith("|")
    ]
    return [cells for cells in table if re.fullmatch(first, cells[0])]


@pytest.mark.parametrize("name", FORMS)
def test_the_parameters_of_corruptions(name: str) -> None:
    (cells,) = (cells for cells in table_rows(f"`{name}`") if len(cells) == 5)
    for written, numbers, factor in (
        (cells[2], FORMS[name].imagenet, 244 / 224 if name == "elastic" else 1),
        (cells[3], FORMS[name].cifar, 1),
    ):
        found = [
            [float(number) * factor for number in part.split(",")] for part in written.split(" / ")
        ]
        assert [pytest.approx(part) for part in found] == [list(part) for part in numbers]


@pytest.mark.parametrize("kind", [Spatial, Corruption, CorruptedSet])
def test_the_defaults_of_options(kind: type[BaseModel]) -> None:
    for name, field in kind.model_fields.items():
        if name not in ("name", "at", "clip") or (name == "name" and kind is not Spatial):
            described = table_rows(f"`{name}`")
            assert described
            if not field.is_required():
                default = str(field.default).lower().removesuffix(".0")
                assert any(default in row[1] for row in described)
