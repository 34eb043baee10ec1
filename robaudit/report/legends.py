"""The words that terminal, pages and pictures share; docs/glossary.md says what they mean."""

from __future__ import annotations

from collections.abc import Mapping

from robaudit.numerics.image_intervals import LIKE_THESE, THESE_IMAGES
from robaudit.report import numbers
from robaudit.stats.class_differences import ClassBias
from robaudit.stats.flags import Certainty, Flagged
from robaudit.text import class_name

COVER = (
    f"{LIKE_THESE.capitalize()}: the interval also covers the choice of images, so it holds for "
    "the population they were drawn from. "
    f"{THESE_IMAGES.capitalize()}: it covers only the noise draws on the audited images."
)
BOOTSTRAP = f"percentile bootstrap interval, {LIKE_THESE}"
CERTAINTIES: Mapping[Certainty, str] = {
    Certainty.CONFIRMED: "confirmed: the whole 95 % interval is beyond the threshold.",
    Certainty.APPROXIMATE: "approximate: the whole 95 % interval is beyond the threshold, but it "
    "does not cover the estimator's bias.",
    Certainty.LIKELY: "likely: the value is beyond the threshold, but the 95 % interval contains "
    "it.",
    Certainty.UNDECIDED: "undecided: the 95 % interval contains the threshold; the value is not "
    "beyond it, or only a bound is.",
    Certainty.NO_INTERVAL: "~ no interval: an approximation of unknown error.",
}
"""The meaning of the certainties in a list of flagged samples."""


def certainties(flagged: Flagged) -> str:
    """How certain the flagged samples are, ``13 confirmed, 7 likely; 6 of the others undecided``:
    the first numbers add up to them."""
    counts = [
        (flagged.confirmed, Certainty.CONFIRMED),
        (flagged.approximate, Certainty.APPROXIMATE),
        (flagged.likely, Certainty.LIKELY),
    ]
    unknown = flagged.beyond - sum(number for number, _ in counts) - flagged.bounds
    parts = [f"{number:,} {word}" for number, word in counts if number]
    parts += [f"{flagged.bounds:,} by a bound only"] * bool(flagged.bounds) + [
        f"{unknown:,} without an interval"
    ] * bool(unknown)
    others = (
        f"{flagged.undecided:,}{' of the others' if flagged.beyond else ''} {Certainty.UNDECIDED}"
        if flagged.undecided
        else ""
    )
    return "; ".join(filter(None, (", ".join(parts), others)))


def bracketed_certainties(flagged: Flagged) -> str:
    """The certainties in brackets, to follow a number; empty where there are none."""
    certain = certainties(flagged)
    return f" ({certain})" if certain else ""


def gap_sentence(bias: ClassBias) -> str:
    """The gap between classes with its interval, whether it is significant, and how many classes
    differ from the others."""
    gap = bias.gap
    if gap is None:
        return "Not tested: at least two classes with two images each are needed."
    names = {
        stats.index: class_name(
            stats.index, None if stats.name is None else {stats.index: stats.name}
        )
        for stats in bias.classes
    }
    tested = [stats for stats in bias.classes if stats.differs is not None]
    differing = sum(stats.differs != "no" for stats in tested)
    differ = f"{differing:,} of {len(tested):,} classes {'differs' if differing == 1 else 'differ'}"
    p = numbers.p_value(gap.p_value)
    null = numbers.plain(gap.null_mean)
    critical = numbers.plain(gap.critical)
    value = numbers.gap(gap.estimate) + " of the bounds" * bias.of_bounds
    return (
        f"Least robust: {names[gap.least]}. Most robust: {names[gap.most]}. "
        f"Gap {value}: {bias.verdict.replace('-', ' ')}, p "
        f"{p.replace('<', '< ') if p.startswith('<') else f'= {p}'} "
        f"(permuting the class labels gives {null} on average, and more than {critical} in "
        f"{100 * bias.alpha:g} %). "
        f"{differ} significantly from the others."
    )
