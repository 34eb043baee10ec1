"""The noise of a camera as a picture: the photon transfer curve with its fit, the correlation of
neighbours, the distribution, and a shot beside its mean with the chosen noise."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from robaudit.camera.fits import Fit
from robaudit.camera.moments import Measured
from robaudit.camera.pairs import StillScene
from robaudit.camera.result import CameraNoise
from robaudit.camera.verdict import laplace_difference
from robaudit.noise.installed import build
from robaudit.report.camera_tables import fit_text
from robaudit.report.pictures.page import Drawing, stacked
from robaudit.report.pictures.style import BLUE, GREEN, INK, RED, quiet
from robaudit.spec.model import NoiseSpec

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import SubFigure

_COLOURS = (RED, GREEN, BLUE)
_CURVES = 2.3  # inches of the row of curves
_SHOTS = 2.5  # inches of the row of shots
_SIDE = 96  # pixels of a side of a shown part
_MANY_SHOTS = 10  # the mean of so many has little noise: the imitation has 5 % more than a shot
_MOST_CELLS = 2000  # blocks of pairs in the histogram
_SEED = 3
_CHOSEN_SEED = 0  # of the noise in the picture


@dataclass(frozen=True, slots=True)
class Parts:
    """Parts of shots side by side, each (height, width, channels) in [0, 1]."""

    shot: NDArray[np.float64]
    imitation: NDArray[np.float64]
    mean: NDArray[np.float64]


def drawing(noise: CameraNoise, chosen: NoiseSpec, folder: Path) -> Drawing:
    """The picture of a camera's noise.

    Args:
        noise: what was measured.
        chosen: the noise of a spec that imitates it.
        folder: the base of paths in it.
    """
    parts = _parts(noise, chosen, folder)
    verdict = "fits" if noise.fits else "is nearest, and does not fit"
    bands = "Bands: 95 % intervals."
    read = 2 * len(noise.measured[0].scene.pairs)
    rest = ""
    if read < _MANY_SHOTS:
        rest = f" The mean of {read} shots still has {read**-0.5:.0%} of the noise of one."
    return Drawing(
        title=f"Noise of {noise.name}",
        caption=f"{noise.shots} shots, {noise.pairs} pairs of neighbours. {bands} Lines: the "
        f"fit. Can you tell the shot from its imitation?{rest}",
        height=lambda _: _CURVES + _SHOTS,
        draw=lambda body, _: _draw(body, noise, parts),
        about=f"{fit_text(noise)} {verdict}",
    )


def _draw(body: SubFigure, noise: CameraNoise, parts: Parts) -> None:
    upper, lower = stacked(body, (_CURVES, _SHOTS))
    curve, neighbours, histogram = upper.subplots(1, 3)
    _draw_curve(curve, noise)
    _draw_neighbours(neighbours, noise)
    _draw_histogram(histogram, noise)
    titles = ("a shot", "mean of all shots + noise", "mean of all shots")
    images = (parts.shot, parts.imitation, parts.mean)
    for ax, title, image in zip(lower.subplots(1, 3), titles, images, strict=True):
        quiet(ax, image)
        ax.set_title(title, loc="center", weight="normal")


def _draw_curve(ax: Axes, noise: CameraNoise) -> None:
    """The standard deviation by brightness, with a band for its intervals, and the fit."""
    colours = _COLOURS if noise.channels == len(_COLOURS) else (INK,)
    brightness = np.linspace(0, 1, 101)
    at = np.broadcast_to(brightness, (1, noise.channels, len(brightness)))
    fitted = np.sqrt(noise.fit.variance(at))[0]
    is_same = all(factor == noise.fit.scale[0] for factor in noise.fit.scale)
    for channel, colour in enumerate(colours):
        points = [point for point in noise.curve if point.channel == channel]
        x = [point.brightness for point in points]
        variances = [point.variance for point in points]
        ends = [variance.bounds or (0.0, variance.value) for variance in variances]
        lower, upper = np.sqrt(np.array(ends).reshape(-1, 2)).T
        ax.fill_between(x, lower, upper, color=colour, alpha=0.25, linewidth=0)
        measured = [math.sqrt(variance.value) for variance in variances]
        ax.plot(x, measured, "o", color=colour, markersize=2.5)
        if channel == 0 or not is_same:
            ax.plot(brightness, fitted[channel], color=INK if is_same else colour, linewidth=1)
    ax.set(title="by brightness", xlabel="brightness", ylabel="standard deviation")
    ax.set(xlim=(0, 1), ylim=(0, None))


def _draw_neighbours(ax: Axes, noise: CameraNoise) -> None:
    """The correlation of neighbours with the fit."""
    for name, colour in (("beside", BLUE), ("below", RED)):
        lags = [
            lag
            for lag in noise.neighbours
            if (lag.down == 0 if name == "beside" else lag.across == 0)
            and math.isfinite(lag.correlation.value)
        ]
        x = [lag.down + lag.across for lag in lags]
        y = [lag.correlation.value for lag in lags]
        style = "o-" if name == "beside" else "s--"
        ax.plot([0, *x], [1.0, *y], style, color=colour, markersize=3.5, linewidth=1, label=name)
    distance = np.linspace(0, 3, 61)
    if noise.fit.length:
        fitted = np.exp(-np.square(distance / noise.fit.length) / 2)
        ax.plot(distance, fitted, color=INK, linewidth=1, label="fit")
    else:
        ax.axhline(0, color=INK, linewidth=1, label="fit")
    ax.set(title="by distance", xlabel="pixels apart", ylabel="correlation")
    ax.set(ylim=(min(-0.1, ax.get_ylim()[0]), 1.05))
    ax.legend(loc="upper right")


def _draw_histogram(ax: Axes, noise: CameraNoise) -> None:
    """The density of standardised differences with that of the fit."""
    values = np.concatenate([_standardised(found, noise) for found in noise.measured])
    edges = np.linspace(-6, 6, 61)
    heights, _ = np.histogram(values, edges, density=True)
    middles = (edges[1:] + edges[:-1]) / 2
    ax.plot(middles, np.where(heights > 0, heights, np.nan), ".", color=BLUE, markersize=3)
    ax.plot(middles, _density(noise.fit, middles), color=INK, linewidth=1)
    ax.set(title="by size", xlabel="standard deviations", ylabel="density of differences")
    ax.set(yscale="log", ylim=(1e-6, 1))
    # Plain numbers: matplotlib's powers are formulae.
    ax.set_yticks([1e-6, 1e-4, 1e-2, 1], ["1e-6", "1e-4", "0.01", "1"])
    ax.minorticks_off()


def _density(fit: Fit, x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Of a difference of two shots with standard deviation 1."""
    if fit.is_laplace:
        return np.asarray(np.exp(laplace_difference(x)))
    return np.asarray(np.exp(-np.square(x) / 2) / math.sqrt(2 * math.pi))


def _standardised(found: Measured, noise: CameraNoise) -> NDArray[np.float32]:
    """Differences of some blocks and pairs, in standard deviations at their brightness."""
    cells = np.argwhere(found.scene.used)
    chosen = np.random.default_rng(_SEED).permutation(len(cells))[:_MOST_CELLS]
    pair, block = cells[chosen].T
    return found.standardised(pair, block, noise.variance_curve).ravel()


def _parts(noise: CameraNoise, chosen: NoiseSpec, folder: Path) -> Parts:
    """The middle of a shot, and of the mean of all shots without noise and with the chosen one."""
    scene = noise.measured[0].scene
    shot = _middle(scene, [scene.pairs[0]])
    places = [first + second for first in scene.pairs for second in (0, 1)]
    mean = _middle(scene, places)
    (process,) = build([chosen], folder)
    # The level as it was measured is in the middle.
    levels = sorted(chosen.levels)
    level = levels[len(levels) // 2]
    source = process.seeded(_CHOSEN_SEED, torch.device("cpu"))
    x = torch.from_numpy(mean)[None].float()
    _, channels, height, width = x.shape
    z = next(source.blocks("picture", 1, (channels, height, width)))
    noisy = source.noisy(x, z, level, ids=["picture"])[0].double().numpy()
    # A file has whole steps, as the shot beside it has.
    rounded = np.round(noisy.clip(0, 1) / noise.step) * noise.step
    return Parts(_for_eyes(shot), _for_eyes(rounded), _for_eyes(mean))


def _middle(scene: StillScene, places: Sequence[int]) -> NDArray[np.float64]:
    """The mean of some shots in the middle of the image, (channels, height, width)."""
    stack = scene.stack
    total = sum(stack.pixels(place).astype(np.float64) for place in places)
    window = stack.grid.in_window(np.asarray(total) / len(places))
    _, height, width = window.shape
    top = max(0, (height - _SIDE) // 2)
    left = max(0, (width - _SIDE) // 2)
    middle: NDArray[np.float64] = window[:, top : top + _SIDE, left : left + _SIDE]
    return np.ascontiguousarray(middle)


def _for_eyes(pixels: NDArray[np.float64]) -> NDArray[np.float64]:
    """(height, width, 3) of (channels, height, width)."""
    colours = np.broadcast_to(pixels, (3, *pixels.shape[1:]))
    return np.moveaxis(colours, 0, -1).clip(0, 1)
