"""From a spec to a finished run, or to rows in memory: the one place that joins engine, store and loop."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from robaudit.auditing.checks import InputCheck, check_input, level_warnings, precision_effects
from robaudit.auditing.chunks import NEEDS_LABELS, needing_labels, step_name
from robaudit.auditing.environment import deterministic, image_digest, pick_device, plugins
from robaudit.auditing.loop import OnError, ThisProcess, compute_missing, task_names
from robaudit.auditing.outputs import finish, first_info, history
from robaudit.auditing.resume import (
    default_out,
    existing_info,
    extended,
    refuse_another_machine,
    refuse_changed_data,
    refuse_lost_data,
    refuse_more_data,
    refuse_other_noises,
    refuse_other_options,
)
from robaudit.auditing.setup import check_noises, make_engine, make_model, make_pace
from robaudit.datasets.ahead import default_workers
from robaudit.datasets.base import Dataset, first_samples
from robaudit.datasets.load import open_dataset
from robaudit.errors import DataError, ModelError, NothingLeftError, RunError, SampleError, SpecError
from robaudit.estimators import registry
from robaudit.estimators.engine import Engine
from robaudit.estimators.registry import Task, check_model, refuse_unfit, tasks_of
from robaudit.levels import NoiseLevel, without_levels
from robaudit.memory import Limit, memory_limit
from robaudit.models.logits import for_noisy_passes, rounded_products
from robaudit.noise.registry import Noise
from robaudit.noise.registry import build as build_noises
from robaudit.progress import Listener, Silent
from robaudit.quantities import LOSS, RADIUS
from robaudit.rows import Row
from robaudit.spec.load import load_spec
from robaudit.spec.model import IN_MEMORY, AuditSpec
from robaudit.spec.pretrained.fill import filled
from robaudit.store.folder import RunFolder, label_of, locked, refuse_other_gates
from robaudit.store.log import Logged
from robaudit.store.run import Run, read_run
from robaudit.store.state import Skip, State

_WITHOUT_GRADIENTS = {LOSS.name: "qnorm_mc", RADIUS.name: "radius_random"}
"""Estimators of a quantity that any model will do for."""


def audit(
    spec: AuditSpec | str | Path,
    *,
    out: str | Path | None = None,
    trust: bool = False,
    on_error: OnError = "stop",
    extend: bool = False,
    model: nn.Module | None = None,
    dataset: Dataset | None = None,
    listener: Listener | None = None,
    command: str | None = None,
) -> Run:
    """Estimate every sample's robustness and write (or resume) a run folder.

    Args:
        spec: an audit spec, or the path of a YAML file.
        out: the run folder; default runs/<spec name>-<hash8> in the working folder.
        trust: allow Python code that the spec names (``module:function``).
        on_error: stop at the first unusable sample, or skip it: skips are listed and counted.
        extend: add what the spec asks for to an existing run of the same model and data, without recomputing.
        model: audit this network instead of loading the one the spec names (mean, std and output still apply).
        dataset: audit these samples instead of opening the data set the spec names.
        listener: receives notes, warnings and progress.
        command: what the user typed, for run.json.

    Returns:
        The finished run.

    Raises:
        RobauditError: the spec, the model, the data or the run folder is unusable (see the subclasses).
        NothingLeftError: every sample was skipped.
    """
    if on_error not in ("stop", "skip"):
        raise RunError(f"on_error={on_error!r}", "is neither 'stop' nor 'skip'", "give one of them")
    asked = load_spec(Path(spec)) if isinstance(spec, str | Path) else spec if model is not None else filled(spec)
    log = Logged(listener or Silent())
    with closing(log):
        folder = RunFolder(Path(out) if out is not None else default_out(asked, extend=extend))
        folder.check()
        old = existing_info(folder, asked, extend=extend)
        if old is not None:
            asked = extended(asked, old, str(folder.path))
        device = pick_device(asked.run.device)
        with deterministic(asked.run.deterministic, device), rounded_products(asked.run.precision == "tf32"):
            ready = prepare(asked, old, str(folder.path), model, dataset, device, log, trust=trust, skip_bad=on_error == "skip")
            folder.create()
            with locked(folder.path) as lock:
                folder.guard = lock.check
                _carry_out(ready, folder, old, on_error, log, command, extend=extend)
                run = read_run(folder.path)
                lock.check()
        for text in run.info.get("review_warnings", ()):
            log.warn(text)
        return run


@dataclass(frozen=True, slots=True)
class Ready:
    """An audit whose parts are loaded and fit together.

    Attributes:
        spec: including what an existing run holds.
        noises: with their options and levels.
        tasks: every estimator at every noise level.
        samples: the data set.
        readers: threads that read it ahead.
        engine: model and noise.
        image: one image, for its shape.
        limit: of the process's memory, as it was when the model had been loaded.
        check: the check of the first images.
        effects: what a lower precision changes, for run.json.
    """

    spec: AuditSpec
    noises: tuple[Noise, ...]
    tasks: tuple[Task, ...]
    samples: Dataset
    readers: int
    engine: Engine
    image: Tensor
    limit: Limit
    check: InputCheck
    effects: Mapping[str, Any]

    def at_levels(self, listener: Listener) -> Ready:
        """The same audit without the estimators that no noise level has to do with; a note says which.

        Raises:
            SpecError: nothing is left.
        """
        for label in dict.fromkeys(task.chosen.label for task in self.tasks if task.at.levelless):
            listener.note(f"{label} is left out: it has no noise level")
        kept = tuple(task for task in self.tasks if not task.at.levelless)
        if not kept:
            raise SpecError(self.spec.where, "none of its estimators has a noise level", "add one, such as mc, and noise: {sigma: 0.05}")
        return replace(self, tasks=kept)

    def compute_missing(
        self,
        state: State,
        samples: Dataset,
        listener: Listener,
        *,
        engine: Engine | None = None,
        tasks: Sequence[Task] | None = None,
        on_error: OnError = "stop",
    ) -> int:
        """Compute what a state lacks, with the audit's engine and tasks or with others; see the function of the same name."""
        tasks, engine = self.tasks if tasks is None else tasks, engine or self.engine
        pace = make_pace(self.spec, engine, tasks, self.image, self.limit, batch_dependent=self.check.batch_dependent)
        here = ThisProcess(engine, pace, samples.where)
        return compute_missing(state, samples, tasks, here, listener, on_error=on_error, readers=self.readers)


def prepare(
    spec: AuditSpec,
    old: Mapping[str, Any] | None,
    where: str,
    model: nn.Module | None,
    dataset: Dataset | None,
    device: torch.device,
    listener: Listener,
    *,
    trust: bool,
    skip_bad: bool,
) -> Ready:
    """Load and check everything before anything expensive is computed or written.

    Args:
        spec: what is asked for.
        old: run.json of the run to continue, if there is one.
        where: its folder, for messages.
        model, dataset: in place of those the spec names, if given.
        device: where to compute.
        listener: receives notes and warnings.
        trust: allow Python code that the spec names.
        skip_bad: look past unusable samples.

    Raises:
        RobauditError: something is missing, is damaged, or does not fit the rest, or the memory is used up.
    """
    listener.doing("reading the spec")
    estimators = registry.build(spec.estimators)
    noises = build_noises(spec.noise, spec.base_dir, spec.written)
    tasks = tasks_of(spec, estimators)
    refuse_unfit(tasks, {noise.label: noise.form for noise in noises})
    listener.doing("opening the data set")
    samples = dataset if dataset is not None else open_dataset(spec.dataset, base_dir=spec.base_dir, trust=trust)
    if len(samples) == 0:
        raise NothingLeftError(samples.where, "the data set is empty", "give it samples")
    listener.doing("loading the model")
    network = make_model(spec, model, device, trust=trust)
    limit = memory_limit(spec.run.memory)
    if old is not None:
        refuse_another_machine(old, network, device, where, listener)
    for text in (*spec.taken, *network.notes):
        listener.note(text)
    needs_gradients = [chosen for chosen in estimators if "gradients" in chosen.estimator.needs]
    if needs_gradients and not network.differentiable:
        raise ModelError(
            network.name,
            f"has no gradients, and {needs_gradients[0].label} needs them",
            f"use {_WITHOUT_GRADIENTS.get(needs_gradients[0].estimator.quantity.name, 'mc or softmax')}, or another format of the model",
        )
    noisy = for_noisy_passes(network, spec.run.precision)
    listener.doing("checking model and data on the first images")
    check = check_input(network, samples, gradients=bool(needs_gradients), skip_bad=skip_bad)
    if (needing := needing_labels(tasks)) and not check.labelled:
        raise DataError(samples.where, f"has no labels, and {needing} needs them", NEEDS_LABELS)
    _report(check, listener)
    image = next(first_samples(samples, 1, skip_bad=skip_bad)).pixels
    check_noises(noises, image, samples)
    levels = tuple(level_warnings(noises, image, check))
    for text in levels:
        listener.warn(text)
    check = replace(check, warnings=(*levels, *check.warnings))
    check_model(estimators, network, image)
    listener.doing("measuring memory")
    engine = make_engine(spec, noises, network, noisy, check.classes, image, limit, gradients=bool(needs_gradients))
    return Ready(
        spec=spec,
        noises=noises,
        tasks=tasks,
        samples=samples,
        readers=default_workers(spec.run.workers, device, spec.dataset.kind if dataset is None else "python"),
        engine=engine,
        image=image,
        limit=limit,
        check=check,
        effects=_effects(spec, engine, samples, listener, skip_bad=skip_bad),
    )


def _carry_out(
    ready: Ready,
    folder: RunFolder,
    old: Mapping[str, Any] | None,
    on_error: OnError,
    log: Logged,
    command: str | None,
    *,
    extend: bool,
) -> None:
    """Compute what the locked run folder lacks, and write its outputs.

    The run.json of a complete run is left as it is until the outputs of its extension are written.
    """
    spec, device = ready.spec, ready.engine.model.device
    if (folder.info() if folder.exists else None) != old:
        raise RunError(str(folder.path), "was changed by another robaudit while this one was starting", "run the command again")
    if old is not None:
        refuse_other_gates(folder.path, old, spec.gates)
    folder.clean()
    with folder.open_state() as state:
        document = spec.document()
        entries = {label_of(entry): entry for entry in document["estimators"]}
        state.check()
        noises = {entry["name"]: without_levels(entry) for entry in document["noise"]}
        digests = {noise.label: found for noise in ready.noises if (found := noise.digests)}
        noises |= {label: {**noises[label], "files": files} for label, files in digests.items()}
        refuse_other_options(state, entries, str(folder.path))
        refuse_other_noises(state, noises, str(folder.path))
        seen = ready.check.seen
        if old is not None and spec.dataset.kind == IN_MEMORY:
            seen = _all_seen(ready.samples)
            refuse_lost_data(state, seen, ready.samples.where)
            if old["status"] == "complete" and not extend:
                refuse_more_data(state, seen, [skip["sample_id"] for skip in old["skipped"]], ready.samples.where)
        refuse_changed_data(state, seen, ready.samples.where)
        by_name = {name: entries[task.chosen.label] for task in ready.tasks for _, name in task.names}
        state.begin(ready.samples, task_names(ready.tasks), by_name, noises)
        info = {
            **first_info(spec, ready.engine.model, ready.samples, device, ready.check),
            "batch_rows": ready.engine.rows(ready.image.shape),
            "image_shape": list(ready.image.shape),
            **ready.effects,
            "noise_files": digests,
            "plugins": plugins([task.chosen for task in ready.tasks]),
            **history(old, command, device),
        }
        complete = old is not None and old["status"] == "complete"
        finished = old is not None and complete and old["identity"] == info["identity"] and folder.outputs_intact(old)
        if not complete:
            folder.write_info(info)
        if not finished:
            folder.guard()
            log.open(folder.path)
        with log.until_interrupted():
            if ready.compute_missing(state, ready.samples, log, on_error=on_error) or not finished:
                log.doing("writing the results")
                finish(folder, info, state.results(), state.skips(), ready.tasks, state.seconds())
                return
    if old is not None and list(spec.gates) != list(old["spec"].get("gates", ())):  # gates change nothing that was computed
        folder.write_info({**old, "spec": {**old["spec"], "gates": list(spec.gates)}})
    log.note(f"{folder.path}: this run is complete; nothing was recomputed")


def _all_seen(samples: Dataset) -> dict[str, tuple[str, int | None]]:
    """Pixel digest and label of every readable sample, by id: data in memory have no file by which they would be known."""
    seen: dict[str, tuple[str, int | None]] = {}
    for index in range(len(samples)):
        with contextlib.suppress(SampleError):
            sample = samples[index]
            seen[sample.id] = (image_digest(sample), sample.label)
    return seen


def _effects(spec: AuditSpec, engine: Engine, dataset: Dataset, listener: Listener, *, skip_bad: bool) -> dict[str, Any]:
    """What a lower precision changes, for run.json."""
    precision = spec.run.precision
    if precision not in ("tf32", "bf16"):
        return {}
    if precision == "tf32" and engine.model.device.type == "cpu":
        listener.warn("precision tf32 needs CUDA: on the CPU this run computes in fp32")
        return {}
    effects = precision_effects(engine, dataset, spec.levels, precision, skip_bad=skip_bad)
    for effect in effects:
        listener.note(effect.text)
    return {"precision_effect": [effect.document() for effect in effects]}


def _report(check: InputCheck, listener: Listener) -> None:
    if check.labelled:
        listener.note(
            f"clean accuracy {check.correct / check.labelled:.1%} ({check.correct} of the first {check.labelled} labelled images)"
        )
    else:
        listener.note("no labels: accuracy is not measured")
    for text in check.warnings:
        listener.warn(text)


@dataclass(frozen=True, slots=True)
class Computed:
    """Results in memory.

    Attributes:
        rows: by (sample id, noise level, name of the result).
        seconds: by (label, noise level), without the clean pass and without what a task shares with an earlier one.
        skipped: samples that could not be used.
    """

    rows: Mapping[tuple[str, NoiseLevel, str], Row]
    seconds: Mapping[tuple[str, NoiseLevel], float]
    skipped: tuple[Skip, ...]


def compute(
    ready: Ready, engine: Engine, samples: Dataset, tasks: Sequence[Task], listener: Listener, *, on_error: OnError = "stop"
) -> Computed:
    """Compute every task of every sample, in memory.

    Args:
        ready: the parts of the audit that the spec asks for.
        engine: its engine, or one with noise of its own.
        samples: which images.
        tasks: estimators and noise levels; their labels differ.
        listener: receives the progress.
        on_error: at an unusable sample: stop, or leave it out.

    Raises:
        SampleError: a sample cannot be used.
        KeyboardInterrupt: the listener asked to stop.
    """
    with State() as state:
        state.begin(samples, task_names(tasks))
        ready.compute_missing(state, samples, listener, engine=engine, tasks=tasks, on_error=on_error)
        seconds = state.seconds()
        spent = {(task.chosen.label, task.at): seconds.get(step_name(task), 0.0) for task in tasks}
        return Computed({row.key: row for sample in state.results() for row in sample.rows}, spent, tuple(state.skips()))
