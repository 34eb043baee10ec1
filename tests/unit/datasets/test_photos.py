"""Noise on image files, before resize and crop."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from robaudit.auditing.prepare import with_files
from robaudit.datasets.open_dataset import open_dataset
from robaudit.errors import SampleError, SpecError
from robaudit.levels import NoiseLevel
from robaudit.noise.installed import build
from robaudit.noise.noise import shape_of
from robaudit.noise.process import NoiseProcess
from robaudit.spec.model import NoiseSpec
from tests.specs import NETWORK, located, save_npz

CPU = torch.device("cpu")
SIZE = {"resize": 12, "crop": 8}


def images_in(folder: Path, *images: Image.Image, **keys: object) -> dict[str, object]:
    """The images as PNG files, and the section of a spec for them."""
    folder.mkdir()
    for i, image in enumerate(images):
        image.save(folder / f"{i}.png", exif=image.getexif())
    return {"kind": "images", "path": str(folder), **SIZE, **keys}


def opened(
    folder: Path, section: dict[str, object], noise: dict[str, object]
) -> tuple[NoiseProcess, dict[str, Tensor]]:
    """The noise of a spec, and the network's input by sample id."""
    document = {"model": dict(NETWORK), "dataset": section, "noise": noise}
    spec = located(document, folder, "spec")
    noises = build(spec.noise, spec.base_dir)
    (process,) = with_files(noises, spec.dataset, spec.base_dir, trust=False)
    data = open_dataset(spec.dataset, base_dir=spec.base_dir, trust=False)
    samples = [data[i] for i in range(len(data))]
    return process, {sample.id: sample.pixels for sample in samples}


def copies(process: NoiseProcess, sample_id: str, x: Tensor, at: NoiseLevel, draws: int) -> Tensor:
    """Noisy copies of the network's input."""
    blocks = process.blocks(sample_id, draws, shape_of(x))
    return torch.cat([process.noisy(x[None], z, at.number, ids=[sample_id]) for z in blocks])


def random_image(mode: str, width: int = 40, height: int = 30) -> Image.Image:
    channels = {"RGB": (3,), "RGBA": (4,), "L": ()}[mode]
    values = np.random.default_rng(0).integers(0, 256, (height, width, *channels), dtype=np.uint8)
    return Image.fromarray(values, mode)


def deep_image() -> Image.Image:
    """16 bits of grey."""
    values = np.random.default_rng(0).integers(0, 65536, (30, 40), dtype=np.uint16)
    return Image.fromarray(values)


def turned_image() -> Image.Image:
    image = random_image("RGB")
    image.getexif()[0x0112] = 6
    return image


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(
    "image", [random_image("RGB"), random_image("RGBA"), random_image("L"), deep_image(),
              turned_image()]
)  # fmt: skip
def test_a_copy_without_noise_has_the_pixels_of_the_sample(
    tmp_path: Path, image: Image.Image, channels: int
) -> None:
    section = images_in(tmp_path / "images", image, channels=channels)
    # A millionth of a step of 16 bits: rounded away.
    noise = {"at": "file", "sigma": 1e-6}
    process, samples = opened(tmp_path, section, noise)
    process = process.seeded(0, CPU, torch.float64)
    ((sample_id, x),) = samples.items()
    found = copies(process, sample_id, x, process.levels[0], 2)
    assert torch.equal(found, x.expand(2, -1, -1, -1))


def test_the_noise_is_averaged_by_the_resize(tmp_path: Path) -> None:
    """As an independent simulation: noise, 8 bits, resize, crop."""
    width, height = 240, 180
    image = Image.new("RGB", (width, height), (128, 128, 128))
    section = images_in(tmp_path / "images", image, resize=30, crop=20)
    noise = {"kind": "gaussian", "at": "file", "sigma": 0.1}
    process, samples = opened(tmp_path, section, noise)
    process = process.seeded(0, CPU, torch.float64)
    ((sample_id, x),) = samples.items()
    draws = 200
    found = copies(process, sample_id, x, process.levels[0], draws)

    rng = np.random.default_rng(1)
    simulated = []
    for _ in range(draws):
        noisy = np.asarray(image) / 255 + 0.1 * rng.standard_normal((height, width, 3))
        file = Image.fromarray((noisy * 255).round().clip(0, 255).astype(np.uint8))
        small = np.asarray(file.resize((40, 30), Image.Resampling.BILINEAR)) / 255
        simulated.append(small[5:25, 10:30])
    expected = float(np.std(simulated))
    error = expected / np.sqrt(2 * draws * 20 * 20 * 3)  # of either, at least
    assert float(found.std()) == pytest.approx(expected, abs=8 * error)
    assert expected < 0.1 / 5


def test_levels_share_their_draws_and_pairs_are_opposite(tmp_path: Path) -> None:
    section = images_in(tmp_path / "images", random_image("L"), channels=1)
    process, samples = opened(tmp_path, section, {"at": "file", "sigma": [0.05, 0.1]})
    process = process.seeded(0, CPU, torch.float64)
    ((sample_id, x),) = samples.items()
    (z,) = process.blocks(sample_id, 1, shape_of(x))
    assert z.shape == (1, 1, 30, 40)
    first, second = (process.noisy(x[None], z, at.number, ids=[sample_id]) for at in process.levels)
    correlation = torch.corrcoef(torch.stack([(first - x).flatten(), (second - x).flatten()]))
    assert correlation[0, 1] > 0.9


def test_a_noise_on_files_has_other_draws_than_one_on_the_input(tmp_path: Path) -> None:
    section = images_in(tmp_path / "images", random_image("L", 8, 8), channels=1, resize=8)
    on_files, samples = opened(tmp_path, section, {"at": "file", "sigma": 0.1})
    on_input, _ = opened(tmp_path, section, {"sigma": 0.1})
    ((sample_id, x),) = samples.items()
    draws = [next(noise.blocks(sample_id, 1, shape_of(x))) for noise in (on_files, on_input)]
    assert draws[0].shape == draws[1].shape
    assert not torch.equal(*draws)


def test_large_files_are_read_if_the_resize_makes_them_small(tmp_path: Path) -> None:
    image = Image.new("L", (4200, 4200), 128)  # more than the network may get
    section = images_in(tmp_path / "images", image, channels=1)
    process, samples = opened(tmp_path, section, {"at": "file", "sigma": 0.1})
    ((sample_id, x),) = samples.items()
    assert copies(process, sample_id, x, process.levels[0], 1).shape == (1, 1, 8, 8)


def test_labels_say_where_the_noise_is() -> None:
    labels = {
        NoiseSpec(kind="sensor", at="file", photons=(10.0,)).label: "sensor_file",
        NoiseSpec(kind="sensor", at="file", name="dusk", photons=(10.0,)).label: "dusk_file",
        NoiseSpec(kind="sensor", at="input", photons=(10.0,)).label: "sensor",
    }
    assert list(labels) == list(labels.values())
    noise = NoiseSpec(kind="corruption", name="fog", at="file", severity=(1.0,))
    document = noise.model_dump()
    assert document["name"] == "fog_file"
    assert NoiseSpec.model_validate(document) == noise.model_copy(update={"name": "fog_file"})
    (process,) = build([NoiseSpec.model_validate(document)], Path())
    assert process.label == "fog_file"


def test_the_default_place_leaves_no_key_in_the_document() -> None:
    # A run of an earlier version keeps the identity of its spec.
    assert "at" not in NoiseSpec(sigma=(0.1,)).model_dump()
    assert "at" not in NoiseSpec(at="input", sigma=(0.1,)).model_dump()


def test_data_without_files_are_refused(tmp_path: Path) -> None:
    section: dict[str, object] = {"kind": "npz", "path": str(save_npz(tmp_path / "data.npz"))}
    with pytest.raises(SpecError, match="image files"):
        opened(tmp_path, section, {"at": "file", "sigma": 0.1})


def test_a_file_that_does_not_fit_the_noise_is_named(tmp_path: Path) -> None:
    """A scale of each pixel has a shape of its own."""
    np.save(tmp_path / "scale.npy", np.ones((30, 40)))
    images = random_image("L"), random_image("L", 50, 30)
    section = images_in(tmp_path / "images", *images, channels=1)
    noise = {"kind": "gaussian_scaled", "at": "file", "sigma": 0.1, "scale": "scale.npy"}
    process, samples = opened(tmp_path, section, noise)
    assert copies(process, "0.png", samples["0.png"], process.levels[0], 1).shape == (1, 1, 8, 8)
    with pytest.raises(SampleError, match=r"noise gaussian_scaled_file, the file of '1\.png'"):
        copies(process, "1.png", samples["1.png"], process.levels[0], 1)
