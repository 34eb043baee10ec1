"""How does a proposal read in a terminal?"""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType

from robaudit.planning.choice import Plan
from robaudit.planning.durations import text as duration
from robaudit.planning.proposal import Proposal
from robaudit.remaining import duration_text
from robaudit.report.tables import base_table, legend, plain


def tables(found: Proposal) -> Iterator[RenderableType]:
    """The alternatives, the recommended one marked, and what to paste."""
    about = "a decision about each image" if found.question == "images" else "a mean over the images"
    yield plain(f"{duration(found.budget)} for {about}: {found.available:,} images, {len(found.sigmas)} noise level(s)", "bold")
    yield plain(f"tried on {found.pilot_images} images in {duration_text(found.pilot_seconds)}, {found.device}")
    table = base_table(narrow=False)
    for name in ("", "estimator"):
        table.add_column(name, no_wrap=True)
    for name in ("draws", "images", "RMSE of an image", "error of the mean", "of these images", "time"):
        table.add_column(name, justify="right")
    for plan in found.alternatives:
        table.add_row(*map(plain, _cells(plan, plan == found.chosen)), style="bold" if plan == found.chosen else "")
    yield table
    yield from legend(_LEGEND)
    yield from (plain(offer.text) for offer in found.precisions)
    yield plain("Paste into the spec:", "bold")
    yield from map(plain, found.snippet.splitlines())


_LEGEND = (
    "->: recommended: the cheapest whose error is within 10 % of the least. Errors are predicted, at the worst noise level.",
    "error of the mean: as an estimate for all images of this kind; a class of k images has sqrt(images / k) times as much.",
    "of these images: the part of it that is noise and bias, not the choice of images.",
    "time: of the run, its start included; nine tenths of the budget are planned with.",
)


def _cells(plan: Plan, chosen: bool) -> Iterator[str]:
    yield "->" if chosen else ""
    yield plan.kind
    yield f"{plan.draws:,.0f}" if plan.draws else "-"
    yield f"{plan.images:,}"
    for error in (plan.error, plan.error_of_mean, plan.noise_of_mean):
        yield f"{error:.2g}"
    yield duration_text(plan.seconds)
