"""The worker of an audit as a Ray actor: it prepares the spec itself, and computes chunks."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

from robaudit.auditing.chunks import Chunk, Step, Worker
from robaudit.auditing.environment import deterministic, explained, pick_device
from robaudit.auditing.prepare import PreparedAudit, Request, open_audit, prepare
from robaudit.errors import DataError, ModelError, RobauditError
from robaudit.models.logits import rounded_products
from robaudit.models.model_files import model_path
from robaudit.progress import Listener
from robaudit.runs.info import Measured
from robaudit.spec.model import AuditSpec
from robaudit.system import keep_freed_memory


@dataclass(frozen=True, slots=True)
class Report:
    """The report of a worker that is ready.

    Attributes:
        host: the machine it runs on.
        info, seen: see :class:`~robaudit.auditing.prepare.CheckedAudit`.
        told: notes (False) and warnings (True) from its preparation.
        images: size of its first chunk.
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
    def of(cls, audit: PreparedAudit, host: str, told: Sequence[tuple[bool, str]]) -> _Ready:
        """With a worker for its chunks."""
        worker = audit.worker()
        return cls(
            audit,
            worker,
            Report(host, audit.info, audit.seen, told, worker.next_images(audit.tasks)),
        )


class RestartedError(Exception):
    """Ray restarted the worker, so it has to be prepared again."""


class _Collector(Listener):
    """Collects notes and warnings."""

    def __init__(self) -> None:
        self.told = list[tuple[bool, str]]()

    def note(self, text: str) -> None:
        self.told.append((False, text))

    def warn(self, text: str) -> None:
        self.told.append((True, text))


class RayWorker:
    """A worker. Two threads call it: while one computes, the other reads the images of the next
    chunk."""

    def __init__(self) -> None:
        self._computing = threading.Lock()
        self._ready: _Ready | None = None
        self._settings = ExitStack()

    def prepare(self, request: Request, spec: AuditSpec, device: str) -> Report:
        """Prepare the audit; if that is done already, keep model and data, and change the numbers
        of draws.

        Args:
            request: what is asked for, and objects in memory.
            spec: the request's, with this analysis's numbers of draws.
            device: of this worker.
        """
        with self._computing, _explaining():
            ready = self._ready
            if ready is None:
                ready = self._prepared(replace(request, spec=spec), device)
            elif ready.audit.spec != spec:
                ready = _Ready.of(ready.audit.again(spec), ready.report.host, ready.report.told)
            self._ready = ready
            return ready.report

    def _prepared(self, request: Request, name: str) -> _Ready:
        keep_freed_memory()  # the process is the worker's own
        device = pick_device(name)
        host = socket.gethostname()
        heard = _Collector()
        spec = request.spec
        self._settings.enter_context(deterministic(spec.run.deterministic, device))
        self._settings.enter_context(rounded_products(False))
        try:
            opened = open_audit(request, heard)
        except RobauditError as error:
            what = f"{error.what} (all is well where the audit was started)"
            raise type(error)(
                f"{host}: {error.where}", what, "give all machines the same files and packages"
            ) from error
        try:
            audit = prepare(request, device, heard, opened)
        except ModelError as error:
            path = model_path(spec.model, spec.base_dir)
            if path is None or os.access(path, os.R_OK):
                raise
            raise ModelError(
                f"{host}: {error.where}", error.what, "put the model where all machines can read it"
            ) from error
        return _Ready.of(audit, host, heard.told)

    def compute(self, chunk: Chunk, ids: Sequence[str]) -> Iterator[tuple[Step, int, list[str]]]:
        """Compute a chunk; with each step come the size of the next chunk, and notes.

        Args:
            chunk: tasks and places.
            ids: the ids of the samples at these places.

        Raises:
            RestartedError: the worker is not prepared.
            RobauditError: the audit cannot go on.
        """
        if self._ready is None:
            raise RestartedError
        worker = self._ready.worker
        host = self._ready.report.host
        heard = _Collector()
        with _explaining():
            if not worker.has(chunk.places, ids):
                raise DataError(
                    f"{host}: {worker.where}",
                    "holds other samples there",
                    "give all workers the same data",
                )
            images = list(worker.read(chunk.places))
            with self._computing:
                for step in worker.compute(chunk.tasks, images, heard, lambda *_: None):
                    told = heard.told
                    heard.told = []
                    yield step, worker.next_images(chunk.tasks), [text for _, text in told]


@contextmanager
def _explaining() -> Iterator[None]:
    """Raise an error that can be sent for everything that a local audit reports in one line."""
    try:
        yield
    except SystemExit:
        raise RobauditError(
            "code of the model, the data set or a plugin",
            "called sys.exit",
            "let it return or raise",
        ) from None
    except Exception as error:
        if (refusal := explained(error)) is not None:
            raise refusal from error
        raise
