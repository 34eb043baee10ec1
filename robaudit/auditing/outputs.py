"""Write the outputs of a run: samples.csv, samples.json, summary.json and run.json."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import Any

from robaudit.auditing.environment import plugins, versions
from robaudit.auditing.prepare import CheckedAudit
from robaudit.engine.estimator import Review
from robaudit.engine.registry import Task
from robaudit.errors import NothingLeftError
from robaudit.files import Sink, file_sha256, writing
from robaudit.levels import FILE, GAUSSIAN, NoiseLevel
from robaudit.runs.folder import OUTPUTS, RunFolder
from robaudit.runs.info import (
    DataInfo,
    Planned,
    QuantityInfo,
    RunInfo,
    Session,
    Skip,
    Stop,
)
from robaudit.runs.rows import TABLE_COLUMNS, Row, table_values, without_bits
from robaudit.runs.run import SMALL, Run, StoredRows, quantities_of
from robaudit.runs.serialise import SCHEMA_VERSION, csv_lines, lines_json, pieces
from robaudit.runs.state import NAME as STATE
from robaudit.runs.state import SampleResults
from robaudit.spec.model import AuditSpec, ImageOptions, NoiseSpec, base_identity, identity
from robaudit.stats.summary import summarise, summary_json
from robaudit.stats.tally import Tally
from robaudit.text import distinct


def first_info(audit: CheckedAudit, **more: Any) -> RunInfo:
    """The contents of run.json that are known before the first row; ``more``: further fields."""
    spec = audit.spec
    data = audit.data
    document = spec.document()
    names = data.class_names
    class_names = None
    # A thousand names of the spec are not repeated.
    if names is not None and names != spec.dataset.class_names:
        # A name that several classes share gets the index of the class.
        class_names = list(distinct(names))
    return RunInfo(
        schema_version=SCHEMA_VERSION,
        status="running",
        name=spec.title,
        spec=document,
        spec_folder=str(spec.base_dir),
        identity=identity(document),
        base_identity=base_identity(document),
        seed=spec.run.seed,
        **audit.info.model_dump(exclude_unset=True),
        data=DataInfo(where=data.where, class_names=class_names),
        noise=_noise_description(spec),
        plugins=plugins(spec),
        planned=_planned(audit),
        quantities=_quantities(audit.tasks),
        **more,
    )


def _quantities(tasks: Sequence[Task]) -> list[QuantityInfo]:
    """The quantities of the results, each once."""
    quantities = {task.estimator.quantity.name: task.estimator.quantity for task in tasks}
    return [QuantityInfo(**quantity.document()) for quantity in quantities.values()]


def _planned(audit: CheckedAudit) -> Planned:
    """What the run will have when it is complete."""
    draws = {}
    others = 0
    for task in audit.tasks:
        if task.estimator.most_draws is None:
            others += 1
        else:
            draws[task.label] = task.estimator.most_draws
    return Planned(images=len(audit.data), draws=draws, others=others)


def history(
    old: RunInfo | None, command: str | None, device: str, workers: int = 1
) -> dict[str, Any]:
    """The start of the run and all its sessions, including this one."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    # Unset fields are omitted from run.json: a single worker is not mentioned.
    optional = {"workers": workers} if workers > 1 else {}
    session = Session(
        started=now,
        command=command,
        device=device,
        robaudit=versions()["robaudit"] or "",
        **optional,
    )
    earlier_sessions = [] if old is None else old.sessions
    return {
        "started": now if old is None else old.started,
        "command": command,
        "sessions": [*earlier_sessions, session],
    }


def _noise_description(spec: AuditSpec) -> str:
    """How noise and normalisation are applied, as every report prints it."""
    model = spec.model
    normalisation = "no mean/std applied after it"
    if model.mean or model.std:
        normalisation = f"mean {_listed(model.mean)} and std {_listed(model.std)} applied after it"
    noises = "; ".join(_described(noise, _geometry(spec)) for noise in spec.noise) or "none"
    return f"{noises}; {normalisation}"


def _geometry(spec: AuditSpec) -> str:
    """How image files get the size of the network's input; empty if they have it already."""
    images = spec.dataset
    if not isinstance(images, ImageOptions):
        return ""
    steps = {"resize": images.resize, "crop": images.crop}
    return " and ".join(f"{step} {_sides(size)}" for step, size in steps.items() if size)


def _sides(size: int | tuple[int, int]) -> str:
    """A size as text: 224, or 224 x 300."""
    return str(size) if isinstance(size, int) else f"{size[0]} x {size[1]}"


def _described(noise: NoiseSpec, geometry: str) -> str:
    """A noise in a few words: "gaussian noise added to pixels in [0, 1], not clipped" for the usual
    one.

    Args:
        noise: of the spec.
        geometry: how files get the size of the network's input.
    """
    pixels = "pixels in [0, 1]"
    if noise.at == FILE:
        pixels = "the decoded file's pixels in [0, 1]"
    if geometry:
        pixels += f" {'before' if noise.at == FILE else 'after'} {geometry}"
    if noise.kind == GAUSSIAN and noise.at != FILE:
        clipping = "then clipped to [0, 1]" if noise.clip else "not clipped"
        return f"{noise.label} noise added to {pixels}, {clipping}"
    name = noise.label if noise.label == noise.kind else f"{noise.label} ({noise.kind})"
    parts = [f"{name} on {pixels}"]
    parts += [f"{key} {value}" for key, value in noise.options.items()]
    if noise.clip:
        parts.append("clipped to [0, 1]")
    return ", ".join(parts)


def _listed(values: tuple[float, ...]) -> str:
    """Numbers as a list, to four digits."""
    if not values:
        return "none"
    return "[" + ", ".join(f"{value:.4g}" for value in values) + "]"


class _Results:
    """What :func:`finish` accumulates in one pass over a run's results.

    Attributes:
        tally: totals and columns.
        rows_in_memory: the rows themselves, without the bits of their votes; None once they are too
            many.
    """

    def __init__(self, tasks: Sequence[Task], flag: float | None) -> None:
        self.tally = Tally(flag)
        self.rows_in_memory: list[Row] | None = []
        self._characters = 0
        self._reviews: dict[tuple[NoiseLevel, str], Review] = {}
        for task in tasks:
            for name in task.names:
                review = task.estimator.review()
                if review is not None:
                    self._reviews[name] = review

    def add(self, sample: SampleResults) -> None:
        """Count the results of a sample."""
        self.tally.add(sample.rows, sample.digest)
        for row in sample.rows:
            review = self._reviews.get((row.at, row.estimator))
            if review is not None:
                review.add(row, row.predicted)
        # The same limit as for reading: see read_run.
        self._characters += sum(map(len, sample.lines))
        if self._characters > SMALL:
            self.rows_in_memory = None
        elif self.rows_in_memory is not None:
            self.rows_in_memory += map(without_bits, sample.rows)

    def warnings(self) -> list[str]:
        """The warnings of all reviews."""
        texts: list[str] = []
        for (at, name), review in self._reviews.items():
            texts += review.warnings(name, at)
        return texts


def finish(
    folder: RunFolder,
    info: RunInfo,
    results: Iterable[SampleResults],
    skips: Iterable[Skip],
    tasks: Sequence[Task],
    seconds: Mapping[str, float],
    stop: Stop | None = None,
) -> Run:
    """Write the outputs in one pass over the results, with few rows in memory at a time, and mark
    the run complete or stopped.

    Args:
        folder: of the run.
        info: the contents of run.json so far.
        results: the results of every sample, in order.
        skips: the samples that were skipped, in order.
        tasks: every estimator at every noise level.
        seconds: by step, over all sessions of the run.
        stop: why the run ends before it is complete; None: it is complete.

    Returns:
        The run. Its columns and its summary are ready: nothing has to be read back.

    Raises:
        NothingLeftError: every sample was skipped.
    """
    collected = _Results(tasks, info.flag)
    tally = collected.tally
    skipped = list(skips)
    with ExitStack() as files:
        # Each is written beside its place. At the end of the block, when all three are whole, they
        # are synced and renamed one after the other.
        csv, json, summary = (
            files.enter_context(writing(folder.path / name, folder.guard)) for name in OUTPUTS
        )
        _write_rows(results, collected, csv, json, info.class_names)
        if not tally.rows:
            # An error within the block: nothing is renamed. The run.json of a complete run stays
            # that of its outputs.
            if not folder.info().has_outputs:
                folder.write_info(info.model_copy(update={"skipped": skipped}))
            raise NothingLeftError(
                info.data.where,
                f"all {len(skipped)} samples were skipped",
                f"the first: {skipped[0].reason}" if skipped else "",
            )
        table = tally.table()
        summaries = summarise(table, quantities_of(info))
        summary.write(summary_json(summaries).encode())
        digests = {
            "samples.csv": csv.sha256,
            "samples.json": json.sha256,
            "summary.json": summary.sha256,
            STATE: file_sha256(folder.path / STATE),
        }
        # Killed between two of the renames, the run is read from its state.
        if folder.info().has_outputs:
            folder.write_info(info)
    review_warnings = collected.warnings()
    ended: dict[str, Any] = {
        "status": "complete" if stop is None else "stopped",
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        **tally.fields(info, summaries, skipped, seconds),
        "warnings": [*info.warnings, *review_warnings],
        "review_warnings": review_warnings,
        "files": digests,
    }
    if stop is not None and info.planned is not None:
        ended |= {"stopped": stop, "reached": tally.reached(info.planned)}
    complete = info.model_copy(update=ended)
    # Last: run.json has the digests of the files. After a kill between the renames, readers refuse
    # outputs whose digests are not there, and the same command writes all of them again.
    folder.write_info(complete)
    rows: Sequence[Row]
    if collected.rows_in_memory is None:
        rows = StoredRows(folder.path / "samples.json", complete)
    else:
        rows = tuple(collected.rows_in_memory)
    return Run(folder.path, complete, rows).with_columns(table)


def _write_rows(
    results: Iterable[SampleResults],
    collected: _Results,
    csv: Sink,
    json: Sink,
    names: Sequence[str] | None,
) -> None:
    """Write samples.csv and samples.json. A line of samples.json is the state's, as it is."""
    # Both files grow in one pass over the state: whenever a piece of samples.json is written, the
    # rows in it go to samples.csv.
    pending = list[Row]()

    def lines() -> Iterator[str]:
        for sample in results:
            collected.add(sample)
            pending.extend(sample.rows)
            yield from sample.lines

    csv.write("".join(csv_lines([TABLE_COLUMNS])).encode())
    for text in pieces(lines_json(lines())):
        json.write(text.encode())
        csv.write("".join(csv_lines(table_values(row, names) for row in pending)).encode())
        pending.clear()
