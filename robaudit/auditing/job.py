"""An audit that is ready to run, in this process or on Ray workers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from functools import cache, partial

import torch

from robaudit.auditing.crew import Crew
from robaudit.auditing.environment import deterministic, pick_devices
from robaudit.auditing.expected import SPARE, Speed, measure_speed, within_budget
from robaudit.auditing.loop import OnError, compute_missing
from robaudit.auditing.messages import Opened
from robaudit.auditing.prepare import Facts, Request, open_audit, prepare
from robaudit.auditing.ray_cluster import ray_workers
from robaudit.auditing.setup import check_noises
from robaudit.auditing.shipping import first_sent, packed
from robaudit.auditing.worker import WorkerPlan
from robaudit.datasets.ahead import default_workers
from robaudit.datasets.base import Dataset
from robaudit.errors import SpecError
from robaudit.estimators.registry import Task
from robaudit.models.logits import rounded_products
from robaudit.noise.process import NoiseProcess
from robaudit.progress import Listener
from robaudit.spec.model import AuditSpec
from robaudit.store.info import device_type
from robaudit.store.state import State


@dataclass(frozen=True, slots=True)
class Job:
    """An audit whose parts are loaded, here or on workers, and fit together.

    Attributes:
        spec: merged with the existing run's.
        noises: with their options and levels.
        tasks: every estimator at every noise level.
        samples: the data set.
        facts: what is known of model, data and device.
        workers: number of workers.
        speed: measures this machine's speed, once; None with several workers.
        compute_missing: computes what a state lacks; see the function of the same name.
    """

    spec: AuditSpec
    noises: tuple[NoiseProcess, ...]
    tasks: tuple[Task, ...]
    samples: Dataset
    facts: Facts
    workers: int
    speed: Callable[[], Speed] | None
    compute_missing: Callable[[State, Listener, OnError], int]


@contextmanager
def prepared(
    request: Request, listener: Listener, *, ray_address: str | None = None, ship: bool = False, budget: float | None = None
) -> Iterator[Job]:
    """Prepare an audit for the engine and the devices of its spec; workers end with the block.

    Args:
        request: what is asked for.
        listener: receives notes and warnings.
        ray_address: the cluster's address, for ``engine: ray``.
        ship: send model and images to its workers.
        budget: seconds from now on; draws and images are lowered to fit. For a single device.

    Raises:
        RobauditError: something is missing, damaged, or does not fit the rest, or memory runs out.
    """
    spec = request.spec
    devices = pick_devices(spec.run.device) if spec.run.engine == "local" else []
    started = time.perf_counter()
    if len(devices) == 1:
        with deterministic(spec.run.deterministic, devices[0]), rounded_products(False):
            ready = prepare(request, devices[0], listener)
            speed = cache(partial(measure_speed, ready))
            if budget is not None:
                measured = speed()
                ready = within_budget(ready, SPARE * budget - (time.perf_counter() - started), measured, listener)
            yield Job(ready.spec, ready.noises, ready.tasks, ready.samples, ready.facts, 1, speed, ready.compute_missing)
        return
    if budget is not None:
        raise SpecError("--budget", "is for a single device, whose speed is measured first", "lower --limit or the samples instead")
    opened = open_audit(request, listener)
    reading = request.dataset is None and not ship
    first = None if reading else first_sent(opened.samples, skip_bad=request.skip_bad)
    plan = WorkerPlan(**{one.name: getattr(request, one.name) for one in fields(request)} | {"dataset": first})
    if ship and request.model is None:
        sent, files, home = packed(spec, opened.noises)
        plan = replace(plan, spec=sent, files=files, home=home)
    listener.doing("starting workers")
    with ray_workers(plan, listener, ray_address, devices) as (team, answers):
        for warning, text in answers[0].told:
            (listener.warn if warning else listener.note)(text)
        if first is not None:  # the workers know the first samples only
            check_noises(opened.noises, first[0].pixels, opened.samples)
        crew = Crew(team, answers, opened.samples, reading=reading)
        readers = default_workers("auto", torch.device("cuda"), opened.kind)
        listener.note(f"{len(answers)} workers: {', '.join(_places(answers, devices))}")

        def share(state: State, told: Listener, on_error: OnError) -> int:
            return compute_missing(state, opened.samples, opened.tasks, crew, told, on_error=on_error, readers=readers)

        yield Job(spec, opened.noises, opened.tasks, opened.samples, _facts(crew.facts, devices), len(answers), None, share)


def _places(answers: Sequence[Opened], devices: Sequence[torch.device]) -> list[str]:
    """The devices of the workers, or how many of them are on each machine."""
    if devices:
        return [str(device) for device in devices]
    hosts = [one.host for one in answers]
    return [f"{hosts.count(host)} on {host} ({device_type(answers[0].facts.device)})" for host in dict.fromkeys(hosts)]


def _facts(facts: Facts, devices: Sequence[torch.device]) -> Facts:
    """The facts with the names of all devices."""
    _, _, model = facts.device.partition(" ")
    return replace(facts, device=f"{','.join(map(str, devices))} {model}") if devices else facts
