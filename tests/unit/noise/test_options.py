"""Options that cannot be: one line that says where, what is wrong and what would be right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from robaudit.errors import SpecError
from robaudit.noise.covariance import CovarianceGaussian
from robaudit.noise.noise import Noise, Shape
from robaudit.noise.scaled import ScaledGaussian
from robaudit.spec.validation_errors import explain
from tests.golden import Golden
from tests.unit.noise.kinds import kinds, made

SHAPE: Shape = (3, 4, 5)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("gaussian_scaled", {}),
        ("gaussian_scaled", {"scale": [1.0, -1.0]}),
        ("gaussian_scaled", {"scale": [True]}),
        ("gaussian_correlated", {"length": 0}),
        ("gaussian_correlated", {"length": float("inf")}),
        ("uniform", {"norm": "l1"}),
        ("laplace", {"scale": 1}),
        ("sensor", {"bits": 8.5}),
        ("sensor", {"bits": True}),
        ("sensor", {"readnoise": 1}),
    ],
)
def test_refused_options(
    kind: str, options: dict[str, Any], tmp_path: Path, golden: Golden
) -> None:
    with pytest.raises(ValidationError) as caught:
        made(kinds()[kind], tmp_path, **options)
    golden(explain(caught.value, f"noise ({kind})"))


def refusal(cls: type[Noise], folder: Path, **options: object) -> SpecError:
    with pytest.raises(SpecError) as caught:
        made(cls, folder, **options).check(SHAPE, [])
    assert "\n" not in str(caught.value)
    return caught.value


@pytest.mark.parametrize("cls", [ScaledGaussian, CovarianceGaussian])
def test_files_that_are_none(cls: type[Noise], tmp_path: Path, golden: Golden) -> None:
    """Missing, a folder, text, cut off, and with pickled objects, which are never loaded."""
    option, suffix = ("scale", ".npy") if cls is ScaledGaussian else ("file", ".npz")
    (tmp_path / "folder").mkdir()
    (tmp_path / "text").write_text("1, 2, 3")
    (tmp_path / "empty").touch()
    objects = np.array([{"a": 1}, None], dtype=object)
    words = np.array(["a", "b"])
    for name, array in (("objects", objects), ("words", words), ("whole", np.ones((40, 50)))):
        path = tmp_path / f"{name}{suffix}"
        if cls is ScaledGaussian:
            np.save(path, array, allow_pickle=True)
        else:
            np.savez(path, factor=array)
    whole = (tmp_path / f"whole{suffix}").read_bytes()
    (tmp_path / "cut").write_bytes(whole[: len(whole) // 2])
    for name in ("absent", "folder", "text", "empty", "cut", f"objects{suffix}", f"words{suffix}"):
        error = refusal(cls, tmp_path, **{option: name})
        golden(error)
        assert error.where == option
        assert str(tmp_path / name) in error.what
        assert error.remedy


@pytest.mark.parametrize("shape", [(3,), (4, 5), (1, 4, 5), (3, 4, 5)])
def test_scales_of_the_right_shapes(shape: tuple[int, ...], tmp_path: Path) -> None:
    np.save(tmp_path / "s.npy", np.ones(shape))
    form = made(ScaledGaussian, tmp_path, scale="s.npy")
    form.check(SHAPE, [])
    assert form.files == (tmp_path / "s.npy",)


@pytest.mark.parametrize("shape", [(), (2,), (5, 4), (1, 3, 4, 5), (1, 1, 1)])
def test_scales_of_wrong_shapes(shape: tuple[int, ...], tmp_path: Path) -> None:
    np.save(tmp_path / "s.npy", np.ones(shape))
    error = refusal(ScaledGaussian, tmp_path, scale="s.npy")
    assert error.where == "scale"


def test_scales_in_the_spec(tmp_path: Path, golden: Golden) -> None:
    form = made(ScaledGaussian, tmp_path, scale=[1, "1/2", 0])
    form.check(SHAPE, [])
    assert form.files == ()
    made(ScaledGaussian, tmp_path, scale=2).check((1, 4, 5), [])
    golden(refusal(ScaledGaussian, tmp_path, scale=[1, 2]))


@pytest.mark.parametrize(
    "arrays",
    [
        {"other": np.ones((60, 2))},
        {"factor": np.ones((59, 2))},
        {"factor": np.ones((60, 0))},
        {"factor": np.ones((2, 3, 4, 5))},
        {"factor": np.full((60, 2), np.inf)},
        {"factor": np.ones((60, 2)), "diagonal": np.ones(59)},
        {"factor": np.ones((60, 2)), "diagonal": -np.ones(60)},
    ],
)
def test_covariances_that_do_not_fit(
    arrays: dict[str, Any], tmp_path: Path, golden: Golden
) -> None:
    np.savez(tmp_path / "c.npz", **arrays)
    error = refusal(CovarianceGaussian, tmp_path, file="c.npz")
    assert error.where == "file"
    golden(error)
