"""The page on noise and its example spec: every kind and option is there, and what is written there works."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from robaudit.noise.base import AdditiveNoise, Noise
from robaudit.noise.covariance import CovarianceGaussian
from robaudit.noise.scaled import ScaledGaussian
from robaudit.spec.model import AuditSpec, NoiseSpec
from tests.unit.noise.kinds import kinds, made

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
            if entry["kind"] in kinds() and entry["kind"] != "corrupted_set":  # which reads the set's files
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
    assert cells[3:] == [yes[additive], yes[additive and getattr(cls, "normal", False)], yes[cls.differentiable]]
    section = PAGE.split(f"\n## {name}\n")[1].split("\n## ")[0]
    for option in cls.model_fields.keys() - Noise.model_fields.keys():
        assert f"| `{option}` |" in section


def test_the_recipes_for_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From frames with bands and uneven noise, the recipes make files that describe them."""
    monkeypatch.chdir(tmp_path)
    shape, random = (2, 4, 5), np.random.default_rng(0)
    deviation = random.uniform(0.01, 0.03, shape)
    band = 0.05 * np.cos(np.arange(4))[None, :, None] * np.ones(shape)
    frames = 0.5 + random.normal(size=(20_000, *shape)) * deviation + random.normal(size=(20_000, 1, 1, 1)) * band
    np.save("frames.npy", frames)
    scaled, whole = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[:2]
    exec(scaled, {"print": lambda *_: None})  # noqa: S102  the page's own code
    exec(whole.replace("rank = 5", "rank = 1"), {})  # noqa: S102
    expected = np.sqrt(deviation**2 + band**2)
    scale = np.load("scale.npy")
    assert np.allclose(scale, expected / np.median(expected), rtol=5 * 0.005 * 2)  # a deviation's error is 1 / sqrt(2 n) = .5 %
    made(ScaledGaussian, tmp_path, scale="scale.npy").check(shape, [])
    form = made(CovarianceGaussian, tmp_path, file="banding.npz")
    form.check(shape, [])
    file = np.load("banding.npz")
    found = file["factor"] @ file["factor"].T + np.diag(file["diagonal"] ** 2)
    right = np.diag(deviation.flatten() ** 2) + np.outer(band.flatten(), band.flatten())
    assert np.abs(found - right).max() < 10 * right.max() / np.sqrt(20_000)  # standard errors of a covariance
