"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from robaudit.errors import SpecError
from robaudit.levels import LevelChoice

if TYPE_CHECKING:
    from robaudit.report.gallery import ImageSource


RESULTS, GATES, SPEC, RUNNING, OUTPUT = (
    "Which results",
    "Gates",
    "The spec",
    "How it runs",
    "Output",
)
"""Groups of options on the help pages."""

SpecArgument = Annotated[
    Path,
    typer.Argument(metavar="SPEC.yaml", help="The spec: model, data set, noise and estimators."),
]
RunArgument = Annotated[
    Path, typer.Argument(metavar="RUN", help="A run folder written by robaudit estimate.")
]

EstimatorFilter = Annotated[
    list[str] | None,
    typer.Option(
        "--estimator",
        metavar="NAME",
        rich_help_panel=RESULTS,
        help="Only this estimator, or one of its results: NAME:q=100 (repeatable).",
    ),
]
NoiseFilter = Annotated[
    list[str] | None,
    typer.Option(
        "--noise",
        metavar="NAME",
        rich_help_panel=RESULTS,
        help="Only this noise, by its label (repeatable).",
    ),
]
LevelFilter = Annotated[
    list[str] | None,
    typer.Option(
        "--level",
        metavar="X",
        rich_help_panel=RESULTS,
        help="Only this noise level, in its own unit: photons, severity, ... (repeatable).",
    ),
]
SigmaFilter = Annotated[
    list[str] | None,
    typer.Option(
        "--sigma",
        metavar="X",
        rich_help_panel=RESULTS,
        help="Only this sigma, for example 0.05 or 8/255 (repeatable).",
    ),
]


def _finite_threshold(value: float | None) -> float | None:
    from robaudit.spec.fields import number

    return None if value is None else number("--threshold", value)


ThresholdOption = Annotated[
    float | None,
    typer.Option(
        "--threshold",
        metavar="X",
        callback=_finite_threshold,
        rich_help_panel=RESULTS,
        help="Samples with a value below this are not robust (above it, for losses). Default: "
        "the quantity's own; 0.5 for probabilities "
        "(by class 0.9).",
    ),
]

LabelOption = Annotated[
    list[str] | None,
    typer.Option(
        "--label",
        metavar="NAME",
        rich_help_panel=RESULTS,
        help="Name of the first run; repeat for the others.",
    ),
]
FormatOption = Annotated[
    Literal["table", "csv", "json", "md", "latex"],
    typer.Option("--format", rich_help_panel=OUTPUT, help="Output format."),
]
SummaryFormatOption = Annotated[
    Literal["text", "json"], typer.Option("--format", rich_help_panel=OUTPUT, help="Output format.")
]
OutputOption = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        rich_help_panel=OUTPUT,
        help="Write to this file instead of standard output.",
    ),
]
QuietOption = Annotated[
    bool,
    typer.Option("--quiet", "-q", rich_help_panel=OUTPUT, help="Print only warnings and errors."),
]

SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        rich_help_panel=SPEC,
        help="Set any value of the spec, for example run.seed=3 or model.mean=[0.5] (repeatable).",
    ),
]
TrustOption = Annotated[
    bool,
    typer.Option(
        "--trust",
        rich_help_panel=SPEC,
        help="Allow Python code that the spec names (module:function), and every operator in a "
        "model file.",
    ),
]
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
OnErrorOption = Annotated[
    Literal["stop", "skip"],
    typer.Option(
        "--on-error",
        rich_help_panel=RUNNING,
        help="What to do at an unreadable sample: stop, or skip and list it.",
    ),
]

GatesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--gate",
        metavar="GATE",
        rich_help_panel=GATES,
        help='A condition to meet: "mean(sigma=0.05) >= 0.9" (repeatable).',
    ),
]
PopulationOption = Annotated[
    bool,
    typer.Option(
        "--population",
        rich_help_panel=GATES,
        help="Decide for the population that these images are a sample of, not for these images "
        "only.",
    ),
]
PointOption = Annotated[
    bool,
    typer.Option(
        "--point",
        rich_help_panel=GATES,
        help="Let values whose interval does not cover their whole error decide a gate.",
    ),
]
InconclusiveOption = Annotated[
    Literal["pass", "fail", "inconclusive"] | None,
    typer.Option(
        "--inconclusive",
        rich_help_panel=GATES,
        help="How to count an inconclusive gate. Default: inconclusive (exit code 4).",
    ),
]
StrictOption = Annotated[
    bool,
    typer.Option(
        "--strict",
        rich_help_panel=GATES,
        help="Fail if the run has warnings (adds the gate warnings <= 0).",
    ),
]
ConfidenceOption = Annotated[
    float | None,
    typer.Option(
        "--confidence",
        metavar="P",
        rich_help_panel=GATES,
        help="Confidence level of the intervals. Default: 0.95.",
    ),
]


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

    chosen = (
        tuple(level(flag, text) for text in texts or ())
        for flag, texts in (("--level", numbers), ("--sigma", sigmas))
    )
    return LevelChoice(tuple(noises or ()), *chosen)
