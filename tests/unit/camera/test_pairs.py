"""Pairs of shots that differ in more than noise are left out and named; the noise of the others is
that of the camera."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from robaudit.camera.pairs import Finding, StillScene, still_scene
from robaudit.errors import DataError
from tests import scenes
from tests.cameras import Box, Floats
from tests.golden import Golden
from tests.unit.camera.shooting import CAMERA, SIDE, TEXTURE, changed, series, stack_of

FLOWER = scenes.texture(SIDE, SIDE, "flower", grey=True)
ERRORS = 5  # standard errors


def still(shots: NDArray[Any]) -> StillScene:
    return still_scene(stack_of(shots))


def found(scene: StillScene) -> list[tuple[Finding, tuple[int, ...]]]:
    """What was found, but for blocks near black and white, of which the scene has some."""
    return [
        (remark.finding, remark.shots)
        for remark in scene.remarks
        if remark.finding is not Finding.CLIPPED
    ]


def assert_noise(scene: StillScene, light: Floats = TEXTURE) -> None:
    """The noise of the used blocks has the variance of the camera in this light."""
    photons = CAMERA.photons or np.nan
    step = 1 / CAMERA.largest
    variance = light / photons + (CAMERA.read_noise / photons) ** 2 + step**2 / 12
    of_blocks = scene.stack.grid.cut(variance[None])[scene.blocks]
    expected = np.concatenate([of_blocks[row] for row in scene.used])
    ratio = np.square(scene.noise[scene.used]) / expected
    # The square of a normal value of variance 1 has the standard deviation sqrt 2.
    assert abs(ratio.mean() - 1) < ERRORS * np.sqrt(2 / ratio.size)


@pytest.mark.parametrize(("count", "firsts"), [(2, (0,)), (3, (0,)), (6, (0, 2, 4))])
def test_no_shot_is_in_two_pairs(count: int, firsts: tuple[int, ...]) -> None:
    scene = still(series(count=count))
    assert scene.pairs == firsts
    assert found(scene) == []
    assert_noise(scene)


def test_a_moved_shot() -> None:
    scene = still(changed(moved={2: (0.5, 0.0)}))
    # The pair of shots 3 and 4 is out, and the next one begins with shot 4.
    assert found(scene) == [(Finding.MOVED, (3, 4))]
    assert scene.pairs == (0, 3)
    (amount,) = (one.amount for one in scene.remarks if one.finding is Finding.MOVED)
    # Of half a pixel, which is not small, the gradients tell the size and no more.
    assert 0.3 < amount < 0.8
    assert_noise(scene)


def test_a_change_of_exposure() -> None:
    scene = still(changed(TEXTURE * 0.7, exposure=(1, 1, 1.3, 1, 1, 1)))
    assert found(scene) == [(Finding.EXPOSURE, (3, 4))]
    assert_noise(scene, TEXTURE * 0.7)


def test_a_drift_is_removed() -> None:
    exposure = tuple(1 + 0.02 * (number - 2.5) for number in range(6))
    scene = still(changed(TEXTURE * 0.8, exposure=exposure))
    assert found(scene) == [(Finding.DRIFT, ())]
    assert scene.pairs == (0, 2, 4)
    assert_noise(scene, TEXTURE * 0.8)


def test_pairs_at_another_exposure() -> None:
    """Each pair is fine, but a block has no single brightness."""
    scene = still(changed(TEXTURE * 0.7, exposure=(1, 1, 1, 1, 0.8, 0.8)))
    assert found(scene) == [(Finding.EXPOSURE, (5, 6))]
    assert_noise(scene, TEXTURE * 0.7)


def test_pairs_of_another_scene() -> None:
    other = TEXTURE[::-1]
    shots = np.concatenate([series(count=4), series(CAMERA, other, count=2)])
    scene = still(shots)
    assert found(scene) == [(Finding.CHANGED, (5, 6))]
    assert_noise(scene)


def test_flicker_in_bands_of_rows() -> None:
    rows = np.arange(SIDE)[:, None]
    dim = TEXTURE * 0.8
    shots = series(CAMERA, dim)
    band = 1 + 0.08 * np.sin(2 * np.pi * rows / 64)
    shots[1] = CAMERA.shot(dim * band, 1, 0)
    scene = still(shots)
    assert found(scene) == [(Finding.LIGHT, (1, 2)), (Finding.LIGHT, (2, 3))]
    assert scene.pairs == (2, 4)
    assert_noise(scene, dim)


@pytest.mark.parametrize("count", [2, 6, 12])
def test_something_before_a_part_of_the_scene(count: int) -> None:
    scene = still(changed(count=count, covered={1: Box(32, 32, 32, 48)}))
    assert (Finding.PARTS, (1, 2)) in found(scene)
    assert {finding for finding, _ in found(scene)} <= {Finding.PARTS, Finding.DRIFT}
    # 2 x 3 blocks of the first pair, and with few pairs little else.
    grid = scene.stack.grid
    rows = grid.rows[scene.blocks]
    columns = grid.columns[scene.blocks]
    is_covered = (rows >= 2) & (rows < 4) & (columns >= 2) & (columns < 5)
    assert not scene.used[0, is_covered].any()
    assert scene.used[:, ~is_covered].mean() > 0.97
    assert not scene.noise[~scene.used].any()


def test_black_and_white_parts() -> None:
    light = TEXTURE.copy()
    light[:, :32] = 0.0
    light[:, 96:] = 1.2
    scene = still(series(CAMERA, light))
    assert scene.remarks[0].finding is Finding.CLIPPED
    assert scene.remarks[0].amount >= 0.5
    assert set(scene.stack.grid.columns[scene.blocks].tolist()) <= {2, 3, 4, 5}
    assert_noise(scene, light)


REFUSED: dict[str, Callable[[], NDArray[Any]]] = {
    "moved": lambda: np.stack(
        [CAMERA.shot(np.roll(TEXTURE, number, axis=1), number, 0) for number in range(4)]
    ),
    "exposure": lambda: changed(TEXTURE * 0.7, exposure=(1, 1.3, 1, 1.3, 1, 1.3)),
    "two-scenes": lambda: np.stack([CAMERA.shot(TEXTURE, 0, 0), CAMERA.shot(FLOWER, 1, 0)]),
    "negative": lambda: np.stack([CAMERA.shot(TEXTURE, 0, 0), 255 - CAMERA.shot(TEXTURE, 1, 0)]),
    "upside-down": lambda: np.stack([CAMERA.shot(TEXTURE, 0, 0), CAMERA.shot(TEXTURE[::-1], 1, 0)]),
    "black": lambda: np.zeros((4, SIDE, SIDE), dtype=np.uint8),
    "white": lambda: np.full((4, SIDE, SIDE), 255, dtype=np.uint8),
    "dark": lambda: series(CAMERA, np.full((SIDE, SIDE), 0.001)),
    "no-noise": lambda: np.stack(
        [np.full((SIDE, SIDE), 100 + number % 2, dtype=np.uint8) for number in range(4)]
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str, golden: Golden) -> None:
    with golden.raises(DataError):
        still(REFUSED[name]())
