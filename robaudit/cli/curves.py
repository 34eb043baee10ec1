"""`robaudit curves`: error curves of models under attacks, noise and linear corruption, side by side."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from robaudit.cli.options import (
    FormatOption,
    OnError,
    OnErrorOption,
    OutputOption,
    QuietOption,
    SetOption,
    TextFormat,
    TrustOption,
    number,
)
from robaudit.errors import SpecError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from robaudit.auditing.curves import CurvePlan
    from robaudit.spec.model import AuditSpec
    from robaudit.stats.curves import Curves
    from robaudit.store.run import Run


class Only(StrEnum):
    """Which curves."""

    L2 = "l2"
    LINF = "linf"
    NOISE = "noise"
    LINEAR = "linear"


MOST_POINTS, LEAST = 1000, 1e-6
_STEP = "Step of the grid of {}. Default: {}."
_CAP = "Where the grid of {} ends. Default: after {} steps."


def curves(
    context: typer.Context,
    sources: Annotated[
        list[Path], typer.Argument(metavar="SPEC|RUN...", help="Specs, whose model, images and run options count; or runs with curves.")
    ],
    only: Annotated[list[Only] | None, typer.Option(help="Only this curve (repeatable). Default: all.")] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder of the run folders, <spec name>-curves-<hash8>. Default: runs.")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first N samples.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of noise and starts.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1, several as cuda:0,cuda:1 or cuda:all, or auto.")] = None,
    step_l2: Annotated[str | None, typer.Option(metavar="X", help=_STEP.format("l2 radii", 0.32))] = None,
    cap_l2: Annotated[str | None, typer.Option(metavar="X", help=_CAP.format("l2 radii", 20))] = None,
    step_linf: Annotated[str | None, typer.Option(metavar="X", help=_STEP.format("linf radii, for example 8/255", 0.025))] = None,
    cap_linf: Annotated[str | None, typer.Option(metavar="X", help=_CAP.format("linf radii", 20))] = None,
    step_sigma: Annotated[str | None, typer.Option(metavar="X", help=_STEP.format("standard deviations", 0.32))] = None,
    cap_sigma: Annotated[str | None, typer.Option(metavar="X", help=_CAP.format("standard deviations", 50))] = None,
    steps: Annotated[int, typer.Option(min=1, max=10**5, help="Gradient steps of an attack from each start.")] = 200,
    restarts: Annotated[int, typer.Option(min=1, max=10**4, help="Starts of an attack in each ball.")] = 5,
    draws: Annotated[int, typer.Option(min=1, max=10**6, help="Noisy copies of each image at each level.")] = 5,
    clip: Annotated[bool, typer.Option("--clip", help="Keep attacked and noisy pixels in [0, 1].")] = False,
    set_: SetOption = None,
    trust: TrustOption = False,
    on_error: OnErrorOption = OnError.STOP,
    format_: FormatOption = TextFormat.TABLE,
    output: OutputOption = None,
    picture: Annotated[Path | None, typer.Option(metavar="FILE", help="Also draw the curves: FILE.png, FILE.svg or FILE.pdf.")] = None,
    quiet: QuietOption = False,
) -> None:
    """Error curves under attacks (l2, linf), noise and linear corruption, and each in one number: ASR, AMS, gamma at 50 %.

    Several models are drawn and printed side by side. Every model has a run folder: an interrupted command continues where it stopped, and
    a finished run can be named in place of its spec.

    Example: robaudit curves ordinary.yaml trained.yaml --limit 200 --picture curves.svg
    """
    from robaudit.cli.streams import check_output

    if picture is not None and picture.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise SpecError(f"--picture {picture}", "is not a supported format", "use .png, .svg or .pdf")
    for file in filter(None, (output, picture)):
        check_output(file)
    if picture is not None:
        if output is not None and output.resolve() == picture.resolve():
            raise SpecError(f"--picture {picture}", "is the file of --output, too", "name two files")
        from robaudit.report.pictures import can_draw

        can_draw(required=True)
    from robaudit.cli.console import starting
    from robaudit.spec.load import load_spec
    from robaudit.store.run import read_run

    overrides: dict[tuple[int | str, ...], Any] = {("dataset", "limit"): limit, ("run", "seed"): seed, ("run", "device"): device}
    given = {key: value for key, value in overrides.items() if value is not None}
    how = _How(out, trust, on_error, quiet)
    paths = list(dict.fromkeys(sources))
    if all(path.is_dir() for path in paths):
        _refuse_unused(context)
    asked = {path: load_spec(path, settings=set_ or (), overrides=given) for path in paths if not path.is_dir()}
    finished = {path: read_run(path) for path in paths if path.is_dir()}
    with starting(quiet=quiet):
        plan = _plan(only, (step_l2, step_linf, step_sigma), (cap_l2, cap_linf, cap_sigma), steps, restarts, draws, clip)
    specs = {path: _spec(path, spec, plan, how) for path, spec in asked.items()}
    runs = [finished[path] if path in finished else _computed(specs[path], how) for path in paths]
    found = _curves(runs, plan)
    if picture is not None:
        from robaudit.cli.streams import write_output
        from robaudit.report.pictures.curves import sketch
        from robaudit.report.pictures.kinds import drawn

        write_output(picture, [drawn(sketch(found), picture.suffix.lower()[1:])])
    _emit(found, runs, format_, output, quiet=quiet)


_OF_RUNS = frozenset({"sources", "only", "format_", "output", "picture", "quiet"})
"""Options that are about finished runs, too; the others are about what is computed."""


def _refuse_unused(context: typer.Context) -> None:
    """Refuse options that finished runs have no use for: their grids, images and noise are what they are.

    Raises:
        SpecError: one was typed.
    """
    for option in context.command.params:
        name = option.name or ""
        source = context.get_parameter_source(name)
        if name not in _OF_RUNS and source is not None and source.name == "COMMANDLINE":
            raise SpecError(option.opts[0], "is about audits of specs, and these runs are finished", "leave it out, or name specs")


@dataclass(frozen=True, slots=True)
class _How:
    """What all audits of the command share."""

    out: Path | None
    trust: bool
    on_error: OnError
    quiet: bool


def _plan(
    only: Sequence[Only] | None,
    steps_of: Sequence[str | None],
    caps: Sequence[str | None],
    steps: int,
    restarts: int,
    draws: int,
    clip: bool,
) -> CurvePlan:
    """The options as a plan.

    Args:
        only: which curves; None: all.
        steps_of, caps: of the grids of l2, linf and noise, as they were typed.
        steps, restarts, draws, clip: as in the plan.

    Raises:
        SpecError: a number is none, or a grid has no steps or too many.
    """
    from robaudit.auditing.curves import CurvePlan
    from robaudit.stats.curves import CurveKind

    names = {CurveKind.L2: "l2", CurveKind.LINF: "linf", CurveKind.NOISE: "sigma"}
    step, cap = (
        {kind: _positive(f"--{what}-{name}", text) for (kind, name), text in zip(names.items(), texts, strict=True) if text is not None}
        for what, texts in (("step", steps_of), ("cap", caps))
    )
    plan = CurvePlan(tuple(CurveKind(one) for one in only or CurveKind), step, cap, steps, restarts, draws, clip)
    for kind, name in names.items():
        if kind in plan.kinds and not 1 <= (points := plan.points(kind)) <= MOST_POINTS:
            what = f"the grid from 0 in steps of {plan.spacing(kind):g} has {points:,} points"
            raise SpecError(f"--cap-{name}", what, f"choose a step and a cap that make 1 to {MOST_POINTS:,}")
    return plan


def _positive(flag: str, text: str) -> float:
    """A positive number such as 0.3 or 8/255.

    Raises:
        SpecError: it is none, or too small.
    """
    value = number(flag, text, "give a number such as 0.3 or 8/255")
    if not LEAST <= value < float("inf"):
        raise SpecError(f"{flag} {text}", "is not a positive number", f"give at least {LEAST:g}")
    return value


def _spec(path: Path, spec: AuditSpec, plan: CurvePlan, how: _How) -> AuditSpec:
    """The audit of a spec's curves; a model without gradients has no attacks.

    Raises:
        RobauditError: the spec, its data or its model cannot be used, or nothing is left of what was asked for.
    """
    from robaudit.auditing.curves import ATTACKS, curves_spec, has_gradients, refuse_unlabelled
    from robaudit.cli.console import say, starting

    with starting("opening the data set", quiet=how.quiet):
        refuse_unlabelled(spec, trust=how.trust, skip_bad=how.on_error is OnError.SKIP)
    asked = plan
    if not has_gradients(spec) and any(kind in plan.kinds for kind in ATTACKS):
        asked = replace(plan, kinds=tuple(kind for kind in plan.kinds if kind not in ATTACKS))
        if not asked.kinds:
            raise SpecError(str(path), "the model has no gradients, and the attacks need them", "ask for --only noise or --only linear")
        if not how.quiet:
            say(f"{path}: no curves of attacks: an ONNX model has no gradients")
    if not how.quiet:
        noisy, gradients = asked.passes()
        attacks = f" and up to {gradients:,} gradients (fewer where attacks succeed early)" if gradients else ""
        ignored = "its noises, estimators and gates are not used"
        say(f"{path}: {ignored}; an image takes {noisy:,} noisy passes{attacks}")
    return curves_spec(spec, asked)


def _computed(spec: AuditSpec, how: _How) -> Run:
    """The run of an audit, continued where it stopped."""
    from robaudit.auditing.environment import command_line
    from robaudit.auditing.resume import folder_name
    from robaudit.auditing.run import audit
    from robaudit.cli.console import Reporter
    from robaudit.store.folder import in_runs

    folder = in_runs(folder_name(spec, "curves"), how.out)
    with Reporter(quiet=how.quiet) as reporter:
        return audit(spec, out=folder, trust=how.trust, on_error=how.on_error.value, listener=reporter, command=command_line(sys.argv[1:]))


def _curves(runs: Sequence[Run], plan: CurvePlan) -> list[Curves]:
    """The curves of the runs, those that were asked for; models of one name have their folders beside it.

    Raises:
        RunError: a run has none of them.
    """
    from robaudit.report.summary_tables import run_names
    from robaudit.stats.curves import curves_of

    return [curves_of(run, name, plan.kinds) for run, name in zip(runs, run_names(runs), strict=True)]


def _emit(found: Sequence[Curves], runs: Sequence[Run], format_: TextFormat, to: Path | None, *, quiet: bool) -> None:
    from robaudit.cli.console import leading_warnings, output, plain_text, say
    from robaudit.cli.streams import emit, reader_may_leave
    from robaudit.report.curve_tables import curve_table, curves_csv
    from robaudit.store.serialise import document_json

    warnings = leading_warnings(runs, in_table=format_ is TextFormat.TABLE)
    if format_ is TextFormat.JSON:
        emit(document_json({"models": [one.document() for one in found]}), to)
    elif format_ is TextFormat.CSV:
        emit(curves_csv(found), to)
    elif to is not None:
        emit(plain_text(*warnings, curve_table(found)), to)
    else:
        with reader_may_leave():
            output().print(*warnings, curve_table(found), sep="\n")
    if not quiet:
        for one in found:
            say(f"{one.name}: {one.path}")
