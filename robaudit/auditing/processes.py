"""Workers of this machine: a process for each device."""

from __future__ import annotations

import io
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from multiprocessing.connection import Connection, wait
from queue import SimpleQueue
from typing import Any

import torch
from torch import nn

from robaudit.auditing.crew import Lost, failure
from robaudit.auditing.worker import Failed, Item, Opened, Order, Plan, Worker
from robaudit.cgroups import cores
from robaudit.errors import ModelError, SpecError

_PROGRAM = "import sys; sys.path[:] = {path!r}; from robaudit.auditing.processes import main; main({handle})"
_GRACE = 5.0  # seconds for a process to end by itself
_THREADS, _VISIBLE = "OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES"


class Processes:
    """Processes, each at the other end of a pipe."""

    def __init__(self, names: Sequence[str], pipes: Sequence[Connection], processes: Sequence[subprocess.Popen[bytes]]) -> None:
        self._names, self._pipes, self._processes = names, pipes, processes

    def names(self) -> Sequence[str]:
        """Their devices."""
        return self._names

    def give(self, worker: int, order: Order) -> None:
        """Send an order; if the process is gone, that is noticed when something is expected from it."""
        with suppress(OSError):
            _send(self._pipes[worker], order)

    def items(self, seconds: float) -> Iterable[tuple[int, Item | Opened | Lost]]:
        """What has come in."""
        for pipe in wait(list(self._pipes), seconds):
            number = self._pipes.index(pipe)
            yield number, self.next(number)

    def next(self, worker: int) -> Item | Opened | Lost:
        """What comes next from a process."""
        try:
            item: Item | Opened = _received(self._pipes[worker])
        except (EOFError, OSError):  # it ended between two items, or in the middle of one
            with suppress(subprocess.TimeoutExpired):
                self._processes[worker].wait(_GRACE)
            return Lost(f"its process ended ({_ending(self._processes[worker].returncode)})", returns=False)
        return item


@contextmanager
def processes(plan: Plan, devices: Sequence[torch.device]) -> Iterator[tuple[Processes, list[Opened]]]:
    """Start a process for each device; they end with the block.

    Args:
        plan: of all workers; its spec names the kind of device, of which a process sees only its own.
        devices: of this machine.

    Raises:
        RobauditError: one cannot begin.
    """
    content, names = _pickled(plan), [str(device) for device in devices]
    environments = [environment(device, len(devices), os.environ) for device in devices]
    with ExitStack() as stack:
        started = [_started(one, stack) for one in environments]
        team = Processes(names, [pipe for pipe, _ in started], [process for _, process in started])
        for pipe, _ in started:  # now that all are starting: a large plan is taken only once torch has been imported
            with suppress(OSError):
                pipe.send_bytes(content)
        yield team, [_opened(team.next(number), name) for number, name in enumerate(names)]


def environment(device: torch.device, several: int, own: Mapping[str, str]) -> dict[str, str]:
    """The environment of a process that works on one device, one of several.

    It sees no other CUDA device, so that code which asks for "cuda" or "cuda:0" gets the right one, and no memory is taken on another.

    Args:
        device: as this process numbers it.
        several: how many processes share the cores.
        own: the environment of this process; its CUDA_VISIBLE_DEVICES may hold numbers and UUIDs.

    Raises:
        SpecError: CUDA_VISIBLE_DEVICES has changed since CUDA began.
    """
    threads = max(1, min(torch.get_num_threads(), cores() // several))
    found = {**own, _THREADS: str(threads)}
    if device.type == "cuda":
        visible = own[_VISIBLE].split(",") if _VISIBLE in own else None
        if visible is not None and device.index >= len(visible):
            raise SpecError("run.device", f"{device} is not among {_VISIBLE}={own[_VISIBLE]}", "set it before CUDA is used")
        found[_VISIBLE] = str(device.index) if visible is None else visible[device.index].strip()
    return found


class _Pickler(pickle.Pickler):
    """Sends tensors on CUDA as those of the CPU: the other process numbers the devices differently."""

    def reducer_override(self, value: object) -> Any:
        if isinstance(value, torch.Tensor) and value.is_cuda and not isinstance(value, nn.Parameter):  # a parameter is pickled as its data
            return value.detach().cpu().requires_grad_(value.requires_grad).__reduce_ex__(pickle.HIGHEST_PROTOCOL)
        return NotImplemented


def _pickled(plan: Plan) -> bytes:
    """The plan as bytes.

    Raises:
        ModelError: the network in memory cannot be sent.
    """
    content = io.BytesIO()
    try:
        _Pickler(content).dump(plan)
    except Exception as error:
        what = f"cannot be sent to another process ({_reason(error)})"
        raise ModelError("the model in memory", what, "use one device, or define it in a module that can be imported") from error
    return content.getvalue()


def _started(environment: Mapping[str, str], stack: ExitStack) -> tuple[Connection, subprocess.Popen[bytes]]:
    """A process, and this end of the pipe to it; both end with the stack."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        program = _PROGRAM.format(path=[str(path) for path in sys.path], handle=theirs.fileno())
        with _without_ctrl_c():
            process = subprocess.Popen(  # noqa: S603  this very Python
                [sys.executable, "-c", program], pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, env=environment
            )
        pipe = Connection(ours.detach())
    stack.callback(_ended, process, pipe)
    return pipe, process


@contextmanager
def _without_ctrl_c() -> Iterator[None]:
    """Start processes that Ctrl-C does not reach: it is for the process that gives the orders. A child inherits what is blocked."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _opened(said: Item | Opened | Lost, name: str) -> Opened:
    """What a process says when it is ready, with the device as this process numbers it.

    Raises:
        RobauditError: it cannot begin.
    """
    match said:
        case Opened(facts=facts):
            return replace(said, facts=replace(facts, device=f"{name} {facts.device.partition(' ')[2]}"))
        case Failed(error, trace):
            raise failure(name, error, trace)
        case Lost(why):
            raise ModelError(name, why, "look for lack of memory, or use fewer devices")
    raise ValueError(f"{name} began with {said}")


def _ended(process: subprocess.Popen[bytes], pipe: Connection) -> None:
    pipe.close()
    process.terminate()
    try:
        process.wait(_GRACE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _ending(code: int | None) -> str:
    if code is not None and code < 0:
        with suppress(ValueError):
            return f"killed by {signal.Signals(-code).name}"
    return f"exit code {code}"


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:300]


def _send(pipe: Connection, item: object) -> None:
    pipe.send_bytes(pickle.dumps(item))


def _received(pipe: Connection) -> Any:
    return pickle.loads(pipe.recv_bytes())  # noqa: S301  from a process that this one started, or was started by


def main(handle: int) -> None:
    """Be a worker at this end of a pipe, until the other end is closed."""
    os.set_inheritable(handle, False)
    pipe, items = Connection(handle), SimpleQueue[Item]()
    with suppress(EOFError, OSError):
        try:
            worker = Worker(_received(pipe))
        except Exception as error:  # noqa: BLE001  such as a class that cannot be imported here
            _send(pipe, Failed(_unreadable(error)))
            os._exit(0)
        said = worker.open()
        _send(pipe, said)
        if isinstance(said, Opened):
            threading.Thread(target=_pass_on, args=(items, pipe), daemon=True).start()
            while True:
                worker.begin(_received(pipe), items)
    os._exit(0)  # threads may be computing


def _unreadable(error: Exception) -> ModelError:
    what = f"cannot be used in another process ({_reason(error)})"
    return ModelError("the model in memory", what, "use one device, or define its class in a module that can be imported")


def _pass_on(items: SimpleQueue[Item], pipe: Connection) -> None:
    """Send what there is, until the other end is closed."""
    with suppress(OSError):
        while True:
            try:
                content = pickle.dumps(items.get())
            except Exception as error:  # noqa: BLE001  such as a plugin's value that cannot be pickled
                content = pickle.dumps(Failed.by(error))
            pipe.send_bytes(content)
    os._exit(0)
