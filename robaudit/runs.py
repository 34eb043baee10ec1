"""What is on disk: a run folder of checksummed parts, and the samples, summary and provenance made from them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robaudit.errors import RunError
from robaudit.estimators.base import Quantity
from robaudit.files import file_sha256, json_bytes, read_json, read_with_checksum, with_checksum, write_atomically
from robaudit.reports.json_text import checked_row, read_rows_json
from robaudit.rows import Row
from robaudit.run_info import check_info, check_rows

if TYPE_CHECKING:
    from robaudit.summary.overall import GroupSummary

SCHEMA_VERSION = 1
OUTPUTS = ("samples.csv", "samples.json", "summary.json")
_ALWAYS = ("status", "name", "spec", "spec_folder", "identity", "base_identity", "model", "data", "noise")
_COMPLETE = ("quantities", "totals", "seconds", "skipped", "files")


@dataclass(frozen=True, slots=True)
class Skip:
    """A sample that could not be used, and why."""

    sample_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class PartRecord:
    """What one step of the audit computed: rows, skips, image digests by id, and seconds by estimator."""

    rows: Sequence[Row] = ()
    skipped: Sequence[Skip] = ()
    images: Mapping[str, str] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "rows": [row.document() for row in self.rows],
            "skipped": [[skip.sample_id, skip.reason] for skip in self.skipped],
            "images": dict(self.images),
            "seconds": dict(self.seconds),
        }

    @classmethod
    def from_document(cls, values: Mapping[str, Any]) -> PartRecord:
        """The inverse of :meth:`document`.

        Raises:
            LookupError, TypeError, ValueError: they are no such document.
        """
        return cls(
            rows=[checked_row(row) for row in values["rows"]],
            skipped=[Skip(str(sample_id), str(reason)) for sample_id, reason in values["skipped"]],
            images={str(key): str(digest) for key, digest in values["images"].items()},
            seconds={str(key): float(seconds) for key, seconds in values["seconds"].items()},
        )


@dataclass(frozen=True, slots=True)
class Run:
    """A finished run, as the reading commands and the Python API see it.

    Attributes:
        path: the run folder.
        info: run.json.
        rows: one result for each sample, noise level and estimator, in the order of samples.csv.
    """

    path: Path
    info: Mapping[str, Any]
    rows: tuple[Row, ...]

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """Class names by index, where the data set has them."""
        names = self.info["data"]["class_names"]
        return None if names is None else tuple(names)

    @property
    def seconds(self) -> dict[tuple[str, float], float]:
        """Seconds by estimator and sigma."""
        pairs = (key.rsplit("@", 1) for key in self.info["seconds"] if "@" in key)
        return {(label, float(sigma)): self.info["seconds"][f"{label}@{sigma}"] for label, sigma in pairs}

    @property
    def quantities(self) -> dict[str, Quantity]:
        """The quantities of the run by name."""
        return {values["name"]: _quantity(values) for values in self.info["quantities"]}

    def groups(self, estimators: Sequence[str] = (), sigmas: Sequence[float] = ()) -> dict[tuple[str, float], list[Row]]:
        """Rows by estimator and sigma, in the run's order; the arguments keep those named.

        Raises:
            RunError: the run has no such estimator or sigma.
        """
        found: dict[tuple[str, float], list[Row]] = {}
        for row in self.rows:
            found.setdefault((row.estimator, row.sigma), []).append(row)
        _known(self.path, "estimator", estimators, dict.fromkeys(name for name, _ in found))
        levels = dict.fromkeys(sigma for _, sigma in found)
        sigmas = [_level(sigma, list(levels)) for sigma in sigmas]
        _known(self.path, "sigma", sigmas, levels)
        keys = [key for key in found if (not estimators or key[0] in estimators) and (not sigmas or key[1] in sigmas)]
        return {key: found[key] for key in sorted(keys, key=list(found).index)}

    def summary(self) -> tuple[GroupSummary, ...]:
        """Mean, quantiles and shares for each estimator and noise level."""
        from robaudit.summary.overall import summarise

        return summarise(self.rows, self.quantities)


def quantity_document(quantity: Quantity) -> dict[str, Any]:
    """A quantity as JSON values; an end of its range that is infinite is null."""
    return {key: None if isinstance(value, float) and math.isinf(value) else value for key, value in asdict(quantity).items()}


def label_of(entry: Mapping[str, Any]) -> str:
    """The name in the results of an estimator of a spec's document."""
    return str(entry["options"].get("label") or entry["name"])


def _quantity(values: Mapping[str, Any]) -> Quantity:
    low, high = (end if values[key] is None else values[key] for key, end in (("low", -math.inf), ("high", math.inf)))
    return Quantity(**{**values, "low": low, "high": high})


def _level(sigma: float, levels: Sequence[float]) -> float:
    """The level that is meant: itself, or the only one within half a percent (tables print 8/255 as 0.0314)."""
    near = [level for level in levels if abs(level - sigma) <= 0.005 * level]
    return near[0] if sigma not in levels and len(near) == 1 else sigma


def _known(path: Path, what: str, wanted: Sequence[Any], present: Mapping[Any, None]) -> None:
    for value in wanted:
        if value not in present:
            raise RunError(str(path), f"has no {what} {value}", "it has " + ", ".join(str(p) for p in present))


class RunFolder:
    """Reads and writes one run folder; every write is an atomic rename."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._next_part: int | None = None

    @property
    def exists(self) -> bool:
        """Whether a run was begun here."""
        try:
            return (self.path / "run.json").exists()
        except OSError:  # no name the file system takes: create() says so
            return False

    def check(self) -> None:
        """Refuse a path that can be no run folder, before anything dear is done and without making anything.

        Raises:
            RunError: it is a file, or a folder with files that are no run's.
        """
        try:
            if not self.path.exists():
                return
            strangers = [p.name for p in self.path.iterdir() if not p.name.startswith(".")]
        except OSError as error:
            raise RunError(str(self.path), f"cannot be made a run folder: {error.strerror or error}", "choose another --out") from error
        if strangers and not self.exists:
            raise RunError(str(self.path), f"is no run folder and is not empty ({strangers[0]} is in it)", "choose another --out")

    def create(self) -> None:
        """Make the folder.

        Raises:
            RunError: it cannot be made or written.
        """
        try:
            (self.path / "parts").mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunError(str(self.path), f"cannot be made a run folder: {error.strerror or error}", "choose another --out") from error

    def info(self) -> dict[str, Any]:
        """run.json, checked for its version and its keys.

        Raises:
            RunError: it is missing, damaged or of another version.
        """
        where = str(self.path / "run.json")
        info = read_json(self.path / "run.json")
        if not isinstance(info, dict) or info.get("schema_version") != SCHEMA_VERSION:
            raise RunError(where, f"is not of schema version {SCHEMA_VERSION}", "read it with the robaudit that wrote it")
        lacking = [key for key in (*_ALWAYS, *(_COMPLETE if info.get("status") == "complete" else ())) if key not in info]
        if lacking:
            raise RunError(where, f"is damaged (it lacks {lacking[0]!r})", "run the audit again in another folder")
        check_info(info, where)
        return info

    def whole(self, info: Mapping[str, Any]) -> bool:
        """Whether the outputs of a complete run are those that its run.json describes."""
        return all(file_sha256(self.path / name) == info["files"].get(name) for name in OUTPUTS)

    def parts(self) -> list[PartRecord]:
        """All parts in the order they were written."""
        return [_part(p) for p in sorted((self.path / "parts").glob("part-*.json"))]

    def rows_so_far(self) -> list[Row]:
        """The rows of the parts, each once: samples as they came, noise levels and estimators as in the spec."""
        spec = self.info()["spec"]
        labels = [label_of(entry) for entry in spec["estimators"]]
        tasks = {task: i for i, task in enumerate((sigma, label) for sigma in spec["noise"]["sigma"] for label in labels)}
        rows = {row.key: row for part in self.parts() for row in part.rows}
        samples = {sample_id: i for i, sample_id in enumerate(dict.fromkeys(row.sample_id for row in rows.values()))}
        return sorted(rows.values(), key=lambda row: (samples[row.sample_id], tasks.get((row.sigma, row.estimator), len(tasks))))

    def write_part(self, record: PartRecord) -> None:
        """Add a part."""
        if self._next_part is None:
            numbers = [int(p.stem.removeprefix("part-")) for p in (self.path / "parts").glob("part-*.json")]
            self._next_part = max(numbers, default=-1) + 1
        write_atomically(self.path / "parts" / f"part-{self._next_part:06d}.json", with_checksum(record.document()))
        self._next_part += 1

    def write(self, name: str, data: bytes) -> None:
        """Write one of the run's files."""
        write_atomically(self.path / name, data)

    def write_info(self, info: Mapping[str, Any]) -> None:
        """Write run.json."""
        self.write("run.json", json_bytes(info))


def _part(path: Path) -> PartRecord:
    document = read_with_checksum(path)
    try:
        return PartRecord.from_document(document)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise RunError(
            str(path), f"is no part of a run ({error})", "delete this file and run the same command: its samples are redone"
        ) from error


def read_run(path: Path) -> Run:
    """Open a finished run.

    Raises:
        RunError: it is missing, damaged or unfinished.
    """
    folder = RunFolder(path)
    if not path.is_dir():
        raise RunError(str(path), "is no run folder", "name a folder that robaudit estimate has written")
    info = folder.info()
    if info["status"] != "complete":
        raise RunError(str(path), "this run is unfinished", "resume it: run the same robaudit estimate command again")
    if file_sha256(path / "samples.json") != info["files"].get("samples.json"):
        raise RunError(
            str(path / "samples.json"),
            "is missing or not as it was written",
            "run the same robaudit estimate command again: it is made anew from the parts",
        )
    rows = read_rows_json((path / "samples.json").read_bytes(), str(path / "samples.json"))
    check_rows(rows, info, str(path / "samples.json"))
    return Run(path, info, tuple(rows))
