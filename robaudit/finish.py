"""What does a finished run leave behind: samples.csv, samples.json, summary.json and run.json?"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from robaudit.datasets.base import Dataset
from robaudit.errors import NothingLeftError
from robaudit.plan import Task
from robaudit.provenance import data_digest
from robaudit.reports.csv_text import rows_csv
from robaudit.reports.json_text import rows_json, summary_json
from robaudit.rows import Row
from robaudit.runs import PartRecord, RunFolder, Skip, quantity_document
from robaudit.summary.overall import summarise


def finish(folder: RunFolder, info: Mapping[str, Any], dataset: Dataset, tasks: Sequence[Task], parts: Sequence[PartRecord]) -> None:
    """Join the parts, in the order of the data set and the spec, and mark the run complete.

    Raises:
        NothingLeftError: every sample was skipped.
    """
    ids = [dataset.sample_id(i) for i in range(len(dataset))]
    by_key = {row.key: row for part in parts for row in part.rows}
    rows = [by_key[key] for i in ids for task in tasks if (key := (i, task.sigma, task.chosen.label)) in by_key]
    skipped = list({skip.sample_id: skip for part in parts for skip in part.skipped}.values())
    listed = [{"sample_id": skip.sample_id, "reason": skip.reason} for skip in skipped]
    if not rows:
        folder.write_info({**info, "skipped": listed})
        raise NothingLeftError(
            dataset.where, f"all {len(skipped)} samples were skipped", f"the first: {skipped[0].reason}" if skipped else ""
        )
    quantities = {task.chosen.estimator.quantity.name: task.chosen.estimator.quantity for task in tasks}
    summaries = summarise(rows, quantities)
    outputs = {
        "samples.csv": rows_csv(rows).encode(),
        "samples.json": rows_json(rows).encode(),
        "summary.json": summary_json(summaries).encode(),
    }
    for name, data in outputs.items():
        folder.write(name, data)
    images = {sample_id: digest for part in parts for sample_id, digest in part.images.items()}
    folder.write_info(
        {
            **info,
            "status": "complete",
            "finished": datetime.now(UTC).isoformat(timespec="seconds"),
            "data": {**info["data"], **_data(rows, images)},
            "quantities": [quantity_document(quantity) for quantity in quantities.values()],
            "clean_accuracy": next((s.clean_accuracy.document() for s in summaries if s.clean_accuracy), None),
            "noisy_accuracy": [
                {"estimator": s.key.estimator, "sigma": s.key.sigma, **s.noisy_accuracy.document()} for s in summaries if s.noisy_accuracy
            ],
            "totals": _totals(rows, skipped, parts),
            "seconds": _seconds(parts),
            "skipped": listed,
            "warnings": [*info["warnings"], *_reviews(tasks, rows)],
            "files": {name: hashlib.sha256(data).hexdigest() for name, data in outputs.items()},
        }
    )


def _reviews(tasks: Sequence[Task], rows: Sequence[Row]) -> list[str]:
    """What the estimators have to say about all their rows of a noise level."""
    return [
        text
        for task in tasks
        for text in task.chosen.estimator.review([r for r in rows if (r.sigma, r.estimator) == (task.sigma, task.chosen.label)])
    ]


def _data(rows: Sequence[Row], images: Mapping[str, str]) -> dict[str, Any]:
    labels = {row.sample_id: row.label for row in rows}
    return {
        "samples": len(labels),
        "labelled": sum(label is not None for label in labels.values()),
        "sha256": data_digest(labels, images, labels),
    }


def _totals(rows: Sequence[Row], skipped: Sequence[Skip], parts: Sequence[PartRecord]) -> dict[str, Any]:
    return {
        "samples": len({row.sample_id for row in rows}),
        "skipped": len(skipped),
        "rows": len(rows),
        "forwards": sum(row.forwards for row in rows),
        "backwards": sum(row.backwards for row in rows),
        "seconds": round(sum(sum(part.seconds.values()) for part in parts), 3),
    }


def _seconds(parts: Sequence[PartRecord]) -> dict[str, float]:
    """Seconds by ``estimator@sigma`` over all sessions of the run, the clean pass by itself."""
    total: dict[str, float] = {}
    for part in parts:
        for key, seconds in part.seconds.items():
            total[key] = total.get(key, 0.0) + seconds
    return {key: round(seconds, 3) for key, seconds in total.items()}
