"""An audit from its spec to a finished run, or to rows in memory: joins model, state and loop."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from torch import nn

from robaudit.auditing.chunks import step_name
from robaudit.auditing.environment import deterministic, pick_devices
from robaudit.auditing.expected import WORTH_SAYING, Expected, measure_speed
from robaudit.auditing.fastest_form import as_before, in_fastest_form, of_workers
from robaudit.auditing.main_loop import (
    Ending,
    Workers,
    compute_missing,
    lacking,
    task_names,
)
from robaudit.auditing.outputs import finish, first_info, history
from robaudit.auditing.prepare import CheckedAudit, PreparedAudit, Request, open_audit, prepare
from robaudit.auditing.ray_cluster import ray_workers
from robaudit.auditing.resume import (
    default_out,
    existing_info,
    extended,
    refuse_another_machine,
    refuse_fewer,
    refuse_other_data,
    refuse_other_results,
)
from robaudit.auditing.rounds import Round, rounds_of
from robaudit.datasets.dataset import Dataset
from robaudit.engine.passes import Engine
from robaudit.engine.registry import Task
from robaudit.errors import RobauditError, RunError, SpecError
from robaudit.files import expanded, remove_leftovers
from robaudit.forms import FormName
from robaudit.gates.so_far import estimate_so_far, first_gate
from robaudit.levels import NoiseLevel, without_levels
from robaudit.models.logits import rounded_products
from robaudit.models.pretrained import filled
from robaudit.progress import Listener
from robaudit.runs.folder import OUTPUTS, RunFolder, locked, refuse_existing, refuse_other_gates
from robaudit.runs.info import RunInfo, Skip, Stop, UntilDecided
from robaudit.runs.log import Logged
from robaudit.runs.rows import Row
from robaudit.runs.run import Run
from robaudit.runs.state import Lacking, State
from robaudit.settings import BUDGET, ENGINE, RAY_ADDRESS
from robaudit.spec.model import AuditSpec
from robaudit.spec.read import load_spec
from robaudit.spec.skipping import OnError, on_error_of
from robaudit.stats.reading import read_run, run_so_far
from robaudit.text import shell

# Copies of each image with which most audits that run until they are decided are: see
# docs/research/benchmarks.md.
_EARLY_DRAWS = 8
_READING_SHARE = 0.02  # of the time of a session, for reading what there is so far


class Interrupted(KeyboardInterrupt):
    """An audit was stopped before it was complete.

    Attributes:
        run: with the results so far.
    """

    def __init__(self, run: Run) -> None:
        super().__init__(f"{run.info.how_far}; the attribute run has these results")
        self.run = run


class Analyses(Protocol):
    """Analyses of a run after its rounds."""

    @property
    def until(self) -> UntilDecided:
        """The schedule, with the analyses so far."""
        ...

    @property
    def needs_others(self) -> bool:
        """Whether they need the results of estimators that compute an image at once."""
        ...

    @property
    def first_gate(self) -> str:
        """The first gate and its verdict at the last analysis."""
        ...

    def __call__(self, run: Run) -> Stop | None:
        """Analyse the run so far; return why the audit should end, or None."""
        ...


def audit(
    spec: AuditSpec | str | Path,
    *,
    out: str | Path | None = None,
    trust: bool = False,
    on_error: OnError = "stop",
    extend: bool = False,
    fresh: bool = False,
    model: nn.Module | None = None,
    dataset: Dataset | None = None,
    listener: Listener | None = None,
    command: str | None = None,
    ray_address: str | None = None,
    budget: float | None = None,
    analyse: Analyses | None = None,
) -> Run:
    """Estimate every sample's robustness and write (or resume) a run folder.

    Args:
        spec: an audit spec, or the path of a YAML file.
        out: the run folder; default runs/<spec name>-<hash8> in the working folder.
        trust: allow Python code that the spec names (``module:function``).
        on_error: stop at the first unusable sample, or skip up to a tenth or another share of all
            samples: skips are listed and counted.
        extend: add what the spec asks for to an existing run of the same model and data, without
            recomputing.
        fresh: refuse an existing run folder, so that everything is computed now.
        model: audit this network instead of loading the one the spec names (mean, std and output
            still apply).
        dataset: audit these samples instead of opening the data set the spec names.
        listener: receives notes, warnings and progress.
        command: what the user typed, for run.json.
        ray_address: with ``engine: ray``, of the head node (HOST:PORT) or "auto"; default
            RAY_ADDRESS, or a cluster of this machine alone.
        budget: seconds after which the audit ends, with what it has by then.
        analyse: analyses the results after each round; it may end the audit.

    Returns:
        The run: complete, or stopped by ``budget`` or ``analyse``.

    Raises:
        Interrupted: the listener or Ctrl-C stopped the audit; the exception has the run.
        RobauditError: the spec, the model, the data or the run folder is unusable (see the
            subclasses).
        NothingLeftError: every sample was skipped.
    """
    on_error = on_error_of(on_error)
    if isinstance(spec, str | Path):
        spec = load_spec(Path(spec))
    # A network in memory has no files that could fill in what the spec leaves out.
    if model is None:
        spec = filled(spec)
    if ray_address == "":
        raise SpecError(RAY_ADDRESS, "is empty", "give HOST:PORT of the head node, or auto")
    if ray_address is not None and spec.run.engine != "ray":
        raise SpecError(
            RAY_ADDRESS, "is for engine: ray", "add " + ENGINE.set_to("ray") + ", or leave it out"
        )
    # The time runs from here on: a budget includes loading the model.
    deadline = None if budget is None else time.perf_counter() + budget
    log = Logged(listener or Listener())
    with closing(log):
        path = expanded(str(out)) if out is not None else default_out(spec, extend=extend)
        folder = RunFolder(path)
        if fresh:
            refuse_existing(folder.path)
        folder.check()
        old = existing_info(folder, spec, extend=extend)
        if old is not None and extend:
            refuse_fewer(spec, old, str(folder.path))
        if old is not None:
            spec = extended(spec, old, str(folder.path))
        request = Request(spec, trust, on_error != "stop", model, dataset)
        # Loading and checking can take minutes and often ends in an error: nothing is written
        # before it, and no lock is held during it.
        with prepared(request, log, ray_address=ray_address) as (audit, workers):
            if old is not None:
                refuse_another_machine(old, audit.info, str(folder.path), log)
            folder.create()
            with locked(folder.path) as lock:
                folder.guard = lock.check
                session = _Session(
                    audit, workers, folder, old, on_error, log, command, extend, analyse, deadline
                )
                run = session.carry_out()
                lock.check()  # a run in a folder that was replaced meanwhile is not reported
        for text in run.info.review_warnings:
            log.warn(text)
        return run


@contextmanager
def prepared(
    request: Request,
    listener: Listener,
    *,
    ray_address: str | None = None,
) -> Iterator[tuple[CheckedAudit, Workers]]:
    """Prepare an audit for the engine and the devices of its spec; its workers end with the block.

    Args:
        request: what is asked for.
        listener: receives notes and warnings.
        ray_address: the cluster's address, for ``engine: ray``.

    Raises:
        RobauditError: something is missing, damaged, or does not fit the rest, or memory runs out.
    """
    run = request.spec.run
    devices = pick_devices(run.device) if run.engine == "local" else []
    if len(devices) == 1:
        # Before anything runs on the device: see deterministic().
        with deterministic(run.deterministic, devices[0]), rounded_products(False):
            audit = prepare(request, devices[0], listener)
            yield audit, audit.worker()
        return
    # Opened here, too: mistakes in the spec are found before a cluster starts. The model is loaded
    # by the workers alone.
    opened = open_audit(request, listener)
    with ray_workers(request, opened.data, listener, ray_address, devices) as workers:
        yield CheckedAudit(**vars(opened), info=workers.info, seen=workers.seen), workers


@dataclass
class _Session:
    """The part of an audit that writes: it holds the folder's lock.

    The run.json of a complete run stays until the outputs of its extension are written.

    Attributes:
        audit, workers: prepared.
        folder: of the run, locked.
        old: its run.json so far; None: it is new.
        on_error: stop at an unusable sample, or skip a share of them.
        log: receives notes and progress.
        command: what the user typed.
        extend: whether samples may be new.
        analyse: see :func:`audit`.
        deadline: when to end, on the clock of ``time.perf_counter``.
    """

    audit: CheckedAudit
    workers: Workers
    folder: RunFolder
    old: RunInfo | None
    on_error: OnError
    log: Logged
    command: str | None
    extend: bool
    analyse: Analyses | None
    deadline: float | None
    _stop: Stop | None = None
    # Seconds that went into reading the run so far.
    _reading: float = 0.0
    _began: float = field(default_factory=time.perf_counter)

    def carry_out(self) -> Run:
        """Compute what the locked run folder lacks, write its outputs, and return the run.

        The steps are in this order so that a kill at any point leaves a folder that the same
        command continues, and in which readers find a whole run or its state.
        """
        folder = self.folder
        old = self.old
        audit = self.audit
        log = self.log
        _refuse_changed_run(folder, old)
        if old is not None:
            refuse_other_gates(folder.path, old, audit.spec.gates)
        # Only under the lock: without it they may be files that a live process is writing.
        remove_leftovers(folder.path)
        # Creates an empty state in a new folder. Killed before run.json is there, the folder counts
        # as new.
        with folder.open_state(old) as state:
            estimators, noises, noise_files = _spec_entries(audit)
            refuse_other_results(state, noises, estimators, str(folder.path))
            refuse_other_data(state, audit, old, extend=self.extend)
            entries_by_result: dict[str, Any] = {}
            for task in audit.tasks:
                entries_by_result.update((name, estimators[task.label]) for _, name in task.names)
            state.begin(audit.data, task_names(audit.tasks), entries_by_result, noises)
            if state.unfinished:
                audit = self._in_some_form(audit, lacking(state, audit.tasks))
            elif old is not None:
                audit = replace(audit, info=as_before(audit.info, old))
            info = first_info(
                audit,
                noise_files=noise_files,
                **history(old, self.command, audit.info.device, self.workers.number),
            )
            info = self._with_schedule(info)
            finished = old is not None and _is_finished(old, info, folder)
            if old is None or not old.complete:
                folder.write_info(info)  # before the first row
            elif state.unfinished:
                # From here on the state grows, so run.json must not have its digest any more. The
                # old outputs keep theirs, and stay readable.
                folder.write_info(_without_digest_of_state(old))
            if not finished:
                folder.guard()
                log.open(folder.path)
            if state.has_rows and not self._is_extension and state.unfinished:
                log.note(f"resuming: {run_so_far(folder.path, info, state).info.how_far}")
            with log.until_interrupted():
                ending = self._compute(state, info)
                # Also when no row was missing: a kill may have left outputs that are not this
                # state's.
                if state.unfinished or not finished:
                    return self._end(state, info, ending)
        if old is not None:
            _update_title_and_gates(folder, old, audit.spec)
        log.note(
            f"{folder.path}: this run is complete; nothing was recomputed. Its results come from "
            f"an earlier run and were not checked: robaudit verify {shell(folder.path)} recomputes "
            "some of them, and --fresh refuses a folder that is there already"
        )
        return read_run(folder.path)

    def _in_some_form(self, audit: CheckedAudit, left: Sequence[Lacking]) -> CheckedAudit:
        """Choose the form of the network for the passes that are left, and say how long the audit
        will take."""
        recorded = None if self.old is None else self.old.form
        if not isinstance(audit, PreparedAudit):
            return replace(audit, info=of_workers(audit.info, recorded, self.log))
        images = [of_task.samples for of_task in left]
        as_loaded = measure_speed(audit).expected(audit.tasks, images)
        certain = self._certain(as_loaded.seconds)
        chosen = in_fastest_form(audit, certain, as_loaded.rate, recorded, self.log)
        if chosen.engine is not audit.engine:
            self.workers = chosen.worker()
        self._announce_time(chosen, images, as_loaded)
        return chosen

    def _certain(self, seconds: float) -> float:
        """The part of the time of all passes that the audit will take in any case, as far as it can
        be known: it may have less time, or be decided early."""
        if self.analyse is not None:
            # Most gates are decided by then, or want more images.
            most = max((task.estimator.most_draws or 0 for task in self.audit.tasks), default=0)
            seconds /= max(1.0, most / _EARLY_DRAWS)
        if self.deadline is not None:
            seconds = min(seconds, self.deadline - time.perf_counter())
        return seconds

    def _announce_time(
        self, audit: PreparedAudit, images: Sequence[int], as_loaded: Expected
    ) -> None:
        """Say how long the audit will take, unless it is short.

        Args:
            audit: in the form in which it runs.
            images: what is left of each task.
            as_loaded: the time that the network as loaded would take.
        """
        # An audit that has grown says it no second time.
        if self.analyse is not None and self.old is not None:
            return
        expected = as_loaded
        form = audit.info.form
        if form is not None and form.name is not FormName.AS_LOADED:
            expected = measure_speed(audit).expected(audit.tasks, images)
        if expected.seconds < WORTH_SAYING:
            return
        ends_earlier = ""
        if self.deadline is not None and expected.seconds > self.deadline - time.perf_counter():
            ends_earlier = "; it ends when its time is over"
        self.log.note(expected.text + ends_earlier)

    def _compute(self, state: State, info: RunInfo) -> Ending:
        """Compute what is missing.

        Raises:
            Interrupted: a listener or Ctrl-C stopped it.
        """

        def after_round(is_last: bool) -> bool:
            self._stop = self._look(state, info, is_last=is_last)
            return self._stop is not None

        try:
            return compute_missing(
                state,
                self.audit.data,
                self.audit.tasks,
                self.workers,
                self.log,
                rounds=rounds_of(
                    self.audit.tasks,
                    others_first=self.analyse is not None and self.analyse.needs_others,
                ),
                after_round=after_round,
                order=_order(self.audit),
                flag=self.audit.spec.flag,
                on_error=self.on_error,
                deadline=self.deadline,
            )
        except KeyboardInterrupt:
            if not state.has_rows or self._is_extension:
                raise
            raise Interrupted(self._finish(state, info, Stop.INTERRUPTED)) from None

    def _end(self, state: State, info: RunInfo, ending: Ending) -> Run:
        """Write the outputs.

        Raises:
            RobauditError: the time was over before there was any result.
        """
        if ending is Ending.COMPLETE:
            return self._finish(state, info, None)
        if ending is Ending.ENOUGH:
            return self._finish(state, info, self._stop)
        if self._is_extension:
            self.log.note(
                "the time is over, and the extension is unfinished: these are the results before "
                "it; to go on with it for as long again, run the same command again"
            )
            return read_run(self.folder.path)
        if not state.has_rows:
            what = "is over before the first result: loading and checking took as long"
            raise RobauditError(BUDGET, what, "give it more time")
        self.log.note("the time is over; to go on for as long again, run the same command again")
        return self._finish(state, info, Stop.TIME)

    @property
    def _is_extension(self) -> bool:
        """Whether the run was complete before, so that its old outputs stay until the new ones are
        complete, too."""
        return self.old is not None and self.old.complete

    def _finish(self, state: State, info: RunInfo, stop: Stop | None) -> Run:
        """Write the outputs."""
        self.log.doing("writing the results")
        return finish(
            self.folder,
            self._with_schedule(info),
            state.results(),
            state.skips(),
            self.audit.tasks,
            state.seconds(),
            stop,
        )

    def _with_schedule(self, info: RunInfo) -> RunInfo:
        """The content of run.json with the analyses so far; without any, those of the run that is
        continued."""
        until = self.old and self.old.until_decided
        if self.analyse is not None:
            until = self.analyse.until
        return info.model_copy(update={"until_decided": until}) if until else info

    def _look(self, state: State, info: RunInfo, *, is_last: bool) -> Stop | None:
        """Tell the listener the results so far, and let the caller analyse them.

        Without an analysis, runs are read only while that costs next to nothing.
        """
        started = time.perf_counter()
        if self.analyse is None and is_last:
            return None  # the summary follows
        if self.analyse is None and self._reading > _READING_SHARE * (started - self._began):
            return None
        run = run_so_far(self.folder.path, info, state)
        stop = None if self.analyse is None else self.analyse(run)
        estimate = estimate_so_far(run)
        if estimate:
            gate = first_gate(run) if self.analyse is None else self.analyse.first_gate
            self.log.found(estimate, gate)
        self._reading += time.perf_counter() - started
        return stop


def _order(audit: CheckedAudit) -> Sequence[int] | None:
    """The order in which samples are computed: at random if they are a random subset, so that a
    part of them is one, too; else that of the data set (None)."""
    subset = audit.spec.dataset.sample
    if subset is None:
        return None
    # NumPy's legacy generator has a frozen stream. The same samples come in the same order.
    order: list[int] = np.random.RandomState(subset.seed).permutation(len(audit.data)).tolist()
    return order


def _refuse_changed_run(folder: RunFolder, old: RunInfo | None) -> None:
    """Refuse to continue if run.json is not the one that was read before the lock was taken.

    Raises:
        RunError: another process has written it meanwhile.
    """
    now = folder.info() if folder.exists else None
    if now != old:
        raise RunError(
            str(folder.path),
            "was changed by another robaudit while this one was starting",
            "run the command again",
        )


def _is_finished(old: RunInfo, info: RunInfo, folder: RunFolder) -> bool:
    """Whether a run is complete for the current spec, and its outputs are those in run.json."""
    if not old.complete or old.identity != info.identity:
        return False
    return folder.outputs_intact(old)


def _update_title_and_gates(folder: RunFolder, old: RunInfo, spec: AuditSpec) -> None:
    """Write the spec's title and gates to run.json, if they differ. They change nothing that was
    computed."""
    if (list(spec.gates), spec.title) == (old.gates, old.name):
        return
    changed_spec = {**old.spec, "name": spec.name, "gates": list(spec.gates)}
    folder.write_info(old.model_copy(update={"name": spec.title, "spec": changed_spec}))


def _without_digest_of_state(info: RunInfo) -> RunInfo:
    """The content of run.json with the digests of the outputs only."""
    digests = {name: info.files[name] for name in OUTPUTS if name in info.files}
    return info.model_copy(update={"files": digests})


def _spec_entries(audit: CheckedAudit) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """The entries of the spec by label.

    Returns:
        The estimators; the noises without levels, with the digests of their files; these digests
        alone.
    """
    document = audit.spec.document()
    estimators = {entry["label"]: entry for entry in document["estimators"]}
    noises = {entry["name"]: without_levels(entry) for entry in document["noise"]}
    files = {noise.label: noise.digests for noise in audit.noises if noise.noise.files}
    for label, digests in files.items():
        noises[label] = {**noises[label], "files": digests}
    return estimators, noises, files


@dataclass(frozen=True, slots=True)
class Computed:
    """Results in memory.

    Attributes:
        rows: by (sample id, noise level, name of the result).
        seconds: by (label of the estimator, noise level), without the clean pass and work that a
            task shares with an earlier one.
        skipped: samples that could not be used.
    """

    rows: Mapping[tuple[str, NoiseLevel, str], Row]
    seconds: Mapping[tuple[str, NoiseLevel], float]
    skipped: tuple[Skip, ...]


def compute(
    ready: PreparedAudit,
    engine: Engine,
    samples: Dataset,
    tasks: Sequence[Task],
    listener: Listener,
    *,
    rounds: Sequence[Round] = (),
    on_error: OnError = "stop",
) -> Computed:
    """Compute every task of every sample, in memory.

    Args:
        ready: the prepared audit.
        engine: its engine, or one with independent noise.
        samples: which images.
        tasks: estimators and noise levels; their labels differ.
        listener: receives the progress.
        rounds: default: a single one, with all copies of each image.
        on_error: stop at an unusable sample, or skip it.

    Raises:
        SampleError: a sample cannot be used.
        KeyboardInterrupt: the listener asked to stop.
    """
    # A state in memory, so that the loop is the one of audits: same chunks, same checks.
    with State() as state:
        state.begin(samples, task_names(tasks))
        worker = replace(ready, engine=engine, data=samples, tasks=tuple(tasks)).worker()
        compute_missing(
            state,
            samples,
            tasks,
            worker,
            listener,
            rounds=rounds,
            flag=ready.spec.flag,
            on_error=on_error,
        )
        rows: dict[tuple[str, NoiseLevel, str], Row] = {}
        for sample in state.results():
            rows.update((row.key, row) for row in sample.rows)
        by_step = state.seconds()
        seconds = {(task.label, task.at): by_step.get(step_name(task), 0.0) for task in tasks}
        return Computed(rows, seconds, tuple(state.skips()))
