"""Blocks cover the image or a part of it, and shots that do not belong together are refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from robaudit.camera import blocks
from robaudit.camera.blocks import grid_of
from robaudit.camera.shots import Scene
from robaudit.errors import SampleError
from tests.golden import Golden
from tests.unit.camera.shooting import scene_of, series, stack_of


def _scene(shots: list[tuple[NDArray[Any], float]]) -> Scene:
    """A scene of shots of any size and type."""
    names = [f"shot{number}" for number in range(1, len(shots) + 1)]
    return Scene("desk", names, lambda place: (shots[place][0][None], shots[place][1]))


def _silent(done: int, total: int) -> None:
    """No progress."""


@pytest.mark.parametrize(
    ("shape", "side"),
    [((1, 8, 8), 4), ((3, 9, 200), 4), ((1, 64, 90), 8), ((3, 200, 128), 16)],
)
def test_all_blocks_of_a_small_image(shape: tuple[int, int, int], side: int) -> None:
    grid = grid_of(shape, 10)
    assert grid.side == side
    assert grid.is_whole
    image = np.arange(np.prod(shape)).reshape(shape)
    window = grid.in_window(grid.cut(image))
    rows, columns = (length // side * side for length in shape[1:])
    assert np.array_equal(window, image[:, :rows, :columns])


def test_a_window_and_others_of_a_large_image(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "_MOST_VALUES", 2**16)
    shape = (1, 320, 640)
    grid = grid_of(shape, 4)
    assert len(grid) == 2**16 // 4 // 16**2
    assert not grid.is_whole
    assert len(set(zip(grid.rows.tolist(), grid.columns.tolist(), strict=True))) == len(grid)
    down, across = grid.window
    image = np.arange(320 * 640).reshape(shape)
    window = grid.in_window(grid.cut(image))
    top = (20 - down) // 2 * 16
    left = (40 - across) // 2 * 16
    assert np.array_equal(window, image[:, top : top + down * 16, left : left + across * 16])
    # others show the rest of the image
    assert len(grid) > down * across


def test_a_pair_of_large_shots_is_bounded() -> None:
    grid = grid_of((3, 4000, 6000), 2)
    assert len(grid) * 3 * grid.side**2 <= 2**22


def test_bits() -> None:
    shots = series(count=2)
    assert stack_of(shots).bits == 8
    assert stack_of(shots.astype(np.float32) / np.float32(255), white=1.0).bits == 8
    assert stack_of(shots.astype(np.uint16) * 257, white=65535.0).bits == 8
    assert stack_of(shots.astype(np.uint16) * 250, white=65535.0).bits == 16


def test_shots_of_another_size_or_type(golden: Golden) -> None:
    first, second = series(count=2)
    with golden.raises(SampleError):
        blocks.read_stack(_scene([(first, 255.0), (second[:64], 255.0)]), _silent)
    with golden.raises(SampleError):
        blocks.read_stack(_scene([(first, 255.0), (second / 255, 1.0)]), _silent)


def test_copies(golden: Golden) -> None:
    shots = series(count=3)
    shots[2] = shots[1]
    with golden.raises(SampleError):
        stack_of(shots)
    # Black shots are the same, too, and are refused for being black.
    assert not stack_of(np.zeros_like(shots)).values.any()


def test_progress() -> None:
    told: list[tuple[int, int]] = []
    blocks.read_stack(scene_of(series(count=3)), lambda done, total: told.append((done, total)))
    assert told == [(1, 3), (2, 3), (3, 3)]
