"""`robaudit plot`: draw a figure of a run, or of the noise of a spec, for a paper."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from robaudit.cli.options import (
    RESULTS,
    DataOption,
    EstimatorFilter,
    LevelFilter,
    NoiseFilter,
    SetOption,
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
    NOISE = "noise"


_NARROWEST, _WIDEST, _MOST_PREVIEWED = 3.3, 20.0, 8
_RUNS = (Kind.CERTIFIED, Kind.CURVES)
_KINDS_OF: Mapping[str, Sequence[Kind]] = {
    "--threshold": (Kind.DISTRIBUTION, Kind.FLAGGED),
    "--max-images": (Kind.FLAGGED, Kind.LOSS_Q, Kind.NOISE),
    "--id": (Kind.SPECTRUM,),
    "--set": (Kind.NOISE,),
    "--estimator": tuple(kind for kind in Kind if kind is not Kind.NOISE),
    "--data": (Kind.FLAGGED, Kind.SPECTRUM),
}
"""The kinds that an option is about, where it is not about all."""


def plot(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN...|SPEC.yaml", help="A run; several for certified and curves; a spec for noise."),
    ],
    kind: Annotated[Kind, typer.Option(metavar="KIND", help=f"What to draw: {', '.join(Kind)}.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The file to write: FILE.png, FILE.svg or FILE.pdf.")],
    estimator: EstimatorFilter = None,
    noise: NoiseFilter = None,
    level: LevelFilter = None,
    sigma: SigmaFilter = None,
    threshold: ThresholdOption = None,
    id_: Annotated[
        str | None, typer.Option("--id", metavar="ID", rich_help_panel=RESULTS, help="spectrum: the image. Default: the least robust.")
    ] = None,
    max_images: Annotated[
        int | None,
        typer.Option(min=1, max=60, metavar="N", rich_help_panel="Images", help="How many. Default: flagged 12, loss-q 6, noise 2."),
    ] = None,
    width: Annotated[float, typer.Option(metavar="INCHES", help="Width of the figure.")] = 7.0,
    data: DataOption = None,
    set_: SetOption = None,
    trust: Annotated[
        bool, typer.Option("--trust", rich_help_panel="Images", help="Allow the spec of --data, or of noise, to run Python code.")
    ] = False,
) -> None:
    """Draw a figure of a run for a paper: PNG (300 dpi), SVG or PDF with embedded fonts, and the same bytes every time.

    The kind noise is about a spec: its first images, clean and under each noise at its levels, before anything is computed.

    Example: robaudit plot runs/spec-1a2b3c4d --kind bias --estimator mc --sigma 0.05 -o bias.pdf
    """
    ending = output.suffix.lower()
    if ending not in (".png", ".svg", ".pdf"):
        raise SpecError(f"-o {output}", "is not a supported format", "use .png, .svg or .pdf")
    if not _NARROWEST <= width <= _WIDEST:
        raise SpecError(f"--width {width:g}", "does not fit a page", f"give {_NARROWEST:g} to {_WIDEST:g} inches")
    if len(runs) > 1 and kind not in _RUNS:
        several = " or ".join(one.value for one in _RUNS)
        raise SpecError(f"--kind {kind.value}", f"shows one run, not {len(runs)}", f"name one, or draw several with --kind {several}")
    given = {
        "--threshold": threshold,
        "--max-images": max_images,
        "--id": id_,
        "--set": set_ or None,
        "--estimator": estimator or None,
        "--data": data,
    }
    for option, value in given.items():
        if value is not None and kind not in _KINDS_OF[option]:
            known = "the others" if kind is Kind.NOISE and option == "--estimator" else " or ".join(one.value for one in _KINDS_OF[option])
            raise SpecError(option, f"does not apply to --kind {kind.value}", f"use it with {known}")
    if threshold is not None and not math.isfinite(threshold):
        raise SpecError(f"--threshold {threshold}", "is not a finite number", "give a number such as 0.5")
    from robaudit.cli.streams import check_output, write_output

    check_output(output)
    from robaudit.report.pictures import can_draw

    can_draw(required=True, where=f"-o {output}")
    if kind is Kind.NOISE:
        write_output(output, [_noise(runs[0], ending[1:], width, noise, level, sigma, max_images or 2, set_, trust=trust)])
        return
    from robaudit.report.pictures.kinds import Choice, picture
    from robaudit.store.run import read_run

    first, *others = [read_run(run) for run in runs]
    choice = Choice(tuple(estimator or ()), levels(noise, level, sigma), threshold, max_images, image_source(data, trust), others, id_)
    write_output(output, [picture(kind.value, first, ending[1:], choice, width=width)])


def _noise(
    path: Path,
    format_: str,
    width: float,
    noise: list[str] | None,
    level: list[str] | None,
    sigma: list[str] | None,
    images: int,
    settings: list[str] | None,
    *,
    trust: bool,
) -> bytes:
    """The first images of a spec's data set, clean and under the first draw of each of its noises at each level; without the model.

    Raises:
        RobauditError: the spec has no noise at any level, the noise does not fit the images, or they cannot be read.
    """
    from robaudit.spec.load import load_spec

    if images > _MOST_PREVIEWED:
        raise SpecError(f"--max-images {images}", "does not fit the picture", f"give at most {_MOST_PREVIEWED}")
    levels(noise, level, sigma)  # here the message names the option; the spec's would name a line
    spec = load_spec(path, settings=settings or (), sigmas=sigma or (), noises=noise or (), levels=level or ())
    from robaudit.auditing.setup import check_noises
    from robaudit.datasets.base import first_samples
    from robaudit.datasets.load import open_dataset
    from robaudit.noise.registry import build
    from robaudit.report.pictures.kinds import drawn
    from robaudit.report.pictures.noise import previews, sketch

    found = tuple(one for one in build(spec.noise, spec.base_dir, spec.origin) if one.levels)
    if not found:
        raise SpecError(str(path), "has no noise at any level to draw", "add one, such as noise: {sigma: 0.05}, or --set noise.sigma=0.05")
    dataset = open_dataset(spec.dataset, base_dir=spec.base_dir, trust=trust)
    check_noises(found, next(first_samples(dataset, 1, skip_bad=False)).pixels, dataset)
    return drawn(sketch(previews(found, dataset, images, spec.run.seed), dataset.where), format_, width=width)
