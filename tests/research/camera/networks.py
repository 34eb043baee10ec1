"""p_robust of shared networks that see images through a simulated camera, beside p_robust under
the noise that was measured.

The images are the scenes. The clean image is what the camera makes of a scene without noise, for
the camera as for the measured noises, so the difference is that of the noises alone.
"""

from __future__ import annotations

import math
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

import robaudit
from tests import scenes
from tests.cameras import Camera, Floats, from_srgb
from tests.research.camera.cases import EXPOSURE
from tests.research.camera.measuring import noises
from tests.research.camera.store import Store
from tests.shared import SHARED, card

NETWORKS = ("cifar10_resnet20", "cifar10_cnn_a_adv")
SHOTS = 10
SIDE = 224
"""Of the calibration scene, which is none of the images."""
AIM = 0.01

_LITTLE_LIGHT = Camera(photons=1000, read_noise=12.0)
_PHONE = Camera(photons=1000, read_noise=6.0, bayer=True, encoding="srgb")
CAMERAS: Mapping[str, Camera] = {
    "gaussian": Camera(noise="gaussian", sigma=0.025),
    "correlated": Camera(noise="correlated", sigma=0.025, length=1.0),
    "sensor": _LITTLE_LIGHT,
    "sensor, gamma": replace(_LITTLE_LIGHT, encoding="gamma"),
    "phone, JPEG 95": replace(_PHONE, jpeg=95),
    "phone, JPEG 75": replace(_PHONE, jpeg=75),
    "phone, JPEG 50": replace(_PHONE, jpeg=50),
}
"""Cameras in so little light that predictions flip."""
_GREY = 2.0
"""Times the noise for grey images."""


@dataclass(frozen=True, slots=True)
class Robustness:
    """The mean p_robust of one network behind one camera.

    Attributes:
        network, case: the names of the network and the camera.
        camera: under the simulated camera.
        error: the standard error of its difference from the same under a noise, over the draws.
        noises: under each measured noise.
    """

    network: str
    case: str
    camera: float
    error: float
    noises: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Subject:
    """A shared network and its test images.

    Attributes:
        network: from normalised pixels to logits.
        mean, std: of the normalisation.
        images: light, (images, height, width, channels) or (images, height, width).
        labels: of the images.
    """

    network: torch.nn.Module
    mean: tuple[float, ...]
    std: tuple[float, ...]
    images: Floats
    labels: NDArray[np.int64]

    @property
    def grey(self) -> bool:
        """Whether images have one channel."""
        return self.images.ndim == 3

    def predicted(self, values: Floats) -> Tensor:
        """The predictions for values in [0, 1], shaped as the images are."""
        pixels = torch.from_numpy(_planes(values)).float()
        mean = torch.tensor(self.mean)[:, None, None]
        std = torch.tensor(self.std)[:, None, None]
        with torch.inference_mode():
            logits: Tensor = self.network((pixels - mean) / std)
        return logits.argmax(1)


def subject(name: str, images: int) -> Subject:
    """The first test images and the network."""
    about = card(name)
    folder = SHARED / "models" / name
    with np.load(SHARED / "data" / f"{about['dataset']}.npz") as arrays:
        pixels = arrays["images"][:images]
        labels = arrays["labels"][:images].astype(np.int64)
    if about["input_shape"][0] == 1:
        pixels = pixels.reshape(len(pixels), *about["input_shape"][1:])
    elif pixels.shape[1] == 3:
        pixels = pixels.transpose(0, 2, 3, 1)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "`torch.jit.load` is deprecated", FutureWarning)
        network = torch.jit.load(str(folder / "model.torchscript.pt"))
    return Subject(
        network.eval(), tuple(about["mean"]), tuple(about["std"]), pixels / 255.0, labels
    )


def camera_of(name: str, *, grey: bool) -> Camera:
    """A camera of this part; without a Bayer pattern where the images are grey."""
    camera = CAMERAS[name]
    times = _GREY if grey else 1.0
    photons = None if camera.photons is None else camera.photons / times**2
    return replace(
        camera,
        photons=photons,
        read_noise=camera.read_noise / times,
        sigma=float(np.asarray(camera.sigma)) * times,
        bayer=camera.bayer and not grey,
    )


def light_of(values: Floats, camera: Camera) -> Floats:
    """The light that a camera shows as these values, without noise and other processing."""
    if camera.encoding == "srgb":
        return from_srgb(values)
    light: Floats = values**2.2 if camera.encoding == "gamma" else values
    return light


def results(network: str, images: int, draws: int, store: Store) -> Iterator[Robustness]:
    """p_robust of one network behind every camera; those that the store has are not made again."""
    given: Subject | None = None
    for name in CAMERAS:
        key = f"network {network}, {name}, {images} images, {draws} draws"
        if key not in store.found:
            given = given or subject(network, images)
            store.add(key, asdict(_robustness(network, name, given, draws)))
        yield Robustness(**store.found[key])


def _robustness(network: str, name: str, given: Subject, draws: int) -> Robustness:
    """The camera measured on a still scene, then the network under what was measured."""
    camera = camera_of(name, grey=given.grey)
    shares = under_camera(given, camera, draws)
    # Of the difference of two means over the same images: of the draws of both.
    error = math.sqrt(2 * np.sum(shares * (1 - shares) / draws)) / len(shares)
    with tempfile.TemporaryDirectory() as folder:
        scene = EXPOSURE * scenes.texture(SIDE, SIDE, grey=given.grey)
        camera.write(Path(folder) / "shots", scene, SHOTS, seed=1, suffix="npy")
        # while the folder exists: frames are read from it
        values = {
            kind: under_noise(given, camera, noise, draws)
            for kind, noise in noises(Path(folder) / "shots", Path(folder) / "noise.yaml").items()
        }
    return Robustness(network, name, float(shares.mean()), error, values)


def clean(given: Subject, camera: Camera) -> Floats:
    """The images as the camera gives them without noise."""
    return np.stack(
        [camera.noiseless(light_of(image, camera)) / camera.largest for image in given.images]
    )


def under_camera(given: Subject, camera: Camera, draws: int) -> Floats:
    """The share of shots of each image whose prediction is that of the clean image (images,)."""
    expected = given.predicted(clean(given, camera))
    agree = np.zeros(len(given.images))
    for draw in range(draws):
        shots = [
            camera.shot(light_of(image, camera), draw, seed) / camera.largest
            for seed, image in enumerate(given.images)
        ]
        agree += (given.predicted(np.stack(shots)) == expected).numpy()
    return agree / draws


def under_noise(given: Subject, camera: Camera, noise: Mapping[str, Any], draws: int) -> float:
    """The mean p_robust of the clean images under a noise of a spec."""
    pixels = torch.from_numpy(_planes(clean(given, camera))).float()
    with tempfile.TemporaryDirectory() as folder:
        run = robaudit.audit(
            given.network,
            (pixels, torch.from_numpy(given.labels)),
            noise=noise,
            mean=list(given.mean),
            std=list(given.std),
            estimators={"mc": {"draws": draws}},
            out=Path(folder) / "run",
            progress=False,
        )
        return float(np.mean([row.value for row in run.rows]))


def _planes(values: Floats) -> Floats:
    """(images, channels, height, width)."""
    return values[:, None] if values.ndim == 3 else values.transpose(0, 3, 1, 2)
