"""Workers of a Ray cluster: an actor for each, which Ray places, watches and starts again."""

from __future__ import annotations

import contextlib
import importlib
import logging
import math
import os
import pickle
import secrets
import signal
import socket
import sys
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from typing import Any, Literal

from robaudit.auditing.crew import Lost, failure
from robaudit.auditing.worker import Failed, Item, Opened, Order, Plan, Worker
from robaudit.errors import ModelError, RobauditError, SpecError, needs_extra
from robaudit.progress import Listener
from robaudit.spec.pretrained.folder import model_path

_OPTION = "--engine ray"
_REACHED = 10.0  # seconds within which a cluster must answer
_SIGN = 5.0  # seconds between two signs of life
_AT_ONCE = 2  # orders of a worker: while one is computed, the images of the next are read
_ALONE = "local"  # a cluster of this machine, for this audit only
_ALONE_HAS: dict[str, Any] = {"include_dashboard": False}
_TERMINATED = 128 + signal.SIGTERM
_START_ONE = "start one with ray start --head, or leave --ray-address out to use this machine alone"
_SETTINGS_FRAME = bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))  # that every HTTP/2 connection begins with, and so each of gRPC
_GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _SETTINGS_FRAME
_SETTINGS = {
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".|^$",  # what it prints of workers would get among our own output
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # workers without a GPU see none; without this, with a warning
    "RAY_USAGE_STATS_ENABLED": "0",  # a cluster that an audit starts tells nobody
}
"""Of Ray, unless the user has others."""
_AUTH_MODE, _AUTH_TOKEN = "RAY_AUTH_MODE", "RAY_AUTH_TOKEN"
_OWN_TOKEN = secrets.token_hex(32)  # one for all clusters that this process starts: Ray keeps the first in mind


class RayWorker:
    """A worker as an actor; the plan comes with the call to open it, because Ray starts actors again without what they were made of."""

    def __init__(self) -> None:
        self._worker: Worker | None = None

    def open(self, plan: Plan) -> Opened | Failed:
        """Load the model and check it, unless that is done already."""
        self._worker = self._worker or Worker(plan)
        said, path = self._worker.open(), model_path(plan.spec.model, plan.spec.base_dir)
        if isinstance(said, Failed) and isinstance(said.error, ModelError) and not (plan.files or path is None or os.access(path, os.R_OK)):
            remedy = "put the model where all machines can read it, or send it: --ship"
            return Failed(ModelError(f"{socket.gethostname()}: {said.error.where}", said.error.what, remedy))
        return said

    def compute(self, order: Order) -> Iterator[Item | Lost]:
        """Carry out an order; a worker that Ray has started again while it had none says so first."""
        if self._worker is None:
            yield Lost("lost (while it had no work)", returns=True)
        else:
            yield from self._worker.compute(order)


class RayWorkers:
    """Actors; each order is a call whose items come back as they are computed.

    Args:
        ray: the package.
        actors: of :class:`RayWorker`.
        plan: of theirs, in Ray's object store.
        names: what messages call them.
    """

    def __init__(self, ray: Any, actors: Sequence[Any], plan: Any, names: Sequence[str]) -> None:
        self._ray, self._actors, self._plan, self._names = ray, actors, plan, names
        self._calls: list[deque[Any]] = [deque() for _ in actors]
        self._opening: dict[Any, int] = {}

    def names(self) -> Sequence[str]:
        """What messages call them."""
        return self._names

    def give(self, worker: int, order: Order) -> None:
        """Send an order."""
        self._calls[worker].append(self._actors[worker].compute.remote(order))

    def items(self, seconds: float) -> Iterable[tuple[int, Item | Opened | Lost]]:
        """What has come in, an item of each worker at most."""
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

    def _next(self, call: Any, worker: int) -> Item | Lost | None:
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

    def _back(self, call: Any, worker: int) -> Opened | Failed | Lost | None:
        """What a worker that was started again says; None if it was lost once more."""
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
def ray_workers(plan: Plan, listener: Listener) -> Iterator[tuple[RayWorkers, list[Opened]]]:
    """Start as many workers as the plan's spec says, or the cluster has room for; they end with the block.

    Args:
        plan: of the workers.
        listener: receives what is waited for.

    Raises:
        RobauditError: Ray is not installed, the cluster cannot be reached or has too little, or a worker cannot begin.
    """
    asked = plan.spec.run
    with _connected(asked.ray_address, listener) as ray:
        gpus, cpus = _resources(ray)
        each = _gpus_of_each(asked.gpus_per_worker, asked.device, gpus)
        several = _how_many(asked.workers, each, gpus, cpus)
        run = asked.model_copy(update={"device": "cuda" if each else "cpu", "workers": "auto", "engine": "local"})
        share = 1 / max(1, min(several, _most_on_one_node(ray, each)))
        try:
            sent = ray.put(replace(plan, spec=plan.spec.model_copy(update={"run": run}), share=share))
        except (TypeError, AttributeError, pickle.PicklingError) as error:
            raise _unsendable(error, "define its class in a module, without locks and open files") from error
        kind = ray.remote(num_cpus=1, num_gpus=each, max_restarts=-1, max_task_retries=0, max_concurrency=_AT_ONCE)(RayWorker)
        actors = [kind.remote() for _ in range(several)]
        try:
            opened = _opened(ray, actors, sent, listener)
            names = [f"worker {number} on {one.host}" for number, one in enumerate(opened)]
            yield RayWorkers(ray, actors, sent, names), opened
        finally:
            for actor in actors:
                with suppress(Exception):  # the cluster may be gone
                    ray.kill(actor)


def _opened(ray: Any, actors: Sequence[Any], plan: Any, listener: Listener) -> list[Opened]:
    """What the workers say when they are ready.

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
    """What a worker says that has started.

    Raises:
        RobauditError: it cannot begin.
    """
    try:
        said: Opened | Failed = ray.get(call)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, ImportError | AttributeError):  # of a class that this process has and the worker has not
            raise _unsendable(error.cause, "install its module on every node") from None
        raise
    except ray.exceptions.RayError as error:
        what = f"a worker was lost while it started ({_last_line(error)})"
        raise RobauditError(_OPTION, what, "has each node robaudit, and enough memory for the model?") from None
    if isinstance(said, Failed):
        raise failure(_OPTION, said.error, said.trace)
    return said


@contextmanager
def _connected(address: str | None, listener: Listener) -> Iterator[Any]:
    """Ray, connected to a cluster; without an address to the one that RAY_ADDRESS names, or to one of its own.

    Raises:
        RobauditError: Ray is not installed, or there is no cluster.
    """
    if "ray" not in sys.modules:
        for name, value in _SETTINGS.items():
            os.environ.setdefault(name, value)
    try:
        import ray
    except ImportError:
        raise needs_extra(_OPTION, "ray", "ray") from None
    if ray.is_initialized():  # by the program that calls robaudit
        yield ray
        return
    listener.doing("connecting to Ray")
    named = os.environ.get("RAY_ADDRESS")
    where = f"--ray-address {address}" if address else f"RAY_ADDRESS={named}" if named else _OPTION
    found = _found(address or named or _ALONE, where)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    own = _ALONE_HAS if found == _ALONE else {}
    settings = ExitStack()
    try:
        settings.enter_context(_token(where, found, look=(address or named) == "auto"))
        ray.init(address=found, log_to_driver=False, logging_level=logging.CRITICAL, **own)
    except (ConnectionError, SystemExit) as error:
        if isinstance(error, SystemExit) and error.code in (signal.SIGTERM, _TERMINATED):  # by Ray's handler, or by ours
            raise SystemExit(_TERMINATED) from None
        raise RobauditError(where, "no Ray cluster answers", _START_ONE) from None
    except (RuntimeError, ValueError, OSError) as error:  # such as another version of Python or Ray
        raise RobauditError(where, f"cannot be used: {_first_line(error)}", "use the same versions of Python and Ray everywhere") from None
    finally:
        _restore(handlers)
        if not ray.is_initialized():
            settings.close()
    try:
        yield ray
    except SystemExit:
        if signal.getsignal(signal.SIGTERM) != handlers[signal.SIGTERM]:  # SIGTERM has come; in a call of Ray's, its exit loses its code
            raise SystemExit(_TERMINATED) from None
        raise
    finally:
        with suppress(Exception):
            ray.shutdown()
        settings.close()


@contextmanager
def _token(where: str, address: str, *, look: bool) -> Iterator[None]:
    """What this process shows a cluster to be let in, if it asks; nothing of it remains in the environment after the block.

    A cluster of our own gets a token of ours: Ray would leave one in the home folder, which every later ``ray start`` would ask for.

    Args:
        where: what messages call the address.
        address: of the cluster.
        look: whether to use the token in the home folder; Ray does so for a cluster that it has found itself, as auto says.

    Raises:
        RobauditError: the cluster asks for a token, and there is none.
    """
    core: Any = importlib.import_module("ray._raylet")  # there is no other way to ask in time
    if not hasattr(core, "AuthenticationTokenLoader"):  # an older Ray, which knows no tokens
        yield
        return
    before = {name: os.environ.get(name) for name in (_AUTH_MODE, _AUTH_TOKEN)}
    loader = core.AuthenticationTokenLoader.instance()
    try:
        if before[_AUTH_MODE] is None:
            if address == _ALONE:
                os.environ.update({_AUTH_MODE: "token", _AUTH_TOKEN: before[_AUTH_TOKEN] or _OWN_TOKEN})
            elif look and loader.has_token(ignore_auth_mode=True):
                os.environ[_AUTH_MODE] = "token"
            loader.reset_cache()
            core.Config.initialize("")  # which looks at the environment
        if address != _ALONE and not _let_in(core, address):
            raise RobauditError(where, "asks for a token", "set RAY_AUTH_MODE=token, and have the cluster's token in ~/.ray/auth_token")
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            os.environ.update({} if value is None else {name: value})
        if before[_AUTH_MODE] is None:
            loader.reset_cache()
            core.Config.initialize("")


def _let_in(core: Any, address: str) -> bool:
    """Whether a cluster accepts the token of this process, or asks for none."""
    from ray.exceptions import AuthenticationError

    if os.environ.get(_AUTH_MODE) == "token" and not core.AuthenticationTokenLoader.instance().has_token(ignore_auth_mode=True):
        return False  # to ask without one would abort the process
    try:
        core.GcsClient(address=address)
    except AuthenticationError:
        return False
    except Exception:  # noqa: BLE001  ray.init will say what it is
        return True
    return True


def _found(address: str, where: str) -> str:
    """The address of a head node that answers; Ray itself would wait for minutes and print lines of its own.

    Raises:
        RobauditError: there is none.
    """
    if address == _ALONE:
        return address
    if address == "auto":
        from ray._private import services  # the only place that knows how Ray finds a cluster

        try:
            address = services.canonicalize_bootstrap_address("auto") or _ALONE
        except ConnectionError:
            raise RobauditError(where, "there is no Ray cluster", _START_ONE) from None
    if "://" in address:
        raise RobauditError(where, "is the address of a client", "run the audit on a node of the cluster, with HOST:PORT (ray job submit)")
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise RobauditError(where, "is not an address", "give HOST:PORT of the head node, or auto")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), _REACHED) as connection:
            connection.sendall(_GREETING)
            answer = connection.makefile("rb").read(len(_SETTINGS_FRAME))
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise RobauditError(where, f"no answer within {_REACHED:.0f} s ({reason})", "is the head node up, and this its port?") from None
    if answer[3:4] != _SETTINGS_FRAME[3:4]:
        raise RobauditError(where, "is not Ray's port", "give that of the head node, 6379 unless ray start was told another")
    return address


def _restore(handlers: dict[signal.Signals, Any]) -> None:
    """Ray installs a handler of its own, which would end the process without a word."""
    if threading.current_thread() is threading.main_thread():
        for number, handler in handlers.items():
            with contextlib.suppress(TypeError, ValueError):
                signal.signal(number, handler)


def _unsendable(error: BaseException, remedy: str) -> ModelError:
    """The error about a model in memory, or other objects of the plan, that do not get to the workers."""
    return ModelError("the model or data in memory", f"cannot be sent to workers ({type(error).__name__}: {error})"[:300], remedy)


def _last_line(error: Exception) -> str:
    """The cause that Ray's text ends with."""
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


def _most_on_one_node(ray: Any, each: float) -> int:
    """How many workers may be placed on one node."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    return max((int(min(one.get("CPU", 0), one.get("GPU", 0) / each if each else math.inf)) for one in nodes), default=1)
