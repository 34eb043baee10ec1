"""`robaudit measure-noise`: the noise of a camera from shots of a still scene."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from robaudit.cli.options import QuietOption, SetOption, SummaryFormatOption
from robaudit.errors import RobauditError
from robaudit.settings import OUTPUT, RUNNING


def measure_noise(
    frames: Annotated[
        Path,
        typer.Argument(
            metavar="FRAMES",
            help="Shots of a still scene: a folder of PNG, TIFF or JPEG files, a .npy or .npz "
            "stack, or a folder of such folders.",
        ),
    ],
    spec: Annotated[
        Path | None,
        typer.Option(
            "--spec",
            metavar="SPEC.yaml",
            rich_help_panel=RUNNING,
            help="Resize, crop and convert the shots as this spec does its images, so that the "
            "noise is measured as the model sees it. Default: the shots as they are.",
        ),
    ] = None,
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            metavar="NOISE.yaml",
            rich_help_panel=OUTPUT,
            help="The noise to write, for `noise:` in a spec; the noise itself (.npz) and a "
            "picture (.png) are written beside it.",
        ),
    ] = Path("noise.yaml"),
    format_: SummaryFormatOption = "text",
    set_: SetOption = None,
    force: Annotated[
        bool, typer.Option("--force", rich_help_panel=RUNNING, help="Overwrite existing files.")
    ] = False,
    quiet: QuietOption = False,
) -> None:
    """Measure the noise of your camera from shots of a still scene, and say which kind of noise it
    is.

    Two shots are enough, ten are good: a tripod, exposure and gain fixed, nothing that moves, dark
    and bright parts, none of them black or white. See docs/camera.md.

    Example: robaudit measure-noise shots/ --spec audit.yaml -o noise.yaml
    """
    from robaudit.cli.console import Reporter, say, starting
    from robaudit.cli.console import output as terminal
    from robaudit.cli.output_streams import check_output, put

    if not frames.exists():
        raise RobauditError(str(frames), "no such file or folder", "name the folder of the shots")
    _check_files(output, force=force, check=check_output)
    if set_ and spec is None:
        raise RobauditError("--set", "changes a spec, and there is none", "add --spec")
    with starting(quiet=quiet):
        # These import torch, which takes seconds.
        from robaudit.api import camera
        from robaudit.report.camera_tables import camera_tables
        from robaudit.report.pictures import can_draw
        from robaudit.report.tables import Terminal
        from robaudit.runs.serialise import document_json
    with Reporter(quiet=quiet, patient=False) as reporter:
        measured = camera.measure_noise(
            frames,
            spec=spec,
            out=output,
            overwrite=force,
            settings=set_ or (),
            listener=reporter,
        )
        for remark in measured.remarks:
            reporter.note(remark)
        reporter.note(f"wrote {output}, and the noise itself beside it")
        if can_draw():
            reporter.doing("drawing")
            for picture in measured.save_pictures():
                reporter.note(f"wrote {picture}")
        else:
            reporter.note("no picture: pip install 'robaudit[plot]'")
    if format_ == "json":
        put([document_json(measured.document())])
    elif not quiet:
        terminal().print(Terminal(camera_tables(measured.noises)))
    if not quiet:
        say(f"next: {_next(spec, output)}")


def _check_files(output: Path, *, force: bool, check: Callable[[Path], None]) -> None:
    """Refuse files that cannot be written, are of another kind, or exist, before the work is done.

    The files of several scenes get names by what is measured, and are checked again before they are
    written.

    Raises:
        RobauditError: a file would be overwritten, cannot be written, or is not YAML.
    """
    if output.suffix.lower() not in (".yaml", ".yml"):
        raise RobauditError(f"-o {output}", "is not a YAML file", "name it .yaml: noise.yaml")
    for file in (output, output.with_suffix(".npz"), output.with_suffix(".png")):
        check(file)
        if file.exists() and not force:
            raise RobauditError(str(file), "already exists", "name another file, or add --force")


def _next(spec: Path | None, output: Path) -> str:
    """The command that uses the noise."""
    from robaudit.text import shell

    if spec is None:
        return f"robaudit init --model MODEL --data DATA --noise {shell(output)}"
    return f"robaudit estimate {shell(spec)} --set {shell(f'noise={output}')}"
