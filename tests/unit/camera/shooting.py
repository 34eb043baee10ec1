"""Shots for the tests of the room: small, quick to make, and of a known camera."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robaudit.camera.blocks import Stack, read_stack
from robaudit.camera.shots import Scene
from tests import scenes
from tests.cameras import Camera, Floats

CAMERA = Camera(photons=2000, read_noise=5.0)
SIDE = 128
TEXTURE = scenes.texture(SIDE, SIDE, grey=True)
"""Detail everywhere, so that a movement shows."""


def series(camera: Camera = CAMERA, scene: Floats = TEXTURE, count: int = 6) -> NDArray[Any]:
    """Shots (count, height, width, ...)."""
    return np.stack([camera.shot(scene, number, 0) for number in range(count)])


def changed(scene: Floats = TEXTURE, count: int = 6, **parts: Any) -> NDArray[Any]:
    """Shots of the camera with other parts: moved, covered, exposure."""
    return series(replace(CAMERA, **parts), scene, count)


def scene_of(shots: NDArray[Any], white: float = 255.0) -> Scene:
    """A scene of shots (n, height, width) or (n, height, width, 3)."""
    first = shots[:, None] if shots.ndim == 3 else np.moveaxis(shots, -1, 1)
    names = [f"shot{number}" for number in range(1, len(shots) + 1)]
    return Scene("desk", names, lambda place: (first[place], white))


def stack_of(shots: NDArray[Any], white: float = 255.0) -> Stack:
    """The stack of :func:`scene_of`."""
    return read_stack(scene_of(shots, white), lambda done, total: None)
