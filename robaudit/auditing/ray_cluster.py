"""Ray workers: one actor each, which Ray places, watches and restarts, and the sharing of an
audit's chunks among them."""

from __future__ import annotations

import contextlib
import copy
import logging
import math
import os
import pickle
import secrets
import signal
import socket
import sys
import threading
from collections import Counter, deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import nn

from robaudit.auditing.chunks import Chunk, Progress, Step, step_name
from robaudit.auditing.prepare import Request
from robaudit.auditing.worker import RayWorker, Report, RestartedError
from robaudit.datasets.dataset import Dataset
from robaudit.engine.registry import Task
from robaudit.errors import ModelError, RobauditError, SpecError, needs_extra
from robaudit.progress import Listener
from robaudit.runs.info import RowBits, device_type, kind_of
from robaudit.settings import DEVICE, ENGINE, GPUS_PER_WORKER, MEMORY, RAY_ADDRESS, WORKERS
from robaudit.spec.model import AuditSpec, RunSpec
from robaudit.system import cores
from robaudit.text import clipped, count

_OPTION = ENGINE.set_to("ray")
_REACHED = 10.0  # seconds within which a cluster must answer
_SIGN = 5.0  # seconds between progress messages
_WAIT = 0.25  # seconds to wait for a result before asking whether to stop
_AT_ONCE = 2  # chunks of a worker: while one is computed, the images of the next are read
_MOST_ATTEMPTS = 4  # at a chunk whose workers are lost
_TERMINATED = 128 + signal.SIGTERM
_ALONE = "local"  # a cluster of this machine, for this audit only
_ALONE_HAS: dict[str, Any] = {"include_dashboard": False}
_SETTINGS = {
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".|^$",  # otherwise it prints workers' logs among our output
    # workers that ask for no GPU see those of this process; without this, with a warning
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_USAGE_STATS_ENABLED": "0",  # a cluster that an audit starts tells nobody
}
"""Ray's settings, unless the user has set others."""
_SETTINGS_ALONE = {
    # as on those systems, its servers listen on 127.0.0.1 alone
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN": secrets.token_hex(32),  # without it, Ray would leave one in the home folder
}
"""Settings of a cluster that an audit starts. Ray reads them when it is imported."""


@dataclass(slots=True)
class _Job:
    """A chunk that a worker has, or had when it was lost.

    Attributes:
        chunk: what to compute.
        ids: of its samples.
        attempts: how often it was sent.
        got: results received, by sample id and step.
        gone: samples that are complete or refused.
    """

    chunk: Chunk
    ids: tuple[str, ...]
    attempts: int = 0
    got: set[tuple[str, str]] = field(default_factory=set)
    gone: set[str] = field(default_factory=set)

    def new(self, step: Step) -> Step:
        """The part of a step that no earlier attempt delivered."""
        refused = {name: error for name, error in step.refused.items() if name not in self.gone}
        rows = [row for row in step.rows if (row.sample_id, step.key) not in self.got]
        finished = [name for name in step.finished if name not in self.gone]
        self.got |= {(row.sample_id, step.key) for row in rows}
        self.gone |= {*finished, *refused}
        return replace(step, rows=rows, refused=refused, finished=finished)

    def rest(self) -> _Job | None:
        """The samples that are incomplete and the tasks that any of them lacks; None if nothing is
        left."""
        left = [
            (place, name)
            for place, name in zip(self.chunk.places, self.ids, strict=True)
            if name not in self.gone
        ]
        if not left:
            return None
        places, ids = zip(*left, strict=True)
        tasks = tuple(
            task
            for task in self.chunk.tasks
            if any((name, step_name(task)) not in self.got for name in ids)
        )
        return replace(self, chunk=Chunk(tasks, places), ids=ids)


@dataclass(slots=True)
class _Member:
    """A worker, as the process that writes knows it.

    Attributes:
        name: what messages call it.
        actor: of :class:`~robaudit.auditing.worker.RayWorker`.
        device: of this worker.
        images: size of its next chunk.
        jobs: with the calls that compute them, in order.
        opening: the call that prepares it again, after a loss or for other numbers of draws; until
            it returns, it gets no jobs.
    """

    name: str
    actor: Any
    device: str
    images: int
    jobs: deque[tuple[Any, _Job]] = field(default_factory=deque)
    opening: Any = None


class RayWorkers:
    """Several Ray workers that share the chunks of an audit, and take over the chunks of those that
    are lost.

    Attributes:
        info, seen: see :class:`~robaudit.auditing.prepare.CheckedAudit`.

    Args:
        ray: the package.
        actors: the workers, with their devices.
        request: what they prepare, in Ray's object store.
        spec: the request's.
        reports: what each said when it was ready.
        data: the samples.

    Raises:
        ModelError: they do not have the same model.
        SpecError: they are not of one kind.
    """

    def __init__(
        self,
        ray: Any,
        actors: Sequence[tuple[Any, str]],
        request: Any,
        spec: AuditSpec,
        reports: Sequence[Report],
        data: Dataset,
    ) -> None:
        self._ray = ray
        self._request = request
        self._spec = spec
        self._data = data
        worst = max(
            (report.info.rows for report in reports), key=lambda rows: rows.largest_difference
        )
        self.info = reports[0].info.model_copy(update={"rows": worst})
        self.seen = reports[0].seen
        self._members = [
            _Member(f"worker {number} on {report.host}", *actor, report.images)
            for number, (report, actor) in enumerate(zip(reports, actors, strict=True))
        ]
        for member, report in zip(self._members, reports, strict=True):
            self._check(member.name, report)
        self._returned: deque[_Job] = deque()
        self._wanted = reports[0].images
        self._left = 0

    @property
    def number(self) -> int:
        """Number of workers."""
        return len(self._members)

    @property
    def classes(self) -> int:
        """Number of logits."""
        return self.info.model.classes

    def again(self, spec: AuditSpec) -> None:
        """Let the workers compute the same audit with other numbers of draws."""
        self._spec = spec
        for member in self._members:
            self._open(member)

    def next_images(self, tasks: Sequence[Task]) -> int:
        """The size of the next chunk: what its worker asked for, smaller towards the end."""
        del tasks
        if self.info.rows.kind is RowBits.MIXED:
            return self._wanted
        return max(1, min(self._wanted, -(-self._left // (2 * self.number))))

    def steps(
        self, chunks: Iterator[Chunk], places: Sequence[int], listener: Listener, progress: Progress
    ) -> Generator[Step]:
        """Compute the chunks. When they end, they are finished; when a stop is asked for, the
        present steps are."""
        more = True
        self._left = len(places)
        while True:
            stopping = listener.stop_asked()
            if stopping:
                self._returned.clear()
                more = False
            more = self._hand_out(chunks if more else iter(())) and more
            if not (
                more or self._returned or any(member.jobs for member in self._members)
            ):  # all may be lost while there is more
                return
            for member in self._heard_of():
                if (step := self._hear(member, listener)) is not None:
                    yield step
                    if stopping:
                        member.jobs.clear()

    def _hand_out(self, chunks: Iterator[Chunk]) -> bool:
        """Give jobs to workers that have fewer than two; return whether there may be more
        chunks."""
        for depth in range(1, _AT_ONCE + 1):  # no second job while any worker has none
            for member in self._members:
                if member.opening is not None or len(member.jobs) >= depth:
                    continue
                self._wanted = member.images
                job = self._returned.popleft() if self._returned else self._taken(chunks)
                if job is None:
                    return False
                job.attempts += 1
                member.jobs.append((member.actor.compute.remote(job.chunk, job.ids), job))
        return True

    def _taken(self, chunks: Iterator[Chunk]) -> _Job | None:
        chunk = next(chunks, None)
        if chunk is None:
            return None
        self._left -= len(chunk.places)
        return _Job(chunk, tuple(map(self._data.sample_id, chunk.places)))

    def _heard_of(self) -> Iterable[_Member]:
        """The workers from which something has come; waits a moment for the first."""
        waiting = {}
        for member in self._members:
            if (call := member.opening or (member.jobs[0][0] if member.jobs else None)) is not None:
                waiting[call] = member
        calls = list(waiting)
        ready, _ = self._ray.wait(calls, num_returns=len(calls), timeout=0, fetch_local=False)
        if not ready:
            ready, _ = self._ray.wait(calls, timeout=_WAIT, fetch_local=False)
        return [waiting[call] for call in ready]

    def _hear(self, member: _Member, listener: Listener) -> Step | None:
        """Take what has come from a worker: a result, its end, its report after a loss, or an
        error.

        Raises:
            RobauditError: the audit cannot go on.
        """
        exceptions = self._ray.exceptions
        try:
            if member.opening is not None:
                report = self._ray.get(member.opening)
                self._check(member.name, report)
                member.opening = None
                member.images = report.images
                return None
            call, job = member.jobs[0]
            step, member.images, notes = self._ray.get(next(call))
        except StopIteration:
            member.jobs.popleft()
        except exceptions.RayTaskError as error:
            if not isinstance(error.cause, RestartedError):
                raise _failure(member.name, error) from None
            self._lose(member, "while it had no work", listener)
        except exceptions.RayError as error:
            if member.opening is None:
                self._lose(member, type(error).__name__, listener)
            elif isinstance(error, exceptions.ActorDiedError):
                what = f"cannot be started again ({_last_line(error)})"
                raise RobauditError(
                    member.name,
                    what,
                    "finished work is on disk: run the same command again to continue",
                ) from None
            else:
                self._open(member)
        else:
            for text in notes:
                listener.note(f"{member.name}: {text}")
            return job.new(step)
        return None

    def _lose(self, member: _Member, why: str, listener: Listener) -> None:
        """Take back the jobs of a lost worker."""
        jobs = [job for _, job in member.jobs]
        if jobs and jobs[0].attempts >= _MOST_ATTEMPTS:
            what = (
                f"was lost {count(jobs[0].attempts, 'time')} at sample "
                f"{clipped(jobs[0].ids[0], 80)!r} ({why})"
            )
            raise RobauditError(
                member.name,
                what,
                "look for lack of memory in the logs of Ray, or give each worker more: " + MEMORY,
            )
        listener.note(f"{member.name}: lost ({why}); its work goes to others until it is back")
        for job in jobs[1:]:
            job.attempts -= 1  # it was not begun
        self._returned.extend(rest for job in jobs if (rest := job.rest()) is not None)
        member.jobs.clear()
        self._open(member)

    def _open(self, member: _Member) -> None:
        """Ask a worker to prepare the audit; a lost one answers once Ray has started it again."""
        member.opening = member.actor.prepare.remote(self._request, self._spec, member.device)

    def _check(self, name: str, report: Report) -> None:
        """Refuse a worker whose results would differ from the others'.

        Raises:
            ModelError: it has another model.
            SpecError: it is of another kind.
        """
        info = report.info
        first = self.info
        here = info.model.sha256
        other = first.model.sha256
        if here != other:
            what = (
                f"has other weights there (sha256 {here[:12]}, and {other[:12]} on the first "
                "worker)"
            )
            raise ModelError(
                f"{report.host}: {info.model.name}", what, "put the same file on all machines"
            )
        if kind_of(info.device) != kind_of(first.device):
            what = f"is {info.device}, and the first worker {first.device}: they draw other noise"
            raise SpecError(name, what, "use devices of one kind")
        for package in ("robaudit", "torch"):
            if info.versions.get(package) != first.versions.get(package):
                what = (
                    f"has {package} {info.versions.get(package)}, and the first worker "
                    f"{first.versions.get(package)}"
                )
                raise SpecError(name, what, "install the same version everywhere")


def _failure(name: str, error: Any) -> Exception:
    """The exception for an error of a worker: its own one-line error, or RuntimeError for a bug."""
    return (
        error.cause if isinstance(error.cause, RobauditError) else RuntimeError(f"{name}:\n{error}")
    )


@contextmanager
def ray_workers(
    request: Request,
    data: Dataset,
    listener: Listener,
    address: str | None = None,
    devices: Sequence[torch.device] = (),
) -> Iterator[RayWorkers]:
    """Start as many workers as the spec asks for or the cluster has room for; they end with the
    block.

    Args:
        request: what they prepare; objects in memory are sent.
        data: the samples.
        listener: receives what is waited for.
        address: of the head node, or auto; by default RAY_ADDRESS, or a cluster of this machine
            alone.
        devices: this machine's devices, one worker each, on a private cluster; empty: use the given
            cluster.

    Raises:
        RobauditError: Ray is not installed, the cluster cannot be reached or has too little, or a
            worker cannot begin.
    """
    asked = request.spec.run
    with _connected(address, devices, listener) as ray:
        if devices:  # each worker sees all of them, and takes its own
            names = [str(device) for device in devices]
            each = 0.0
            threads = max(1, cores() // len(devices))
        else:
            there = ray.cluster_resources()
            several, each = _room(asked, float(there.get("GPU", 0)), float(there.get("CPU", 0)))
            names = ["cuda" if each else "cpu"] * several
            threads = 1
        bundle = {"CPU": float(threads), "GPU": each} if each else {"CPU": float(threads)}
        with _placed(ray, len(names), bundle, listener) as (placement, share, several):
            names = names[:several]
            try:
                sent = ray.put(replace(request, share=share, model=_on_cpu(request.model)))
            except (TypeError, AttributeError, pickle.PicklingError) as error:
                raise _unsendable(
                    error, "define its class in a module, without locks and open files"
                ) from error
            options = {
                "num_cpus": threads,
                "num_gpus": each,
                "max_restarts": -1,
                "max_task_retries": 0,
                "max_concurrency": _AT_ONCE,
            }
            kind = ray.remote(**options)(RayWorker)
            actors = [
                (kind.options(scheduling_strategy=placement).remote(), name) for name in names
            ]
            reports = _reports(ray, actors, sent, request.spec, listener)
            crew = RayWorkers(ray, actors, sent, request.spec, reports, data)
            for warning, text in reports[0].told:
                (listener.warn if warning else listener.note)(text)
            hosts = Counter(report.host for report in reports)
            kind_there = device_type(reports[0].info.device)
            where = (
                names
                if devices
                else [f"{number} on {host} ({kind_there})" for host, number in hosts.items()]
            )
            listener.note(f"{len(names)} workers: {', '.join(where)}")
            if devices:
                device = f"{','.join(names)} {crew.info.device.partition(' ')[2]}"
                crew.info = crew.info.model_copy(update={"device": device})
            yield crew


@contextmanager
def _placed(
    ray: Any, several: int, bundle: dict[str, float], listener: Listener
) -> Iterator[tuple[Any, float, int]]:
    """Room for all workers, the share of its machine's memory that each may take, and their number;
    they end with the block.

    The number is smaller than ``several`` where Ray still counted a node that was gone.
    """
    from ray.util import placement_group, placement_group_table, remove_placement_group
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    group = placement_group([bundle] * several)
    try:
        listener.doing("starting workers")
        while not group.wait(_SIGN):
            listener.doing("waiting for room on the cluster")
            there = ray.cluster_resources()
            most = min(
                int(there.get(resource, 0.0) // needed) for resource, needed in bundle.items()
            )
            if 0 < most < several:
                remove_placement_group(group)
                several = most
                group = placement_group([bundle] * most)
        nodes = Counter(placement_group_table(group)["bundles_to_node_id"].values())
        yield PlacementGroupSchedulingStrategy(group), 1 / max(nodes.values()), several
    finally:
        with suppress(Exception):  # the cluster may be gone
            remove_placement_group(group)


def _reports(
    ray: Any, actors: Sequence[tuple[Any, str]], request: Any, spec: AuditSpec, listener: Listener
) -> list[Report]:
    """What the workers say once they are ready.

    Raises:
        RobauditError: one cannot begin.
    """
    calls = [
        actor.prepare.options(max_task_retries=2).remote(request, spec, device)
        for actor, device in actors
    ]
    waiting = calls
    reports = dict[Any, Report]()
    try:
        while waiting:
            # they may wait for other work on the cluster
            listener.doing(f"starting workers: {len(reports)} of {len(calls)}")
            ready, waiting = ray.wait(
                waiting, num_returns=len(waiting), timeout=_SIGN, fetch_local=False
            )
            reports |= {call: ray.get(call) for call in ready}
    except ray.exceptions.RayTaskError as error:
        if isinstance(
            error.cause, ImportError | AttributeError
        ):  # of a class that this process has and the worker has not
            raise _unsendable(error.cause, "install its module on every node") from None
        raise _failure(_OPTION, error) from None
    except ray.exceptions.RayError as error:
        what = f"a worker was lost while it started ({_last_line(error)})"
        raise RobauditError(
            _OPTION, what, "has each node robaudit, and enough memory for the model?"
        ) from None
    return [reports[call] for call in calls]


def _on_cpu(model: nn.Module | None) -> nn.Module | None:
    """The network moved off CUDA: a worker numbers the devices differently."""
    if isinstance(model, nn.Module) and any(
        tensor.is_cuda for tensor in (*model.parameters(), *model.buffers())
    ):
        return copy.deepcopy(model).cpu()
    return model


@contextmanager
def _connected(
    address: str | None, devices: Sequence[torch.device], listener: Listener
) -> Iterator[Any]:
    """Ray, connected to a cluster: the given address, RAY_ADDRESS, or a new private cluster.

    Raises:
        RobauditError: Ray is not installed, or there is no cluster.
    """
    named = None if devices else address or os.environ.get("RAY_ADDRESS")
    if "ray" not in sys.modules:
        for name, value in {**_SETTINGS, **({} if named else _SETTINGS_ALONE)}.items():
            os.environ.setdefault(name, value)
    option = DEVICE + f" {','.join(map(str, devices))}" if devices else _OPTION
    try:
        import ray
    except ImportError:
        raise needs_extra(option, "ray", "ray") from None
    if ray.is_initialized():  # by the program that calls robaudit
        yield ray
        return
    listener.doing("connecting to Ray")
    where = (
        RAY_ADDRESS + f" {address}"
        if named and address
        else f"RAY_ADDRESS={named}"
        if named
        else option
    )
    if named:
        _refuse_unreachable(named, where)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        _initialise(ray, named, devices, where)
    finally:
        _restore(handlers)
    try:
        yield ray
    except SystemExit:
        if (
            signal.getsignal(signal.SIGTERM) != handlers[signal.SIGTERM]
        ):  # SIGTERM has come; in a call of Ray's, its exit loses its code
            raise SystemExit(_TERMINATED) from None
        raise
    finally:
        with suppress(Exception):
            ray.shutdown()


def _initialise(ray: Any, named: str | None, devices: Sequence[torch.device], where: str) -> None:
    """Connect to a cluster, or start one.

    Raises:
        RobauditError: there is none, or it cannot be used.
    """
    has = {} if named else _ALONE_HAS
    if devices:
        has = {**has, "num_cpus": len(devices) * max(1, cores() // len(devices))}
    try:
        with contextlib.chdir(os.path.abspath(os.sep)):  # noqa: PTH100  workers look for modules in this folder first
            ray.init(
                address=named or _ALONE, log_to_driver=False, logging_level=logging.CRITICAL, **has
            )
    except (ConnectionError, SystemExit, ray.exceptions.AuthenticationError) as error:
        if isinstance(error, SystemExit) and error.code in (
            signal.SIGTERM,
            _TERMINATED,
        ):  # by Ray's handler, or by ours
            raise SystemExit(_TERMINATED) from None
        remedy = (
            "start one with ray start --head, or leave "
            + RAY_ADDRESS
            + " out to use this machine alone"
        )
        if named != "auto":  # something listens there
            remedy = (
                "if it asks for a token, set RAY_AUTH_MODE=token, and have the token in "
                "~/.ray/auth_token"
            )
        raise RobauditError(where, "no Ray cluster answers", remedy) from None
    except (RuntimeError, ValueError, OSError) as error:  # such as another version of Python or Ray
        first = next(iter(str(error).strip().splitlines()), type(error).__name__)[:300]
        raise RobauditError(
            where, f"cannot be used: {first}", "use the same versions of Python and Ray everywhere"
        ) from None


def _refuse_unreachable(address: str, where: str) -> None:
    """Refuse a malformed address or one where nothing listens; Ray would wait for minutes and print
    its own messages.

    Raises:
        RobauditError: the address is malformed or does not answer.
    """
    if address == "auto":
        return
    if "://" in address:
        raise RobauditError(
            where,
            "is the address of a client",
            "run the audit on a node of the cluster, with HOST:PORT (ray job submit)",
        )
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise RobauditError(where, "is not an address", "give HOST:PORT of the head node, or auto")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _REACHED).close()
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise RobauditError(
            where,
            f"no answer within {_REACHED:.0f} s ({reason})",
            "is the head node up, and this its port?",
        ) from None


def _restore(handlers: dict[signal.Signals, Any]) -> None:
    """Restore our signal handlers: Ray's would end the process silently."""
    if threading.current_thread() is threading.main_thread():
        for number, handler in handlers.items():
            with suppress(TypeError, ValueError):
                signal.signal(number, handler)


def _unsendable(error: BaseException, remedy: str) -> ModelError:
    """The error for a model or other object in memory that cannot be sent to workers."""
    return ModelError(
        "the model or data in memory",
        f"cannot be sent to workers ({type(error).__name__}: {error})"[:300],
        remedy,
    )


def _last_line(error: Exception) -> str:
    """The last line of Ray's text, which has the cause."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[-1]}"[:300] if lines else type(error).__name__


def _room(asked: RunSpec, gpus: float, cpus: float) -> tuple[int, float]:
    """The number of workers, and the GPUs of each, on a cluster with this many GPUs and CPUs.

    Raises:
        SpecError: the options contradict each other, or ask for more than there is.
    """
    device = asked.device
    each = asked.gpus_per_worker
    if device not in ("auto", "cpu", "cuda"):
        raise SpecError(
            "run.device",
            f"{device} is a device of one machine",
            "with " + ENGINE.set_to("ray") + ", use cpu, cuda or auto",
        )
    if device == "cpu" and each not in ("auto", 0):
        raise SpecError(
            GPUS_PER_WORKER, f"is {each:g}, but run.device is cpu", "leave one of them out"
        )
    if device == "cuda" and not gpus:
        raise SpecError(
            "run.device", "cuda was requested, but the cluster has no GPU", "use cpu or auto"
        )
    if each == "auto":
        each = float(gpus > 0 and device != "cpu")
    if each > gpus:
        raise SpecError(
            GPUS_PER_WORKER,
            f"{each:g} were requested, and the cluster has {gpus:g} GPUs",
            "ask for fewer",
        )
    most = int(min(cpus, math.floor(gpus / each + 1e-9) if each else cpus))
    workers = max(1, most) if asked.workers == "auto" else asked.workers
    if not 1 <= workers <= most:
        has = f"{gpus:g} GPUs and {cpus:g} CPUs" if each else f"{cpus:g} CPUs"
        needs = f"{each:g} GPUs and a CPU" if each else "a CPU"
        remedy = (
            f"ask for 1 to {most}"
            if most
            else "give its nodes at least one CPU: ray start --num-cpus"
        )
        raise SpecError(
            WORKERS,
            f"{workers} were requested, each with {needs}, and the cluster has {has}",
            remedy,
        )
    return workers, each
