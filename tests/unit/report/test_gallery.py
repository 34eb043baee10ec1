"""The pictures of flagged samples: clean beside the first noisy copy that mc saw."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from robaudit import audit, load_spec
from robaudit.datasets import open_dataset
from robaudit.errors import RobauditError
from robaudit.report.gallery import side_by_side, write_gallery
from robaudit.runs.run import Run
from robaudit.stats.flags import Flagged, flag
from tests.golden import Golden
from tests.levels import gaussian_process
from tests.specs import digits, save_npz, write


def pixels(picture: bytes) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    with Image.open(io.BytesIO(picture)) as image:
        assert (image.format, image.mode) == ("PNG", "RGB")
        return np.asarray(image)


@pytest.mark.parametrize(
    ("shape", "size"),
    [
        ((1, 8, 8), (160, 328)),
        ((1, 28, 28), (168, 344)),
        ((3, 224, 224), (224, 456)),
        ((3, 20, 40), (160, 648)),
    ],
)
def test_size_and_gap(shape: tuple[int, int, int], size: tuple[int, int]) -> None:
    found = pixels(side_by_side(torch.zeros(shape), torch.ones(shape) * 0.5))
    assert found.shape == (*size, 3)
    half = (size[1] - 8) // 2
    assert set(np.unique(found[:, :half])) == {0}
    assert set(np.unique(found[:, half : half + 8])) == {255}
    assert set(np.unique(found[:, half + 8 :])) == {128}


def test_small_images_grow_pixel_by_pixel_and_noise_is_cut_off() -> None:
    clean = torch.linspace(0, 1, 64).view(1, 8, 8)
    found = pixels(side_by_side(clean, torch.stack([clean[0] + 9, clean[0] - 9, clean[0]])))
    np.testing.assert_array_equal(found[::20, :160:20, 0], (clean[0] * 255).round().numpy())
    assert (found[:, 168:, 0] == 255).all()
    assert (found[:, 168:, 1] == 0).all()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("gallery")
    save_npz(folder / "x.npz", count=6, shape=(1, 8, 8))
    spec = digits(
        dataset={"kind": "npz", "path": "x.npz", "class_names": [f"class/{n}" for n in range(10)]}
    )
    return audit(load_spec(write(folder, spec)), out=folder / "run")


def flagged(run: Run, count: int = 3) -> list[Flagged]:
    return [flag(rows, bottom=count) for rows in run.groups().values()]


def test_names_tell_rank_sample_and_classes_and_the_noise_is_that_of_the_run(
    run: Run, tmp_path: Path
) -> None:
    lists = flagged(run)
    assert write_gallery(run, lists, tmp_path / "worst") == 3
    paths = sorted((tmp_path / "worst" / "mc-0.2").iterdir())
    assert len(paths) == 3
    sample = lists[0].samples[0]
    assert (
        paths[0].name == f"001-{sample.id}-class_{sample.predicted}-to-class_{sample.flips_to}.png"
    )
    folder = run.path.parent
    clean: Tensor = open_dataset(
        load_spec(folder / "spec.yaml").dataset, base_dir=folder, trust=False
    )[int(sample.id)].pixels
    z = next(gaussian_process(0, torch.device("cpu")).blocks(sample.id, 1, (1, 8, 8)))[0]
    assert paths[0].read_bytes() == side_by_side(clean, clean + 0.2 * z)


def test_data_that_went_away_and_a_folder_that_cannot_be_made(
    run: Run, tmp_path: Path, golden: Golden
) -> None:
    data = run.path.parent / "x.npz"
    before = data.read_bytes()
    try:
        save_npz(data, count=1)
        with pytest.raises(RobauditError) as error:
            write_gallery(run, flagged(run), tmp_path / "worst")
        golden(error.value)
        data.unlink()
        with pytest.raises(RobauditError) as error:
            write_gallery(run, flagged(run), tmp_path / "worst")
        golden(error.value)
    finally:
        data.write_bytes(before)
    (tmp_path / "file").touch()
    with pytest.raises(RobauditError) as error:
        write_gallery(run, flagged(run), tmp_path / "file")
    golden(error.value)
