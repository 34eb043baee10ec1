"""Two networks of different input size on the same files: paired by image, not by noise draw."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from robaudit import audit
from robaudit.compare.difference import compare
from robaudit.compare.side_by_side import comparisons, not_compared
from robaudit.errors import RunError
from robaudit.runs.run import Run
from robaudit.stats.reading import read_run
from tests.conftest import RunCli
from tests.golden import Golden
from tests.infos import changed
from tests.specs import located
from tests.unit.compare.tools import bits, made


def network() -> nn.Module:
    """A network for images of any size."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Photos of eight classes, and runs of one network on 8 x 8 and 10 x 10 pixels."""
    folder = tmp_path_factory.mktemp("sizes")
    rng = np.random.default_rng(0)
    for index in range(16):
        place = folder / "photos" / f"class {index % 8}"
        place.mkdir(parents=True, exist_ok=True)
        pixels = rng.integers(0, 256, (20, 24, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(place / f"{index}.png")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # newer versions of torch would rather export
        torch.jit.save(torch.jit.script(network()), folder / "net.pt")
    noises: dict[str, Any] = {
        "run": {"sigma": [0.05]},
        "both": [{"sigma": [0.05]}, {"sigma": [0.1], "at": "file"}],
        "file": {"sigma": [0.1], "at": "file"},
    }
    for name, noise in noises.items():
        for crop in (8, 10):
            document = {
                "model": {"path": "net.pt"},
                "dataset": {"kind": "images", "path": "photos", "resize": 12, "crop": crop},
                "noise": noise,
                "estimators": [{"mc": {"draws": 20}}],
            }
            audit(located(document, folder, f"at {crop}"), out=folder / f"{name}{crop}")
    return folder


def runs(folder: Path, name: str = "run") -> tuple[Run, Run]:
    base, new = (read_run(folder / f"{name}{crop}", kept=True) for crop in (8, 10))
    return base, new


def test_the_same_files_are_paired_by_image(folder: Path) -> None:
    base, new = runs(folder)
    found = compare(base, new)
    assert (found.samples, found.matching.other_images) == (16, [])
    about = found.document()
    assert (about["same_images"], about["same_noise"]) == (False, False)
    assert not about["same_model"], "the same weights see other images"
    (group,) = found.groups
    assert (group.how, group.variance_saved) == ("unpaired", None)
    assert group.why == "noise on 8 x 8 pixels differs from noise on 10 x 10 pixels"
    assert group.mean.measured is not None
    assert group.mean.measured.method == "draws of different noise:pooled"
    assert group.mean.population.method == "paired images"


@pytest.mark.parametrize("kept", [True, False], ids=["with", "without"])
def test_no_noise_is_claimed_to_be_shared(
    kept: bool, folder: Path, tmp_path: Path, run_cli: RunCli
) -> None:
    """Nor where both state.db are deleted, which have the digests of the pixels."""
    both = [folder / "run8", folder / "run10"]
    if not kept:
        for run in both:
            copy = tmp_path / run.name
            copy.mkdir()
            for file in run.iterdir():
                if file.name != "state.db":
                    (copy / file.name).write_bytes(file.read_bytes())
        both = [tmp_path / run.name for run in both]
    out = " ".join(run_cli("compare", *both).out.split())
    assert "the same files, prepared in other ways (crop 8 and 10): paired by their ids" in out
    assert "16 images, noise draws unpaired, as noise on 8 x 8 pixels differs" in out
    assert "paired on the same" not in out
    assert " - at 8" in run_cli("show", both[0], "--with", both[1]).out


def test_noise_on_files_does_not_depend_on_the_input(folder: Path) -> None:
    found = compare(*runs(folder, "both"))
    how = {group.key.at.noise: group.how for group in found.groups}
    assert how == {"gaussian": "unpaired", "gaussian_file": "common random numbers"}
    on_files = found.groups[1]
    assert on_files.why == ""
    assert on_files.mean.measured is not None
    assert on_files.mean.measured.method == "paired draws:pooled"
    assert not found.document()["same_noise"]
    assert found.matching.warnings[1].endswith("(those of gaussian_file, on the files, are paired)")


def test_nothing_is_unpaired_where_all_noise_is_on_files(folder: Path, run_cli: RunCli) -> None:
    found = compare(*runs(folder, "file"))
    assert found.document()["same_noise"]
    (warning,) = found.matching.warnings
    assert warning.startswith("the same files, prepared in other ways")
    outcome = run_cli("compare", folder / "file8", folder / "file10")
    assert "paired on the same 20 noise draws each" in " ".join(outcome.out.split())


def test_noise_on_other_files_is_not_claimed_to_be_the_same(folder: Path) -> None:
    """Photos, and smaller copies in another folder: the network may get the same pixels of both."""
    base, _ = runs(folder, "file")
    dataset = {**base.info.spec["dataset"], "path": "smaller", "resize": None}
    spec = {**base.info.spec, "dataset": dataset}
    found = compare(base, replace(base, info=changed(base.info, spec=spec)))
    assert found.matching.why_not == "the files are not known to be the same"
    # In a folder that was moved the digests tell.
    dataset = {**base.info.spec["dataset"], "path": "moved"}
    spec = {**base.info.spec, "dataset": dataset}
    found = compare(base, replace(base, info=changed(base.info, spec=spec)))
    assert found.matching.same_noise


def test_the_default_place_is_no_other_noise(folder: Path) -> None:
    """Runs of earlier versions have no key for the place of a noise."""
    base, new = runs(folder)
    (noise,) = base.info.spec["noise"]
    spec = {**base.info.spec, "noise": [{**noise, "at": "input"}]}
    explicit = replace(base, info=changed(base.info, spec=spec))
    assert compare(explicit, new).samples == 16
    assert not_compared({"explicit": explicit, "new": new}) == ""


def test_one_label_at_two_places_is_another_noise(folder: Path) -> None:
    base, _ = runs(folder, "file")
    (noise,) = base.info.spec["noise"]
    on_input = {key: value for key, value in noise.items() if key != "at"}
    spec = {**base.info.spec, "noise": [on_input]}
    with pytest.raises(RunError, match="differ in the noise gaussian_file"):
        compare(base, replace(base, info=changed(base.info, spec=spec)))


def test_grey_and_colour_have_other_noise() -> None:
    base = with_data(made(KEPT, model="a"), 8, path="a", resize=8, channels=1)
    new = with_data(made(KEPT, model="b"), 8, path="a", resize=8, channels=3)
    base = replace(base, info=changed(base.info, image_shape=[1, 8, 8]))
    found = compare(base, new)
    assert not found.matching.same_noise
    assert found.groups[0].why == (
        "noise on 8 x 8 pixels of 1 channel differs from noise on 8 x 8 pixels of 3 channels"
    )


def test_side_by_side(folder: Path) -> None:
    base, new = runs(folder)
    both = {"base": base, "new": new}
    assert not_compared(both) == ""
    assert len(comparisons(both)["new"]) == 1


def with_data(run: Run, size: int | None, **keys: Any) -> Run:
    spec = {**run.info.spec, "dataset": {"kind": "images", **keys}}
    shape = None if size is None else [3, size, size]
    return replace(run, info=changed(run.info, spec=spec, image_shape=shape))


KEPT = bits(np.random.default_rng(0).random((4, 50)) < 0.8)


def test_images_of_another_size_from_elsewhere_are_refused(golden: Golden) -> None:
    base = with_data(made(KEPT), 8, path="a", resize=8)
    new = with_data(made(KEPT), 10, path="b", resize=10)
    with golden.raises(RunError):
        compare(base, new)
    assert "other images" in not_compared({"base": base, "new": new})
    # files of other sizes than at the time of the first run
    with golden.raises(RunError):
        compare(with_data(made(KEPT), 8, path="a"), with_data(made(KEPT), 10, path="a"))


def test_one_size_resized_in_another_way_has_the_same_noise() -> None:
    base = with_data(made(KEPT, model="a"), 8, path="a", resize=9, crop=8)
    new = with_data(made(KEPT, model="b"), 8, path="./a", resize=8, crop=8)
    found = compare(base, new)
    assert found.matching.same_noise
    assert found.groups[0].how == "common random numbers"
    assert found.matching.warnings == [
        "the same files, prepared in other ways (resize 9 and 8): paired by their ids"
    ]


def test_a_key_of_another_version_is_no_other_preparation() -> None:
    base = with_data(made(KEPT, model="a"), 8, path="a", crop=8)
    new = with_data(made(KEPT, model="b"), 8, path="a", crop=8, crop_rounding="round", root=None)
    found = compare(base, new)
    assert found.document()["same_images"]
    assert found.matching.warnings == []


def test_other_draws_cover_the_difference() -> None:
    """However the draws of the two runs depend on each other, as with rotations, which have one
    random number for an image of any size."""
    rng = np.random.default_rng(3)
    missed = 0
    repeats = 40
    for _ in range(repeats):
        u = rng.random((20, 100))
        # one flips where the other does not: the errors of both means have opposite signs
        base = with_data(made(bits(u < 0.5), model="a"), 8, path="a", resize=8)
        new = with_data(made(bits(u > 0.5), model="b"), 9, path="a", resize=9)
        measured = compare(base, new).groups[0].mean.measured
        assert measured is not None
        assert measured.lower is not None
        assert measured.upper is not None
        missed += not measured.lower <= 0.0 <= measured.upper
    assert missed <= 0.05 * repeats + 3 * np.sqrt(0.05 * 0.95 * repeats)
