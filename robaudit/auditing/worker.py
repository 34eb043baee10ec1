"""The worker of an audit as a Ray actor: it prepares the audit on its own machine, and computes
chunks."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from robaudit.auditing.chunks import Chunk, Step, Worker
from robaudit.auditing.environment import deterministic, explained, pick_device
from robaudit.auditing.prepare import PreparedAudit, Request, open_audit, prepare
from robaudit.auditing.rounds import Work
from robaudit.errors import DataError, ModelError, RobauditError
from robaudit.models.logits import rounded_products
from robaudit.models.model_files import model_path
from robaudit.progress import Listener
from robaudit.runs.info import Measured
from robaudit.system import keep_freed_memory


@dataclass(frozen=True, slots=True)
class Report:
    """The report of a worker that is ready.

    Attributes:
        host: the machine that the worker runs on.
        info, seen: see :class:`~robaudit.auditing.prepare.CheckedAudit`.
        told: notes (False) and warnings (True) of the preparation.
        images: size of the first chunk.
    """

    host: str
    info: Measured
    seen: Mapping[str, tuple[str, int | None]]
    told: Sequence[tuple[bool, str]]
    images: int


@dataclass(frozen=True, slots=True)
class _Ready:
    """An audit that a worker has prepared."""

    audit: PreparedAudit
    worker: Worker
    report: Report

    @classmethod
    def from_audit(
        cls, audit: PreparedAudit, host: str, messages: Sequence[tuple[bool, str]]
    ) -> _Ready:
        """An audit with a worker for its chunks, and the report about both."""
        worker = audit.worker()
        images = worker.next_images([Work(task) for task in audit.tasks])
        return cls(audit, worker, Report(host, audit.info, audit.seen, messages, images))


class RestartedError(Exception):
    """Ray restarted the worker, so it has to be prepared again."""


class _Collector(Listener):
    """Collects notes (False) and warnings (True), which go to the process that writes."""

    def __init__(self) -> None:
        self.messages = list[tuple[bool, str]]()

    def note(self, text: str) -> None:
        self.messages.append((False, text))

    def warn(self, text: str) -> None:
        self.messages.append((True, text))


class RayWorker:
    """A worker. Two threads call it: while one computes, the other reads the images of the next
    chunk."""

    def __init__(self) -> None:
        # Held while the network runs: during prepare() and compute(), not while images are read.
        self._computing = threading.Lock()
        self._ready: _Ready | None = None
        # Torch's settings stay until the process ends, which is the worker's own.
        self._settings = ExitStack()

    def prepare(self, request: Request, device: str) -> Report:
        """Prepare the audit, unless it is prepared already.

        Args:
            request: what is asked for, and objects in memory.
            device: of this worker.
        """
        with self._computing, _explaining():
            if self._ready is None:
                self._ready = self._prepared(request, device)
            return self._ready.report

    def _prepared(self, request: Request, device_name: str) -> _Ready:
        """The audit of a request, prepared on a device.

        Raises:
            RobauditError: something is missing, damaged, or does not fit the rest, or memory runs
                out.
        """
        keep_freed_memory()  # a setting of the process, which is the worker's own
        device = pick_device(device_name)
        host = socket.gethostname()
        collector = _Collector()
        spec = request.spec
        # Before anything runs on the device: see deterministic().
        self._settings.enter_context(deterministic(spec.run.deterministic, device))
        self._settings.enter_context(rounded_products(False))
        try:
            opened = open_audit(request, collector)
        except RobauditError as error:
            # The process that writes has opened the same audit, so this machine must differ.
            what = f"{error.what} (all is well where the audit was started)"
            raise type(error)(
                f"{host}: {error.where}", what, "give all machines the same files and packages"
            ) from error
        try:
            audit = prepare(request, device, collector, opened)
        except ModelError as error:
            path = model_path(spec.model, spec.base_dir)
            if path is None or os.access(path, os.R_OK):
                raise
            raise ModelError(
                f"{host}: {error.where}", error.what, "put the model where all machines can read it"
            ) from error
        return _Ready.from_audit(audit, host, collector.messages)

    def compute(self, chunk: Chunk, ids: Sequence[str]) -> Iterator[tuple[Step, int, list[str]]]:
        """Compute a chunk, step by step.

        Args:
            chunk: work and places.
            ids: the ids of the samples at these places.

        Yields:
            A step, the size of the next chunk, and notes.

        Raises:
            RestartedError: the worker is not prepared.
            RobauditError: the audit cannot go on.
        """
        if self._ready is None:
            raise RestartedError
        worker = self._ready.worker
        host = self._ready.report.host
        collector = _Collector()
        with _explaining():
            # Only places are sent: the data set of this machine must have the same samples there.
            if not worker.has(chunk.places, ids):
                raise DataError(
                    f"{host}: {worker.where}",
                    "holds other samples there",
                    "give all workers the same data",
                )
            # Before the lock: this thread reads while the other computes.
            images = list(worker.read(chunk.places))
            with self._computing:
                for step in worker.compute(chunk, images, collector, lambda *_: None):
                    notes = [text for _, text in collector.messages]
                    collector.messages = []
                    yield step, worker.next_images(chunk.work), notes


@contextmanager
def _explaining() -> Iterator[None]:
    """Turn everything that a local audit reports in one line into an error that can be sent."""
    # SystemExit would end the process of the actor, and nobody would read the reason.
    try:
        yield
    except SystemExit:
        raise RobauditError(
            "code of the model, the data set or a plugin",
            "called sys.exit",
            "let it return or raise",
        ) from None
    except Exception as error:
        user_error = explained(error)
        if user_error is not None:
            raise user_error from error
        raise
