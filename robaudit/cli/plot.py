"""`robaudit plot`: draw a figure of runs, or of the noise of a spec, for a paper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from robaudit import settings
from robaudit.cli.options import (
    DataOption,
    EstimatorFilter,
    LabelOption,
    LevelFilter,
    NoiseFilter,
    SetOption,
    SigmaFilter,
    ThresholdOption,
    image_source,
    levels,
    option,
)
from robaudit.errors import SpecError, did_you_mean
from robaudit.report.pictures import FORMATS, kinds_of_picture
from robaudit.report.sections import FLAGGED, SUMMARY

if TYPE_CHECKING:
    from robaudit.report.pictures.page import Drawing


_MOST_PREVIEWED = 8
"""Images in a picture of noise; more do not fit into it."""
_PREVIEWED = 2
_NOISE = "noise"
"""The kind of picture that is about a spec."""
_KINDS_OF: Mapping[str, Sequence[str]] = {
    "--threshold": (SUMMARY, FLAGGED),
    "--max-images": (FLAGGED, _NOISE),
    "--set": (_NOISE,),
    "--data": (FLAGGED,),
}
"""The kinds that an option applies to.

``--estimator`` applies to all kinds but noise, and options that are not listed to all kinds.
"""


def plot(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN...|SPEC.yaml", help="One run or several; a spec for noise."),
    ],
    kind: Annotated[
        str,
        typer.Option(
            metavar="KIND", help=f"What to draw: {', '.join((*kinds_of_picture(), _NOISE))}."
        ),
    ],
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="The file to write: FILE.png, FILE.svg or FILE.pdf.",
        ),
    ],
    label: LabelOption = None,
    estimator: EstimatorFilter = None,
    noise: NoiseFilter = None,
    level: LevelFilter = None,
    sigma: SigmaFilter = None,
    threshold: ThresholdOption = None,
    max_images: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=60,
            metavar="N",
            rich_help_panel="Images",
            help="How many. Default: flagged 12, noise 2.",
        ),
    ] = None,
    width: Annotated[float, option(settings.WIDTH)] = 7.0,
    title: Annotated[str | None, option(settings.TITLE)] = None,
    no_title: Annotated[
        bool, typer.Option("--no-title", help="Leave out the title above the figure.")
    ] = False,
    no_caption: Annotated[
        bool, typer.Option("--no-caption", help="Leave out the caption below the figure.")
    ] = False,
    data: DataOption = None,
    set_: SetOption = None,
    trust: Annotated[
        bool,
        typer.Option(
            "--trust",
            rich_help_panel="Images",
            help="Allow the spec of --data, or of noise, to run Python code.",
        ),
    ] = False,
) -> None:
    """Draw a figure for a paper: PNG (300 dpi), SVG or PDF with embedded fonts, and the same bytes
    every time.

    Several runs share a figure. The kind noise is about a spec: its first images, clean and under
    each noise at its levels, before anything is computed.

    Example: robaudit plot runs/old runs/new --kind levels --width 3.3 --no-title -o levels.pdf
    """
    format_ = output.suffix.lower().removeprefix(".")
    if format_ not in FORMATS:
        raise SpecError(f"-o {output}", "is not a supported format", "use .png, .svg or .pdf")
    options = {
        "--threshold": threshold,
        "--max-images": max_images,
        "--set": set_ or None,
        "--estimator": estimator or None,
        "--data": data,
    }
    _check_kind(kind, options)
    if kind == _NOISE and len(runs) > 1:
        raise SpecError("--kind noise", f"shows one spec, not {len(runs)}", "name one")
    from robaudit.cli.output_streams import check_output, write_output

    # All that can be refused is refused before anything is read.
    check_output(output)
    from robaudit.report.pictures import can_draw

    # Before the runs are read, which may take a while.
    can_draw(required=True, where=f"-o {output}")
    from robaudit.report.pictures.kinds import drawing_of, picture, size_of

    size = size_of(width, title=_title(title, no_title), caption=not no_caption)
    # Checked for a spec, too: here the message names the option.
    chosen_levels = levels(noise, level, sigma)
    if kind == _NOISE:
        drawing = _noise(runs[0], noise, level, sigma, max_images or _PREVIEWED, set_, trust=trust)
    else:
        from robaudit.report.sections import SectionRequest
        from robaudit.stats.reading import read_run

        request = SectionRequest(
            estimators=tuple(estimator or ()),
            levels=chosen_levels,
            threshold=threshold,
            data=image_source(data, trust),
            bottom=max_images,
            label=tuple(label or ()),
        )
        drawing = drawing_of(kind, [read_run(run) for run in runs], request)
    # What differs between the runs, such as their images, which the figure alone does not show.
    if drawing.apart:
        from robaudit.cli.console import say

        say(f"note: {drawing.apart}")
    write_output(output, [picture(drawing, format_, size)])


def _title(text: str | None, left_out: bool) -> bool | str:
    """The title of the picture: True for its own, another text, or False for none.

    Raises:
        SpecError: there is a text for a title that is left out.
    """
    if text and left_out:
        raise SpecError("--no-title", "leaves out the text of --title", "give one of them")
    return not left_out if text is None else text


def _check_kind(kind: str, options: Mapping[str, object]) -> None:
    """Refuse an unknown kind of picture, and options that do not apply to it.

    Args:
        kind: the value of ``--kind``.
        options: their values by flag; None: not given.

    Raises:
        SpecError: the kind is unknown, or an option does not apply.
    """
    kinds = kinds_of_picture()
    if kind not in (*kinds, _NOISE):
        raise SpecError(
            f"--kind {kind}", "there is no such picture", did_you_mean(kind, (*kinds, _NOISE))
        )
    for flag, value in options.items():
        if value is not None and kind not in _KINDS_OF.get(flag, kinds):
            known = " or ".join(_KINDS_OF[flag]) if flag in _KINDS_OF else "the others"
            raise SpecError(flag, f"does not apply to --kind {kind}", f"use it with {known}")


def _noise(
    path: Path,
    noise: list[str] | None,
    level: list[str] | None,
    sigma: list[str] | None,
    images: int,
    changes: list[str] | None,
    *,
    trust: bool,
) -> Drawing:
    """The first images of a spec's data set, clean and under its noises; without the model.

    Each noise is shown at each level, with its first draw.

    Raises:
        RobauditError: the spec has no noise at any level, the noise does not fit the images, or
            they cannot be read.
    """
    from robaudit.spec.read import load_spec

    # The option allows more, for the picture of flagged samples.
    if images > _MOST_PREVIEWED:
        raise SpecError(
            f"--max-images {images}", "does not fit the picture", f"give at most {_MOST_PREVIEWED}"
        )
    written = load_spec(
        path, settings=changes or (), sigmas=sigma or (), noises=noise or (), levels=level or ()
    )
    # After the spec is known to be valid, because they import torch.
    from robaudit.auditing.prepare import check_noises, with_files
    from robaudit.datasets.dataset import first_samples
    from robaudit.datasets.open_dataset import open_dataset
    from robaudit.models.pretrained import filled
    from robaudit.noise.installed import build
    from robaudit.report.pictures.noise import drawing

    spec = filled(written)
    processes = build(spec.noise, spec.base_dir, spec.origin)
    with_levels = tuple(process for process in processes if process.levels)
    noises = with_files(with_levels, spec.dataset, spec.base_dir, trust=trust)
    if not noises:
        raise SpecError(
            str(path),
            "has no noise at any level to draw",
            "add one, such as noise: {sigma: 0.05}, or --set noise.sigma=0.05",
        )
    dataset = open_dataset(spec.dataset, base_dir=spec.base_dir, trust=trust)
    # As an audit does, so that a preview does not show what an audit refuses.
    first = next(first_samples(dataset, 1, skip_bad=False))
    check_noises(noises, first, dataset)
    return drawing(noises, dataset, images, spec.run.seed)
