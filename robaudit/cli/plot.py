"""`robaudit plot`: draw a figure of a run for a paper."""

from __future__ import annotations

import math
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from robaudit.cli.options import (
    DataOption,
    DataTrustOption,
    EstimatorFilter,
    LevelFilter,
    NoiseFilter,
    SigmaFilter,
    ThresholdOption,
    image_source,
    levels,
)
from robaudit.errors import SpecError


class Kind(StrEnum):
    """What the figure shows."""

    DISTRIBUTION = "distribution"
    BIAS = "bias"
    FLAGGED = "flagged"
    AGREEMENT = "agreement"
    COST = "cost"
    LOSS_Q = "loss-q"
    RADIUS = "radius"
    CERTIFIED = "certified"
    HEAT_MAP = "heat-map"
    CORRUPTION_KEPT = "corruption-kept"
    CURVES = "curves"
    SPECTRUM = "spectrum"


_THRESHOLDS, _IMAGES, _RUNS = (Kind.DISTRIBUTION, Kind.FLAGGED), (Kind.FLAGGED, Kind.LOSS_Q), (Kind.CERTIFIED, Kind.CURVES)
_SEVERAL = " or ".join(_RUNS)
_NARROWEST, _WIDEST = 3.3, 20.0


def plot(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN...", help="A run folder; for the kinds certified and curves, several."),
    ],
    kind: Annotated[Kind, typer.Option(help="What to draw.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The file to write: FILE.png, FILE.svg or FILE.pdf.")],
    estimator: EstimatorFilter = None,
    noise: NoiseFilter = None,
    level: LevelFilter = None,
    sigma: SigmaFilter = None,
    threshold: ThresholdOption = None,
    max_images: Annotated[
        int | None, typer.Option(min=1, max=60, metavar="N", help="How many images. Default: 12 for flagged, 6 for loss-q.")
    ] = None,
    sample: Annotated[str | None, typer.Option(metavar="ID", help="The image of the kind spectrum. Default: the least robust.")] = None,
    width: Annotated[float, typer.Option(metavar="INCHES", help="Width of the figure.")] = 7.0,
    data: DataOption = None,
    trust: DataTrustOption = False,
) -> None:
    """Draw a figure of a run for a paper: PNG (300 dpi), SVG or PDF with embedded fonts, and the same bytes every time.

    --threshold applies to the kinds distribution and flagged, --max-images to flagged and loss-q, --sample to spectrum; several runs to
    certified and curves.

    Example: robaudit plot runs/spec-1a2b3c4d --kind bias --estimator mc --sigma 0.05 -o bias.pdf
    """
    ending = output.suffix.lower()
    if ending not in (".png", ".svg", ".pdf"):
        raise SpecError(f"-o {output}", "is not a supported format", "use .png, .svg or .pdf")
    if not _NARROWEST <= width <= _WIDEST:
        raise SpecError(f"--width {width:g}", "does not fit a page", f"give {_NARROWEST:g} to {_WIDEST:g} inches")
    if len(runs) > 1 and kind not in _RUNS:
        raise SpecError(f"--kind {kind.value}", f"shows one run, not {len(runs)}", f"name one, or draw several with --kind {_SEVERAL}")
    if threshold is not None and kind not in _THRESHOLDS:
        raise SpecError("--threshold", f"does not apply to --kind {kind.value}", "use it with distribution or flagged")
    if max_images is not None and kind not in _IMAGES:
        raise SpecError("--max-images", f"does not apply to --kind {kind.value}", "use it with flagged or loss-q")
    if sample is not None and kind is not Kind.SPECTRUM:
        raise SpecError("--sample", f"does not apply to --kind {kind.value}", "use it with spectrum")
    if threshold is not None and not math.isfinite(threshold):
        raise SpecError(f"--threshold {threshold}", "is not a finite number", "give a number such as 0.5")
    from robaudit.cli.streams import check_output, write_output

    check_output(output)
    from robaudit.report.pictures import can_draw

    can_draw(required=True, where=f"-o {output}")
    from robaudit.report.pictures.kinds import Choice, picture
    from robaudit.store.run import read_run

    first, *others = [read_run(run) for run in runs]
    choice = Choice(tuple(estimator or ()), levels(noise, level, sigma), threshold, max_images, image_source(data, trust), others, sample)
    write_output(output, [picture(kind.value, first, ending[1:], choice, width=width)])
