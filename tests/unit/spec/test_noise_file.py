"""Noises in a file of their own: read as if they were written out, and refused with their own
lines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from robaudit.errors import SpecError
from robaudit.spec.read import load_spec
from tests.golden import Golden
from tests.specs import digits, write

NOISES = """# Measured
noise:
  - {kind: sensor, name: camera, photons: [400, 200], read_noise: 3.1}
  - {sigma: [0.1, 1/5]}
"""
WRITTEN_OUT = [
    {"kind": "sensor", "name": "camera", "photons": [400, 200], "read_noise": 3.1},
    {"sigma": [0.1, "1/5"]},
]


def levels(folder: Path, **changes: Any) -> list[str]:
    path = write(folder, digits(noise="noise.yaml"))
    return [at.text for at in load_spec(path, **changes).levels]


@pytest.fixture(autouse=True)
def noises(tmp_path: Path) -> Path:
    return write(tmp_path, NOISES, "noise.yaml")


@pytest.mark.parametrize("name", ["noise.yaml", "other/noise.yml"])
def test_they_count_as_if_they_were_written_out(name: str, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    write(tmp_path, NOISES, "other/noise.yml")
    of_file = load_spec(write(tmp_path, digits(noise=name)))
    of_setting = load_spec(write(tmp_path, digits(noise={"eps": 1})), settings=[f"noise={name}"])
    written_out = load_spec(write(tmp_path, digits(noise=WRITTEN_OUT)))
    assert of_file.document() == of_setting.document() == written_out.document()


def test_a_single_noise(tmp_path: Path) -> None:
    write(tmp_path, "noise: {sigma: 0.3}", "noise.yaml")
    assert levels(tmp_path) == ["sigma 0.3"]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"noises": ["camera"]}, ["camera photons 400", "camera photons 200"]),
        ({"noises": ["camera"], "levels": ["50"]}, ["camera photons 50"]),
        ({"sigmas": ["0.4"]}, ["camera photons 400", "camera photons 200", "sigma 0.4"]),
        ({"noises": ["gaussian"], "settings": ["noise.sigma=0.7"]}, ["sigma 0.7"]),
        (
            {"noises": ["gaussian"], "settings": ["noise=second.yaml", "noise.sigma=0.7"]},
            ["sigma 0.7"],
        ),
    ],
)
def test_noises_and_levels_are_chosen(
    changes: dict[str, Any], expected: list[str], tmp_path: Path
) -> None:
    write(tmp_path, "noise: [{sigma: 0.3}, {kind: uniform, eps: 0.1}]", "second.yaml")
    assert levels(tmp_path, **changes) == expected


def test_files_of_options_are_beside_the_noise_file(tmp_path: Path) -> None:
    """Words, fractions, folders that only share a name with a word, and absolute paths stay."""
    measured = tmp_path / "measured"
    (measured / "imagenet").mkdir(parents=True)
    (measured / "set").mkdir()
    (measured / "kind").touch()
    (measured / "scale.npy").touch()
    absolute = str(tmp_path / "there.npy")
    (tmp_path / "there.npy").touch()
    entries = [
        {"kind": "a", "name": "kind", "level": 1, "scale": "scale.npy", "file": "none.npz"},
        {"kind": "b", "level": 1, "path": "set", "scale": "imagenet", "file": absolute},
    ]
    write(measured, {"noise": entries}, "noise.yaml")
    spec_folder = tmp_path / "specs"
    path = write(spec_folder, digits(noise="../measured/noise.yaml"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("robaudit.spec.read.refuse_unknown", lambda *_: None)
        first, second = load_spec(path).noise
    assert first.name == "kind"
    assert first.options == {"scale": "../measured/scale.npy", "file": "none.npz"}
    assert second.options == {"path": "../measured/set", "scale": "imagenet", "file": absolute}
    assert (spec_folder / first.options["scale"]).is_file()


BAD = {
    "missing": None,
    "a list": "[{sigma: 1}]",
    "another key": "noise: {sigma: 0.1}\nmodel: {}",
    "empty": "noise:",
    "a further file": "noise: other.yaml",
    "not YAML": "noise: [",
    "a kind": "# Measured\nnoise:\n  - {sigma: 0.1}\n  - {kind: gausian, name: a, sigma: 1}",
    "no level": "noise:\n  - {sigma: 0.1}\n  - {kind: uniform}",
    "an entry": "noise: [0.1]",
}


@pytest.mark.parametrize("text", BAD.values(), ids=list(BAD))
def test_mistakes_have_the_line_of_the_noise_file(
    text: str | None, tmp_path: Path, noises: Path, golden: Golden
) -> None:
    if text is None:
        noises.unlink()
    else:
        noises.write_text(text)
    with golden.raises(SpecError):
        levels(tmp_path)


def test_mistakes_in_other_sections_have_the_line_of_the_spec(
    tmp_path: Path, golden: Golden
) -> None:
    with golden.raises(SpecError):
        load_spec(write(tmp_path, digits(noise="noise.yaml", estimators="mcc")))
    with golden.raises(SpecError):
        load_spec(write(tmp_path, digits(noise=["noise.yaml"])))
