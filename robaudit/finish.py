"""The outputs of a finished run: samples.csv, samples.json, summary.json and run.json."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import Any

from robaudit.errors import NothingLeftError
from robaudit.estimators.registry import Task
from robaudit.files import writing
from robaudit.rows import Row
from robaudit.stats.summary import Overview
from robaudit.store.folder import OUTPUTS, RunFolder
from robaudit.store.serialise import rows_csv, rows_json_chunks, summary_json
from robaudit.store.state import SampleResults, Skip


class _Tally:
    """Sees every sample of a run once, and knows at the end what there is to say of all of them."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        self.quantities = {task.chosen.estimator.quantity.name: task.chosen.estimator.quantity for task in tasks}
        self.overview = Overview(self.quantities)
        self.reviews = {(t.sigma, t.chosen.label): review for t in tasks if (review := t.chosen.estimator.review()) is not None}
        self.samples = self.labelled = self.rows = self.forwards = self.backwards = 0
        self.digest = hashlib.sha256()

    def rows_of(self, found: Iterable[SampleResults]) -> Iterator[Row]:
        """The rows, each seen when it is taken."""
        for sample in found:
            first = sample.rows[0]
            self.samples += 1
            self.labelled += first.label is not None
            self.digest.update(f"{first.sample_id}\x1f{sample.digest}\x1f{first.label}\x1e".encode())
            for row in sample.rows:
                self._add(row)
                yield row

    def warnings(self) -> list[str]:
        """What the estimators have to say about all their rows of a noise level."""
        return [text for review in self.reviews.values() for text in review.warnings()]

    def _add(self, row: Row) -> None:
        self.rows += 1
        self.forwards += row.forwards
        self.backwards += row.backwards
        self.overview.add(row)
        if (review := self.reviews.get((row.sigma, row.estimator))) is not None:
            review.add(row)


def finish(
    folder: RunFolder,
    info: Mapping[str, Any],
    found: Iterable[SampleResults],
    skips: Iterable[Skip],
    tasks: Sequence[Task],
    seconds: Mapping[str, float],
) -> None:
    """Write the outputs from the results, sample by sample, and mark the run complete; few rows are in memory at a time.

    Args:
        folder: the run's.
        info: run.json as far as it is known.
        found: every sample's results, in order.
        skips: the samples that were skipped, in order.
        tasks: every estimator at every noise level.
        seconds: by ``estimator@sigma``, the clean pass by itself, over all sessions of the run.

    Raises:
        NothingLeftError: every sample was skipped.
    """
    tally, held = _Tally(tasks), list[Row]()
    skipped = [{"sample_id": skip.sample_id, "reason": skip.reason} for skip in skips]

    def rows() -> Iterator[Row]:
        for row in tally.rows_of(found):
            held.append(row)
            yield row

    header = rows_csv(())
    with ExitStack() as files:
        csv, json, summary = (files.enter_context(writing(folder.path / name, folder.guard)) for name in OUTPUTS)
        csv.write(header.encode())
        for text in rows_json_chunks(rows()):
            json.write(text.encode())
            csv.write(rows_csv(held)[len(header) :].encode())
            held.clear()
        if not tally.rows:
            if folder.info()["status"] != "complete":
                folder.write_info({**info, "skipped": skipped})
            raise NothingLeftError(
                str(info["data"]["where"]),
                f"all {len(skipped)} samples were skipped",
                f"the first: {skipped[0]['reason']}" if skipped else "",
            )
        summaries = tally.overview.summaries()
        summary.write(summary_json(summaries).encode())
        reviewed = tally.warnings()
        digests = {"samples.csv": csv.sha256, "samples.json": json.sha256, "summary.json": summary.sha256}
    folder.write_info(
        {
            **info,
            "status": "complete",
            "finished": datetime.now(UTC).isoformat(timespec="seconds"),
            "data": {**info["data"], "samples": tally.samples, "labelled": tally.labelled, "sha256": tally.digest.hexdigest()},
            "quantities": [quantity.document() for quantity in tally.quantities.values()],
            "clean_accuracy": next((s.clean_accuracy.document() for s in summaries if s.clean_accuracy), None),
            "noisy_accuracy": [
                {"estimator": s.key.estimator, "sigma": s.key.sigma, **s.noisy_accuracy.document()} for s in summaries if s.noisy_accuracy
            ],
            "totals": {
                "samples": tally.samples,
                "skipped": len(skipped),
                "rows": tally.rows,
                "forwards": tally.forwards,
                "backwards": tally.backwards,
                "seconds": round(sum(seconds.values()), 3),
            },
            "seconds": {key: round(spent, 3) for key, spent in seconds.items()},
            "skipped": skipped,
            "warnings": [*info["warnings"], *reviewed],
            "review_warnings": reviewed,
            "files": digests,
        }
    )
