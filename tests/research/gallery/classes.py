"""Classes that noise treats differently: two data sets of ten classes, and one of a hundred."""

from __future__ import annotations

import numpy as np

from robaudit.api.run import Run
from robaudit.stats.class_differences import ClassBias, ClassStats
from robaudit.stats.confusion_matrix import Confusion
from tests.research.gallery.gallery import (
    Content,
    Gallery,
    apart,
    group,
    images,
    network,
    percent,
    table,
    with_ends,
)
from tests.shared import FASHION_CLASSES

CIFAR = (
    "airplane",
    "automobile",
    "bird",
    "cat",
    "deer",
    "dog",
    "frog",
    "horse",
    "ship",
    "truck",
)
_FASHION_LEVELS = (0.05, 0.1, 0.25)
_CIFAR_LEVELS = (0.02, 0.05, 0.1)


def bias(gallery: Gallery) -> Content:
    """FashionMNIST and CIFAR-10, class by class."""
    content = Content(
        about="Two networks trained without noise, with ten classes each: a CNN on 3,000 images of "
        "FashionMNIST, and ResNet20 on 1,500 of CIFAR-10, under Gaussian noise. The order of "
        "the classes is that of the lowest noise level.",
    )
    clothes = _audit(
        gallery, content, "fashion", "fashion_shallow_cnn", FASHION_CLASSES, _FASHION_LEVELS
    )
    objects = _audit(gallery, content, "cifar10", "cifar10_resnet20", CIFAR, _CIFAR_LEVELS)
    gallery.plot(
        content,
        "bias-cifar10",
        objects,
        "confusion",
        "CIFAR-10 at sigma 0.1: the column of frogs is dark, the diagonal is not",
        sigma=0.1,
    )
    gallery.plot(
        content,
        "bias-fashion",
        clothes,
        "confusion",
        "FashionMNIST at sigma 0.25: shirts, sandals and bags take the copies of all classes",
        sigma=0.25,
    )
    _sentences(content, clothes, objects)
    return content


def _audit(
    gallery: Gallery,
    content: Content,
    name: str,
    model: str,
    names: tuple[str, ...],
    levels: tuple[float, ...],
) -> Run:
    """An audit, and its table of class means."""
    limit, draws = (3000, 32) if name == "fashion" else (1500, 16)
    run = gallery.run(
        content,
        f"bias-{name}",
        network(model),
        images(model, limit, names),
        noise={"sigma": list(levels)},
        estimators=[{"mc": {"draws": draws}}],
    )
    content.commands.append(f"robaudit bias-report bias-{name} --sigma {levels[1]:g}")
    by_level = [_by_class(run, level) for level in levels]
    rows = [
        (name, stats.images, *(with_ends(found[name].mean.population) for found in by_level))
        for name, stats in by_level[0].items()
    ]
    head = ("class", "images", *(f"sigma {level:g}" for level in levels))
    content.tables.append(
        f"Share of noisy copies that keep the class, {run.path.name}:\n\n{table(head, rows)}"
    )
    return run


def bias_of(run: Run, level: float) -> ClassBias:
    (found,) = run.section("classes", sigma=level)
    assert isinstance(found, ClassBias)
    return found


def _by_class(run: Run, level: float) -> dict[str, ClassStats]:
    """By the name of the class, the least robust first."""
    found = sorted(bias_of(run, level).classes, key=lambda stats: stats.mean.population.value)
    return {str(stats.name): stats for stats in found}


def confusion_of(run: Run, level: float) -> Confusion:
    (found,) = run.section("confusion", sigma=level)
    assert isinstance(found, Confusion)
    return found


def names_of(run: Run) -> tuple[str, ...]:
    """The names of the classes."""
    names = run.class_names
    assert names is not None, "the specs of the gallery name them"
    return names


def taken(run: Run, level: float, cls: str) -> float:
    """The share of all noisy copies that become this class."""
    found = confusion_of(run, level)
    to = found.classes.index(names_of(run).index(cls))
    return float(np.average([shares[to] for shares in found.shares], weights=found.images))


def turned(run: Run, level: float, start: str, to: str) -> str:
    """The share of the copies of a class that become another one."""
    names = names_of(run)
    (found,) = [
        turn
        for turn in confusion_of(run, level).turns
        if (names[turn.start], names[turn.to]) == (start, to)
    ]
    return percent(found.share)


def _sentences(content: Content, clothes: Run, objects: Run) -> None:
    weak, middle, strong = (_by_class(clothes, level) for level in _FASHION_LEVELS)
    frogs = [taken(objects, level, "frog") for level in (0.02, 0.1)]
    content.say(
        f"Under noise of sigma 0.1 ResNet20 sees frogs: {percent(frogs[1])} of all noisy copies "
        f"are called frog (at sigma 0.02: {percent(frogs[0])}), also "
        f"{turned(objects, 0.1, 'truck', 'frog')} of those of trucks.",
        if_=frogs[1] > 0.5 > frogs[0],
    )
    frog = _by_class(objects, 0.1)["frog"].mean.population
    dog = _by_class(objects, 0.1)["dog"].mean.population
    content.say(
        f"So frogs seem to be very robust, {with_ends(frog)} where dogs have {with_ends(dog)}: "
        "they stay frogs because noise looks like a frog to this network, and a class that is "
        "called robust may only be the one that everything turns into.",
        if_=apart(dog, frog),
    )
    content.say(
        f"On FashionMNIST {turned(clothes, 0.1, 'sneaker', 'sandal')} of the copies of sneakers "
        "are sandals at sigma 0.1, and no other class has lost as much: all classes together keep "
        f"{with_ends(group(clothes, 'mc', 'gaussian', 0.1).mean.population)}.",
        if_=next(iter(middle)) == "sneaker",
    )
    content.say(
        "The order of the classes depends on the noise level: boots are among the five most robust "
        f"classes at sigma 0.05 ({with_ends(weak['boot'].mean.population)}) and the least robust "
        f"of all at 0.25 ({with_ends(strong['boot'].mean.population)}); shirts go the other way, "
        f"from significantly less robust than the others to the third most robust.",
        if_=list(weak).index("boot") >= 5
        and next(iter(strong)) == "boot"
        and weak["shirt"].differs == "lower"
        and strong["shirt"].differs == "higher"
        and list(strong).index("shirt") == len(strong) - 3,
    )
    verdicts = [
        sum(stats.differs != "no" for stats in bias_of(run, level).classes)
        for run, level in ((clothes, 0.1), (objects, 0.1))
    ]
    content.say(
        f"Of ten classes, {verdicts[0]} and {verdicts[1]} differ significantly from the others at "
        "sigma 0.1, so a mean over all classes describes hardly any of them: gate "
        "[`worst_class`](../gates.md), too.",
        if_=min(verdicts) >= 8,
    )
    content.surprise = (
        f"Under noise ResNet20 calls {percent(frogs[1])} of everything a frog, and which classes "
        "of FashionMNIST are robust turns round with the noise level."
    )
