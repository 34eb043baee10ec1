"""A hundred classes: which differ, and what noise makes of them."""

from __future__ import annotations

import numpy as np

from robaudit.api.run import Run
from robaudit.stats.confusion_matrix import Turn
from tests.research.gallery.classes import bias_of, confusion_of, taken
from tests.research.gallery.gallery import (
    Content,
    Gallery,
    accuracy_under,
    clean_accuracy,
    group,
    images,
    network,
    percent,
    table,
    with_ends,
)

_NAMES = """apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus
butterfly camel can castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab
crocodile cup dinosaur dolphin elephant flatfish forest fox girl hamster house kangaroo keyboard
lamp lawn_mower leopard lion lizard lobster man maple_tree motorcycle mountain mouse mushroom
oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree plain plate poppy porcupine
possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk skyscraper snail snake spider
squirrel streetcar sunflower sweet_pepper table tank telephone television tiger tractor train trout
tulip turtle wardrobe whale willow_tree wolf woman worm"""
CLASSES = tuple(name.replace("_", " ") for name in _NAMES.split())
_LEVELS = (0.01, 0.02, 0.05)
_TURNS = 8
"""Rows of the table of turns."""


def hundred(gallery: Gallery) -> Content:
    """CIFAR-100: the bias report and the most frequent turns."""
    content = Content(
        about="ResNet14 on 2,000 images of CIFAR-100, a hundred classes with some twenty images "
        "each, under weak Gaussian noise, 16 copies each.",
    )
    run = gallery.run(
        content,
        "cifar100",
        network("cifar100_resnet14"),
        images("cifar100_resnet14", 2000, CLASSES),
        noise={"sigma": list(_LEVELS)},
        estimators=[{"mc": {"draws": 16}}],
    )
    content.commands.append("robaudit bias-report cifar100 --sigma 0.02")
    gallery.plot(
        content,
        "cifar100-turns",
        run,
        "confusion",
        "The most frequent turns from one class to another at sigma 0.05",
        sigma=0.05,
    )
    gallery.plot(
        content,
        "cifar100-classes",
        run,
        "classes",
        "How far each class is from all others at sigma 0.02",
        sigma=0.02,
    )
    _tables(content, run)
    _sentences(content, run)
    return content


def _turns(run: Run, level: float) -> list[Turn]:
    """The most frequent first."""
    return sorted(confusion_of(run, level).turns, key=lambda turn: -turn.share)


def _tables(content: Content, run: Run) -> None:
    rows = [("no noise", with_ends(clean_accuracy(run)), "-", "-")]
    for level in _LEVELS:
        found = bias_of(run, level)
        rows.append(
            (
                f"{level:g}",
                with_ends(accuracy_under(run, "gaussian", level).population),
                with_ends(group(run, "mc", "gaussian", level).mean.population),
                f"{sum(one.differs in ('lower', 'higher') for one in found.classes)}",
            )
        )
    head = ("sigma", "accuracy", "p_robust", "classes that differ significantly, of 100")
    content.tables.append(table(head, rows))
    pairs = zip(_turns(run, _LEVELS[0])[:_TURNS], _turns(run, _LEVELS[-1])[:_TURNS], strict=True)
    rows = [
        (_words(weak), with_ends(weak.estimate, 2), _words(strong), with_ends(strong.estimate, 2))
        for weak, strong in pairs
    ]
    head = ("at sigma 0.01", "share of copies", "at sigma 0.05", "share of copies")
    content.tables.append(f"The most frequent turns:\n\n{table(head, rows)}")


def _words(turn: Turn) -> str:
    return f"{CLASSES[turn.start]} to {CLASSES[turn.to]}"


def _before(run: Run, cls: str) -> float:
    """The share of the images that are predicted as this class without noise."""
    index = CLASSES.index(cls)
    return float(np.mean([row.predicted == index for row in run.rows]))


def _sentences(content: Content, run: Run) -> None:
    kept = group(run, "mc", "gaussian", 0.01).mean.population
    content.say(
        "Noise of sigma 0.01, two and a half grey levels of 255, which hardly an eye would notice, "
        f"leaves only {with_ends(kept)} of the predictions as they were.",
        if_=kept.upper is not None and kept.upper < 0.85,
    )
    porcupines = taken(run, 0.05, "porcupine")
    hamster, baby = _turns(run, 0.05)[:2]
    content.say(
        f"Weak noise turns classes into their like ({_words(_turns(run, 0.01)[0])}), stronger "
        f"noise into one favourite: at sigma 0.05 {percent(porcupines)} of all copies are "
        f"porcupines (without noise {percent(_before(run, 'porcupine'))}), among them "
        f"{percent(hamster.share)} of those of hamsters and {percent(baby.share)} of those of "
        "babies.",
        if_=porcupines > 10 * _before(run, "porcupine")
        and [_words(hamster), _words(baby)] == ["hamster to porcupine", "baby to porcupine"],
    )
    found = bias_of(run, 0.02)
    gap = found.gap
    assert gap is not None
    least, most = CLASSES[gap.least], CLASSES[gap.most]
    content.say(
        f"At sigma 0.02 the least robust class is {least} and the most robust {most}, and the gap "
        f"between them is {with_ends(gap.estimate, 2)}; but with a hundred classes of twenty "
        f"images, permuted labels make a gap of {gap.null_mean:.2f} on average.",
        if_=gap.null_mean > 0.4,
    )
    differing = [one for one in found.classes if one.differs in ("lower", "higher")]
    named = ", ".join(CLASSES[one.index] for one in differing)
    content.say(
        f"So only {len(differing)} of the hundred classes differ significantly from the others "
        f"({named}), where a plain ranking would have named a hundred.",
        if_=len(differing) < 10,
    )
    roach = found.classes[CLASSES.index("cockroach")]
    content.say(
        f"Cockroaches survive: at sigma 0.02 all copies of their {roach.images} images keep their "
        f"class, {with_ends(roach.mean.population)}.",
        if_=roach.name == "cockroach" and roach.mean.value == 1,
    )
    content.surprise = (
        f"Babies and hamsters turn into porcupines, {percent(porcupines)} of everything does; only "
        f"{len(differing)} of 100 classes differ significantly, and one of them is the cockroach."
    )
