"""Pixels and levels that cannot be meant are refused, on the command line and in Python; odd ones
warn, and large ones may be meant."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import robaudit
from robaudit import plugins
from robaudit.auditing.units import Finding, accepted, level_findings, mean_findings, pixel_findings
from robaudit.errors import DataError, PluginError, RobauditWarning, SpecError
from robaudit.noise import installed
from robaudit.noise.gaussian import Gaussian
from robaudit.spec.model import AuditSpec
from tests.conftest import RunCli
from tests.specs import NETWORK, digits, read_info, write
from tests.unit.api.nets import network


class Raises(Gaussian):
    """Somebody's kind, which fails."""

    def noisy(self, x: Tensor, z: Tensor, level: float, *, ids: Sequence[str]) -> Tensor:
        raise ValueError("no")


def findings(noise: dict[str, object], image: torch.Tensor) -> list[Finding]:
    spec = AuditSpec.model_validate(digits(noise=noise))
    return list(level_findings(installed.build(spec.noise, Path()), image, "a"))


def told(noise: dict[str, object], image: torch.Tensor) -> tuple[str, ...]:
    return accepted(findings(noise, image), as_given=True)


# --- levels


@pytest.mark.parametrize("shape", [(1, 1, 1), (1, 8, 8), (3, 512, 512)])
def test_of_images_of_any_size(shape: tuple[int, int, int]) -> None:
    (line,) = told({"sigma": 8}, torch.full(shape, 0.5))
    assert "sigma 8 is 8 times" in line
    assert told({"kind": "gaussian_correlated", "length": 1.5, "sigma": 8}, torch.full(shape, 0.5))


@pytest.mark.parametrize(
    ("levels", "says"),
    [
        ([8], "sigma 8 is 8 times"),
        (
            [8, 4, 2],
            "sigma 2 and 2 more levels are more than the whole range of pixels in [0, 1]; 2/255 "
            "= 0.00784 or 2 % = 0.02 was probably meant",
        ),
        ([1.5], "sigma 1.5 is 1.5 times"),
        ([0.5, 1.0], ""),
        (
            [0.02, 5],
            "sigma 5 is 5 times the whole range of pixels in [0, 1]; 5/255 = 0.0196 or 5 % = "
            "0.05 was probably meant: write 5/255 or",
        ),
        ([1, 2, 5], "sigma 2 and 1 more level are more than the whole range"),
        ([100], "100/255 = 0.392 was probably meant: write 100/255"),
        (
            [0.32 * step for step in range(1, 40)],
            "sigma 1.28 and 35 more levels are more than the whole range",
        ),  # a curve
    ],
    ids=str,
)
def test_the_largest_level_counts(levels: list[float], says: str) -> None:
    found = told({"sigma": levels}, torch.full((1, 8, 8), 0.5))
    assert len(found) == bool(says)
    assert says in "".join(found)


@pytest.mark.parametrize(
    ("levels", "impossible"),
    [([1.5], False), ([2], True), ([1.5, 8], True), ([0.05, 5], True), ([300], True)],
    ids=str,
)
def test_levels_below_2_may_be_meant(levels: list[float], impossible: bool) -> None:
    (found,) = findings({"sigma": levels}, torch.full((1, 8, 8), 0.5))
    assert isinstance(found, SpecError) == impossible


def test_a_plugin_that_fails_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [
        *entry_points(group=plugins.NOISES),
        EntryPoint("raises", "tests.unit.auditing.test_units:Raises", plugins.NOISES),
    ]
    monkeypatch.setattr(
        plugins,
        "in_group",
        lambda group: found if group == plugins.NOISES else entry_points(group=group),
    )
    with pytest.raises(PluginError, match="noise raises"):
        told({"kind": "raises", "sigma": 8}, torch.zeros(1, 8, 8))


# --- pixels


@pytest.mark.parametrize(
    ("low", "high", "scaled", "says", "impossible"),
    [
        (0, 1, False, None, False),
        (-1e-7, 1 + 1e-7, False, None, False),
        (0, 0.004, False, "they look scaled twice", False),
        (
            0,
            4000 / 65535,
            False,
            "they look like 12 bits saved with 16; multiply them by 16 (in a .npz: "
            "dataset.scale: 4095)",
            False,
        ),
        (0, 1000 / 65535, False, "they look like 10 bits", False),
        (0, 16000 / 65535, False, "they look like 14 bits", False),
        (0, 16400 / 65535, False, None, False),
        (0, 15 / 255, False, None, False),  # dark images of 8 bits
        (-0.1, 1.2, False, "for which noise levels are meant", False),  # resampled
        (0, 255, False, "divide them by 255", True),
        (0, 255, True, "divide them by 255", True),
        (0, 1000, False, "by the value of full intensity", True),
        (0, 3, False, "by the value of full intensity", True),
        (0, 3, True, "for which noise levels are meant", False),  # highlights beyond white
        (-1, 1, False, "they look normalised", True),
        (-1, 1, True, "for which noise levels are meant", False),  # signed numbers
    ],
    ids=str,
)
def test_the_range_of_pixels(
    low: float, high: float, scaled: bool, says: str | None, impossible: bool
) -> None:
    found = list(pixel_findings("x.npz", low, high, scaled=scaled))
    assert [isinstance(one, DataError) for one in found] == [impossible] * len(found)
    (line,) = accepted(found, as_given=True) or ("",)
    assert line.startswith("x.npz: pixels ") if says else line == ""
    assert (says or "") in line


# --- mean and std


BYTES_MEAN: Any = {"mean": [123.675, 116.28, 103.53], "std": [58.395, 57.12, 57.375]}


def test_mean_and_std_in_bytes(tmp_path: Path, run_cli: RunCli) -> None:
    says = (
        "123.675 is more than the whole range of pixels in [0, 1]: it looks like a mean of 0-255; "
        "divide by 255: mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225]"
    )
    np.savez(tmp_path / "x.npz", images=np.zeros((4, 3, 8, 8), np.uint8), labels=np.arange(4))
    (tmp_path / "net.py").write_text(
        "import torch\nclass Net(torch.nn.Module):\n    def forward(self, x):\n        return "
        "x.mean((2, 3))\n"
    )
    network = {"format": "python", "architecture": "net:Net", **BYTES_MEAN}
    path = write(
        tmp_path,
        digits(model=network, dataset={"kind": "npz", "path": "x.npz", "labels_key": None}),
    )
    code, _, err = run_cli("estimate", path, "--trust", "--out", "run")
    assert (code, err.splitlines()[-1]) == (2, f"error: {path}:4: model.mean: {says}{OVERRIDE}")
    assert not (tmp_path / "run").exists()
    with pytest.raises(SpecError) as refused:
        robaudit.audit(lambda x: x.mean((2, 3)), torch.rand(4, 3, 8, 8), sigma=0.1, **BYTES_MEAN)
    assert str(refused.value) == f"mean: {says}{OVERRIDE}".replace(
        "robaudit estimate --as-given", "as_given=True"
    )


def test_means_and_stds_of_pixels_are_silent() -> None:
    for mean, std in (
        ((), ()),
        ((0.5,), (0.5,)),
        ((0.0,), (1 / 255,)),
        ((1.0,), (1.0,)),
        ((0.5,), (2.0,)),
    ):
        assert list(mean_findings(mean, std, "model")) == []


# --- what the user sees


BYTES = (
    "pixels run from 0 to 255, not within [0, 1]: they look like 0-255; divide them by 255 "
    "(in a .npz: dataset.scale: 255)"
)
NORMALISED = (
    "pixels run from -2 to 2, not within [0, 1]: they look normalised; "
    "give pixels that are not normalised, and mean and std for the model, which are applied "
    "after the noise"
)
GREY = (
    "gaussian noise: sigma 8 is 8 times the whole range of pixels in [0, 1]; "
    "8/255 = 0.0314 or 8 % = 0.08 was probably meant: write 8/255 or 0.08"
)
OVERRIDE = ", or audit this as it is given: run.as_given: true, or robaudit estimate --as-given"


FEW: Any = {"sigma": 0.1, "estimators": "softmax"}


def images(low: float, high: float) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.linspace(low, high, 4 * 64, dtype=np.float32).reshape(4, 1, 8, 8)


@pytest.mark.parametrize(
    ("low", "high", "sigma", "says"),
    [(0, 255, 0.1, f"x.npz: {BYTES}"), (0, 1, 8, GREY)],
    ids=["bytes", "sigma 8"],
)
def test_refused_unless_taken_as_given(
    low: float, high: float, sigma: float, says: str, tmp_path: Path, run_cli: RunCli
) -> None:
    pixels = images(low, high)
    labels = np.arange(4)
    np.savez(tmp_path / "x.npz", images=pixels, labels=labels)
    raw = digits(
        dataset={"kind": "npz", "path": "x.npz"}, noise={"sigma": sigma}, estimators=["softmax"]
    )
    path = write(tmp_path, raw)
    assert run_cli("estimate", path, "--out", "run") == (2, "", f"error: {says}{OVERRIDE}\n")
    assert run_cli("validate", path) == (2, "", f"error: {says}{OVERRIDE}\n")
    assert not (tmp_path / "run").exists()
    with pytest.raises(DataError if sigma < 1 else SpecError) as refused:
        robaudit.audit(path, out=tmp_path / "run")
    assert str(refused.value) == says + OVERRIDE.replace(
        "robaudit estimate --as-given", "as_given=True"
    )

    code, _, err = run_cli("estimate", path, "--out", "run", "--as-given")
    assert code == 0
    assert f"warning: {says}\n" in err
    assert read_info(tmp_path / "run")["warnings"][0] == says
    assert run_cli("verify", "run").code == 0, "what was computed is verified without the option"
    with pytest.warns(RobauditWarning):
        again = robaudit.audit(path, as_given=True, out=tmp_path / "python")
    assert again.info.warnings[0] == says
    assert again.info.identity == read_info(tmp_path / "run")["identity"]


def test_objects_in_memory_follow_the_same_rule() -> None:
    for low, high, says in ((0, 255, BYTES), (-2, 2, NORMALISED)):
        data = (images(low, high), np.arange(4))
        options = FEW
        with pytest.raises(DataError) as refused:
            robaudit.audit(network(), data, **options)
        assert str(refused.value) == f"data in memory: {says}{OVERRIDE}".replace(
            "robaudit estimate --as-given", "as_given=True"
        )
        with pytest.warns(RobauditWarning, match="pixels run from"):
            assert len(robaudit.audit(network(), data, **options, as_given=True).rows) == 4


def test_init_refuses_the_levels_that_an_audit_would(tmp_path: Path, run_cli: RunCli) -> None:
    options = (
        "--model",
        NETWORK["path"],
        "--architecture",
        NETWORK["architecture"],
        "--data",
        "digits",
        "--no-check",
    )
    assert run_cli("init", *options, "--sigma", "8") == (2, "", f"error: {GREY}{OVERRIDE}\n")
    assert list(tmp_path.iterdir()) == []
    assert run_cli("init", *options, "--sigma", "0.5,1,8", "--set", "run.as_given=true").code == 0


def test_init_says_what_an_audit_would_refuse(tmp_path: Path, run_cli: RunCli) -> None:
    np.savez(tmp_path / "x.npz", images=images(0, 255), labels=np.arange(4))
    code, _, err = run_cli(
        "init",
        "--model",
        NETWORK["path"],
        "--architecture",
        NETWORK["architecture"],
        "--data",
        "x.npz",
    )
    assert (code, err) == (
        2,
        "nothing was written; to edit the spec by hand, write it with --no-check\nerror: x.npz: "
        f"{BYTES}{OVERRIDE}\n",
    )
