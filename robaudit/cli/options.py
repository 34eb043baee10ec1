"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from robaudit import settings
from robaudit.errors import SpecError
from robaudit.levels import LevelChoice
from robaudit.settings import Setting

if TYPE_CHECKING:
    from robaudit.report.gallery import ImageSource


def option(setting: Setting, **changes: Any) -> Any:
    """A setting as an option that typer parses.

    Args:
        setting: gives the flags, the help, the metavar, the panel and the smallest value.
        changes: further arguments of ``typer.Option``, or others in place of the setting's.
    """
    # Without the flag, typer would add --no-... to a switch.
    flags = (setting.flag, setting.short) if setting.short else (setting.flag,)
    declared = {
        "help": setting.help,
        "metavar": setting.metavar,
        "rich_help_panel": setting.panel,
        "min": setting.least,
    }
    return typer.Option(*flags, **{**declared, **changes})


def _finite_threshold(value: float | None) -> float | None:
    """The value of ``--threshold``, unless it is NaN or infinite.

    Raises:
        SpecError: it is.
    """
    from robaudit.spec.fields import number

    return None if value is None else number(settings.THRESHOLD.flag, value)


SpecArgument = Annotated[
    Path,
    typer.Argument(metavar="SPEC.yaml", help="The spec: model, data set, noise and estimators."),
]
RunArgument = Annotated[
    Path, typer.Argument(metavar="RUN", help="A run folder written by robaudit estimate.")
]

# Which results of a run.
EstimatorFilter = Annotated[list[str] | None, option(settings.ESTIMATOR)]
NoiseFilter = Annotated[list[str] | None, option(settings.NOISE)]
LevelFilter = Annotated[list[str] | None, option(settings.LEVEL)]
SigmaFilter = Annotated[list[str] | None, option(settings.SIGMA)]
ThresholdOption = Annotated[float | None, option(settings.THRESHOLD, callback=_finite_threshold)]
LabelOption = Annotated[list[str] | None, option(settings.LABEL)]

# Where results go.
FormatOption = Annotated[Literal["table", "csv", "json", "md", "latex"], option(settings.FORMAT)]
SummaryFormatOption = Annotated[Literal["text", "json"], option(settings.FORMAT)]
OutputOption = Annotated[Path | None, option(settings.OUTPUT_FILE)]
QuietOption = Annotated[bool, option(settings.QUIET)]

# What is audited, and how.
SetOption = Annotated[list[str] | None, option(settings.SET)]
TrustOption = Annotated[bool, option(settings.TRUST)]
OnErrorOption = Annotated[str, option(settings.ON_ERROR)]

# The images of a run, for commands that show some.
DataOption = Annotated[
    Path | None,
    typer.Option(
        "--data",
        metavar="SPEC.yaml",
        rich_help_panel="Images",
        help="Read the images from this spec's data set instead of the run's own.",
    ),
]
DataTrustOption = Annotated[
    bool,
    typer.Option(
        "--trust",
        rich_help_panel="Images",
        help="With --data: allow that spec to run Python code (module:function).",
    ),
]

# Gates.
GatesOption = Annotated[list[str] | None, option(settings.GATE)]
PopulationOption = Annotated[bool, option(settings.POPULATION)]
PointOption = Annotated[bool, option(settings.POINT)]
InconclusiveOption = Annotated[
    Literal["pass", "fail", "inconclusive"] | None, option(settings.INCONCLUSIVE)
]
StrictOption = Annotated[bool, option(settings.STRICT)]
ConfidenceOption = Annotated[float | None, option(settings.CONFIDENCE)]


def image_source(data: Path | None, trust: bool) -> ImageSource | None:
    """The source of a run's images by --data and --trust; None: the data set of its own spec.

    Raises:
        SpecError: the spec is not valid, or --trust is given without --data: code that a run folder
            names never runs.
    """
    if data is None:
        if trust:
            raise SpecError(
                "--trust",
                "is about the spec of --data: code that a run folder names never runs",
                "add --data SPEC.yaml",
            )
        return None
    from robaudit.models.pretrained import filled
    from robaudit.report.gallery import ImageSource
    from robaudit.spec.read import load_spec

    return ImageSource(filled(load_spec(data)), trust)


def levels(
    noises: list[str] | None, numbers: list[str] | None, sigmas: list[str] | None
) -> LevelChoice:
    """The noise levels that --noise, --level and --sigma name.

    Raises:
        SpecError: a level is not a positive number.
    """
    from robaudit.spec.fields import level

    return LevelChoice(
        tuple(noises or ()),
        tuple(level(settings.LEVEL.flag, text) for text in numbers or ()),
        tuple(level(settings.SIGMA.flag, text) for text in sigmas or ()),
    )
