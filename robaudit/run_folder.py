"""Where does a run stand on disk: run.json, its parts, and the outputs made from them?"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from robaudit.errors import RunError
from robaudit.files import file_sha256, json_bytes, read_json, remove_leftovers, sealed, unsealed, write_atomically
from robaudit.parts import PartFiles
from robaudit.rows import Row
from robaudit.run_info import check_info

SCHEMA_VERSION = 1
OUTPUTS = ("samples.csv", "samples.json", "summary.json")
_ALWAYS = ("status", "name", "spec", "spec_folder", "identity", "base_identity", "model", "data", "noise")
_COMPLETE = ("quantities", "totals", "seconds", "skipped", "files")


class RunFolder:
    """Reads and writes one run folder; every write is an atomic rename."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.parts = PartFiles(path / "parts")

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
            strangers = [p.name for p in self.path.iterdir() if not p.name.startswith(".") and not _is_begun(p)]
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
        """run.json without its checksum, checked for that, its version and its keys.

        Raises:
            RunError: it is missing, damaged or of another version.
        """
        where = str(self.path / "run.json")
        info = read_json(self.path / "run.json")
        if not isinstance(info, dict) or info.get("schema_version") != SCHEMA_VERSION:
            raise RunError(where, f"is not of schema version {SCHEMA_VERSION}", "read it with the robaudit that wrote it")
        info = unsealed(info, self.path / "run.json")
        lacking = [key for key in (*_ALWAYS, *(_COMPLETE if info.get("status") == "complete" else ())) if key not in info]
        if lacking:
            raise RunError(where, f"is damaged (it lacks {lacking[0]!r})", "run the audit again in another folder")
        check_info(info, where)
        return info

    def whole(self, info: Mapping[str, Any]) -> bool:
        """Whether the outputs of a complete run are those that its run.json describes."""
        return all(file_sha256(self.path / name) == info["files"].get(name) for name in OUTPUTS)

    def rows_so_far(self) -> list[Row]:
        """The rows of the parts, each once: samples as they came, noise levels and estimators as in the spec."""
        spec = self.info()["spec"]
        labels = [label_of(entry) for entry in spec["estimators"]]
        tasks = {task: i for i, task in enumerate((sigma, label) for sigma in spec["noise"]["sigma"] for label in labels)}
        skipped = {skip.sample_id for part in self.parts for skip in part.skipped}
        rows = {row.key: row for part in self.parts for row in part.rows if row.sample_id not in skipped}
        samples = {sample_id: i for i, sample_id in enumerate(dict.fromkeys(row.sample_id for row in rows.values()))}
        return sorted(rows.values(), key=lambda row: (samples[row.sample_id], tasks.get((row.sigma, row.estimator), len(tasks))))

    def clean(self) -> None:
        """Remove what killed processes left behind; the folder's lock is held."""
        remove_leftovers(self.path)
        remove_leftovers(self.path / "parts")

    def write_info(self, info: Mapping[str, Any]) -> None:
        """Write run.json."""
        write_atomically(self.path / "run.json", json_bytes(sealed(info)), self.parts.guard)


def _is_begun(path: Path) -> bool:
    """Whether it is the empty folder of parts of a run that was killed before it wrote anything."""
    return path.name == "parts" and path.is_dir() and not any(path.iterdir())


def label_of(entry: Mapping[str, Any]) -> str:
    """The name in the results of an estimator of a spec's document."""
    return str(entry["options"].get("label") or entry["name"])
