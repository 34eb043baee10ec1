"""Ray workers, which share the chunks of an audit. Each is an actor, which Ray places, watches and
restarts."""

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
from robaudit.auditing.rounds import Work
from robaudit.auditing.worker import RayWorker, Report, RestartedError
from robaudit.datasets.dataset import Dataset
from robaudit.errors import ModelError, RobauditError, SpecError, needs_extra
from robaudit.progress import Listener
from robaudit.runs.info import RowBits, device_type, kind_of
from robaudit.settings import DEVICE, ENGINE, GPUS_PER_WORKER, MEMORY, RAY_ADDRESS, WORKERS
from robaudit.spec.model import RunSpec
from robaudit.system import cores
from robaudit.text import clipped, count

_OPTION = ENGINE.set_to("ray")
_REACHABLE_SECONDS = 10.0  # within which a cluster must answer
_PROGRESS_SECONDS = 5.0  # between two messages while workers start
_RESULT_SECONDS = 0.25  # to wait for a result before asking whether to stop
_CHUNKS_OF_WORKER = 2  # while one is computed, the images of the next are read
# A chunk whose workers are lost so often is itself the likely reason, for example lack of memory.
_MOST_ATTEMPTS = 4
_TERMINATED = 128 + signal.SIGTERM  # the exit code that a shell gives to a terminated process
_PRIVATE_CLUSTER = "local"  # Ray's address of a cluster of this machine, for this audit only
_PRIVATE_CLUSTER_OPTIONS: dict[str, Any] = {"include_dashboard": False}
_SETTINGS = {
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".|^$",  # otherwise it prints workers' logs among our output
    # Workers that ask for no GPU see those of this process; without this, with a warning.
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_USAGE_STATS_ENABLED": "0",  # a cluster that an audit starts reports to nobody
}
"""Ray's settings, unless the user has set others."""
_PRIVATE_CLUSTER_SETTINGS = {
    # Its servers listen on 127.0.0.1 alone, as on the systems in the name.
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
        attempts: how often the chunk was sent.
        delivered: the results received, by sample id and step.
        done: ids of the samples that are complete or refused.
    """

    chunk: Chunk
    ids: tuple[str, ...]
    attempts: int = 0
    delivered: set[tuple[str, str]] = field(default_factory=set)
    done: set[str] = field(default_factory=set)

    def new_part(self, step: Step) -> Step:
        """The part of a step that no earlier attempt delivered."""
        # A chunk that is sent again repeats its samples' tasks that only some of them lack, and a
        # row must not be written twice.
        refused = {name: error for name, error in step.refused.items() if name not in self.done}
        rows = [row for row in step.rows if (row.sample_id, step.key) not in self.delivered]
        finished = [name for name in step.finished if name not in self.done]
        self.delivered |= {(row.sample_id, step.key) for row in rows}
        self.done |= {*finished, *refused}
        return replace(step, rows=rows, refused=refused, finished=finished)

    def remainder(self) -> _Job | None:
        """The samples that are incomplete and the work that any of them lacks; None if nothing is
        left."""
        remaining = [
            (place, name)
            for place, name in zip(self.chunk.places, self.ids, strict=True)
            if name not in self.done
        ]
        if not remaining:
            return None
        places, ids = zip(*remaining, strict=True)
        work = []
        for part in self.chunk.work:
            step = step_name(part.task)
            if any((name, step) not in self.delivered for name in ids):
                work.append(part)
        return replace(self, chunk=replace(self.chunk, work=tuple(work), places=places), ids=ids)


@dataclass(slots=True)
class _Member:
    """A worker, as the process that writes knows it.

    Attributes:
        name: for messages.
        actor: of :class:`~robaudit.auditing.worker.RayWorker`.
        device: of this worker.
        images: size of its next chunk.
        jobs: with the calls that compute them, in order.
        preparing: the call that prepares the worker again after a loss; until it returns, the
            worker gets no jobs.
    """

    name: str
    actor: Any
    device: str
    images: int
    jobs: deque[tuple[Any, _Job]] = field(default_factory=deque)
    preparing: Any = None

    @property
    def call(self) -> Any:
        """The call whose answer comes next; None if there is none."""
        if self.preparing is not None:
            return self.preparing
        return self.jobs[0][0] if self.jobs else None


class RayWorkers:
    """Several Ray workers that share the chunks of an audit, and take over the chunks of those that
    are lost.

    Attributes:
        info, seen: see :class:`~robaudit.auditing.prepare.CheckedAudit`.

    Args:
        ray: the package.
        actors: the workers, with their devices.
        request: the input of their preparation, in Ray's object store.
        reports: of the workers, once they are ready.
        data: the samples.

    Raises:
        ModelError: the workers do not have the same model.
        SpecError: the workers are not of one kind.
    """

    # This process calls the workers and never waits for one of them: whichever answers gets its
    # next chunk. Lost ones prepare again while the others compute.

    def __init__(
        self,
        ray: Any,
        actors: Sequence[tuple[Any, str]],
        request: Any,
        reports: Sequence[Report],
        data: Dataset,
    ) -> None:
        self._ray = ray
        self._request = request
        self._data = data
        # Of the same network, another processor may round differently: the run is as reproducible
        # as its worst worker.
        worst = max(
            (report.info.rows for report in reports), key=lambda rows: rows.largest_difference
        )
        self.info = reports[0].info.model_copy(update={"rows": worst})
        self.seen = reports[0].seen
        self._members = [
            _Member(f"worker {number} on {report.host}", actor, device, report.images)
            for number, (report, (actor, device)) in enumerate(zip(reports, actors, strict=True))
        ]
        for member, report in zip(self._members, reports, strict=True):
            self._check(member.name, report)
        self._returned: deque[_Job] = deque()  # jobs of lost workers
        self._images_wanted = reports[0].images  # by the worker that gets the next chunk
        self._images_left = 0  # in chunks that no worker has taken

    @property
    def number(self) -> int:
        """Number of workers."""
        return len(self._members)

    @property
    def classes(self) -> int:
        """Number of logits."""
        return self.info.model.classes

    def next_images(self, work: Sequence[Work]) -> int:
        """The size of the next chunk: the number that its worker wants, smaller towards the end."""
        del work
        # A model that mixes the images of a batch has chunks of a fixed size.
        if self.info.rows.kind is RowBits.MIXED:
            return self._images_wanted
        # Half of an equal share of what is left: so the workers end at about the same time.
        half_share = -(-self._images_left // (2 * self.number))
        return max(1, min(self._images_wanted, half_share))

    def steps(
        self, chunks: Iterator[Chunk], places: Sequence[int], listener: Listener, progress: Progress
    ) -> Generator[Step]:
        """Compute the chunks to the end; after a request to stop, only the steps under way."""
        more_chunks = True
        self._images_left = len(places)
        while True:
            stopping = listener.stop_asked()
            if stopping:
                self._returned.clear()
                more_chunks = False
            more_chunks = self._hand_out(chunks if more_chunks else iter(())) and more_chunks
            # No worker may have a job while there is more: all of them may be lost.
            under_way = any(member.jobs for member in self._members)
            if not (more_chunks or self._returned or under_way):
                return
            for member in self._members_with_answers():
                step = self._receive(member, listener)
                if step is not None:
                    yield step
                    if stopping:
                        member.jobs.clear()

    def _hand_out(self, chunks: Iterator[Chunk]) -> bool:
        """Give jobs to workers that have fewer than two; return whether there may be more
        chunks."""
        # No second job while any worker has none.
        for depth in range(1, _CHUNKS_OF_WORKER + 1):
            for member in self._members:
                if member.preparing is not None or len(member.jobs) >= depth:
                    continue
                # Before the chunk is taken: next_images() answers for this worker.
                self._images_wanted = member.images
                job = self._returned.popleft() if self._returned else self._next_job(chunks)
                if job is None:
                    return False
                job.attempts += 1
                member.jobs.append((member.actor.compute.remote(job.chunk, job.ids), job))
        return True

    def _next_job(self, chunks: Iterator[Chunk]) -> _Job | None:
        """The next chunk as a job; None if there are no more."""
        chunk = next(chunks, None)
        if chunk is None:
            return None
        self._images_left -= len(chunk.places)
        return _Job(chunk, tuple(map(self._data.sample_id, chunk.places)))

    def _members_with_answers(self) -> Iterable[_Member]:
        """The workers from which an answer has come; waits a moment for the first."""
        waiting = {member.call: member for member in self._members if member.call is not None}
        calls = list(waiting)
        # All that is there, else Ray would return the first only; then wait for any. Answers stay
        # where they are until they are read: fetch_local=False.
        ready, _ = self._ray.wait(calls, num_returns=len(calls), timeout=0, fetch_local=False)
        if not ready:
            ready, _ = self._ray.wait(calls, timeout=_RESULT_SECONDS, fetch_local=False)
        return [waiting[call] for call in ready]

    def _receive(self, member: _Member, listener: Listener) -> Step | None:
        """Take the answer of a worker: a result, the end of a job, a report, or an error. Return
        the new part of a result.

        Raises:
            RobauditError: the audit cannot go on.
        """
        exceptions = self._ray.exceptions
        try:
            if member.preparing is not None:
                report = self._ray.get(member.preparing)
                # Ray may have started it on another machine.
                self._check(member.name, report)
                member.preparing = None
                member.images = report.images
                return None
            call, job = member.jobs[0]
            step, member.images, notes = self._ray.get(next(call))
        except StopIteration:
            member.jobs.popleft()
        except exceptions.RayTaskError as error:
            # An exception in our code on the worker. One of them is no failure: a worker that Ray
            # restarted between two calls says that it is not prepared.
            if not isinstance(error.cause, RestartedError):
                raise _failure(member.name, error) from None
            self._lose(member, "while it had no work", listener)
        except exceptions.RayError as error:
            # The worker or its node is gone.
            if member.preparing is None:
                self._lose(member, type(error).__name__, listener)
            elif isinstance(error, exceptions.ActorDiedError):
                what = f"cannot be started again ({_last_line(error)})"
                raise RobauditError(
                    member.name,
                    what,
                    "finished work is on disk: run the same command again to continue",
                ) from None
            else:
                self._prepare(member)
        else:
            for text in notes:
                listener.note(f"{member.name}: {text}")
            return job.new_part(step)
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
            job.attempts -= 1  # it was not begun, so it is not the reason
        for job in jobs:
            remainder = job.remainder()
            if remainder is not None:
                self._returned.append(remainder)
        member.jobs.clear()
        self._prepare(member)

    def _prepare(self, member: _Member) -> None:
        """Ask a worker to prepare the audit; a lost one answers once Ray has started it again."""
        member.preparing = member.actor.prepare.remote(self._request, member.device)

    def _check(self, name: str, report: Report) -> None:
        """Refuse a worker whose results would differ from the others'.

        Raises:
            ModelError: the worker has another model.
            SpecError: the worker is of another kind.
        """
        info = report.info
        first = self.info
        sha256 = info.model.sha256
        first_sha256 = first.model.sha256
        if sha256 != first_sha256:
            what = (
                f"has other weights there (sha256 {sha256[:12]}, and {first_sha256[:12]} on the "
                "first worker)"
            )
            raise ModelError(
                f"{report.host}: {info.model.name}", what, "put the same file on all machines"
            )
        if kind_of(info.device) != kind_of(first.device):
            what = f"is {info.device}, and the first worker {first.device}: they draw other noise"
            raise SpecError(name, what, "use devices of one kind")
        # The packages that compute values; other versions of them may round differently.
        for package in ("robaudit", "torch"):
            version = info.versions.get(package)
            first_version = first.versions.get(package)
            if version != first_version:
                what = f"has {package} {version}, and the first worker {first_version}"
                raise SpecError(name, what, "install the same version everywhere")


def _failure(name: str, error: Any) -> Exception:
    """The exception for an error of a worker: its own one-line error, or RuntimeError for a bug."""
    if isinstance(error.cause, RobauditError):
        return error.cause
    return RuntimeError(f"{name}:\n{error}")


@contextmanager
def ray_workers(
    request: Request,
    data: Dataset,
    listener: Listener,
    address: str | None = None,
    devices: Sequence[torch.device] = (),
) -> Iterator[RayWorkers]:
    """Start as many workers as the spec wants, by default as many as the cluster has room for; they
    end with the block.

    Args:
        request: the input of their preparation; objects in memory are sent.
        data: the samples.
        listener: receives the progress.
        address: of the head node, or auto; by default RAY_ADDRESS, or a cluster of this machine
            alone.
        devices: this machine's devices, one worker each, on a private cluster; empty: use the given
            cluster.

    Raises:
        RobauditError: Ray is not installed, the cluster cannot be reached or has too little, or a
            worker cannot begin.
    """
    with _connected(address, devices, listener) as ray:
        if devices:
            # Ray gives none of them to a worker: each sees all of them, and takes its own by name.
            device_names = [str(device) for device in devices]
            gpus = 0.0
            threads = max(1, cores() // len(devices))
        else:
            resources = ray.cluster_resources()
            number, gpus = _number_of_workers(
                request.spec.run, float(resources.get("GPU", 0)), float(resources.get("CPU", 0))
            )
            device_names = ["cuda" if gpus else "cpu"] * number
            threads = 1
        needs = {"CPU": float(threads)}
        if gpus:
            needs["GPU"] = gpus
        with _placed(ray, len(device_names), needs, listener) as (placement, share, number):
            device_names = device_names[:number]
            sent = _sent(ray, replace(request, share=share))
            options = {
                "num_cpus": threads,
                "num_gpus": gpus,
                "max_restarts": -1,  # as long as there is room: RayWorkers counts the attempts
                "max_task_retries": 0,  # a lost chunk goes to another worker at once
                "max_concurrency": _CHUNKS_OF_WORKER,
            }
            actor_class = ray.remote(**options)(RayWorker)
            actors = [
                (actor_class.options(scheduling_strategy=placement).remote(), name)
                for name in device_names
            ]
            reports = _reports(ray, actors, sent, listener)
            workers = RayWorkers(ray, actors, sent, reports, data)
            # All workers have checked the same model and data: the first one's messages stand for
            # all.
            for is_warning, text in reports[0].told:
                (listener.warn if is_warning else listener.note)(text)
            places = _places(reports, device_names if devices else ())
            listener.note(f"{len(device_names)} workers: {places}")
            if devices:
                model_of_device = workers.info.device.partition(" ")[2]
                device = f"{','.join(device_names)} {model_of_device}"
                workers.info = workers.info.model_copy(update={"device": device})
            yield workers


def _sent(ray: Any, request: Request) -> Any:
    """The request in Ray's object store: each node fetches it once, for all of its workers.

    Raises:
        ModelError: the model or the data in memory cannot be pickled.
    """
    # A network on CUDA is copied first, which fails for the same objects.
    try:
        return ray.put(replace(request, model=_on_cpu(request.model)))
    except (TypeError, AttributeError, pickle.PicklingError) as error:
        raise _unsendable(
            error, "define its class in a module, without locks and open files"
        ) from error


def _places(reports: Sequence[Report], device_names: Sequence[str]) -> str:
    """The places of the workers: their devices on one machine, or the number on each machine."""
    if device_names:
        return ", ".join(device_names)
    device = device_type(reports[0].info.device)
    hosts = Counter(report.host for report in reports)
    return ", ".join(f"{number} on {host} ({device})" for host, number in hosts.items())


@contextmanager
def _placed(
    ray: Any, number: int, needs: dict[str, float], listener: Listener
) -> Iterator[tuple[Any, float, int]]:
    """Room for all workers; it is given back with the end of the block.

    Args:
        ray: the package.
        number: of workers.
        needs: the resources of a worker.
        listener: receives the progress.

    Yields:
        Ray's strategy that puts workers there, the share of its machine's memory that each may
        take, and the number of workers. That is smaller than ``number`` if Ray still counted a node
        that was gone.
    """
    from ray.util import placement_group, placement_group_table, remove_placement_group
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    # A group gets its places all at once: two audits that start together do not take half of the
    # cluster each and wait for the other.
    group = placement_group([needs] * number)
    try:
        listener.doing("starting workers")
        while not group.wait(_PROGRESS_SECONDS):
            listener.doing("waiting for room on the cluster")
            resources = ray.cluster_resources()
            most = min(
                int(resources.get(resource, 0.0) // needed) for resource, needed in needs.items()
            )
            if 0 < most < number:
                remove_placement_group(group)
                number = most
                group = placement_group([needs] * most)
        nodes = Counter(placement_group_table(group)["bundles_to_node_id"].values())
        yield PlacementGroupSchedulingStrategy(group), 1 / max(nodes.values()), number
    finally:
        with suppress(Exception):  # the cluster may be gone
            remove_placement_group(group)


def _reports(
    ray: Any, actors: Sequence[tuple[Any, str]], request: Any, listener: Listener
) -> list[Report]:
    """The reports of the workers, once they are ready.

    Raises:
        RobauditError: one cannot begin.
    """
    # Here Ray itself may try again: nothing has been computed that would be lost or doubled.
    calls = [
        actor.prepare.options(max_task_retries=2).remote(request, device)
        for actor, device in actors
    ]
    waiting = calls
    reports = dict[Any, Report]()
    try:
        while waiting:
            # Without a limit: they may wait for other work on the cluster.
            listener.doing(f"starting workers: {len(reports)} of {len(calls)}")
            ready, waiting = ray.wait(
                waiting, num_returns=len(waiting), timeout=_PROGRESS_SECONDS, fetch_local=False
            )
            for call in ready:
                reports[call] = ray.get(call)
    except ray.exceptions.RayTaskError as error:
        # Raised for a class that this process has and the worker has not.
        if isinstance(error.cause, ImportError | AttributeError):
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
    # Several devices of this machine always get a private cluster; RAY_ADDRESS may be of another.
    cluster = None if devices else address or os.environ.get("RAY_ADDRESS")
    if "ray" not in sys.modules:  # otherwise it has read them already
        settings = _SETTINGS if cluster else {**_SETTINGS, **_PRIVATE_CLUSTER_SETTINGS}
        for name, value in settings.items():
            os.environ.setdefault(name, value)
    option = DEVICE + f" {','.join(map(str, devices))}" if devices else _OPTION
    try:
        import ray
    except ImportError:
        raise needs_extra(option, "ray", "ray") from None
    if ray.is_initialized():  # by the program that calls robaudit, which also ends it
        yield ray
        return
    listener.doing("connecting to Ray")
    where = option
    if cluster:
        where = RAY_ADDRESS + f" {address}" if address else f"RAY_ADDRESS={cluster}"
        _refuse_unreachable(cluster, where)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        _initialise(ray, cluster, devices, where)
    finally:
        _restore(handlers)
    try:
        yield ray
    except SystemExit:
        # Another handler than before: SIGTERM has come. In a call of Ray's, its exit loses its
        # code.
        if signal.getsignal(signal.SIGTERM) != handlers[signal.SIGTERM]:
            raise SystemExit(_TERMINATED) from None
        raise
    finally:
        with suppress(Exception):
            ray.shutdown()


def _initialise(ray: Any, cluster: str | None, devices: Sequence[torch.device], where: str) -> None:
    """Connect to a cluster, or start one.

    Raises:
        RobauditError: there is none, or it cannot be used.
    """
    options = {} if cluster else _PRIVATE_CLUSTER_OPTIONS
    if devices:
        # As many CPUs as the workers take together, so that Ray has room for all of them.
        options = {**options, "num_cpus": len(devices) * max(1, cores() // len(devices))}
    # Workers look for modules in the folder where Ray was started first: one in the working folder
    # must not take the place of an installed one.
    root = os.path.abspath(os.sep)  # noqa: PTH100
    try:
        with contextlib.chdir(root):
            ray.init(
                address=cluster or _PRIVATE_CLUSTER,
                log_to_driver=False,
                logging_level=logging.CRITICAL,
                **options,
            )
    except (ConnectionError, SystemExit, ray.exceptions.AuthenticationError) as error:
        # Ray also exits where it finds no cluster. These codes mean SIGTERM, by Ray's handler or by
        # ours.
        by_signal = (signal.SIGTERM, _TERMINATED)
        if isinstance(error, SystemExit) and error.code in by_signal:
            raise SystemExit(_TERMINATED) from None
        remedy = (
            "start one with ray start --head, or leave "
            + RAY_ADDRESS
            + " out to use this machine alone"
        )
        if cluster != "auto":  # something listens there
            remedy = (
                "if it asks for a token, set RAY_AUTH_MODE=token, and have the token in "
                "~/.ray/auth_token"
            )
        raise RobauditError(where, "no Ray cluster answers", remedy) from None
    except (RuntimeError, ValueError, OSError) as error:  # such as another version of Python or Ray
        first_line = next(iter(str(error).strip().splitlines()), type(error).__name__)[:300]
        raise RobauditError(
            where,
            f"cannot be used: {first_line}",
            "use the same versions of Python and Ray everywhere",
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
        # The brackets are those of an IPv6 address.
        socket.create_connection((host.strip("[]"), int(port)), _REACHABLE_SECONDS).close()
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise RobauditError(
            where,
            f"no answer within {_REACHABLE_SECONDS:.0f} s ({reason})",
            "is the head node up, and this its port?",
        ) from None


def _restore(handlers: dict[signal.Signals, Any]) -> None:
    """Restore our signal handlers: Ray's would end the process silently."""
    # Only the main thread may set handlers. One that was not set from Python is None.
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


def _number_of_workers(options: RunSpec, gpus: float, cpus: float) -> tuple[int, float]:
    """The number of workers, and the GPUs of a worker, on a cluster with this many GPUs and CPUs.

    Raises:
        SpecError: the options contradict each other, or ask for more than there is.
    """
    device = options.device
    gpus_of_worker = options.gpus_per_worker
    if device not in ("auto", "cpu", "cuda"):
        raise SpecError(
            "run.device",
            f"{device} is a device of one machine",
            "with " + ENGINE.set_to("ray") + ", use cpu, cuda or auto",
        )
    if device == "cpu" and gpus_of_worker not in ("auto", 0):
        raise SpecError(
            GPUS_PER_WORKER,
            f"is {gpus_of_worker:g}, but run.device is cpu",
            "leave one of them out",
        )
    if device == "cuda" and not gpus:
        raise SpecError(
            "run.device", "cuda was requested, but the cluster has no GPU", "use cpu or auto"
        )
    if gpus_of_worker == "auto":
        gpus_of_worker = float(gpus > 0 and device != "cpu")
    if gpus_of_worker > gpus:
        raise SpecError(
            GPUS_PER_WORKER,
            f"{gpus_of_worker:g} were requested, and the cluster has {gpus:g} GPUs",
            "ask for fewer",
        )
    # Each worker takes a CPU. The small term is for shares such as 0.1: rounding must not cost a
    # worker.
    by_gpus = math.floor(gpus / gpus_of_worker + 1e-9) if gpus_of_worker else cpus
    most = int(min(cpus, by_gpus))
    workers = max(1, most) if options.workers == "auto" else options.workers
    if not 1 <= workers <= most:
        has = f"{gpus:g} GPUs and {cpus:g} CPUs" if gpus_of_worker else f"{cpus:g} CPUs"
        needs = f"{gpus_of_worker:g} GPUs and a CPU" if gpus_of_worker else "a CPU"
        remedy = "give its nodes at least one CPU: ray start --num-cpus"
        if most:
            remedy = f"ask for 1 to {most}"
        raise SpecError(
            WORKERS,
            f"{workers} were requested, each with {needs}, and the cluster has {has}",
            remedy,
        )
    return workers, gpus_of_worker
