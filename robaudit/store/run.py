"""A finished run: its description, its rows, their groups and summaries."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robaudit.errors import RunError
from robaudit.files import file_sha256
from robaudit.levels import LevelChoice, NoiseLevel
from robaudit.names import ResultName, matches
from robaudit.quantities import Quantity
from robaudit.rows import Row
from robaudit.store.folder import RunFolder
from robaudit.store.serialise import stream_rows_json

if TYPE_CHECKING:
    from robaudit.stats.frame import Columns, Frame
    from robaudit.stats.summary import GroupSummary

_SMALL = 2**24  # bytes of a samples.json whose rows are kept in memory


class StoredRows(Sequence[Row]):
    """The rows of a large samples.json: iterating reads the file again and keeps nothing in memory.

    Taking the length or an index reads all rows and keeps them.

    Args:
        path: of the file.
        info: the run's run.json.
        kept: also read which draws kept the class.

    Attributes:
        owner: an object that must live as long as the rows: the temporary folder of the file, if any.
    """

    def __init__(self, path: Path, info: Mapping[str, Any], *, kept: bool = False) -> None:
        self.owner: object = None
        self._path, self._kept = path, kept
        self._quantities = {quantity["name"] for quantity in info["quantities"]}
        self._version = self._file_version()

    def __iter__(self) -> Iterator[Row]:
        where = str(self._path)
        if self._file_version() != self._version:
            raise RunError(where, "has changed since it was opened", "read the run again")
        with self._path.open("rb") as file:
            for row in stream_rows_json(file, where, bits=self._kept):
                if row.quantity not in self._quantities:
                    what = f"has results of {row.quantity!r}, which run.json does not describe"
                    raise RunError(where, what, "run the audit again in another folder")
                yield row

    def __len__(self) -> int:
        return len(self._all)

    def __getitem__(self, index: Any) -> Any:
        return self._all[index]

    @cached_property
    def _all(self) -> tuple[Row, ...]:
        return tuple(iter(self))

    def _file_version(self) -> tuple[int, int]:
        about = self._path.stat()
        return about.st_ino, about.st_mtime_ns


@dataclass(frozen=True)
class Run:
    """A finished run, for the commands that read runs and the Python API.

    Attributes:
        path: the run folder.
        info: run.json.
        rows: one result for each sample, noise level and estimator, in the order of samples.csv.
    """

    path: Path
    info: Mapping[str, Any]
    rows: Sequence[Row]

    @cached_property
    def frame(self) -> Frame:
        """The results as columns of numbers; the rows are read when it is first asked for."""
        from robaudit.stats.frame import Frame

        return Frame.of(self.rows)

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """Class names by index; None if the data set has none."""
        names = self.info["data"]["class_names"]
        return None if names is None else tuple(names)

    @property
    def seconds(self) -> dict[tuple[str, NoiseLevel], float]:
        """Seconds of each computation, by estimator and noise level."""
        pairs = (key.partition("@")[::2] for key in self.info["seconds"] if "@" in key)
        return {(label, NoiseLevel.from_key(at)): self.info["seconds"][f"{label}@{at}"] for label, at in pairs}

    def seconds_of(self, name: str, at: NoiseLevel) -> float | None:
        """Seconds of the computation behind a result (which may have given others, too); None if they were not measured."""
        seconds = self.seconds
        return seconds.get((name, at), seconds.get((ResultName.parse(name).estimator, at)))

    @property
    def quantities(self) -> dict[str, Quantity]:
        """The quantities of the run by name."""
        return {values["name"]: Quantity.from_document(values) for values in self.info["quantities"]}

    def groups(self, estimators: Sequence[str] = (), levels: LevelChoice | Sequence[float] = ()) -> dict[tuple[str, NoiseLevel], Columns]:
        """Results by name and noise level, in the run's order: those that the arguments name, or all.

        Raises:
            RunError: the run has no such estimator or noise level.
        """
        groups = {(key.estimator, key.at): columns for key, columns in self.frame.items()}
        return {key: groups[key] for key in self.chosen(groups, estimators, levels)}

    def chosen(
        self, keys: Iterable[tuple[str, NoiseLevel]], estimators: Sequence[str], levels: LevelChoice | Sequence[float]
    ) -> list[tuple[str, NoiseLevel]]:
        """The groups of the run that the arguments name, in the run's order; all of them without arguments.

        The name of an estimator that gives several values of an image means all of them; ``label:q=100`` means one.

        Raises:
            RunError: the run has no such estimator or noise level.
        """
        keys = list(keys)
        names = dict.fromkeys(name for name, _ in keys)
        for asked in estimators:
            if not any(matches(name, asked) for name in names):
                raise RunError(str(self.path), f"has no estimator {asked}", f"it has {', '.join(names)}")
        meant = set(LevelChoice.of(levels).among((at for _, at in keys), str(self.path)))
        return [(name, at) for name, at in keys if at in meant and (not estimators or any(matches(name, asked) for asked in estimators))]

    def summary(self) -> tuple[GroupSummary, ...]:
        """Mean, quantiles and shares for each estimator and noise level."""
        from robaudit.stats.summary import summarise

        return summarise(self.frame, self.quantities)


def read_run(path: Path, *, kept: bool = False) -> Run:
    """Open a finished run; the rows of a large one are read when they are used.

    Args:
        path: the run folder.
        kept: also read which draws kept the class (:attr:`robaudit.results.Votes.bits`), which takes more memory than the rest of a row.

    Raises:
        RunError: it is missing, damaged or unfinished.
    """
    folder = RunFolder(path)
    info = folder.info()
    if info["status"] != "complete":
        raise RunError(str(path), "this run is unfinished", "resume it: run the same robaudit estimate command again")
    if file_sha256(path / "samples.json") != info["files"].get("samples.json"):
        raise RunError(
            str(path / "samples.json"),
            "is missing, or has changed since it was written",
            "run the same robaudit estimate command again: it restores the file from the run's state",
        )
    samples = path / "samples.json"
    rows = StoredRows(samples, info, kept=kept)
    return Run(path, info, rows if samples.stat().st_size > _SMALL else tuple(rows))
