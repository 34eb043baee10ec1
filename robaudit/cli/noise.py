"""`robaudit noise-preview`: what the noises of a spec look like."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from robaudit.cli.options import OnError, OnErrorOption, SetOption, SpecArgument, TrustOption
from robaudit.errors import SpecError


def noise_preview(
    spec: SpecArgument,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The file to write: FILE.png, FILE.svg or FILE.pdf.")],
    noise: Annotated[list[str] | None, typer.Option(help="Only this noise of the spec, by its label (repeatable).")] = None,
    level: Annotated[
        list[str] | None, typer.Option(help="Level of the noise, whatever it calls it, instead of the spec's (repeatable).")
    ] = None,
    images: Annotated[int, typer.Option(min=1, max=8, metavar="N", help="How many images: the first of the data set.")] = 2,
    set_: SetOption = None,
    trust: TrustOption = False,
    on_error: OnErrorOption = OnError.STOP,
) -> None:
    """Draw a few images of the spec's data set, clean and under each of its noises at each level; the model is not needed.

    The noise is that of the run: the first draw of each image. At most seven levels of each noise are shown.

    Example: robaudit noise-preview spec.yaml -o grid.png
    """
    ending = output.suffix.lower()
    if ending not in (".png", ".svg", ".pdf"):
        raise SpecError(f"-o {output}", "is not a supported format", "use .png, .svg or .pdf")
    from robaudit.cli.streams import check_output, write_output
    from robaudit.report.pictures import can_draw
    from robaudit.spec.load import load_spec

    check_output(output)
    can_draw(required=True, where=f"-o {output}")
    asked = load_spec(spec, settings=set_ or (), noises=noise or (), levels=level or ())
    from robaudit.auditing.setup import check_noises
    from robaudit.datasets.base import first_samples
    from robaudit.datasets.load import open_dataset
    from robaudit.noise.registry import build
    from robaudit.report.pictures.kinds import drawn
    from robaudit.report.pictures.noise import previews, sketch

    found = tuple(one for one in build(asked.noise, asked.base_dir, asked.written) if one.levels)
    if not found:
        raise SpecError(str(spec), "has no noise at any level to draw", "add one, such as noise: {sigma: 0.05}, or --set noise.sigma=0.05")
    dataset = open_dataset(asked.dataset, base_dir=asked.base_dir, trust=trust)
    skip_bad = on_error is OnError.SKIP
    check_noises(found, next(first_samples(dataset, 1, skip_bad=skip_bad)).pixels, dataset)
    made = previews(found, dataset, images, asked.run.seed, skip_bad=skip_bad)
    write_output(output, [drawn(sketch(made, dataset.where), ending[1:])])
