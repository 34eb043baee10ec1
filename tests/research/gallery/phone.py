"""The noise of a simulated phone, as it was recorded and as the nearest kind of noise."""

from __future__ import annotations

import math
import shutil
import tempfile
from pathlib import Path

import yaml

import robaudit
from robaudit.api.camera import MeasuredNoise
from robaudit.api.run import Run
from robaudit.estimates import Estimate
from tests.research.camera import example
from tests.research.gallery.gallery import (
    Content,
    Gallery,
    accuracy_under,
    group,
    mean_difference,
    table,
    values,
    with_ends,
)
from tests.shared import PHOTO_NETWORK, photos

_TIMES = (1, 4, 16)
"""The strength that was measured, and multiples of it."""
_DRAWS = 4
_PHOTOS = 100


def phone(gallery: Gallery) -> Content:
    """An ImageNet network under recorded noise and under the noise that is nearest to it."""
    content = Content(
        about="A simulated phone ([camera.md](../camera.md)): twenty shots of a table, with a "
        "Bayer pattern, demosaicing and JPEG. `measure-noise` finds that no kind of noise fits; "
        "the nearest is Gaussian noise of its own strength in each channel. EfficientNet-Lite0 on "
        f"{_PHOTOS} photos under both, at 1 to 16 times the measured strength, {_DRAWS} copies "
        "each; and, to see what makes the difference, under Gaussian noise whose neighbours have "
        "the measured correlation.",
    )
    measured = _measured(gallery, content)
    noise = measured.noises[0]
    assert not noise.fits
    recorded = {
        "kind": "frames",
        "name": "recorded",
        "file": gallery.beside("phone-noise.npz"),
        "level": list(_TIMES),
        "clip": True,
    }
    levels = [round(noise.fit.level * times, 5) for times in _TIMES]
    nearest = {
        "kind": noise.nearest,
        "name": "nearest",
        "sigma": [*levels],
        "clip": True,
        **noise.fit.options,
    }
    # The length at which neighbours have the measured correlation, exp(-1 / (2 length^2)).
    correlation = noise.neighbours[0].correlation.value
    correlated = {
        "kind": "gaussian_correlated",
        "name": "correlated",
        "sigma": levels,
        "length": round((-2 * math.log(correlation)) ** -0.5, 3),
        "clip": True,
    }
    run = gallery.run(
        content,
        "phone",
        PHOTO_NETWORK,
        photos(sample={"size": _PHOTOS, "seed": 0}),
        noise=[recorded, nearest, correlated],
        estimators=[{"mc": {"draws": _DRAWS}}],
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "noise.png"
        measured.plot(path)
        gallery.picture(
            content,
            "phone-noise",
            path,
            "The measured noise by brightness, distance and size, beside the nearest kind",
        )
    gallery.plot(
        content, "phone-levels", run, "levels", "Accuracy and robustness under the three noises"
    )
    differences = _table(content, run, levels)
    _sentences(content, measured, run, levels, differences)
    return content


def _measured(gallery: Gallery, content: Content) -> MeasuredNoise:
    """The noise of the shots, prepared as the network's photos are."""
    shots = gallery.out / "phone-shots"
    if not shots.is_dir():
        # Moved into place as a whole: an interrupted series is not taken for a finished one.
        with tempfile.TemporaryDirectory(dir=_made(gallery.out)) as folder:
            example.main([f"{folder}/shots"])
            shutil.move(f"{folder}/shots", shots)
    spec = {
        "model": PHOTO_NETWORK,
        "dataset": photos(sample={"size": _PHOTOS, "seed": 0}),
        "noise": {"sigma": [0.1]},
    }
    path = gallery.out / "phone-spec.yaml"
    path.write_text(yaml.safe_dump(spec), encoding="utf-8")
    content.commands.append("python -m tests.research.camera.example phone-shots")
    content.commands.append(
        "robaudit measure-noise phone-shots --spec phone.yaml -o phone-noise.yaml"
    )
    return robaudit.measure_noise(shots, spec=path, out=gallery.out / "phone-noise.yaml")


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _table(content: Content, run: Run, levels: list[float]) -> list[Estimate]:
    """The table; returns the differences of p_robust, nearest kind minus recorded noise."""
    rows = []
    found = []
    for times, sigma in zip(_TIMES, levels, strict=True):
        first = values(run, "mc", "recorded", times)
        second = values(run, "mc", "nearest", sigma)
        found.append(mean_difference(first, second))
        rows.append(
            (
                f"{times} x",
                f"{sigma:.4f}",
                with_ends(accuracy_under(run, "recorded", times).population),
                with_ends(group(run, "mc", "recorded", times).mean.population),
                with_ends(group(run, "mc", "nearest", sigma).mean.population),
                with_ends(group(run, "mc", "correlated", sigma).mean.population),
                with_ends(found[-1]),
            )
        )
    head = (
        "strength",
        "sigma",
        "accuracy, recorded",
        "p_robust, recorded",
        "p_robust, nearest kind",
        "p_robust, correlated",
        "nearest - recorded",
    )
    content.tables.append(table(head, rows))
    return found


def _sentences(
    content: Content,
    measured: MeasuredNoise,
    run: Run,
    levels: list[float],
    differences: list[Estimate],
) -> None:
    noise = measured.noises[0]
    beside = noise.neighbours[0].correlation
    lows = [one.lower or 0.0 for one in differences]
    content.say(
        "After the resize to 224 pixels the phone's noise has a sigma of "
        f"{with_ends(noise.sigma, 5)}, about one grey level of 255, at which the network keeps "
        f"{with_ends(group(run, 'mc', 'recorded', 1).mean.population)} of its predictions: the "
        "camera itself is no danger here.",
    )
    content.say(
        f"Neighbouring pixels share noise, a correlation of {with_ends(beside)}, which no kind in "
        "the list has together with the dependence on brightness, so the verdict is that none "
        "fits.",
        if_=beside.lower is not None and beside.lower > 0.1,
    )
    content.say(
        "At the measured strength that makes next to no difference: the nearest kind keeps "
        f"{with_ends(differences[0])} more of the predictions than the recorded noise.",
        if_=lows[0] <= 0,
    )
    content.say(
        f"At 16 times the strength it does: the nearest kind promises {with_ends(differences[-1])} "
        "more than recorded noise of the same sigma leaves: who judges a camera by its sigma alone "
        "is too optimistic.",
        if_=lows[-1] > 0,
    )
    _cause(content, run, levels[-1])
    content.surprise = (
        "A correlation of 0.2 between neighbouring pixels is enough: recorded noise of a phone "
        f"does more harm than the nearest kind of noise, by {differences[-1].value:.2f} of the "
        "predictions at 16 times its strength, and by next to nothing as it is."
    )


def _cause(content: Content, run: Run, sigma: float) -> None:
    """What the correlation of neighbours alone explains, at the largest level."""
    recorded = values(run, "mc", "recorded", _TIMES[-1])
    nearest = values(run, "mc", "nearest", sigma)
    correlated = values(run, "mc", "correlated", sigma)
    explained = mean_difference(correlated, nearest)
    left = mean_difference(recorded, correlated)
    content.say(
        "It is the correlation of neighbours that does it: Gaussian noise with that correlation "
        f"and nothing else of the phone keeps {with_ends(explained)} less than the nearest kind, "
        f"and no more than the recorded noise does ({with_ends(left)}).",
        if_=explained.lower is not None
        and explained.lower > 0
        and left.lower is not None
        and left.lower <= 0,
    )
