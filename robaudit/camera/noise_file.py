"""The noise of a camera as files: a fragment of a spec, and beside it the noise itself."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robaudit.camera.blocks import Singles
from robaudit.camera.curve import Curve
from robaudit.camera.fits import Fit, rounded
from robaudit.camera.moments import Measured
from robaudit.camera.result import CameraNoise
from robaudit.errors import RunError
from robaudit.files import write_atomically
from robaudit.levels import LevelName

FRAMES = "frames"
"""The kind of noise that is made of the shots themselves."""
_FACTORS = (0.5, 1.0, 2.0)  # of the measured level
_KNOTS = 129  # of the variance by brightness, in the file
_MOST_VALUES = 2**24  # of the noise in the file: 32 MiB
_SEED = 2  # of what fills the places that were left out
_HALF = np.float16
_RESERVED = ("none", "gaussian")  # names that a spec refuses, or takes for a kind
_NO_TEXT = ("true", "false", "null", "yes", "no", "on", "off", "y", "n")  # without quotes, in YAML
PICTURE = ".png"
"""The suffix of the picture of a noise, beside its file."""


def names_of(noises: Sequence[CameraNoise]) -> list[str]:
    """A name for each noise as the spec allows it, each once, also where upper and lower case are
    the same."""
    taken = set(_RESERVED)
    names = []
    for noise in noises:
        slug = re.sub(r"[^\w.-]+", "-", noise.name)[:40].strip("-") or "camera"
        tries = (slug, *(f"{slug}-{number}" for number in range(2, len(noises) + 4)))
        name = next(name for name in tries if not _all_names(name) & taken)
        taken |= _all_names(name)
        names.append(name)
    return names


def _all_names(name: str) -> set[str]:
    """The names of the entries of a noise, in lower case."""
    return {name.lower(), f"{name}_{FRAMES}".lower()}


def entries(noise: CameraNoise, name: str, file: str | None) -> list[dict[str, Any]]:
    """The noises of a spec, the chosen one first, at half, once and twice the measured level.

    The kind that fits is followed by the noise itself, by which it can be judged. Where none fits,
    the noise itself is the chosen one.

    Args:
        noise: what was measured.
        name: of the noise in the spec; see :func:`names_of`.
        file: the path of the noise itself, as the spec writes it; None: it is not stored.
    """
    fitted = _fitted(noise.fit, name)
    if file is None:
        return [fitted]
    levels = [1.0] if noise.fits else list(_FACTORS)
    itself = {
        "kind": FRAMES,
        "name": f"{name}_{FRAMES}",
        "file": file,
        LevelName.LEVEL.value: levels,
        "clip": True,
    }
    return [fitted, itself] if noise.fits else [itself]


def _fitted(fit: Fit, name: str) -> dict[str, Any]:
    """The entry of a fitted kind."""
    levels = [rounded(fit.level * factor) for factor in _FACTORS]
    if fit.level_name is LevelName.PHOTONS:
        levels.reverse()  # fewer are more noise
    entry = {"kind": fit.kind, "name": name, fit.level_name.value: levels, **fit.options}
    # No camera goes below black or above white; a sensor clips by itself.
    return entry if fit.quantises else {**entry, "clip": True}


def files_of(path: Path, noises: Sequence[CameraNoise]) -> list[Path]:
    """The files of the noises themselves beside the YAML file: NAME.npz beside NAME.yaml, or
    NAME-SCENE.npz for each of several."""
    if len(noises) == 1:
        return [path.with_suffix(".npz")]
    return [path.with_name(f"{path.stem}-{name}.npz") for name in names_of(noises)]


def refuse_existing(path: Path, noises: Sequence[CameraNoise]) -> None:
    """Refuse to overwrite the files of noises and of their pictures.

    Raises:
        RunError: one exists.
    """
    files = files_of(path, noises)
    for file in (path, *files, *(file.with_suffix(PICTURE) for file in files)):
        if file.exists():
            remedy = "name another file, or overwrite it (--force, or overwrite=True)"
            raise RunError(str(file), "already exists", remedy)


def write_noise(path: Path, noises: Sequence[CameraNoise], comments: Sequence[str]) -> None:
    """Write the fragment of a spec, and the noise itself beside it.

    Args:
        path: the YAML file.
        noises: what was measured.
        comments: lines for the reader: of the file, then of each noise.

    Raises:
        RunError: a file cannot be written.
    """
    head, *about = comments
    lines = [f"# {head}", "noise:"]
    files = files_of(path, noises)
    for noise, name, comment, file in zip(noises, names_of(noises), about, files, strict=True):
        write_atomically(file, _arrays(noise))
        lines.append(f"  # {comment}")
        lines += [f"  - {_flow(entry)}" for entry in entries(noise, name, file.name)]
        if not noise.fits:
            lines.append(f"  # - {_flow(_fitted(noise.fit, name))}")
    # Last, so that a spec never names a file that is not there.
    write_atomically(path, ("\n".join(lines) + "\n").encode())


def _flow(entry: Mapping[str, Any]) -> str:
    """An entry on one line, in the part of YAML that is JSON; keys need no quotes."""
    values = (f"{key}: {_value(value)}" for key, value in entry.items())
    return "{" + ", ".join(values) + "}"


def _value(value: Any) -> str:
    """A value as JSON; whole numbers without a decimal point, and names without quotes."""
    if isinstance(value, list):
        return "[" + ", ".join(map(_value, value)) + "]"
    if isinstance(value, float):
        return f"{value:.12g}"
    if isinstance(value, str) and re.fullmatch(r"[a-z][\w-]*", value) and value not in _NO_TEXT:
        return value
    return json.dumps(value, ensure_ascii=False)


def _arrays(noise: CameraNoise) -> bytes:
    """The .npz file of kind ``frames``: ``frames``, ``brightness`` and ``variance``."""
    frames = list(_frames(noise.measured, noise.variance_curve))
    brightness = np.linspace(0.0, 1.0, _KNOTS)
    sink = io.BytesIO()
    np.savez(
        sink,
        frames=np.stack(frames).astype(_HALF),
        brightness=brightness,
        variance=_extended(noise, brightness),
    )
    return sink.getvalue()


def _extended(noise: CameraNoise, brightness: NDArray[np.float64]) -> NDArray[np.float64]:
    """The variance of each channel at all brightnesses, (channels, n).

    Beyond the measured ones, where the curve is constant, it follows the line of a linear camera if
    there is one: shot noise vanishes in black.
    """
    curve = noise.variance_curve
    knots = np.broadcast_to(brightness, (1, noise.channels, len(brightness)))
    variance: NDArray[np.float64] = curve.variance(knots)[0].astype(np.float64)
    if noise.linear is None:
        return variance
    slope = 1 / noise.linear.photons.value
    intercept = (noise.linear.read_noise.value * slope) ** 2 + noise.step**2 / 12
    line = intercept + slope * brightness
    for channel, measured in enumerate(curve.brightness):
        for end, is_beyond in (
            (measured[0], brightness < measured[0]),
            (measured[-1], brightness > measured[-1]),
        ):
            at_end = intercept + slope * end
            variance[channel, is_beyond] *= line[is_beyond] / at_end
    return variance


def _frames(scenes: Sequence[Measured], curve: Curve) -> Iterator[Singles]:
    """The normalised noise of pairs of all scenes, (channels, height, width) each, of one size."""
    grids = [scene.scene.stack.grid for scene in scenes]
    height = min(grid.window[0] * grid.side for grid in grids)
    width = min(grid.window[1] * grid.side for grid in grids)
    channels = grids[0].shape[0]
    most = max(1, _MOST_VALUES // (channels * height * width))
    pairs = [(scene, pair) for scene in scenes for pair in range(len(scene.scene.pairs))]
    # Evenly over all scenes and times.
    count = min(most, len(pairs))
    for place in range(count):
        scene, pair = pairs[place * len(pairs) // count]
        window = scene.scene.stack.grid.in_window(_whole(scene, pair, curve))
        yield window[:, :height, :width]


def _whole(found: Measured, pair: int, curve: Curve) -> Singles:
    """The normalised noise of a pair in the blocks of the window, (blocks, channels, side, side).

    Blocks that were left out get the noise of others.
    """
    scene = found.scene
    down, across = scene.stack.grid.window
    usable = np.flatnonzero(scene.used[pair])
    block_of = np.full(len(scene.stack.grid), -1)
    block_of[scene.blocks[usable]] = usable
    chosen = block_of[: down * across]
    is_missing = chosen < 0
    random = np.random.default_rng((_SEED, pair))
    chosen[is_missing] = random.choice(usable, int(is_missing.sum()))
    return found.standardised(pair, chosen, curve)
