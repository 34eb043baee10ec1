"""An audit from its spec to a finished run, or to rows in memory: joins model, state and loop."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import nn

from robaudit.auditing.chunks import step_name
from robaudit.auditing.environment import deterministic, pick_devices
from robaudit.auditing.expected import (
    LATEST,
    SPARE,
    WORTH_SAYING,
    as_begun,
    measure_speed,
    within_budget,
)
from robaudit.auditing.main_loop import (
    Deadline,
    Workers,
    compute_missing,
    lacking,
    task_names,
)
from robaudit.auditing.outputs import finish, first_info, history
from robaudit.auditing.prepare import CheckedAudit, PreparedAudit, Request, open_audit, prepare
from robaudit.auditing.ray_cluster import RayWorkers, ray_workers
from robaudit.auditing.resume import (
    default_out,
    existing_info,
    extended,
    is_next,
    refuse_another_machine,
    refuse_fewer,
    refuse_other_data,
    refuse_other_results,
)
from robaudit.datasets.dataset import Dataset
from robaudit.datasets.select import Selected
from robaudit.engine.passes import Engine
from robaudit.engine.registry import Task
from robaudit.errors import RunError, SpecError
from robaudit.files import expanded, remove_leftovers
from robaudit.levels import NoiseLevel, without_levels
from robaudit.models.logits import rounded_products
from robaudit.models.pretrained import filled
from robaudit.progress import Listener
from robaudit.runs.folder import OUTPUTS, RunFolder, locked, refuse_existing, refuse_other_gates
from robaudit.runs.info import RunInfo, Skip, UntilDecided
from robaudit.runs.log import Logged
from robaudit.runs.rows import Row
from robaudit.runs.run import Run, read_run
from robaudit.runs.state import State
from robaudit.settings import BUDGET, ENGINE, LIMIT, RAY_ADDRESS
from robaudit.spec.model import AuditSpec
from robaudit.spec.read import load_spec
from robaudit.spec.skipping import OnError, on_error_of


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
    until: UntilDecided | None = None,
    setup: SharedSetup | None = None,
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
        budget: lower draws and images so that a new run takes at most this many seconds. One that
            takes half as long again is stopped. An existing run is continued with the draws and
            images it was begun with.
        until: the analyses of a run that is sampled until its gates are decided, this one last;
            results of the previous analysis, from fewer draws, are replaced.
        setup: model, data and workers of the earlier analyses of this run; the first analysis puts
            its own there for the next.

    Returns:
        The finished run.

    Raises:
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
    deadline = None if budget is None else Deadline(time.perf_counter() + LATEST * budget)
    log = Logged(listener or Listener())
    with closing(log):
        # A budget is part of the folder's name: it changes draws and images.
        purpose = "" if budget is None else f"{budget:g}s"
        path = expanded(str(out)) if out is not None else default_out(spec, purpose, extend=extend)
        folder = RunFolder(path)
        if fresh:
            refuse_existing(folder.path)
        folder.check()
        if budget is not None and folder.exists:
            log.note(
                f"--budget: {folder.path} is continued with the draws and images it was begun with"
            )
            spec = as_begun(spec, folder.info().spec)
            budget = None
            if isinstance(dataset, Selected):
                dataset = dataset.again(spec.dataset)
        old = existing_info(folder, spec, extend=extend, until=until)
        if old is not None and extend:
            refuse_fewer(spec, old, str(folder.path))
        if old is not None and not is_next(until, old):
            spec = extended(spec, old, str(folder.path))
        request = Request(spec, trust, on_error != "stop", model, dataset)
        with SharedSetup() if setup is None else nullcontext(setup) as setup_in_use:
            # Loading and checking can take minutes and often ends in an error: nothing is written
            # before it, and no lock is held during it.
            audit, workers = setup_in_use.prepared(
                request, log, ray_address=ray_address, budget=budget
            )
            if old is not None:
                refuse_another_machine(old, audit.info, str(folder.path), log)
            folder.create()
            with locked(folder.path) as lock:
                folder.guard = lock.check
                run = _carry_out(
                    audit,
                    workers,
                    folder,
                    old,
                    on_error,
                    log,
                    command,
                    extend=extend,
                    until=until,
                    deadline=deadline,
                )
                lock.check()  # a run in a folder that was replaced meanwhile is not reported
        for text in run.info.review_warnings:
            log.warn(text)
        return run


class SharedSetup(ExitStack):
    """Model, data and workers, reused by audits that differ only in their draws.

    The workers end with the block.
    """

    def __init__(self) -> None:
        super().__init__()
        self._latest: tuple[CheckedAudit, Workers] | None = None

    def prepared(
        self, request: Request, listener: Listener, **options: Any
    ) -> tuple[CheckedAudit, Workers]:
        """The audit and its workers: prepared for the first request, and adapted to the draws of
        each later one.

        The arguments are those of :func:`prepared`.
        """
        if self._latest is None:
            self._latest = self.enter_context(prepared(request, listener, **options))
            return self._latest
        audit, workers = self._latest
        audit = audit.again(request.spec)
        if isinstance(workers, RayWorkers):
            workers.again(request.spec)
        elif isinstance(audit, PreparedAudit):
            # A new worker, with the new tasks: the sizes of chunks depend on the draws.
            workers = audit.worker()
        self._latest = audit, workers
        return self._latest


@contextmanager
def prepared(
    request: Request,
    listener: Listener,
    *,
    ray_address: str | None = None,
    budget: float | None = None,
) -> Iterator[tuple[CheckedAudit, Workers]]:
    """Prepare an audit for the engine and the devices of its spec; its workers end with the block.

    Args:
        request: what is asked for.
        listener: receives notes and warnings.
        ray_address: the cluster's address, for ``engine: ray``.
        budget: seconds from now on; draws and images are lowered to fit. For a single device.

    Raises:
        RobauditError: something is missing, damaged, or does not fit the rest, or memory runs out.
    """
    run = request.spec.run
    devices = pick_devices(run.device) if run.engine == "local" else []
    started = time.perf_counter()
    if len(devices) == 1:
        # Before anything runs on the device: see deterministic().
        with deterministic(run.deterministic, devices[0]), rounded_products(False):
            audit = prepare(request, devices[0], listener)
            if budget is not None:
                speed = measure_speed(audit)
                spent = time.perf_counter() - started
                audit = within_budget(audit, SPARE * budget - spent, speed, listener)
            yield audit, audit.worker()
        return
    if budget is not None:
        raise SpecError(
            BUDGET,
            "is for a single device, whose speed is measured first",
            "lower " + LIMIT + " or the samples instead",
        )
    # Opened here, too: mistakes in the spec are found before a cluster starts. The model is loaded
    # by the workers alone.
    opened = open_audit(request, listener)
    with ray_workers(request, opened.data, listener, ray_address, devices) as workers:
        yield CheckedAudit(**vars(opened), info=workers.info, seen=workers.seen), workers


def _carry_out(
    audit: CheckedAudit,
    workers: Workers,
    folder: RunFolder,
    old: RunInfo | None,
    on_error: OnError,
    log: Logged,
    command: str | None,
    *,
    extend: bool,
    until: UntilDecided | None,
    deadline: Deadline | None,
) -> Run:
    """Compute what the locked run folder lacks, write its outputs, and return the finished run.

    The run.json of a complete run stays until the outputs of its extension are written.

    The steps are in this order so that a kill at any point leaves a folder that the same command
    continues, and in which readers find a whole run or none.
    """
    spec = audit.spec
    data = audit.data
    tasks = audit.tasks
    _refuse_changed_run(folder, old)
    if old is not None:
        refuse_other_gates(folder.path, old, spec.gates)
    # Only under the lock: without it they may be files that a live process is writing.
    remove_leftovers(folder.path)
    # Creates an empty state in a new folder. Killed before run.json is there, the folder counts as
    # new.
    with folder.open_state(old) as state:
        estimators, noises, noise_files = _spec_entries(audit)
        # Between analyses the draws of an estimator change, and its rows are replaced.
        fixed_estimators = estimators if until is None else {}
        refuse_other_results(state, noises, fixed_estimators, str(folder.path))
        refuse_other_data(state, audit, old, extend=extend)
        entries_by_result: dict[str, Any] = {}
        for task in tasks:
            entries_by_result.update((name, estimators[task.label]) for _, name in task.names)
        info = first_info(
            audit,
            noise_files=noise_files,
            **history(old, command, audit.info.device, workers.number),
        )
        # An extension keeps the analyses so far.
        analyses = until or (old and old.until_decided)
        if analyses:
            info = info.model_copy(update={"until_decided": analyses})
        if old is not None and is_next(until, old):
            # run.json says "running" before the first row is forgotten: the old one is complete and
            # has the digest of the state, which is about to change.
            folder.write_info(info)
            old = None
        if until is not None:
            state.forget_others(entries_by_result)
        state.begin(data, task_names(tasks), entries_by_result, noises)
        images = lacking(state, tasks)
        if isinstance(audit, PreparedAudit) and any(images):
            _announce_time(audit, images, log)
        finished = old is not None and _is_finished(old, info, folder)
        if old is None or not old.complete:
            folder.write_info(info)  # before the first row
        elif state.unfinished:
            # From here on the state grows, so run.json must not have its digest any more. The old
            # outputs keep theirs, and stay readable.
            folder.write_info(_without_digest_of_state(old))
        if not finished:
            folder.guard()
            log.open(folder.path)
        with log.until_interrupted():
            compute_missing(state, data, tasks, workers, log, on_error=on_error, deadline=deadline)
            # Also when no row was missing: a kill may have left outputs that are not this state's.
            if state.unfinished or not finished:
                log.doing("writing the results")
                return finish(folder, info, state.results(), state.skips(), tasks, state.seconds())
    if old is not None:
        _update_title_and_gates(folder, old, spec)
    log.note(
        f"{folder.path}: this run is complete; nothing was recomputed. Its results come from an "
        "earlier run and were not checked: "
        f"robaudit verify {folder.path} recomputes some of them, and --fresh refuses a folder "
        "that is there already"
    )
    return read_run(folder.path)


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


def _announce_time(audit: PreparedAudit, images: Sequence[int], log: Logged) -> None:
    """Say how long an audit will take, unless it is short."""
    expected = measure_speed(audit).expected(audit.tasks, images)
    if expected.seconds >= WORTH_SAYING:
        log.note(expected.text)


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
    on_error: OnError = "stop",
) -> Computed:
    """Compute every task of every sample, in memory.

    Args:
        ready: the prepared audit.
        engine: its engine, or one with independent noise.
        samples: which images.
        tasks: estimators and noise levels; their labels differ.
        listener: receives the progress.
        on_error: stop at an unusable sample, or skip it.

    Raises:
        SampleError: a sample cannot be used.
        KeyboardInterrupt: the listener asked to stop.
    """
    # A state in memory, so that the loop is the one of audits: same chunks, same checks.
    with State() as state:
        state.begin(samples, task_names(tasks))
        worker = replace(ready, engine=engine, data=samples, tasks=tuple(tasks)).worker()
        compute_missing(state, samples, tasks, worker, listener, on_error=on_error)
        rows: dict[tuple[str, NoiseLevel, str], Row] = {}
        for sample in state.results():
            rows.update((row.key, row) for row in sample.rows)
        by_step = state.seconds()
        seconds = {(task.label, task.at): by_step.get(step_name(task), 0.0) for task in tasks}
        return Computed(rows, seconds, tuple(state.skips()))
