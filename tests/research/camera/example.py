"""`python -m tests.research.camera.example FOLDER` writes the shots of docs/camera.md: a simulated
phone, twenty times the same table of grey steps, colours, leaves and a star."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tests.cameras import Camera, Floats

_HEIGHT = 1200
_WIDTH = 1600
_SHOTS = 20
_DARKEST = 0.02
_BRIGHTEST = 0.8
_LEAVES = 4000
_STEPS = 12
_COLOURS = 6
_SPOKES = 36
PHONE = Camera(photons=1500.0, read_noise=4.0, bayer=True, encoding="srgb", jpeg=92)
"""At a high ISO value: white is 1,500 electrons."""


def table() -> Floats:
    """The light of a still scene, (height, width, 3)."""
    random = np.random.default_rng(0)
    scene = _leaves(random)
    third = _HEIGHT // 3
    steps = np.linspace(_DARKEST, _BRIGHTEST, _STEPS).repeat(_WIDTH // _STEPS + 1)[:_WIDTH]
    scene[:third] = steps[None, :, None]
    for place in range(_COLOURS):
        colour = random.uniform(_DARKEST, _BRIGHTEST, 3)
        left = place * _WIDTH // (2 * _COLOURS)
        scene[2 * third :, left : left + _WIDTH // (2 * _COLOURS)] = colour
    scene[2 * third :, _WIDTH // 2 :] = _star(_HEIGHT - 2 * third, _WIDTH - _WIDTH // 2)[..., None]
    return scene


def _leaves(random: np.random.Generator) -> Floats:
    """Discs that hide each other, small ones more often: the texture of natural scenes.

    Source: Lee, Mumford and Huang (2001), International Journal of Computer Vision 41.
    """
    row, column = np.indices((_HEIGHT, _WIDTH))
    scene = np.full((_HEIGHT, _WIDTH, 3), 0.3)
    for _ in range(_LEAVES):
        # The density of the radius falls with its third power, from 4 to 120 pixels.
        radius = 4 / np.sqrt(random.uniform((4 / 120) ** 2, 1))
        y = random.uniform(0, _HEIGHT)
        x = random.uniform(0, _WIDTH)
        top = max(0, int(y - radius))
        left = max(0, int(x - radius))
        part = (slice(top, int(y + radius) + 2), slice(left, int(x + radius) + 2))
        inside = np.hypot(row[part] - y, column[part] - x) <= radius
        scene[part][inside] = random.uniform(_DARKEST, _BRIGHTEST, 3)
    return scene


def _star(height: int, width: int) -> Floats:
    """A Siemens star, from dark to bright around its centre."""
    row, column = np.indices((height, width))
    angle = np.arctan2(row - height / 2, column - width / 2)
    wave: Floats = (1 + np.cos(_SPOKES * angle)) / 2
    return _DARKEST + (_BRIGHTEST - _DARKEST) * wave


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the shots."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.research.camera.example", description=__doc__
    )
    parser.add_argument("folder", type=Path, help="of the shots")
    folder = parser.parse_args(arguments).folder
    folder.mkdir(parents=True, exist_ok=True)
    PHONE.write(folder, table(), _SHOTS, seed=0, suffix="jpeg")


if __name__ == "__main__":
    main()
