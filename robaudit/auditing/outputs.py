"""Write the outputs of a run: samples.csv, samples.json, summary.json and run.json."""

from __future__ import annotations

import hashlib
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
from robaudit.levels import GAUSSIAN, NoiseLevel
from robaudit.runs.folder import OUTPUTS, RunFolder
from robaudit.runs.info import (
    DataInfo,
    NoisyAccuracyInfo,
    QuantityInfo,
    RunInfo,
    Session,
    ShareInfo,
    Skip,
    Totals,
)
from robaudit.runs.rows import TABLE_COLUMNS, Row, table_values, without_bits
from robaudit.runs.run import SMALL, Run, StoredRows
from robaudit.runs.serialise import SCHEMA_VERSION, csv_lines, lines_json, pieces
from robaudit.runs.state import NAME as STATE
from robaudit.runs.state import SampleResults
from robaudit.runs.table import TableBuilder
from robaudit.spec.model import AuditSpec, NoiseSpec, base_identity, identity
from robaudit.stats.summary import GroupSummary, summarise, summary_json
from robaudit.text import distinct


def first_info(audit: CheckedAudit, **more: Any) -> RunInfo:
    """The contents of run.json that are known before the first row; ``more``: other fields of
    it."""
    spec = audit.spec
    data = audit.data
    document = spec.document()
    names = data.class_names
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
        data=DataInfo(
            where=data.where, class_names=None if names is None else list(distinct(names))
        ),
        noise=_noise_description(spec),
        plugins=plugins(spec),
        **more,
    )


def history(
    old: RunInfo | None, command: str | None, device: str, workers: int = 1
) -> dict[str, Any]:
    """The start of the run and all its sessions, including this one."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    several = {"workers": workers} if workers > 1 else {}
    session = Session(
        started=now,
        command=command,
        device=device,
        robaudit=versions()["robaudit"] or "",
        **several,
    )
    before = [] if old is None else old.sessions
    return {
        "started": now if old is None else old.started,
        "command": command,
        "sessions": [*before, session],
    }


def _noise_description(spec: AuditSpec) -> str:
    """How noise and normalisation are applied, as every report prints it."""
    model = spec.model
    normal = (
        f"mean {_listed(model.mean)} and std {_listed(model.std)} applied after it"
        if model.mean or model.std
        else "no mean/std applied after it"
    )
    noises = "; ".join(_described(noise) for noise in spec.noise) or "none"
    return f"{noises}; {normal}"


def _described(noise: NoiseSpec) -> str:
    """A noise in a few words: "gaussian noise added to pixels in [0, 1], not clipped" for the usual
    one."""
    if noise.kind == GAUSSIAN:
        return (
            f"{noise.label} noise added to pixels in [0, 1], "
            f"{'then clipped to [0, 1]' if noise.clip else 'not clipped'}"
        )
    options = [
        *(f"{key} {value}" for key, value in noise.options.items()),
        *(["clipped to [0, 1]"] if noise.clip else []),
    ]
    named = noise.label if noise.label == noise.kind else f"{noise.label} ({noise.kind})"
    return f"{named} on pixels in [0, 1]" + (f", {', '.join(options)}" if options else "")


def _listed(values: tuple[float, ...]) -> str:
    return "[" + ", ".join(f"{v:.4g}" for v in values) + "]" if values else "none"


class _Tally:
    """Accumulates totals, columns and reviews of fits in one pass over a run's results.

    Attributes:
        results: the rows as columns.
        few: the rows themselves, without the bits of their votes, as long as they are few enough to
            be held in memory; else None.
    """

    def __init__(self, tasks: Sequence[Task]) -> None:
        self.quantities = {task.estimator.quantity.name: task.estimator.quantity for task in tasks}
        self.results = TableBuilder()
        self.few: list[Row] | None = []
        reviews = {
            at_and_name: task.estimator.review() for task in tasks for at_and_name in task.names
        }
        self.reviews: dict[tuple[NoiseLevel, str], Review] = {
            key: review for key, review in reviews.items() if review is not None
        }
        # they share the passes of the first
        self.further = {name for task in tasks for name in task.names[1:]}
        self.samples = self.labelled = self.rows = self.forwards = self.backwards = 0
        self.digest = hashlib.sha256()
        self._characters = 0

    def add(self, sample: SampleResults) -> None:
        """Count the results of a sample."""
        first = sample.rows[0]
        self.samples += 1
        self.labelled += first.label is not None
        self.digest.update(f"{first.sample_id}\x1f{sample.digest}\x1f{first.label}\x1e".encode())
        for row in sample.rows:
            self._add(row)
        self._characters += sum(map(len, sample.lines))
        if self._characters > SMALL:
            self.few = None
        elif self.few is not None:
            self.few += map(without_bits, sample.rows)

    def warnings(self) -> list[str]:
        """The warnings of the reviews of all fits at one noise level."""
        return [
            text
            for (at, name), review in self.reviews.items()
            for text in review.warnings(name, at)
        ]

    def _add(self, row: Row) -> None:
        self.rows += 1
        if (row.at, row.estimator) not in self.further:
            self.forwards += row.forwards
            self.backwards += row.backwards
        self.results.add(row)
        review = self.reviews.get((row.at, row.estimator))
        if review is not None:
            review.add(row, row.predicted)


def finish(
    folder: RunFolder,
    info: RunInfo,
    results: Iterable[SampleResults],
    skips: Iterable[Skip],
    tasks: Sequence[Task],
    seconds: Mapping[str, float],
) -> Run:
    """Write the outputs in one pass over the results, with few rows in memory at a time, and mark
    the run complete.

    Args:
        folder: the run's.
        info: the contents of run.json so far.
        results: the results of every sample, in order.
        skips: the samples that were skipped, in order.
        tasks: every estimator at every noise level.
        seconds: by step, over all sessions of the run.

    Returns:
        The finished run. Its columns and its summary are ready: nothing has to be read back.

    Raises:
        NothingLeftError: every sample was skipped.
    """
    tally = _Tally(tasks)
    skipped = list(skips)
    with ExitStack() as files:
        csv, json, summary = (
            files.enter_context(writing(folder.path / name, folder.guard)) for name in OUTPUTS
        )
        _write_rows(results, tally, csv, json, info.data.class_names)
        if not tally.rows:
            if not folder.info().complete:
                folder.write_info(info.model_copy(update={"skipped": skipped}))
            raise NothingLeftError(
                info.data.where,
                f"all {len(skipped)} samples were skipped",
                f"the first: {skipped[0].reason}" if skipped else "",
            )
        frame = tally.results.table()
        summaries = summarise(frame, tally.quantities)
        summary.write(summary_json(summaries).encode())
        digests = {
            "samples.csv": csv.sha256,
            "samples.json": json.sha256,
            "summary.json": summary.sha256,
            STATE: file_sha256(folder.path / STATE),
        }
    complete = _completed(info, tally, summaries, skipped, seconds, digests)
    folder.write_info(complete)
    rows = (
        StoredRows(folder.path / "samples.json", complete)
        if tally.few is None
        else tuple(tally.few)
    )
    return Run(folder.path, complete, rows).with_columns(frame)


def _write_rows(
    results: Iterable[SampleResults],
    tally: _Tally,
    csv: Sink,
    json: Sink,
    names: Sequence[str] | None,
) -> None:
    """Write samples.csv and samples.json. A line of samples.json is the state's, as it is."""
    pending = list[Row]()  # in samples.json, not yet in samples.csv

    def lines() -> Iterator[str]:
        for sample in results:
            tally.add(sample)
            pending.extend(sample.rows)
            yield from sample.lines

    csv.write("".join(csv_lines([TABLE_COLUMNS])).encode())
    for text in pieces(lines_json(lines())):
        json.write(text.encode())
        csv.write("".join(csv_lines(table_values(row, names) for row in pending)).encode())
        pending.clear()


def _completed(
    info: RunInfo,
    tally: _Tally,
    summaries: Sequence[GroupSummary],
    skipped: list[Skip],
    seconds: Mapping[str, float],
    digests: Mapping[str, str | None],
) -> RunInfo:
    """The contents of run.json of the complete run."""
    accuracies = [
        NoisyAccuracyInfo(
            estimator=s.key.estimator, **s.key.at.document(), **s.noisy_accuracy.document()
        )
        for s in summaries
        if s.noisy_accuracy
    ]
    review_warnings = tally.warnings()
    seen = {
        "samples": tally.samples,
        "labelled": tally.labelled,
        "sha256": tally.digest.hexdigest(),
    }
    complete = {
        "status": "complete",
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "data": info.data.model_copy(update=seen),
        "quantities": [
            QuantityInfo(**quantity.document()) for quantity in tally.quantities.values()
        ],
        "clean_accuracy": next(
            (ShareInfo(**s.clean_accuracy.document()) for s in summaries if s.clean_accuracy), None
        ),
        "noisy_accuracy": accuracies,
        "totals": Totals(
            samples=tally.samples,
            skipped=len(skipped),
            rows=tally.rows,
            forwards=tally.forwards,
            backwards=tally.backwards,
            seconds=round(sum(seconds.values()), 3),
        ),
        "seconds": {key: round(spent, 3) for key, spent in seconds.items()},
        "skipped": skipped,
        "warnings": [*info.warnings, *review_warnings],
        "review_warnings": review_warnings,
        "files": digests,
    }
    return info.model_copy(update=complete)
