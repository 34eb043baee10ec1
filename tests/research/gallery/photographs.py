"""An ImageNet network on photos: four kinds of noise, and noise before and after the resize."""

from __future__ import annotations

from collections import Counter

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from robaudit.api.run import Run
from robaudit.estimates import Estimate
from robaudit.stats.ranks import rank_correlation
from tests.research.gallery.gallery import (
    Content,
    Gallery,
    accuracy_under,
    apart,
    clean_accuracy,
    group,
    mean_difference,
    percent,
    table,
    values,
    with_ends,
)
from tests.research.papers.item import measured
from tests.shared import PHOTO_NETWORK, RESIZE, SHARED, photos

_FILE = "photo_file"
"""The label of noise in the file."""
_SIGMAS = (0.05, 0.1, 0.2)
_PHOTONS = (1000, 100, 30)
_SEVERITIES = (1, 3, 5)
_UNITS = {"gaussian": "sigma", "sensor": "photons", "jpeg": "severity", "fog": "severity"}
_KINDS = {
    "gaussian": _SIGMAS,
    "sensor": _PHOTONS,
    "jpeg": _SEVERITIES,
    "fog": _SEVERITIES,
}


def kinds(gallery: Gallery) -> Content:
    """Gaussian noise, a sensor's, JPEG and fog."""
    content = Content(
        about="EfficientNet-Lite0, trained on ImageNet, on 200 photos of as many classes, "
        "which it probably was trained on: Gaussian "
        "noise, the noise of a sensor (photons at white, read noise of 3 electrons), JPEG and fog "
        "of ImageNet-C's severities. 8 copies each; JPEG is the same every time, and has one.",
    )
    run = gallery.run(
        content,
        "photos",
        PHOTO_NETWORK,
        photos(),
        noise=[
            {"kind": "gaussian", "sigma": list(_SIGMAS)},
            {"kind": "sensor", "photons": list(_PHOTONS), "read_noise": 3},
            {"kind": "corruption", "name": ["jpeg", "fog"], "severity": list(_SEVERITIES)},
        ],
        estimators=[{"mc": {"draws": 8}}],
    )
    gallery.plot(
        content,
        "photos-levels",
        run,
        "levels",
        "A row for each kind of noise, a column for each level",
    )
    gallery.plot(
        content,
        "photos-summary",
        run,
        "summary",
        "The share of copies that keep the class for each photo, sorted, a panel for each noise",
    )
    _kinds_table(content, run)
    _kinds_sentences(content, run)
    return content


def _kinds_table(content: Content, run: Run) -> None:
    rows = []
    for kind, levels in _KINDS.items():
        for level in levels:
            accuracy = accuracy_under(run, kind, level)
            rows.append(
                (
                    f"{kind}, {_UNITS[kind]} {level:g}",
                    with_ends(accuracy.population),
                    with_ends(_robustness(run, kind, level)),
                )
            )
    head = ("noise", "accuracy", "p_robust")
    content.tables.append(
        f"Accuracy without noise: {with_ends(clean_accuracy(run))}.\n\n{table(head, rows)}"
    )


def _robustness(run: Run, noise: str, level: float) -> Estimate:
    return group(run, "mc", noise, level).mean.population


def _correlation(run: Run, first: tuple[str, float], second: tuple[str, float]) -> Estimate:
    """Spearman's correlation of p_robust under two noises over the images, by bootstrap."""
    a = values(run, "mc", *first)
    b = values(run, "mc", *second)
    return measured(len(a), lambda at: rank_correlation(a[at], b[at]) or 0.0).estimate


def _kinds_sentences(content: Content, run: Run) -> None:
    paired = mean_difference(values(run, "mc", "gaussian", 0.05), values(run, "mc", "jpeg", 1))
    both = [
        accuracy_under(run, noise, level).population
        for noise, level in (("jpeg", 1), ("gaussian", 0.05))
    ]
    content.say(
        f"JPEG of quality 25 changes {percent(1 - _robustness(run, 'jpeg', 1).value)} of the "
        "predictions, more than Gaussian noise of sigma 0.05, 13 grey levels of 255, does "
        f"({percent(1 - _robustness(run, 'gaussian', 0.05).value)}; paired difference of p_robust "
        f"{with_ends(paired)}), and yet both leave the same accuracy, {both[0].value:.3f} and "
        f"{both[1].value:.3f}: JPEG also changes more predictions that were wrong.",
        if_=paired.upper is not None
        and paired.upper < 0
        and abs(both[0].value - both[1].value) < 0.01,
    )
    dark = accuracy_under(run, "sensor", 30).population
    content.say(
        "With 30 photons where the picture is white, and a read noise of 3 electrons, "
        f"{with_ends(dark)} of the copies are still classified correctly, among a thousand "
        "classes.",
        if_=dark.lower is not None and dark.lower > 0.4,
    )
    alike = _correlation(run, ("gaussian", 0.1), ("sensor", 100))
    fog = _correlation(run, ("gaussian", 0.1), ("fog", 3))
    content.say(
        "Which photos suffer depends on the kind of noise: the rank correlation over photos "
        "between Gaussian noise of sigma 0.1 and a sensor of 100 photons is "
        f"{with_ends(alike, 2)}, but with fog it is only {with_ends(fog, 2)}, so a list of the "
        "least robust photos under one noise is not that under another.",
        if_=apart(fog, alike),
    )
    veil = _robustness(run, "fog", 5)
    noisy = _robustness(run, "gaussian", 0.2)
    content.say(
        "Fog of severity 5, a smooth veil that people see through, does as much harm as Gaussian "
        "noise of sigma 0.2, 51 grey levels of 255 in every pixel: "
        f"{with_ends(veil)} and {with_ends(noisy)} of the predictions stay.",
        if_=not apart(noisy, veil),
    )
    (first, often), (second, next_), *_ = _flips(run, "fog", _SEVERITIES[-1])
    content.say(
        f"What the network sees in dense fog makes sense: the photos turn into a {first} ({often} "
        f"of {len(run.table.ids)}) and a {second} ({next_}) most often, things that smoke.",
        if_=(first, second) == ("caldron", "volcano"),
    )
    content.surprise = (
        "JPEG compression changes more predictions than visible noise, dense fog turns photos "
        f"into a {first} or a {second}, and 30 photons are enough to be right on "
        f"{percent(dark.value)}."
    )


def _flips(run: Run, noise: str, level: float) -> list[tuple[str, int]]:
    """The classes that photos flip to, the most frequent first."""
    names = run.class_names
    assert names is not None, "ImageNet's"
    found = [row.flips_to for row in run.rows if row.noise == noise and row.level == level]
    counts = Counter(names[to] for to in found if to is not None)
    return counts.most_common()


def file_or_input(gallery: Gallery) -> Content:
    """The same noise in the file of the photo, and at the input of the network."""
    content = Content(
        about="The same Gaussian noise twice: added to the photo as it lies in the file, before it "
        "is resized to 256 pixels and cropped to 224 (`at: file`), and added to what the "
        "network gets (`at: input`, the default). EfficientNet-Lite0, 100 photos of some 500 x 375 "
        "pixels, 4 copies each.",
    )
    run = gallery.run(
        content,
        "file",
        PHOTO_NETWORK,
        photos(sample={"size": 100, "seed": 0}),
        noise=[
            {"kind": "gaussian", "name": "input", "sigma": list(_SIGMAS)},
            {"kind": "gaussian", "name": "photo", "sigma": list(_SIGMAS), "at": "file"},
        ],
        estimators=[{"mc": {"draws": 4}}],
    )
    gallery.plot(
        content,
        "file-summary",
        run,
        "summary",
        "The share of copies that keep the class for each photo, sorted, for both",
    )
    gallery.plot(
        content,
        "file-levels",
        run,
        "levels",
        "Accuracy and robustness against sigma, for both; the axes of robustness differ",
    )
    differences = [_file_difference(run, sigma) for sigma in _SIGMAS]
    rows = [
        (
            f"{sigma:g}",
            with_ends(accuracy_under(run, "input", sigma).population),
            with_ends(accuracy_under(run, _FILE, sigma).population),
            with_ends(_robustness(run, "input", sigma)),
            with_ends(_robustness(run, _FILE, sigma)),
            with_ends(difference),
        )
        for sigma, difference in zip(_SIGMAS, differences, strict=True)
    ]
    head = (
        "sigma",
        "accuracy, input",
        "accuracy, file",
        "p_robust, input",
        "p_robust, file",
        "file - input",
    )
    content.tables.append(table(head, rows))
    _file_sentences(content, run, differences)
    return content


def _file_difference(run: Run, sigma: float) -> Estimate:
    """Mean p_robust under noise in the file minus that at the input, paired by photo."""
    return mean_difference(values(run, "mc", "input", sigma), values(run, "mc", _FILE, sigma))


def _sides(run: Run) -> NDArray[np.int64]:
    """The shorter side of each photo as it lies in the file, in pixels (images,)."""
    folder = SHARED / "data" / "imagenet_photos"
    found = []
    for sample in run.table.ids:
        with Image.open(folder / sample) as photo:
            found.append(min(photo.size))
    return np.array(found)


def _file_sentences(content: Content, run: Run, differences: list[Estimate]) -> None:
    strong = _SIGMAS[-1]
    content.say(
        "The same noise does less harm in the file than at the input, at every level: at sigma "
        f"{strong:g} the share of copies that keep their class is higher by "
        f"{with_ends(differences[-1])}, and accuracy is "
        f"{with_ends(accuracy_under(run, _FILE, strong).population)} instead of "
        f"{with_ends(accuracy_under(run, 'input', strong).population)}.",
        if_=all(one.lower is not None and one.lower > 0 for one in differences),
    )
    means = [_robustness(run, "input", sigma).value for sigma in _SIGMAS]
    same = float(np.interp(-_robustness(run, _FILE, strong).value, np.negative(means), _SIGMAS))
    sides = _sides(run)
    typical = float(np.median(sides))
    content.say(
        f"In numbers: sigma {strong:g} in the file harms as much as sigma {same:.2f} at the input "
        f"(interpolated), {same / strong:.2f} times as much; the resize, which averages "
        f"neighbours, makes the median photo {RESIZE / typical:.2f} times as large.",
        if_=abs(same / strong - RESIZE / typical) < 0.1,
    )
    enlarged = sides < RESIZE
    first = values(run, "mc", "input", strong)
    second = values(run, "mc", _FILE, strong)
    opposite = mean_difference(first[enlarged], second[enlarged])
    content.say(
        f"{np.sum(enlarged)} of the photos are smaller than {RESIZE} pixels, so that the resize "
        "enlarges them and makes blotches of their noise; there the difference is "
        f"{with_ends(opposite)}: the other way round, though so few photos prove nothing.",
        if_=opposite.value < 0 and opposite.upper is not None and opposite.upper >= 0,
    )
    rest = mean_difference(first[~enlarged], second[~enlarged])
    content.say(
        f"On the other {np.sum(~enlarged)} photos noise in the file is the milder by "
        f"{with_ends(rest)}, so an audit of a camera by its data sheet needs `at: file`, and "
        "photos of the size that the camera makes "
        "([noise.md](../noise.md#on-the-input-or-on-the-file)).",
        if_=rest.lower is not None and rest.lower > 0,
    )
    seconds = dict.fromkeys(("input", _FILE), 0.0)
    for (_, at), spent in run.seconds.items():
        if at.noise in seconds:
            seconds[at.noise] += spent
    content.say(
        f"It costs {seconds[_FILE] / seconds['input']:.1f} times the time here, "
        f"{seconds[_FILE]:.0f} s instead of {seconds['input']:.0f} s, as each copy is resized "
        "again.",
        if_=seconds[_FILE] > seconds["input"],
    )
    content.surprise = (
        f"Noise of sigma {strong:g} in the file of a photo does the harm of {same:.2f} at the "
        "input, though the photo is only half again as large; where a photo is enlarged it may do "
        "more."
    )
