"""Workers of this machine: a process for each device."""

from __future__ import annotations

import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing.connection import Connection, wait
from queue import SimpleQueue
from typing import Any

from robaudit.auditing.crew import Lost, failure
from robaudit.auditing.worker import Failed, Item, Opened, Order, Plan, Worker
from robaudit.cgroups import cores
from robaudit.errors import ModelError

_PROGRAM = "from robaudit.auditing.processes import main; main({handle})"
_GRACE = 5.0  # seconds for a process to end by itself
_THREADS = "OMP_NUM_THREADS"


class Processes:
    """Processes, each at the other end of a pipe."""

    def __init__(self, names: Sequence[str], pipes: Sequence[Connection], processes: Sequence[subprocess.Popen[bytes]]) -> None:
        self._names, self._pipes, self._processes = names, pipes, processes

    def names(self) -> Sequence[str]:
        """Their devices."""
        return self._names

    def give(self, worker: int, order: Order) -> None:
        """Send an order; if the process is gone, that is noticed when something is expected from it."""
        with suppress(BrokenPipeError, ConnectionResetError):
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
        except (EOFError, ConnectionResetError):
            with suppress(subprocess.TimeoutExpired):
                self._processes[worker].wait(_GRACE)
            return Lost(f"its process ended ({_ending(self._processes[worker].returncode)})", returns=False)
        return item


@contextmanager
def processes(plans: Sequence[Plan], names: Sequence[str]) -> Iterator[tuple[Processes, list[Opened]]]:
    """Start a process for each plan; they end with the block.

    Args:
        plans: of the workers.
        names: what messages call them.

    Raises:
        RobauditError: one cannot begin.
    """
    with ExitStack() as stack:
        started = [_started(plan, len(plans), stack) for plan in plans]
        team = Processes(names, [pipe for pipe, _ in started], [process for _, process in started])
        opened = []
        for number, name in enumerate(names):
            said = team.next(number)
            if isinstance(said, Failed):
                raise failure(name, said.error, said.trace)
            if not isinstance(said, Opened):
                raise ModelError(name, getattr(said, "why", "did not start"), "look for lack of memory, or use fewer devices")
            opened.append(said)
        yield team, opened


def _started(plan: Plan, several: int, stack: ExitStack) -> tuple[Connection, subprocess.Popen[bytes]]:
    try:
        content = pickle.dumps(plan)
    except Exception as error:
        what = f"cannot be sent to the processes of several devices ({type(error).__name__}: {error})"
        raise ModelError("the model or data in memory", what[:300], "use one device, or define its class in a module") from error
    ours, theirs = socket.socketpair()
    environment = {_THREADS: str(max(1, cores() // several)), **os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    process = subprocess.Popen(  # noqa: S603  this very Python
        [sys.executable, "-c", _PROGRAM.format(handle=theirs.fileno())],
        pass_fds=[theirs.fileno()],
        stdin=subprocess.DEVNULL,
        env=environment,
    )
    theirs.close()
    pipe = Connection(ours.detach())
    stack.callback(_ended, process, pipe)
    with suppress(BrokenPipeError, ConnectionResetError):
        pipe.send_bytes(content)
    return pipe, process


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


def _send(pipe: Connection, item: object) -> None:
    pipe.send_bytes(pickle.dumps(item))


def _received(pipe: Connection) -> Any:
    return pickle.loads(pipe.recv_bytes())  # noqa: S301  from a process that this one started, or was started by


def main(handle: int) -> None:
    """Be a worker at this end of a pipe, until the other end is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that gives the orders
    pipe, items = Connection(handle), SimpleQueue[Item]()
    with suppress(EOFError, ConnectionResetError, BrokenPipeError):
        try:
            worker = Worker(_received(pipe))
            said = worker.open()
        except Exception as error:  # noqa: BLE001  such as a class that cannot be imported here
            said = Failed.by(_unreadable(error))
        _send(pipe, said)
        if isinstance(said, Opened):
            threading.Thread(target=_pass_on, args=(items, pipe), daemon=True).start()
            while True:
                worker.begin(_received(pipe), items)
    os._exit(0)  # threads may be computing


def _unreadable(error: Exception) -> ModelError:
    what = f"cannot be used in another process ({type(error).__name__}: {error})"
    return ModelError("the model or data in memory", what[:300], "use one device, or define its class in a module that can be imported")


def _pass_on(items: SimpleQueue[Item], pipe: Connection) -> None:
    try:
        while True:
            _send(pipe, items.get())
    except OSError:
        os._exit(0)
