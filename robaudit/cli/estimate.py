"""`robaudit estimate`: audit a model on a data set, once or until its gates are decided."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from robaudit.cli.options import (
    GATES,
    OUTPUT,
    RUNNING,
    SPEC,
    ConfidenceOption,
    GatesOption,
    InconclusiveOption,
    OnErrorOption,
    PointOption,
    PopulationOption,
    QuietOption,
    SetOption,
    SpecArgument,
    StrictOption,
    TrustOption,
    levels,
)
from robaudit.errors import RobauditError, SpecError

if TYPE_CHECKING:
    from robaudit.auditing.audit import SharedSetup
    from robaudit.auditing.until import Audit
    from robaudit.gates.decide import Decision, Verdict
    from robaudit.runs.info import UntilDecided
    from robaudit.runs.run import Run
    from robaudit.spec.model import AuditSpec

_LAST_STEP = 10.0
"""Seconds that the current step of an audit may take after its time is over."""


@dataclass(frozen=True, slots=True)
class _Files:
    """The files that are written besides the run folder.

    Attributes:
        reports: the run's reports; the suffix chooses the format.
        junit: the gates as JUnit XML.
        trust: allow the Python data set of the spec, for the images of a report.
    """

    reports: tuple[Path, ...]
    junit: Path | None
    trust: bool

    def check(self, spec: Path) -> None:
        """Refuse files that cannot be written, before any work is done.

        Raises:
            RobauditError: a file cannot be written, is named twice, or is the spec.
        """
        from robaudit.cli.output_streams import check_output
        from robaudit.cli.report import check_report

        taken = {spec.resolve(): "the spec"}
        for option, file in self._named:
            if (same := taken.get(file.resolve())) is not None:
                raise SpecError(f"{option} {file}", f"is also {same}", "name another file")
            taken[file.resolve()] = f"the file of {option}"
        for file in self.reports:
            check_report(file, option="--report", by_name=True)
        if self.junit is not None:
            check_output(self.junit)

    def remove(self) -> None:
        """Remove the files of an earlier audit, which would pass for this one's if it ended
        early."""
        for _, file in self._named:
            if file.is_file():
                try:
                    file.resolve().unlink()
                except OSError as error:
                    raise RobauditError(
                        str(file),
                        f"cannot be replaced: {error.strerror or error}",
                        "name another file",
                    ) from error

    @property
    def _named(self) -> Sequence[tuple[str, Path]]:
        """The files with their options."""
        return [
            *(("--report", file) for file in self.reports),
            *([] if self.junit is None else [("--junit", self.junit)]),
        ]

    def write(
        self,
        run: Run,
        spec: AuditSpec,
        decisions: Sequence[Decision] | None,
        inconclusive: Verdict = "inconclusive",
        *,
        quiet: bool,
    ) -> None:
        """Write the files, and note on standard error what a report lacks; ``decisions``: None
        without gates."""
        from robaudit.cli.console import Reporter
        from robaudit.cli.output_streams import write_output
        from robaudit.cli.report import write_reports

        if self.junit is not None and decisions is not None:
            from robaudit.report.ci.document import Subject
            from robaudit.report.ci.junit import junit

            write_output(
                self.junit,
                [junit(decisions, Subject.of(run.info, "estimate"), inconclusive=inconclusive)],
            )
        if self.reports:
            from robaudit.report.gallery import ImageSource

            problems = write_reports(run, self.reports, decisions, ImageSource(spec, self.trust))
            with Reporter(quiet=quiet) as reporter:
                for problem in problems:
                    reporter.note(problem)


def estimate(
    spec: SpecArgument,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="DIR",
            rich_help_panel=OUTPUT,
            help="Run folder. Default: runs/<spec name>-<hash8>.",
        ),
    ] = None,
    sigma: Annotated[
        list[str] | None,
        typer.Option(
            metavar="X",
            rich_help_panel=SPEC,
            help="Standard deviation of the noise, for example 0.05 or 8/255, instead of the "
            "spec's (repeatable).",
        ),
    ] = None,
    noise: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            rich_help_panel=SPEC,
            help="Only this noise of the spec, by its label (repeatable).",
        ),
    ] = None,
    level: Annotated[
        list[str] | None,
        typer.Option(
            metavar="X",
            rich_help_panel=SPEC,
            help="Level of the noise (photons, severity, ...) instead of the spec's (repeatable).",
        ),
    ] = None,
    estimator: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            rich_help_panel=SPEC,
            help="Estimator instead of the spec's (repeatable).",
        ),
    ] = None,
    set_: SetOption = None,
    device: Annotated[
        str | None,
        typer.Option(
            metavar="DEVICE",
            rich_help_panel=RUNNING,
            help="cpu, cuda, cuda:1, several as cuda:0,cuda:1 or cuda:all, or auto.",
        ),
    ] = None,
    engine: Annotated[
        Literal["local", "ray"] | None,
        typer.Option(
            rich_help_panel="Ray",
            help="Compute on this machine, or with the workers of a Ray cluster.",
        ),
    ] = None,
    ray_address: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            rich_help_panel="Ray",
            help="With --engine ray: the head node, or auto. Default: RAY_ADDRESS, or this "
            "machine alone.",
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", rich_help_panel=SPEC, help="Audit only the first N samples."
        ),
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION",
            rich_help_panel=RUNNING,
            help="Lower draws, then images, of a new run so that it takes about this long at "
            "most: 90s, 10m, 2h, 1h30m.",
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(min=0, metavar="N", rich_help_panel=SPEC, help="Seed of the noise."),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            rich_help_panel="Ray",
            help="With --engine ray: number of workers. Default: as many as fit.",
        ),
    ] = None,
    gpus_per_worker: Annotated[
        float | None,
        typer.Option(
            min=0,
            metavar="X",
            rich_help_panel="Ray",
            help="With --engine ray: GPUs of each worker. Default: 1 where the cluster has any.",
        ),
    ] = None,
    memory: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            rich_help_panel=RUNNING,
            help="Limit main memory, for example 4GB. Default: what is free.",
        ),
    ] = None,
    deterministic: Annotated[
        bool,
        typer.Option(
            "--deterministic",
            rich_help_panel=RUNNING,
            help="On CUDA: use deterministic algorithms, so that runs agree bit for bit.",
        ),
    ] = False,
    as_given: Annotated[
        bool,
        typer.Option(
            "--as-given",
            rich_help_panel=SPEC,
            help="Accept input that cannot be meant, such as pixels of 0 to 255 or sigma 8, with "
            "a warning.",
        ),
    ] = False,
    trust: TrustOption = False,
    on_error: OnErrorOption = "stop",
    extend: Annotated[
        bool,
        typer.Option(
            "--extend",
            rich_help_panel=OUTPUT,
            help="Extend an existing run by a larger limit, more noise levels or more estimators.",
        ),
    ] = False,
    fresh: Annotated[
        bool,
        typer.Option(
            "--fresh",
            rich_help_panel=OUTPUT,
            help="Refuse a run folder that exists already. For pipelines.",
        ),
    ] = False,
    gates: GatesOption = None,
    until_decided: Annotated[
        bool,
        typer.Option(
            "--until-decided",
            rich_help_panel=GATES,
            help="Sample until the gates are decided: --gate's (which implies this) or the spec's.",
        ),
    ] = False,
    population: PopulationOption = False,
    point: PointOption = False,
    inconclusive: InconclusiveOption = None,
    confidence: ConfidenceOption = None,
    strict: StrictOption = False,
    reports: Annotated[
        list[Path] | None,
        typer.Option(
            "--report",
            metavar="FILE",
            rich_help_panel=OUTPUT,
            help="Also write the report: .html, or .md (repeatable).",
        ),
    ] = None,
    junit: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", rich_help_panel=OUTPUT, help="With gates: also write them as JUnit XML."
        ),
    ] = None,
    quiet: QuietOption = False,
) -> None:
    """Estimate every sample's robustness to noise and write a run folder.

    If it is interrupted, the same command continues where it stopped. With --gate it samples until
    the gates are decided, and exits as robaudit gate does: 0 if all pass, 1 if one fails, 4 if one
    is inconclusive. With --population all draws are taken at once.

    Example: robaudit estimate spec.yaml --sigma 0.05 --sigma 8/255 --limit 100
    Example: robaudit estimate spec.yaml --gate "mean(sigma=0.05) >= 0.9" --report report.html
    --junit gates.xml
    """
    from robaudit.cli.console import Reporter, say, starting
    from robaudit.progress import parse_duration
    from robaudit.spec.read import load_spec
    from robaudit.text import count

    deciding = bool(gates) or until_decided
    about_gates = {
        **{"--population": population, "--point": point, "--inconclusive": inconclusive},
        **{"--confidence": confidence, "--strict": strict, "--junit": junit},
    }
    for option, value in about_gates.items():
        if not deciding and value not in (None, False):
            raise SpecError(
                option, "needs gates", "add --gate, or --until-decided for the gates of the spec"
            )
    if extend and deciding:
        raise SpecError(
            "--extend",
            "cannot be combined with sampling until gates are decided",
            "extend first, then run robaudit gate RUN",
        )
    if extend and fresh:
        raise SpecError("--fresh", "refuses the run that --extend needs", "leave one of them out")
    if budget is not None and (extend or deciding):
        other = "--extend" if extend else "sampling until gates are decided"
        raise SpecError(
            "--budget", f"cannot be combined with {other}", "lower --limit or the draws instead"
        )
    seconds = None if budget is None else parse_duration(budget)
    files = _Files(tuple(reports or ()), junit, trust)
    levels(noise, level, sigma)  # here the message names the option; the spec's would name a line
    overrides: dict[tuple[int | str, ...], Any] = {
        ("dataset", "limit"): limit,
        ("run", "seed"): seed,
        ("run", "device"): device,
        ("run", "engine"): engine,
        ("run", "workers"): workers,
        ("run", "gpus_per_worker"): gpus_per_worker,
        ("run", "memory"): memory,
        ("run", "deterministic"): deterministic or None,
        ("run", "as_given"): as_given or None,
    }
    audit_spec = load_spec(
        spec,
        settings=set_ or (),
        sigmas=sigma or (),
        noises=noise or (),
        levels=level or (),
        estimators=estimator or (),
        overrides={key: value for key, value in overrides.items() if value is not None},
    )
    files.check(spec)
    with starting(quiet=quiet):
        from robaudit.auditing.audit import audit
        from robaudit.auditing.environment import command_line
        from robaudit.models.pretrained import filled

        audit_spec = filled(audit_spec)
    files.remove()
    command = command_line(sys.argv[1:])

    def audited(
        wanted: AuditSpec,
        folder: Path | None,
        until: UntilDecided | None = None,
        setup: SharedSetup | None = None,
    ) -> Run:
        with Reporter(quiet=quiet) as reporter:
            return audit(
                wanted,
                out=folder,
                trust=trust,
                on_error=on_error,
                extend=extend,
                fresh=fresh
                and not deciding,  # otherwise checked once, before the first interim analysis
                listener=reporter,
                command=command,
                ray_address=ray_address,
                budget=seconds,
                until=until,
                setup=setup,
            )

    from robaudit.gates.sources import refuse_beyond

    if deciding:
        code = _until_decided(
            *(audit_spec, out, audited, files, gates or ()),
            population=population,
            point=point,
            confidence=confidence,
            strict=strict,
            counts_as=inconclusive or "inconclusive",
            fresh=fresh,
            quiet=quiet,
        )
        raise typer.Exit(code)
    if not extend:  # a run to extend may have further results
        refuse_beyond(audit_spec)
    with _within(seconds):
        run = audited(audit_spec, out)
    files.write(run, audit_spec, None, quiet=quiet)
    if quiet:
        return
    from robaudit.cli.reading import print_run

    print_run(run)
    if audit_spec.gates:
        say(
            f"the spec has {count(len(audit_spec.gates), 'gate')}; to decide: robaudit gate "
            f"{run.path}"
        )


def _within(budget: float | None) -> AbstractContextManager[None]:
    """End the process if an audit is still busy although its budget was over a while ago: its
    network may never return."""
    from robaudit.auditing.expected import LATEST
    from robaudit.cli.signals import ended_by_clock

    seconds = None if budget is None else LATEST * budget + _LAST_STEP
    line = (
        "error: --budget: was over a while ago, and the model still computes; "
        "is there a loop in it? Finished work is on disk: run the same command again to continue"
    )
    return ended_by_clock(seconds, line, SpecError.exit_code)


def _until_decided(
    spec: AuditSpec,
    out: Path | None,
    audit: Audit,
    files: _Files,
    written: Sequence[str],
    *,
    strict: bool,
    counts_as: Verdict,
    quiet: bool,
    **how: Any,
) -> int:
    """Sample until the gates are decided, print the run and the gates, and return the exit code.

    Raises:
        RobauditError: the audit or a gate is refused.
    """
    from robaudit.auditing.until import sample_until_decided
    from robaudit.cli.console import say
    from robaudit.cli.gate import report_gates
    from robaudit.cli.output_streams import reader_may_leave
    from robaudit.cli.reading import print_run
    from robaudit.gates.decide import with_strict
    from robaudit.gates.sources import parsed
    from robaudit.report.ci.document import Subject

    gates = with_strict(parsed(written, "--gate") or parsed(spec.gates, "gates"), strict)
    on_analysis = None if quiet else _say_analysis
    outcome = sample_until_decided(spec, gates, out, audit, on_analysis=on_analysis, **how)
    files.write(outcome.run, spec, outcome.decisions, counts_as, quiet=quiet)
    if not quiet:
        if outcome.draws:
            say(f"{sum(outcome.draws):,} draws per image in all; a single run has {outcome.most:,}")
        with reader_may_leave():
            print_run(outcome.run)
    return report_gates(
        outcome.decisions, counts_as, "text", None, Subject.of(outcome.run.info, "estimate")
    )


def _say_analysis(draws: int, most: int, decisions: Sequence[Decision]) -> None:
    """Print the gates at an interim analysis."""
    from robaudit.cli.console import say
    from robaudit.gates.decision_text import lines

    say(f"interim analysis after {draws:,} of {most:,} draws per image:")
    for _, line in lines(decisions)[:-1]:
        say(f"  {line}")
