"""A run: its description, its results as rows and as columns, and selections of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from robaudit.errors import RunError
from robaudit.levels import LevelChoice, NoiseLevel
from robaudit.names import ResultName, matches
from robaudit.quantities import Quantity
from robaudit.runs.groups import GroupKey
from robaudit.runs.info import RunInfo
from robaudit.runs.rows import Row
from robaudit.runs.serialise import stream_rows_json
from robaudit.runs.table import Columns, ResultTable

if TYPE_CHECKING:
    from robaudit.datasets.dataset import Dataset

# Bytes of a samples.json whose rows are held in memory; larger ones are read anew for each pass.
SMALL = 2**24


@dataclass(frozen=True)
class Run:
    """A run, for the commands that read runs and the Python API.

    Attributes:
        path: the run folder.
        info: run.json.
        rows: one result for each sample, noise level and estimator, in the order of samples.csv.
        data: the data set in memory that this process audited; None: the spec says where it is.
    """

    path: Path
    info: RunInfo
    rows: Sequence[Row]
    data: Dataset | None = field(default=None, compare=False, repr=False)

    @cached_property
    def table(self) -> ResultTable:
        """The results as columns of numbers; the rows are read on first use."""
        return ResultTable.from_rows(self.rows)

    def with_columns(self, frame: ResultTable) -> Self:
        """This run with the columns of its rows, which the caller has already; :attr:`table` then
        reads no rows."""
        vars(self)["table"] = frame  # where a cached property keeps its value
        return self

    @cached_property
    def class_names(self) -> tuple[str, ...] | None:
        """Class names by index, each by its first synonym; None if the data set has none."""
        return self.info.class_names

    @property
    def seconds(self) -> dict[tuple[str, NoiseLevel], float]:
        """Seconds of each computation, by estimator and noise level."""
        seconds = {}
        for step, spent in self.info.seconds.items():
            # Steps without an @, such as the clean pass, belong to all estimators.
            estimator, separator, level_key = step.partition("@")
            if separator:
                seconds[estimator, NoiseLevel.from_key(level_key)] = spent
        return seconds

    def seconds_of(self, name: str, at: NoiseLevel) -> float | None:
        """Seconds of the computation behind a result, which it may share with other results; None
        if not measured."""
        seconds = self.seconds
        return seconds.get((name, at), seconds.get((ResultName.parse(name).estimator, at)))

    @property
    def quantities(self) -> dict[str, Quantity]:
        """The quantities of the run by name."""
        return quantities_of(self.info)

    def groups(
        self, estimators: Sequence[str] = (), levels: LevelChoice | Sequence[float] = ()
    ) -> dict[GroupKey, Columns]:
        """The results that the arguments name, or all, in the run's order.

        Raises:
            RunError: the run has no such estimator or noise level.
        """
        keys = chosen(self.table, estimators, levels, str(self.path))
        return {key: self.table[key] for key in keys}


class StoredRows(Sequence[Row]):
    """The rows of a large samples.json: each iteration reads the file again, one row at a time.

    The length and an index read all rows into memory.

    Args:
        path: of the file.
        info: the content of run.json.
        kept: whether to read which draws kept the class, too.

    Attributes:
        owner: an object that must live as long as the rows: the temporary folder of the file, if
            any.
    """

    def __init__(self, path: Path, info: RunInfo, *, kept: bool = False) -> None:
        self.owner: object = None
        self._path = path
        self._with_bits = kept
        self._quantities = {quantity.name for quantity in info.quantities}
        # Later passes must read this file, whose digest is known, not one that replaced it.
        self._version = self._file_version()

    def __iter__(self) -> Iterator[Row]:
        where = str(self._path)
        if self._file_version() != self._version:
            raise RunError(where, "has changed since it was opened", "read the run again")
        with self._path.open("rb") as file:
            for row in stream_rows_json(file, where, bits=self._with_bits):
                # Without a description its range and direction are unknown to every reader.
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
        """Inode and time of the last change: an atomic rename changes the first, an edit the
        second."""
        status = self._path.stat()
        return status.st_ino, status.st_mtime_ns


def quantities_of(info: RunInfo) -> dict[str, Quantity]:
    """The quantities of a run by name."""
    return {
        quantity.name: Quantity.from_document(quantity.model_dump()) for quantity in info.quantities
    }


def chosen(
    keys: Iterable[GroupKey],
    estimators: Sequence[str],
    levels: LevelChoice | Sequence[float],
    where: str,
) -> list[GroupKey]:
    """The results that the arguments name, or all, in the order of ``keys``.

    The name of an estimator with several values for an image means all of them; ``label:q=100``
    means a single value.

    Args:
        keys: of the results to choose from.
        estimators: names; empty: all.
        levels: noise levels; empty: all.
        where: the owner of the results, for messages.

    Raises:
        RunError: there is no such estimator or noise level.
    """
    keys = list(keys)
    names = dict.fromkeys(key.estimator for key in keys)
    chosen_names = set() if estimators else set(names)
    for wanted in estimators:
        matching = [name for name in names if matches(name, wanted)]
        if not matching:
            raise RunError(where, f"has no estimator {wanted}", f"it has {', '.join(names)}")
        chosen_names.update(matching)
    chosen_levels = set(LevelChoice.from_levels(levels).among((key.at for key in keys), where))
    return [key for key in keys if key.at in chosen_levels and key.estimator in chosen_names]


def measuring(
    run: Run,
    quantities: Collection[str],
    estimators: Sequence[str],
    levels: LevelChoice | Sequence[float],
    *,
    called: str,
    lacking: tuple[str, str],
) -> list[Columns]:
    """The chosen results that measure one of these quantities, in the run's order.

    Args:
        run: a finished run.
        quantities: names of quantities.
        estimators, levels: only these results; empty: all.
        called: the plural noun for the values in messages.
        lacking: problem and remedy for a run without such results.

    Raises:
        RunError: the chosen results have none of these quantities.
    """
    groups = run.groups(estimators, levels).values()
    measured = [columns for columns in groups if columns.key.quantity in quantities]
    if measured:
        return measured
    # Two messages: the choice is wrong, or the run has nothing to choose from.
    available = [key.estimator for key in run.table if key.quantity in quantities]
    if available:
        names = ", ".join(dict.fromkeys(available))
        raise RunError(
            str(run.path), f"has no {called} among the chosen results", f"its {called}: {names}"
        )
    raise RunError(str(run.path), *lacking)
