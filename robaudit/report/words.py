"""The words that terminal, pages and pictures share; docs/glossary.md says what they mean."""

from __future__ import annotations

from collections.abc import Mapping

from robaudit.stats.classes import ClassBias, GapVerdict
from robaudit.stats.flags import Certainty

POPULATION = "95% interval, population"
MEASUREMENT = "95% interval, measurement"
COVER = (
    "Population: the interval covers the choice of images, too, and holds for the population that they were drawn from. "
    "Measurement: it holds for these images and covers the noise draws only."
)
BOOTSTRAP = "bootstrap interval (percentiles), population"
CERTAINTIES: Mapping[Certainty, str] = {
    Certainty.CLEAR: "clear: the whole 95 % interval is beyond the threshold.",
    Certainty.SAMPLING_ONLY: "sampling-only: the whole 95 % interval is beyond the threshold, but it does not cover the estimator's bias.",
    Certainty.UNDECIDED: "undecided: the 95 % interval contains the threshold.",
    Certainty.NO_INTERVAL: "~ no interval: an approximation of unknown error.",
}
"""What the certainty of a sample means that a list of flagged samples shows."""
GAP_VERDICTS: Mapping[GapVerdict, str] = {
    GapVerdict.SIGNIFICANT: "significant",
    GapVerdict.NOT_SIGNIFICANT: "not significant",
    GapVerdict.NOT_TESTED: "not tested",
}
"""The verdict on the gap between classes."""


def gap_sentence(bias: ClassBias) -> str:
    """The verdict on the gap between classes, and the numbers behind it."""
    return f"{GAP_VERDICTS[bias.verdict].capitalize()}. {bias.explanation}"
