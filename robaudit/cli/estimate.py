"""`robaudit estimate`: audit a model on a data set, once or until its gates are decided."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from robaudit import settings
from robaudit.cli.options import (
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
    option,
)
from robaudit.errors import RobauditError, SpecError
from robaudit.settings import Setting
from robaudit.spec.origin import Location
from robaudit.spec.skipping import OnError, on_error_of

if TYPE_CHECKING:
    from robaudit.auditing.audit import Analyses
    from robaudit.gates.decide import Decision, Verdict
    from robaudit.runs.run import Run
    from robaudit.spec.model import AuditSpec

# A step is not interrupted, so a slow one ends after the time of the audit. Beyond this share of
# the time and these seconds it counts as one that never ends (docs/trust.md).
_LATEST = 1.5
_LAST_STEP = 10.0


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

        # Resolved, because two links may lead to one file.
        taken = {spec.resolve(): "the spec"}
        for setting, file in self._named():
            owner = taken.get(file.resolve())
            if owner is not None:
                raise SpecError(f"{setting.flag} {file}", f"is also {owner}", "name another file")
            taken[file.resolve()] = f"the file of {setting.flag}"
        for file in self.reports:
            check_report(file, flag=settings.REPORT.flag, by_name=True)
        if self.junit is not None:
            check_output(self.junit)

    def remove(self) -> None:
        """Remove the files of an earlier audit.

        If this audit ended early, they would pass for its own.

        Raises:
            RobauditError: a file cannot be removed.
        """
        for _, file in self._named():
            if not file.is_file():
                continue
            try:
                # The target of a link, so that the link stays.
                file.resolve().unlink()
            except OSError as error:
                raise RobauditError(
                    str(file),
                    f"cannot be replaced: {error.strerror or error}",
                    "name another file",
                ) from error

    def _named(self) -> list[tuple[Setting, Path]]:
        """The files with their options."""
        named = [(settings.REPORT, file) for file in self.reports]
        if self.junit is not None:
            named.append((settings.JUNIT, self.junit))
        return named

    def write(
        self,
        run: Run,
        spec: AuditSpec,
        decisions: Sequence[Decision] | None,
        inconclusive: Verdict = "inconclusive",
        *,
        quiet: bool,
    ) -> None:
        """Write the files, and note on standard error what a report lacks.

        Args:
            run: the finished run.
            spec: what was audited.
            decisions: on the gates; None without gates.
            inconclusive: what an inconclusive gate counts as.
            quiet: print no notes.
        """
        from robaudit.cli.console import Reporter
        from robaudit.cli.output_streams import write_output
        from robaudit.cli.report import write_reports

        if self.junit is not None and decisions is not None:
            from robaudit.report.ci.document import Subject
            from robaudit.report.ci.junit import junit

            subject = Subject.from_info(run.info, "estimate")
            write_output(self.junit, [junit(decisions, subject, inconclusive=inconclusive)])
        if self.reports:
            from robaudit.report.gallery import ImageSource

            problems = write_reports(run, self.reports, decisions, ImageSource(spec, self.trust))
            with Reporter(quiet=quiet) as reporter:
                for problem in problems:
                    reporter.note(problem)


@dataclass(frozen=True, slots=True)
class _GateOptions:
    """The gates of the command line, and how they are decided.

    Attributes:
        written: the conditions of ``--gate``.
        until_decided: sample until the gates are decided: those of the spec, if ``written`` is
            empty.
        junit: decide the gates after the audit, to write them.
        population: decide for the population of the images.
        point: let a value without an interval decide.
        inconclusive: what an inconclusive gate counts as; None: itself.
        confidence: of the intervals; None: the usual one.
        strict: add the gate on warnings.
    """

    written: Sequence[str]
    until_decided: bool
    junit: bool
    population: bool
    point: bool
    inconclusive: Verdict | None
    confidence: float | None
    strict: bool

    @property
    def sequential(self) -> bool:
        """Whether the audit samples until gates are decided."""
        return bool(self.written) or self.until_decided

    def refuse_without_gates(self) -> None:
        """Refuse options about gates where none are decided.

        Raises:
            SpecError: such an option is given.
        """
        if self.sequential or self.junit:
            return
        about_gates: Mapping[Setting, object] = {
            settings.POPULATION: self.population,
            settings.POINT: self.point,
            settings.INCONCLUSIVE: self.inconclusive,
            settings.CONFIDENCE: self.confidence,
            settings.STRICT: self.strict,
        }
        for setting, value in about_gates.items():
            if value not in (None, False):
                raise SpecError(
                    setting,
                    "needs gates",
                    "add --gate, or --until-decided for the gates of the spec",
                )


@dataclass(frozen=True, slots=True)
class _Audit:
    """Audits of this command: one, or with gates one for each interim analysis.

    Attributes:
        command: the command line, for the record of the run.
        trust: allow Python code that the spec names.
        on_error: what to do at an unreadable sample.
        extend: add to the run in the folder.
        fresh: refuse a folder that exists.
        ray_address: the head node of a Ray cluster.
        deadline: when to end, on the clock of ``time.perf_counter``; None: when it is complete.
        quiet: print only warnings and errors.
        said: notes that were printed.
    """

    command: str
    trust: bool
    on_error: OnError
    extend: bool
    fresh: bool
    ray_address: str | None
    deadline: float | None
    quiet: bool
    # Of an audit that grows: each part of it would say the same of model and data.
    said: set[str] = field(default_factory=set)

    def __call__(
        self,
        spec: AuditSpec,
        *,
        out: Path | None,
        analyse: Analyses | None = None,
        extend: bool = False,
    ) -> Run:
        """Audit a spec, with a progress bar on standard error.

        Raises:
            RobauditError: the audit is refused.
        """
        from robaudit.auditing.audit import audit
        from robaudit.cli.console import Reporter

        budget = None
        if self.deadline is not None:
            budget = max(0.0, self.deadline - time.perf_counter())
        with Reporter(quiet=self.quiet, said=self.said) as reporter:
            return audit(
                spec,
                out=out,
                trust=self.trust,
                on_error=self.on_error,
                extend=self.extend or extend,
                fresh=self.fresh,
                listener=reporter,
                command=self.command,
                ray_address=self.ray_address,
                budget=budget,
                analyse=analyse,
            )


def estimate(
    spec: SpecArgument,
    out: Annotated[Path | None, option(settings.OUT)] = None,
    sigma: Annotated[list[str] | None, option(settings.SIGMAS)] = None,
    noise: Annotated[list[str] | None, option(settings.NOISES)] = None,
    level: Annotated[list[str] | None, option(settings.LEVELS)] = None,
    estimator: Annotated[list[str] | None, option(settings.ESTIMATORS)] = None,
    set_: SetOption = None,
    device: Annotated[str | None, option(settings.DEVICE)] = None,
    engine: Annotated[Literal["local", "ray"] | None, option(settings.ENGINE)] = None,
    ray_address: Annotated[str | None, option(settings.RAY_ADDRESS)] = None,
    limit: Annotated[int | None, option(settings.LIMIT)] = None,
    flag: Annotated[float | None, option(settings.FLAG)] = None,
    budget: Annotated[str | None, option(settings.BUDGET)] = None,
    seed: Annotated[int | None, option(settings.SEED)] = None,
    workers: Annotated[int | None, option(settings.WORKERS)] = None,
    gpus_per_worker: Annotated[float | None, option(settings.GPUS_PER_WORKER)] = None,
    memory: Annotated[str | None, option(settings.MEMORY)] = None,
    deterministic: Annotated[bool, option(settings.DETERMINISTIC)] = False,
    as_given: Annotated[bool, option(settings.AS_GIVEN)] = False,
    trust: TrustOption = False,
    on_error: OnErrorOption = "stop",
    extend: Annotated[bool, option(settings.EXTEND)] = False,
    fresh: Annotated[bool, option(settings.FRESH)] = False,
    gates: GatesOption = None,
    until_decided: Annotated[bool, option(settings.UNTIL_DECIDED)] = False,
    population: PopulationOption = False,
    point: PointOption = False,
    inconclusive: InconclusiveOption = None,
    confidence: ConfidenceOption = None,
    strict: StrictOption = False,
    reports: Annotated[list[Path] | None, option(settings.REPORT)] = None,
    junit: Annotated[Path | None, option(settings.JUNIT)] = None,
    quiet: QuietOption = False,
) -> None:
    """Estimate every sample's robustness to noise and write a run folder.

    If it is interrupted, the same command continues where it stopped. With --gate it samples until
    the gates are decided, and exits as robaudit gate does: 0 if all pass, 1 if one fails, 4 if one
    is inconclusive. With --population, a random subset of the data (dataset.sample) grows where
    images are lacking.

    Example: robaudit estimate spec.yaml --sigma 0.05 --sigma 8/255 --limit 100
    Example: robaudit estimate spec.yaml --gate "mean(sigma=0.05) >= 0.9" --report report.html
    --junit gates.xml
    """
    from robaudit.cli.console import starting
    from robaudit.progress import parse_duration
    from robaudit.spec.read import load_spec

    gate_options = _GateOptions(
        written=gates or (),
        until_decided=until_decided,
        junit=junit is not None,
        population=population,
        point=point,
        inconclusive=inconclusive,
        confidence=confidence,
        strict=strict,
    )
    # Mistakes in the command come first: they are answered before torch is imported.
    gate_options.refuse_without_gates()
    _refuse_combinations(deciding=gate_options.sequential, extend=extend, fresh=fresh)
    seconds = None if budget is None else parse_duration(budget)
    errors = on_error_of(on_error)
    files = _Files(tuple(reports or ()), junit, trust)
    # The spec checks levels, too, but names its line; here the message names the option.
    levels(noise, level, sigma)
    keys: Mapping[Setting, object] = {
        settings.LIMIT: limit,
        settings.FLAG: flag,
        settings.SEED: seed,
        settings.DEVICE: device,
        settings.ENGINE: engine,
        settings.WORKERS: workers,
        settings.GPUS_PER_WORKER: gpus_per_worker,
        settings.MEMORY: memory,
        # A switch that is off leaves the value of the spec.
        settings.DETERMINISTIC: deterministic or None,
        settings.AS_GIVEN: as_given or None,
    }
    audit_spec = load_spec(
        spec,
        settings=set_ or (),
        sigmas=sigma or (),
        noises=noise or (),
        levels=level or (),
        estimators=estimator or (),
        overrides=_by_place(keys),
    )
    files.check(spec)
    has_gates = gate_options.sequential or strict or audit_spec.gates
    if junit is not None and not has_gates:
        raise SpecError(
            settings.JUNIT, "needs gates, and the spec has none", "add gates to it, or --gate"
        )
    # From here on it takes seconds, so the terminal says so.
    with starting(quiet=quiet):
        # This imports torch, which takes seconds.
        import robaudit.auditing.audit  # noqa: F401
        from robaudit.auditing.environment import command_line
        from robaudit.models.pretrained import filled

        audit_spec = filled(audit_spec)
    # Only now: a command that was refused leaves the reports of an earlier audit alone.
    files.remove()
    audit = _Audit(
        command=command_line(sys.argv[1:]),
        trust=trust,
        on_error=errors,
        extend=extend,
        # With gates it is checked once, before the first interim analysis.
        fresh=fresh and not gate_options.sequential,
        ray_address=ray_address,
        deadline=None if seconds is None else _since_start() + seconds,
        quiet=quiet,
    )
    with _within(seconds), _showing_interrupted(quiet=quiet):
        if gate_options.sequential:
            code = _until_decided(audit_spec, out, audit, files, gate_options, fresh=fresh)
        else:
            code = _once(audit_spec, out, audit, files, gate_options)
    raise typer.Exit(code)


def _since_start() -> float:
    """When this program began, on the clock of ``time.perf_counter``."""
    import psutil

    seconds_ago = time.time() - float(psutil.Process().create_time())
    return time.perf_counter() - seconds_ago


@contextmanager
def _showing_interrupted(*, quiet: bool) -> Iterator[None]:
    """Print what an audit has, if Ctrl-C ends it."""
    from robaudit.auditing.audit import Interrupted
    from robaudit.cli.reading import print_run

    try:
        yield
    except Interrupted as error:
        if not quiet:
            print_run(error.run)
        raise


def _refuse_combinations(*, deciding: bool, extend: bool, fresh: bool) -> None:
    """Refuse options that contradict each other.

    Args:
        deciding: whether the audit decides gates.
        extend: whether ``--extend`` is given.
        fresh: whether ``--fresh`` is given.

    Raises:
        SpecError: two of them do not go together.
    """
    if extend and deciding:
        raise SpecError(
            settings.EXTEND,
            "cannot be combined with sampling until gates are decided",
            "extend first, then run robaudit gate RUN",
        )
    if extend and fresh:
        raise SpecError(
            settings.FRESH, "refuses the run that --extend needs", "leave one of them out"
        )


def _by_place(values: Mapping[Setting, object]) -> dict[Location, object]:
    """The values that are given, by the key of the spec that each replaces."""
    return {setting.place: value for setting, value in values.items() if value is not None}


def _once(
    spec: AuditSpec,
    out: Path | None,
    audit: _Audit,
    files: _Files,
    gate_options: _GateOptions,
) -> int:
    """Audit once, write the files, print the run and return the exit code.

    With ``--junit`` the gates of the spec are decided, and give the exit code.

    Raises:
        RobauditError: the audit is refused.
    """
    from robaudit.cli.console import say
    from robaudit.cli.gate import report_gates
    from robaudit.cli.output_streams import reader_may_leave
    from robaudit.cli.reading import print_run
    from robaudit.gates.sources import GateRules, decide_by, parsed, refuse_beyond
    from robaudit.report.ci.document import Subject
    from robaudit.spec.gate_grammar import NO_WARNINGS
    from robaudit.text import count, shell

    # A run to extend may have results that the spec no longer names.
    if not audit.extend:
        refuse_beyond(spec)
    run = audit(spec, out=out)
    decisions = None
    if gate_options.junit:
        # Not the gates in run.json: those of the spec may have changed since a run was finished.
        gates = parsed(spec.gates, "gates") or (NO_WARNINGS,)
        decisions = decide_by(
            GateRules(gates, "the spec"),
            run,
            population=gate_options.population,
            point=gate_options.point,
            confidence=gate_options.confidence,
            strict=gate_options.strict,
        )
    counts_as: Verdict = gate_options.inconclusive or "inconclusive"
    # Before the summary is printed, whose reader may leave.
    files.write(run, spec, decisions, counts_as, quiet=audit.quiet)
    if not audit.quiet:
        # The gates still count if the reader of the summary leaves.
        with reader_may_leave() if decisions is not None else nullcontext():
            print_run(run)
    if decisions is not None:
        subject = Subject.from_info(run.info, "estimate")
        return report_gates(decisions, counts_as, "text", None, subject)
    if spec.gates and not audit.quiet:
        number = count(len(spec.gates), "gate")
        say(f"the spec has {number}; to decide: robaudit gate {shell(run.path)}")
    return 0


def _within(seconds: float | None) -> AbstractContextManager[None]:
    """End the process if an audit is still busy long after its budget.

    The audit itself looks at the clock between its steps. This is for a network that never returns.

    Args:
        seconds: of the budget; None: no limit.
    """
    from robaudit.cli.signals import ended_by_clock

    limit = None if seconds is None else _LATEST * seconds + _LAST_STEP
    line = (
        "error: --budget: was over a while ago, and the model still computes; is there a loop in "
        "it? What is finished is on disk: robaudit show reads it, and the same command continues"
    )
    return ended_by_clock(limit, line, SpecError.exit_code)


def _until_decided(
    spec: AuditSpec,
    out: Path | None,
    audit: _Audit,
    files: _Files,
    gate_options: _GateOptions,
    *,
    fresh: bool,
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

    # The gates of the command replace those of the spec.
    gates = parsed(gate_options.written, settings.GATE.flag) or parsed(spec.gates, "gates")
    outcome = sample_until_decided(
        spec,
        with_strict(gates, gate_options.strict),
        out,
        audit,
        on_analysis=None if audit.quiet else _say_analysis,
        population=gate_options.population,
        point=gate_options.point,
        confidence=gate_options.confidence,
        fresh=fresh,
    )
    counts_as: Verdict = gate_options.inconclusive or "inconclusive"
    files.write(outcome.run, spec, outcome.decisions, counts_as, quiet=audit.quiet)
    if not audit.quiet:
        if outcome.analyses > 1:
            say(f"{outcome.analyses} interim analyses")
        # The gates still count if the reader of the summary leaves.
        with reader_may_leave():
            print_run(outcome.run)
    subject = Subject.from_info(outcome.run.info, "estimate")
    return report_gates(outcome.decisions, counts_as, "text", None, subject)


def _say_analysis(how_far: str, decisions: Sequence[Decision]) -> None:
    """Print the gates at an interim analysis."""
    from robaudit.cli.console import say
    from robaudit.gates.decision_text import lines

    say(f"interim analysis after {how_far}:")
    # The last line is about all gates together, and there is no such verdict yet.
    for _, line in lines(decisions)[:-1]:
        say(f"  {line}")
