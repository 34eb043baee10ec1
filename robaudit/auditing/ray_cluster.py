"""Ray workers: one actor each, which Ray places, watches and restarts."""

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
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import nn

from robaudit.auditing.crew import failure
from robaudit.auditing.messages import Failed, Item, Lost, Opened
from robaudit.auditing.worker import ChunkJob, Worker, WorkerPlan, or_unreadable
from robaudit.errors import ModelError, RobauditError, SpecError, needs_extra
from robaudit.progress import Listener
from robaudit.system import cores

_OPTION = "--engine ray"
_REACHED = 10.0  # seconds within which a cluster must answer
_SIGN = 5.0  # seconds between progress messages
_AT_ONCE = 2  # jobs of a worker: while one is computed, the images of the next are read
_ALONE = "local"  # a cluster of this machine, for this audit only
_ALONE_HAS: dict[str, Any] = {"include_dashboard": False}
_TERMINATED = 128 + signal.SIGTERM
_START_ONE = "start one with ray start --head, or leave --ray-address out to use this machine alone"
_SETTINGS = {
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".|^$",  # otherwise it prints workers' logs among our output
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # workers without a GPU see none; without this, with a warning
    "RAY_USAGE_STATS_ENABLED": "0",  # a cluster that an audit starts tells nobody
}
"""Ray's settings, unless the user has set others."""
_SETTINGS_ALONE = {
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # as on those systems, its servers listen on 127.0.0.1 alone
    "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN": secrets.token_hex(32),  # without it, Ray would leave one in the home folder
}
"""Settings of a cluster that an audit starts. Ray reads them when it is imported."""
_VISIBLE = "CUDA_VISIBLE_DEVICES"


class RayWorker:
    """A worker as an actor. The plan comes with ``open``, because Ray restarts actors without their arguments."""

    def __init__(self) -> None:
        self._worker: Worker | None = None

    def open(self, plan: WorkerPlan) -> Opened | Failed:
        """Load the model and check it, unless that is done already."""
        self._worker = self._worker or Worker(plan)
        return or_unreadable(plan, self._worker.open())

    def compute(self, job: ChunkJob) -> Iterator[Item | Lost]:
        """Run a job; a worker that was restarted while idle reports itself as lost."""
        if self._worker is None:
            yield Lost("lost (while it had no work)", returns=True)
        else:
            yield from self._worker.compute(job)


class RayWorkers:
    """Actors; each job is a call whose items come back as they are computed.

    Args:
        ray: the package.
        actors: of :class:`RayWorker`.
        plan: their plan, in Ray's object store.
    """

    def __init__(self, ray: Any, actors: Sequence[Any], plan: Any) -> None:
        self._ray, self._actors, self._plan = ray, actors, plan
        self._calls: list[deque[Any]] = [deque() for _ in actors]
        self._opening: dict[Any, int] = {}

    def give(self, worker: int, job: ChunkJob) -> None:
        """Send a job."""
        self._calls[worker].append(self._actors[worker].compute.remote(job))

    def items(self, seconds: float) -> Iterable[tuple[int, Item | Opened | Lost]]:
        """Items that have arrived, at most one from each worker."""
        first = {calls[0]: number for number, calls in enumerate(self._calls) if calls} | self._opening
        if not first:
            threading.Event().wait(seconds)
            return
        ready, _ = self._ray.wait(list(first), num_returns=len(first), timeout=0, fetch_local=False)
        if not ready:
            ready, _ = self._ray.wait(list(first), timeout=seconds, fetch_local=False)
        for call in ready:
            number = first[call]
            item = self._back(call, number) if call in self._opening else self._next(call, number)
            if item is not None:
                yield number, item

    def _next(self, call: Any, worker: int) -> Item | Opened | Lost | None:
        """The next item of a call; None at its end."""
        try:
            item: Item | Lost = self._ray.get(next(call))
        except StopIteration:
            self._calls[worker].popleft()
            return None
        except self._ray.exceptions.RayError as error:
            if isinstance(error, self._ray.exceptions.RayTaskError):
                raise
            item = Lost(f"lost ({type(error).__name__})", returns=True)
        if isinstance(item, Lost):
            self._calls[worker].clear()
            self._opening[self._actors[worker].open.remote(self._plan)] = worker  # answered once Ray has started it again
        return item

    def _back(self, call: Any, worker: int) -> Item | Opened | Lost | None:
        """The report of a restarted worker; None if it was lost again."""
        del self._opening[call]
        try:
            said: Opened | Failed = self._ray.get(call)
        except self._ray.exceptions.ActorDiedError as error:
            return Lost(f"cannot be started again ({_last_line(error)})", returns=False)
        except self._ray.exceptions.RayError as error:
            if isinstance(error, self._ray.exceptions.RayTaskError):
                raise
            self._opening[self._actors[worker].open.remote(self._plan)] = worker
            return None
        return said


@contextmanager
def ray_workers(
    plan: WorkerPlan, listener: Listener, address: str | None = None, devices: Sequence[torch.device] = ()
) -> Iterator[tuple[RayWorkers, list[Opened]]]:
    """Start as many workers as the spec asks for or the cluster has room for; they end with the block.

    Args:
        plan: what the workers need.
        listener: receives what is waited for.
        address: of the head node, or auto; by default RAY_ADDRESS, or a cluster of this machine alone.
        devices: this machine's devices, one worker each, on a private cluster; empty: use the given cluster.

    Raises:
        RobauditError: Ray is not installed, the cluster cannot be reached or has too little, or a worker cannot begin.
    """
    asked = plan.spec.run
    with _connected(address, devices, listener) as ray:
        if devices:
            each, several, threads = float(devices[0].type == "cuda"), len(devices), max(1, cores() // len(devices))
            run = asked.model_copy(update={"device": devices[0].type, "engine": "local"})
        else:
            gpus, cpus = _resources(ray)
            each = _gpus_of_each(asked.gpus_per_worker, asked.device, gpus)
            several, threads = _how_many(asked.workers, each, gpus, cpus), 1
            run = asked.model_copy(update={"device": "cuda" if each else "cpu", "workers": "auto", "engine": "local"})
        with _placed(several, {"CPU": threads, "GPU": each} if each else {"CPU": threads}, listener) as (placement, share):
            try:
                model = _on_cpu(plan.model)
                sent = ray.put(replace(plan, spec=plan.spec.model_copy(update={"run": run}), share=share, model=model))
            except (TypeError, AttributeError, pickle.PicklingError) as error:
                raise _unsendable(error, "define its class in a module, without locks and open files") from error
            options = {"num_cpus": threads, "num_gpus": each, "max_restarts": -1, "max_task_retries": 0, "max_concurrency": _AT_ONCE}
            kind = ray.remote(**options)(RayWorker)
            actors = [kind.options(scheduling_strategy=placement).remote() for _ in range(several)]
            opened = _opened(ray, actors, sent, listener)
            yield RayWorkers(ray, actors, sent), opened


def _on_cpu(model: nn.Module | None) -> nn.Module | None:
    """The network moved off CUDA: a worker numbers the devices differently."""
    if isinstance(model, nn.Module) and any(one.is_cuda for one in (*model.parameters(), *model.buffers())):
        return copy.deepcopy(model).cpu()
    return model


@contextmanager
def _placed(several: int, bundle: dict[str, float], listener: Listener) -> Iterator[tuple[Any, float]]:
    """Room for all workers, and the share of its machine's memory that each may take; they end with the block."""
    from ray.util import placement_group, placement_group_table, remove_placement_group
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    group = placement_group([bundle] * several)
    try:
        listener.doing("starting workers")
        while not group.wait(_SIGN):
            listener.doing("waiting for room on the cluster")
        nodes = Counter(placement_group_table(group)["bundles_to_node_id"].values())
        yield PlacementGroupSchedulingStrategy(group), 1 / max(nodes.values())
    finally:
        with suppress(Exception):  # the cluster may be gone
            remove_placement_group(group)


def _opened(ray: Any, actors: Sequence[Any], plan: Any, listener: Listener) -> list[Opened]:
    """The workers' reports once they are ready.

    Raises:
        RobauditError: one cannot begin.
    """
    calls = [actor.open.options(max_task_retries=2).remote(plan) for actor in actors]
    waiting, opened = calls, dict[Any, Opened]()
    while waiting:
        listener.doing(f"starting workers: {len(opened)} of {len(calls)}")  # they may wait for other work on the cluster
        ready, waiting = ray.wait(waiting, num_returns=len(waiting), timeout=_SIGN, fetch_local=False)
        opened |= {call: _said(ray, call) for call in ready}
    return [opened[call] for call in calls]


def _said(ray: Any, call: Any) -> Opened:
    """The report of a worker that has started.

    Raises:
        RobauditError: it cannot begin.
    """
    try:
        said = ray.get(call)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, ImportError | AttributeError):  # of a class that this process has and the worker has not
            raise _unsendable(error.cause, "install its module on every node") from None
        raise
    except ray.exceptions.RayError as error:
        what = f"a worker was lost while it started ({_last_line(error)})"
        raise RobauditError(_OPTION, what, "has each node robaudit, and enough memory for the model?") from None
    if isinstance(said, Failed):
        raise failure(_OPTION, said.error, said.trace)
    if not isinstance(said, Opened):
        raise TypeError(f"a worker began with {said}")
    return said


@contextmanager
def _connected(address: str | None, devices: Sequence[torch.device], listener: Listener) -> Iterator[Any]:
    """Ray, connected to a cluster: the given address, RAY_ADDRESS, or a new private cluster.

    Raises:
        RobauditError: Ray is not installed, or there is no cluster.
    """
    named = None if devices else address or os.environ.get("RAY_ADDRESS")
    if "ray" not in sys.modules:
        for name, value in {**_SETTINGS, **({} if named else _SETTINGS_ALONE)}.items():
            os.environ.setdefault(name, value)
    option = f"--device {','.join(map(str, devices))}" if devices else _OPTION
    try:
        import ray
    except ImportError:
        raise needs_extra(option, "ray", "ray") from None
    if ray.is_initialized():  # by the program that calls robaudit
        yield ray
        return
    listener.doing("connecting to Ray")
    where = f"--ray-address {address}" if named and address else f"RAY_ADDRESS={named}" if named else option
    if named:
        _refuse_unreachable(named, where)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        _initialise(ray, named or _ALONE, devices, where)
    finally:
        _restore(handlers)
    try:
        yield ray
    except SystemExit:
        if signal.getsignal(signal.SIGTERM) != handlers[signal.SIGTERM]:  # SIGTERM has come; in a call of Ray's, its exit loses its code
            raise SystemExit(_TERMINATED) from None
        raise
    finally:
        with suppress(Exception):
            ray.shutdown()


def _initialise(ray: Any, address: str, devices: Sequence[torch.device], where: str) -> None:
    """Connect to a cluster, or start one.

    Raises:
        RobauditError: there is none, or it cannot be used.
    """
    has = _ALONE_HAS if address == _ALONE else {}
    if devices:
        has = {**has, "num_cpus": len(devices) * max(1, cores() // len(devices)), "num_gpus": sum(one.type == "cuda" for one in devices)}
    try:
        with _seeing(devices), contextlib.chdir(os.path.abspath(os.sep)):  # noqa: PTH100  workers look for modules in this folder first
            ray.init(address=address, log_to_driver=False, logging_level=logging.CRITICAL, **has)
    except ray.exceptions.AuthenticationError:
        remedy = "set RAY_AUTH_MODE=token, and have the cluster's token in ~/.ray/auth_token"
        raise RobauditError(where, "asks for a token", remedy) from None
    except (ConnectionError, SystemExit) as error:
        if isinstance(error, SystemExit) and error.code in (signal.SIGTERM, _TERMINATED):  # by Ray's handler, or by ours
            raise SystemExit(_TERMINATED) from None
        raise RobauditError(where, "no Ray cluster answers", _START_ONE) from None
    except (RuntimeError, ValueError, OSError) as error:  # such as another version of Python or Ray
        raise RobauditError(where, f"cannot be used: {_first_line(error)}", "use the same versions of Python and Ray everywhere") from None


@contextmanager
def _seeing(devices: Sequence[torch.device]) -> Iterator[None]:
    """Let processes that start within the block see these CUDA devices only.

    Raises:
        SpecError: CUDA_VISIBLE_DEVICES has changed since CUDA began.
    """
    before = os.environ.get(_VISIBLE)
    if not devices or devices[0].type != "cuda":
        yield
        return
    visible = None if before is None else [one.strip() for one in before.split(",")]
    beyond = next((one for one in devices if visible is not None and one.index >= len(visible)), None)
    if beyond is not None:
        raise SpecError("run.device", f"{beyond} is not among {_VISIBLE}={before}", "set it before CUDA is used")
    os.environ[_VISIBLE] = ",".join(str(one.index) if visible is None else visible[one.index] for one in devices)
    try:
        yield
    finally:
        os.environ.pop(_VISIBLE)
        os.environ.update({} if before is None else {_VISIBLE: before})


def _refuse_unreachable(address: str, where: str) -> None:
    """Refuse a malformed address or one where nothing listens; Ray would wait for minutes and print its own messages.

    Raises:
        RobauditError: the address is malformed or does not answer.
    """
    if address == "auto":
        return
    if "://" in address:
        raise RobauditError(where, "is the address of a client", "run the audit on a node of the cluster, with HOST:PORT (ray job submit)")
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise RobauditError(where, "is not an address", "give HOST:PORT of the head node, or auto")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _REACHED).close()
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise RobauditError(where, f"no answer within {_REACHED:.0f} s ({reason})", "is the head node up, and this its port?") from None


def _restore(handlers: dict[signal.Signals, Any]) -> None:
    """Restore our signal handlers: Ray's would end the process silently."""
    if threading.current_thread() is threading.main_thread():
        for number, handler in handlers.items():
            with contextlib.suppress(TypeError, ValueError):
                signal.signal(number, handler)


def _unsendable(error: BaseException, remedy: str) -> ModelError:
    """The error for a model or other object in memory that cannot be sent to workers."""
    return ModelError("the model or data in memory", f"cannot be sent to workers ({type(error).__name__}: {error})"[:300], remedy)


def _last_line(error: Exception) -> str:
    """The last line of Ray's text, which has the cause."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[-1]}"[:300] if lines else type(error).__name__


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)[:300]


def _resources(ray: Any) -> tuple[float, float]:
    """GPUs and CPUs of the cluster."""
    there = ray.cluster_resources()
    return float(there.get("GPU", 0)), float(there.get("CPU", 0))


def _gpus_of_each(asked: Literal["auto"] | float, device: str, gpus: float) -> float:
    """GPUs of a worker.

    Raises:
        SpecError: the options contradict each other, or there is no GPU.
    """
    if device not in ("auto", "cpu", "cuda"):
        raise SpecError("run.device", f"{device} is a device of one machine", "with --engine ray, use cpu, cuda or auto")
    if device == "cpu":
        if asked not in ("auto", 0):
            raise SpecError("--gpus-per-worker", f"is {asked:g}, but run.device is cpu", "leave one of them out")
        return 0.0
    if asked == "auto":
        if device == "cuda" and not gpus:
            raise SpecError("run.device", "cuda was requested, but the cluster has no GPU", "use cpu or auto")
        return 1.0 if gpus else 0.0
    if asked > gpus:
        raise SpecError("--gpus-per-worker", f"{asked:g} were requested, and the cluster has {gpus:g} GPUs", "ask for fewer")
    return float(asked)


def _how_many(asked: Literal["auto"] | int, each: float, gpus: float, cpus: float) -> int:
    """The number of workers.

    Raises:
        SpecError: more than there is room for.
    """
    most = int(min(cpus, math.floor(gpus / each + 1e-9) if each else cpus))
    if asked == "auto":
        if most < 1:
            raise SpecError(_OPTION, "the cluster has no free CPU for a worker", "give its nodes at least one: ray start --num-cpus")
        return most
    if asked == 0:
        raise SpecError("--workers", "0 workers compute nothing", "ask for at least 1")
    if asked > most:
        has = f"{gpus:g} GPUs and {cpus:g} CPUs" if each else f"{cpus:g} CPUs"
        needs = f"{each:g} GPUs and a CPU" if each else "a CPU"
        raise SpecError("--workers", f"{asked} were requested, each with {needs}, and the cluster has {has}", f"ask for at most {most}")
    return asked
