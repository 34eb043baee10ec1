"""A worker in another process: it loads the model, computes the chunks it is sent, and sends back results."""

from __future__ import annotations

import os
import socket
import traceback
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from queue import SimpleQueue

from robaudit.auditing.chunks import Chunk, Computer, Refused, Step, usable
from robaudit.auditing.environment import deterministic, explained, pick_device
from robaudit.auditing.messages import Done, Failed, Finished, Item, Noted, Opened, Underway
from robaudit.auditing.prepare import OpenedAudit, PreparedAudit, Request, open_audit, prepare
from robaudit.auditing.shipping import Sent, unpacked
from robaudit.datasets.base import Sample
from robaudit.errors import DataError, ModelError, RobauditError, SampleError
from robaudit.estimators.registry import Task
from robaudit.models.files import model_path
from robaudit.models.logits import rounded_products
from robaudit.progress import Listener
from robaudit.spec.model import AuditSpec
from robaudit.system import keep_freed_memory


@dataclass(frozen=True, slots=True)
class WorkerPlan(Request):
    """Everything a worker needs to start; if images are sent to it, ``dataset`` has the first ones.

    Attributes:
        files: the model's files by name, if they are sent; the spec uses these names.
        home: the folder of these files where the audit was started, for messages.
    """

    files: Mapping[str, bytes] = field(default_factory=dict)
    home: str = ""


@dataclass(frozen=True, slots=True)
class ChunkJob:
    """Images to compute.

    Attributes:
        tasks: what to compute.
        places: their indices in the data set.
        ids: their sample ids.
        samples: the images, unless the worker reads them.
    """

    tasks: tuple[Task, ...]
    places: tuple[int, ...]
    ids: tuple[str, ...]
    samples: tuple[Sent, ...]


class _Heard(Listener):
    """Remembers notes and warnings."""

    def __init__(self) -> None:
        self.told = list[tuple[bool, str]]()

    def note(self, text: str) -> None:
        self.told.append((False, text))

    def warn(self, text: str) -> None:
        self.told.append((True, text))


class Worker:
    """A worker.

    Several threads may give it jobs: while one is computed, the images of the next are read.

    Args:
        plan: what it needs.
    """

    def __init__(self, plan: WorkerPlan) -> None:
        self._plan, self._settings = plan, ExitStack()
        self._one = ThreadPoolExecutor(1, "computing")  # always the same thread: OpenMP keeps a thread pool for each
        self._opened: _Open | None = None

    def open(self) -> Opened | Failed:
        """Load the model and check it, unless that is done already."""
        return self._one.submit(self._open).result()

    def compute(self, job: ChunkJob) -> Iterator[Item]:
        """Read the images of a job, and run it after those that came before; the last item is Finished or Failed."""
        try:
            chunk, refused = self._ready.chunk(job)
        except Exception as error:  # noqa: BLE001  sent to whoever gave the job
            yield failed_by(error)
            return
        items = SimpleQueue[Item]()
        self._one.submit(self._ready.carry_out, chunk, refused, items)
        while True:
            item = items.get()
            yield item
            if isinstance(item, Finished | Failed):
                return

    @property
    def _ready(self) -> _Open:
        if self._opened is None:
            raise ValueError("the worker is not open")
        return self._opened

    def _open(self) -> Opened | Failed:
        try:
            self._opened = self._opened or _Open(self._plan, self._settings)
        except Exception as error:  # noqa: BLE001  sent to whoever started the worker
            return failed_by(error)
        return self._opened.opened


class _Open:
    """A worker with its model loaded."""

    def __init__(self, plan: WorkerPlan, settings: ExitStack) -> None:
        keep_freed_memory()  # the process is the worker's own
        heard = _Heard()
        with unpacked(plan.spec, plan.files) as spec:
            there = partial(_there, plan, str(spec.base_dir))
            try:
                ready = self._load(plan, spec, settings, heard)
            except RobauditError as error:
                raise type(error)(*map(there, (error.where, error.what, error.remedy))) from error
        ready.engine.model.name = there(ready.engine.model.name)
        heard.told = [(warning, there(text)) for warning, text in heard.told]
        check = replace(ready.facts.check, warnings=tuple(map(there, ready.facts.check.warnings)))
        model = {**ready.facts.model, "name": ready.engine.model.name}
        self.ready = replace(ready, facts=replace(ready.facts, check=check, model=model))
        self._sizer = self.ready.sizer()
        self._signs = _Queued()
        self._computer = Computer(self.ready.engine, self._sizer, self.ready.samples.where, self._signs)
        self._readers = ThreadPoolExecutor(self.ready.readers, "reading") if self.ready.readers else None
        self.opened = Opened(socket.gethostname(), self.ready.facts, heard.told, self._sizer.next_images(self.ready.tasks))

    def _load(self, plan: WorkerPlan, spec: AuditSpec, settings: ExitStack, heard: _Heard) -> PreparedAudit:
        device = pick_device(spec.run.device)
        settings.enter_context(deterministic(spec.run.deterministic, device))
        settings.enter_context(rounded_products(False))
        request = replace(plan, spec=spec)
        return prepare(request, device, heard, _opened(request, heard))

    def chunk(self, job: ChunkJob) -> tuple[Chunk, list[Refused]]:
        """The images of a job, read if need be, and those that cannot be used.

        Raises:
            DataError: its data set has other samples at these places.
        """
        if job.samples:
            return Chunk(list(job.tasks), samples=[one.sample() for one in job.samples]), []
        dataset, refused, samples = self.ready.samples, list[Refused](), list[Sample]()
        if any(place >= len(dataset) or dataset.sample_id(place) != name for place, name in zip(job.places, job.ids, strict=True)):
            raise DataError(f"{self.opened.host}: {dataset.where}", "holds other samples there", "give all workers the same data")
        read = map(self._read, job.places) if self._readers is None else self._readers.map(self._read, job.places)
        for place, name, one in zip(job.places, job.ids, read, strict=True):
            sample = usable(dataset, place, one, self.ready.facts.check.classes, self.ready.tasks)
            if isinstance(sample, SampleError):
                refused.append(Refused(name, None, sample))
            else:
                samples.append(sample)
        return Chunk(list(job.tasks), samples=samples), refused

    def carry_out(self, chunk: Chunk, refused: Sequence[Refused], items: SimpleQueue[Item]) -> None:
        """Compute a chunk, and put results into the queue."""
        self._signs.items = items
        seconds, tasks = 0.0, list(chunk.tasks)
        if refused:
            items.put(Done(Step(None, 0.0, 0, refused=refused)))
        try:
            for step in self._computer.steps(chunk) if chunk.samples else ():
                seconds += step.seconds
                items.put(Done(step))
            items.put(Finished(self._sizer.next_images(tasks), seconds))
        except BaseException as error:  # noqa: BLE001  sent to whoever gave the job; sys.exit would end nothing here
            items.put(failed_by(error))

    def _read(self, place: int) -> Sample | SampleError:
        try:
            return self.ready.samples[place]
        except SampleError as error:
            return error


class _Queued:
    """Puts the progress of a chunk into the queue of its job."""

    def __init__(self) -> None:
        self.items, self._doing = SimpleQueue[Item](), ""

    def doing(self, what: str) -> None:
        self._doing = what
        self.items.put(Underway(what, 0.0))

    def note(self, text: str) -> None:
        self.items.put(Noted(text))

    def underway(self, cost: float) -> None:
        self.items.put(Underway(self._doing, cost))

    def stop_asked(self) -> bool:
        """Never: whoever gave the job stops listening."""
        return False


def or_unreadable(plan: WorkerPlan, said: Opened | Failed) -> Opened | Failed:
    """A worker's first report; if it cannot read the model's file, with the remedy."""
    path = model_path(plan.spec.model, plan.spec.base_dir)
    if isinstance(said, Failed) and isinstance(said.error, ModelError) and not (plan.files or path is None or os.access(path, os.R_OK)):
        remedy = "put the model where all machines can read it, or send it: --ship"
        return Failed(ModelError(f"{socket.gethostname()}: {said.error.where}", said.error.what, remedy))
    return said


def failed_by(error: BaseException) -> Failed:
    """An exception as a failure message."""
    if (refusal := explained(error)) is not None:
        return Failed(refusal)
    if isinstance(error, RobauditError):
        return Failed(error)
    if isinstance(error, SystemExit):
        return Failed(RobauditError("code of the model, the data set or a plugin", "called sys.exit", "let it return or raise"))
    return Failed(None, "".join(traceback.format_exception(error)))


def _there(plan: WorkerPlan, folder: str, text: str) -> str:
    """Replace the folder of unpacked files in a text by the folder where the audit was started."""
    return text.replace(f"{folder}{os.sep}", f"{plan.home}{os.sep}") if plan.files else text


def _opened(request: Request, heard: _Heard) -> OpenedAudit:
    """Open the audit without its model; an error names this machine, because opening worked where the audit was started."""
    try:
        return open_audit(request, heard)
    except DataError as error:
        host = socket.gethostname()
        remedy = "put the data where all machines can read them, or send them: --ship"
        raise DataError(f"{host}: {error.where}", f"{error.what} (it can be read where the audit was started)", remedy) from error
    except RobauditError as error:  # such as a plugin that is missing, or the files of a noise
        remedy = "install the same packages on all machines, and put all files where all can read them"
        raise type(error)(f"{socket.gethostname()}: {error.where}", error.what, remedy) from error
