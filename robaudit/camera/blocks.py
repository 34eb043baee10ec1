"""The stack of a scene: square blocks of pixels, at the same places in every shot."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robaudit.camera.shots import Scene
from robaudit.errors import SampleError

Floats = NDArray[np.float64]
Singles = NDArray[np.float32]
Places = NDArray[np.int64]
PATCH = 4
"""Side in pixels of a patch, the largest area over which brightness is averaged; a block has whole
patches."""
_MOST_VALUES = 2**25  # of a stack: 32 MiB for 8 bits, and 64 MiB for the differences of its pairs
_MOST_OF_SHOT = 2**22  # values of a shot: its pair is handled in double precision, many times over
_LARGEST_WINDOW = 512  # pixels of a side
_SEED = 0  # of the choice of blocks, so that the same shots give the same numbers


@dataclass(frozen=True)
class Grid:
    """Square blocks in an image; the first ones fill a window in its middle.

    Attributes:
        side: of a block, in pixels.
        rows, columns: of the blocks, counted in blocks from the top left, (blocks,).
        window: height and width of the window in blocks; its blocks come first, row by row.
        shape: channels, height and width of the image.
    """

    side: int
    rows: Places
    columns: Places
    window: tuple[int, int]
    shape: tuple[int, int, int]

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def is_whole(self) -> bool:
        """Whether the blocks are all that fit into the image."""
        _, height, width = self.shape
        return len(self) == (height // self.side) * (width // self.side)

    def cut(self, values: NDArray[Any]) -> NDArray[Any]:
        """The blocks of an image (channels, height, width): (blocks, channels, side, side)."""
        channels, height, width = self.shape
        down = height // self.side
        across = width // self.side
        whole = values[:, : down * self.side, : across * self.side]
        tiled = whole.reshape(channels, down, self.side, across, self.side)
        blocks: NDArray[Any] = tiled[:, self.rows, :, self.columns]
        return blocks

    def in_window(self, blocks: NDArray[Any]) -> NDArray[Any]:
        """The window (..., channels, height, width) of blocks (..., blocks, channels, side,
        side)."""
        down, across = self.window
        inside = blocks[..., : down * across, :, :, :]
        *more, _, channels, side, _ = inside.shape
        tiled = inside.reshape(*more, down, across, channels, side, side)
        # (..., down, across, channels, y, x) -> (..., channels, down, y, across, x)
        ordered = np.moveaxis(tiled, (-5, -4, -3, -2, -1), (-4, -2, -5, -3, -1))
        window: NDArray[Any] = ordered.reshape(*more, channels, down * side, across * side)
        return window


def grid_of(shape: tuple[int, int, int], shots: int) -> Grid:
    """The blocks to hold of every shot: all of them if memory allows, else a window in the middle,
    and others at random.

    Args:
        shape: channels, height and width of a shot.
        shots: their number.
    """
    channels, height, width = shape
    side = _side(min(height, width))
    down = height // side
    across = width // side
    values = min(_MOST_VALUES // shots, _MOST_OF_SHOT)
    most = max(1, values // (channels * side * side))
    # No more than half of the blocks that there is room for: others show the rest of the image.
    room = most if down * across <= most else most // 2
    longest = max(1, min(_LARGEST_WINDOW // side, int(np.sqrt(room))))
    window = (min(down, longest), min(across, longest))
    if down * across <= most and max(down, across) * side <= _LARGEST_WINDOW:
        window = (down, across)
    top = (down - window[0]) // 2
    left = (across - window[1]) // 2
    row, column = np.indices((down, across))
    is_inside = np.zeros((down, across), dtype=bool)
    is_inside[top : top + window[0], left : left + window[1]] = True
    outside = np.flatnonzero(~is_inside.ravel())
    chosen = np.random.default_rng(_SEED).permutation(outside)[: most - is_inside.sum()]
    order = np.concatenate([np.flatnonzero(is_inside.ravel()), np.sort(chosen)])
    return Grid(side, row.ravel()[order], column.ravel()[order], window, shape)


def _side(shorter: int) -> int:
    """The side of a block: large enough for neighbours at a distance, and small enough for many
    blocks."""
    if shorter >= 128:
        return 16
    return 8 if shorter >= 64 else PATCH


@dataclass(frozen=True)
class Stack:
    """The blocks of all shots of a scene.

    Attributes:
        name: of the scene.
        shots: the names of the shots.
        grid: the blocks.
        values: as they are stored, (shots, blocks, channels, side, side).
        white: the number of white.
    """

    name: str
    shots: tuple[str, ...]
    grid: Grid
    values: NDArray[Any]
    white: float

    def pixels(self, shot: int) -> Singles:
        """The pixels of a shot in [0, 1], (blocks, channels, side, side)."""
        scaled: Singles = self.values[shot].astype(np.float32) / np.float32(self.white)
        return scaled

    @cached_property
    def bits(self) -> int:
        """Bits of the converter: 8, or 16 where there are values between the steps of 8 bits."""
        first = self.values[0].astype(np.float64) * (255.0 / self.white)
        # Single precision rounds k / 255.
        return 8 if bool((np.abs(first - np.round(first)) < 1e-4).all()) else 16

    @property
    def step(self) -> float:
        """The smallest difference of two pixels."""
        return float(1 / (2**self.bits - 1))


def read_stack(scene: Scene, advance: Callable[[int, int], None]) -> Stack:
    """Read the shots of a scene one at a time, and hold their blocks.

    Args:
        scene: its shots.
        advance: is told how many shots of how many have been read.

    Raises:
        SampleError: a shot cannot be read, differs from the first in size or type, or is a copy.
    """
    first, white = scene.read(0)
    whole = first.shape
    channels, height, width = whole
    grid = grid_of((channels, height, width), len(scene.shots))
    shape = (len(scene.shots), len(grid), channels, grid.side, grid.side)
    # Single precision is enough for pixels, and half of the memory.
    dtype = np.dtype(np.float32) if first.dtype.kind == "f" else first.dtype
    stack = np.empty(shape, dtype=dtype)
    stack[0] = grid.cut(first)
    del first  # shots may be large: one at a time
    advance(1, len(scene.shots))
    for place in range(1, len(scene.shots)):
        values, other_white = scene.read(place)
        _refuse_other(scene, place, values, whole, same_type=other_white == white)
        stack[place] = grid.cut(values)
        del values
        _refuse_copy(scene, place, stack, white)
        advance(place + 1, len(scene.shots))
    return Stack(scene.name, tuple(scene.shots), grid, stack, white)


def _refuse_other(
    scene: Scene, place: int, values: NDArray[Any], shape: tuple[int, ...], *, same_type: bool
) -> None:
    """Refuse a shot that cannot be of the same scene and camera.

    Raises:
        SampleError: its size or type is another.
    """
    if values.shape != shape:
        what = f"has the shape {values.shape}, and {scene.shots[0]} has {shape}"
        raise SampleError(scene.shots[place], what, "give the shots of one scene and one camera")
    if not same_type:
        what = f"has numbers of another type than {scene.shots[0]}"
        raise SampleError(scene.shots[place], what, "give the shots of one scene and one camera")


def _refuse_copy(scene: Scene, place: int, stack: NDArray[Any], white: float) -> None:
    """Refuse a shot that is the one before: a copy has no noise of its own.

    Raises:
        SampleError: all pixels are the same.
    """
    values = stack[place]
    # Shots that are black or white as a whole have no noise either, and are refused for that later.
    is_clipped = bool(((values <= 0) | (values >= white)).all())
    if np.array_equal(values, stack[place - 1]) and not is_clipped:
        what = f"has the same pixels as {scene.shots[place - 1]}"
        remedy = "leave out copies (if it is none, the noise is too small for the bits of the file)"
        raise SampleError(scene.shots[place], what, remedy)
