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
TURNS = (
    "right stays right, wrong is repaired: the share of the noisy copies that are classified as "
    "labelled, of the images that are classified correctly without noise, and of the others."
)
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
_MOST_NAMED = 5
"""Classes in a sentence."""


def certainties(flagged: Flagged) -> str:
    """How certain the flagged samples are, ``13 confirmed, 7 likely; 6 of the others undecided``:
    the first numbers add up to them."""
    counts = [
        (flagged.confirmed, Certainty.CONFIRMED),
        (flagged.approximate, Certainty.APPROXIMATE),
        (flagged.likely, Certainty.LIKELY),
    ]
    # what remains of the flagged samples has no interval: the numbers must add up
    unknown = flagged.beyond - sum(number for number, _ in counts) - flagged.bounds
    parts = [f"{number:,} {word}" for number, word in counts if number]
    if flagged.bounds:
        parts.append(f"{flagged.bounds:,} by a bound only")
    if unknown:
        parts.append(f"{unknown:,} without an interval")
    sentences = [", ".join(parts)] if parts else []
    if flagged.undecided:
        of_others = " of the others" if flagged.beyond else ""
        sentences.append(f"{flagged.undecided:,}{of_others} {Certainty.UNDECIDED}")
    return "; ".join(sentences)


def wrong_before(flagged: Flagged) -> str:
    """How many of the flagged samples are misclassified without noise, so that noise breaks
    nothing; empty if none is."""
    if not flagged.wrong:
        return ""
    verb = "is" if flagged.wrong == 1 else "are"
    who = f"{flagged.wrong:,} of the {flagged.beyond:,}"
    if flagged.wrong == flagged.beyond:
        who = "It" if flagged.wrong == 1 else "All of them"
    text = f"{who} {verb} wrong without noise"
    if not flagged.repaired:
        return f"{text}."
    turn = "flips" if flagged.repaired == 1 else "flip"
    those = f"{flagged.repaired:,}" if flagged.repaired < flagged.wrong else "all"
    if flagged.wrong == 1:
        return f"{text}, and flips to the label."
    return f"{text}, and {those} of those {turn} to the label."


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
    names = {}
    for stats in bias.classes:
        own_name = None if stats.name is None else {stats.index: stats.name}
        names[stats.index] = class_name(stats.index, own_name)
    tested = [stats for stats in bias.classes if stats.differs is not None]
    differing = [names[stats.index] for stats in tested if stats.differs != "no"]
    verb = "differs" if len(differing) == 1 else "differ"
    which = ", ".join(differing[:_MOST_NAMED])
    if len(differing) > _MOST_NAMED:
        which += f" and {len(differing) - _MOST_NAMED} more"
    which = f": {which}" if which else ""
    value = numbers.gap(gap.estimate)
    if bias.of_bounds:
        value += " of the bounds"
    p = numbers.p_value(gap.p_value)
    p = f"p {p.replace('<', '< ')}" if p.startswith("<") else f"p = {p}"
    # A gap is never 0, even between equal classes: the sentence says how large chance makes it.
    chance = (
        f"permuting the class labels gives {numbers.plain(gap.null_mean)} on average, and more "
        f"than {numbers.plain(gap.critical)} in {100 * bias.alpha:g} %"
    )
    return (
        f"Least robust: {names[gap.least]}. Most robust: {names[gap.most]}. "
        f"Gap {value}: {bias.verdict.replace('-', ' ')}, {p} ({chance}). "
        f"{len(differing):,} of {len(tested):,} classes {verb} significantly from the "
        f"others{which}."
    )
