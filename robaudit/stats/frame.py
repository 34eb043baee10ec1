"""The results of a run as columns of numbers, read in one pass over its rows."""

from __future__ import annotations

import math
from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, reduce
from itertools import chain
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from robaudit.errors import NothingLeftError, RunError
from robaudit.levels import LevelChoice, NoiseLevel
from robaudit.numerics.intervals import antithetic_share, clopper_pearson, share_variance
from robaudit.quantities import P_ROBUST, Interval, IntervalKind, Quantity
from robaudit.rows import Row
from robaudit.stats.groups import GroupKey
from robaudit.stats.intervals import Floats, MeasuredImages

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]
Kind = TypeVar("Kind", bound=np.generic)
NO_CLASS = -1
"""In place of a class that is not known."""
_COLUMNS = (
    "place",
    "label",
    "predicted",
    "correct",
    "flips_to",
    "value",
    "lower",
    "upper",
    "std_error",
    "interval",
    "noted",
    "forwards",
    "kept",
    "draws",
    "split",
    "hits",
    "label_draws",
    "label_split",
    "certified_class",
    "highest",
    "difficulty",
    "margin",
    "alpha",
    "largest",
    "asked",
    "step",
)
_NO_CLEAN, _NO_CERTIFICATE = (math.nan,) * 2, (math.nan,) * 3
_MOST = 2.0**53  # of a whole number: a damaged file has larger ones
_BLOCK = 4096  # rows that are turned into columns at a time


class Results(Protocol):
    """A finished run (:class:`robaudit.store.run.Run`), as far as statistics need it."""

    @property
    def path(self) -> Path: ...  # noqa: D102
    @property
    def info(self) -> Mapping[str, Any]: ...  # noqa: D102
    @property
    def rows(self) -> Iterable[Row]: ...  # noqa: D102
    @property
    def frame(self) -> Frame: ...  # noqa: D102
    @property
    def quantities(self) -> Mapping[str, Quantity]: ...  # noqa: D102

    def groups(  # noqa: D102
        self, estimators: Sequence[str] = (), levels: LevelChoice | Sequence[float] = ()
    ) -> dict[tuple[str, NoiseLevel], Columns]: ...

    def chosen(  # noqa: D102
        self, keys: Iterable[tuple[str, NoiseLevel]], estimators: Sequence[str], levels: LevelChoice | Sequence[float]
    ) -> list[tuple[str, NoiseLevel]]: ...


class _Column(Generic[Kind]):
    """A column of :class:`Columns` as an array of one type (n,)."""

    def __init__(self, name: str, kind: type[Kind]) -> None:
        self._name, self._kind = name, kind

    def __get__(self, columns: Columns, owner: type[Columns]) -> NDArray[Kind]:
        return columns.column(self._name, self._kind)


class Columns:
    """The results of one estimator at one noise level: a number of each row in every column, about 50 bytes a row.

    Args:
        key: estimator, noise level and quantity.
        ids: names of the run's images; ``place`` says which is a row's.
        columns: by name, as long as each other.
        intervals: what the column ``interval`` numbers.
        classes: the number of classes that votes are counted for; 0 without votes.
        left_out: rows that had no finite value and are not among these.

    Attributes:
        memo: results that are costly to compute, kept by whoever computed them.
        place: places of the images in :attr:`ids`.
        label, predicted: classes of the clean images; a label is -1 where unknown.
        flips_to: classes that images flip to; -1 where unknown.
        values, lower, upper: as they are written; an end is NaN where a row has none.
        forwards: forward passes.
        kept, draws: votes for the predicted class (-1 without votes), and the noisy copies behind them (0 without).
        split: antithetic pairs that disagree; NaN where copies are independent.
        hits, label_draws: votes for the label, and the noisy copies behind them (0 without a label or votes).
        label_split: as ``split``, of the votes for the label. Where that is not the predicted class it is not known: as if the copies of
            all pairs agreed, which is what varies most.
        certified_class, alpha, largest, asked: of certificates (:class:`robaudit.results.Certificate`); NaN where a row does not say, as
            in the columns that follow.
        highest: the largest losses that were met.
        difficulty, margin: how easy the clean images are.
        step: of the grids of radii.
    """

    place = _Column("place", np.int64)
    label = _Column("label", np.int64)
    predicted = _Column("predicted", np.int64)
    flips_to = _Column("flips_to", np.int64)
    values = _Column("value", np.float64)
    lower = _Column("lower", np.float64)
    upper = _Column("upper", np.float64)
    forwards = _Column("forwards", np.int64)
    kept = _Column("kept", np.int64)
    draws = _Column("draws", np.int64)
    split = _Column("split", np.float64)
    hits = _Column("hits", np.int64)
    label_draws = _Column("label_draws", np.int64)
    label_split = _Column("label_split", np.float64)
    certified_class = _Column("certified_class", np.float64)
    highest = _Column("highest", np.float64)
    difficulty = _Column("difficulty", np.float64)
    margin = _Column("margin", np.float64)
    alpha = _Column("alpha", np.float64)
    largest = _Column("largest", np.float64)
    asked = _Column("asked", np.float64)
    step = _Column("step", np.float64)

    def __init__(
        self,
        key: GroupKey,
        ids: Ids,
        columns: Mapping[str, NDArray[Any]],
        intervals: Sequence[Interval],
        classes: int = 0,
        left_out: int = 0,
    ) -> None:
        self.key, self.ids, self.classes = key, ids, classes
        self.memo: dict[Any, Any] = {}
        self._columns, self._intervals, self._left_out = columns, tuple(intervals), left_out

    def column(self, name: str, kind: type[Kind]) -> NDArray[Kind]:
        """A column as numbers of a type (n,); whole numbers that a damaged file made too large are cut off."""
        column = self._columns[name]
        return (column.clip(-_MOST, _MOST) if kind is np.int64 and column.dtype == np.float64 else column).astype(kind, copy=False)

    @staticmethod
    def of(rows: Iterable[Row]) -> Columns:
        """The columns of rows of one result, at least one."""
        (columns,) = Frame.of(rows).values()
        return columns

    def __len__(self) -> int:
        return len(self._columns["value"])

    # --- selections

    def take(self, chosen: Mask | Ints) -> Columns:
        """Some of the rows, by a mask or by their places."""
        return Columns(self.key, self.ids, {name: column[chosen] for name, column in self._columns.items()}, self._intervals, self.classes)

    def of_images(self, names: Sequence[str]) -> Columns:
        """The rows of some images, in this order."""
        places = {name: i for i, name in enumerate(self.names)}
        return self.take(np.array([places[name] for name in names], dtype=np.int64))

    @cached_property
    def finite(self) -> Columns:
        """The rows whose value is a finite number."""
        known = np.isfinite(self._columns["value"])
        if known.all():
            return self
        chosen = self.take(known)
        chosen._left_out = self.not_finite
        return chosen

    @property
    def not_finite(self) -> int:
        """Number of rows without a finite value, among these or left out of them."""
        return self._left_out + int((~np.isfinite(self._columns["value"])).sum())

    @property
    def names(self) -> list[str]:
        """Ids of the images."""
        return [self.ids[place] for place in self.place.tolist()]

    @property
    def judged(self) -> Mask:
        """Whether it is known if the clean image is classified correctly (n,)."""
        known: Mask = self._columns["correct"] >= 0
        return known

    @property
    def correct(self) -> Mask:
        """Whether the clean image is classified correctly (n,); False where that is not known."""
        right: Mask = self._columns["correct"] == 1
        return right

    @property
    def noted(self) -> int:
        """Number of rows with a note."""
        return int(self._columns["noted"].sum())

    @property
    def label_errors(self) -> Floats:
        """The share of the noisy copies whose class is not the label (n,); 1 without votes."""
        return 1.0 - self.hits / np.maximum(self.draws, 1)

    # --- intervals

    def of_kind(self, *kinds: IntervalKind) -> Mask:
        """Whether a row's interval is of one of these kinds (n,)."""
        return np.isin(self._columns["interval"], [i for i, one in enumerate(self._intervals) if one.kind in kinds])

    @property
    def covers_bias(self) -> Mask:
        """Whether a row's interval covers all of its error."""
        return np.isin(self._columns["interval"], [i for i, one in enumerate(self._intervals) if one.covers_bias])

    @property
    def is_censored(self) -> Mask:
        """Whether the true value is only known to be larger (n,)."""
        return self.of_kind(IntervalKind.CENSORED)

    @property
    def censored(self) -> int:
        """Number of such rows."""
        return int(self.is_censored.sum())

    @property
    def ends(self) -> tuple[Floats, Floats]:
        """The ends of the rows' intervals: infinite where one is open on that side, NaN where there is none.

        A censored value is open above; it is its own lower end, unless the row says less: then a search found nothing, and something
        nearer may have escaped it. Such a row has no lower end but the end of the range, nor has an upper bound. A lower bound has
        no upper end.
        """
        value, lower, upper = self.values, self.lower.copy(), self.upper.copy()
        one_sided = np.isnan(lower) != np.isnan(upper)
        lower[one_sided & np.isnan(lower)], upper[one_sided & np.isnan(upper)] = -np.inf, np.inf
        if (of := self.of_kind(IntervalKind.UPPER_BOUND)).any():
            upper[of] = np.where(np.isnan(self.upper), value, self.upper)[of]
            lower[of] = -np.inf
        if (of := self.of_kind(IntervalKind.LOWER_BOUND)).any():
            lower[of] = np.where(np.isnan(self.lower), value, self.lower)[of]
            upper[of] = np.inf
        if (of := self.is_censored).any():
            lower[of] = np.where(self.lower < value, -np.inf, value)[of]
            upper[of] = np.inf
        return lower, upper

    @property
    def lowers(self) -> Floats:
        """The lower :attr:`ends`; the value itself where there is none. ``uppers``: the upper ones."""
        lowers, _ = self.ends
        return np.where(np.isnan(lowers), self.values, lowers)

    @property
    def uppers(self) -> Floats:
        """See :attr:`lowers`."""
        _, uppers = self.ends
        return np.where(np.isnan(uppers), self.values, uppers)

    @property
    def errors(self) -> Floats | None:
        """Standard errors (n,); None where a row has none."""
        errors = self.column("std_error", np.float64)
        return None if np.isnan(errors).any() else errors

    @property
    def bounded(self) -> int:
        """Number of rows with an interval, possibly open on one side."""
        return int((~np.isnan(self.ends[0])).sum())

    @property
    def approximate(self) -> int:
        """Number of rows whose interval covers the draws only."""
        return int((~self.covers_bias).sum())

    @property
    def adaptive(self) -> bool:
        """Whether the sampling of some rows stopped adaptively."""
        return bool(self.of_kind(IntervalKind.CONFIDENCE_SEQUENCE).any())

    @property
    def cap(self) -> float:
        """The smallest value of the censored rows; infinite without any."""
        return float(self.values[self.is_censored].min(initial=math.inf))

    @property
    def not_found(self) -> int:
        """Number of rows of a search that found nothing, which something nearer may have escaped."""
        return int((self.is_censored & (self.lower < self.values)).sum())

    @property
    def upper_bounds(self) -> int:
        """Number of rows whose true value is at most their value."""
        return int(self.of_kind(IntervalKind.UPPER_BOUND).sum())

    @property
    def lower_bounds(self) -> int:
        """Number of rows whose true value is at least their value."""
        return int(self.of_kind(IntervalKind.LOWER_BOUND).sum())

    # --- votes

    @property
    def share_draws(self) -> Ints:
        """The draws of which a row's value is the share of votes for the predicted class, their number fixed in advance; 0 where it is
        no such share (n,)."""
        draws, kept = self.draws, self.kept
        counted = (self.of_kind(IntervalKind.CLOPPER_PEARSON) & np.isnan(self.split)) | self.of_kind(IntervalKind.ANTITHETIC)
        counted &= (draws > 0) & (kept >= 0)
        counted &= np.abs(kept / np.maximum(draws, 1) - self.values) < 1e-9
        return np.where(counted, draws, 0)

    def images(self, low: float, high: float, unknown: int = 0) -> MeasuredImages:
        """The rows as measured images, for intervals over them.

        Args:
            low, high: the range of possible values.
            unknown: number of further images without a known value.
        """
        draws = alike(self.share_draws)
        split = None if draws is None else antithetic(self.split)
        return MeasuredImages(self.values, self.lowers, self.uppers, low, high, unknown, draws, self.adaptive, split)

    @property
    def approximated(self) -> Mask:
        """Whether a row's value is an approximation and has votes of the same copies, which have no bias (n,)."""
        if self.key.quantity != P_ROBUST.name:
            return np.zeros(len(self), dtype=np.bool_)
        return ~self.covers_bias & (self.draws > 0) & (self.kept >= 0)

    def by_votes(self) -> Columns:
        """The columns with the share of its votes as a row's value, and their interval, where the row's own interval leaves out a bias.

        Votes have no bias for any network, and their interval holds for every p. Rows that have none, and rows whose interval
        covers all of their error, stay as they are.
        """
        return self.of_votes(self.approximated, self.kept, self.draws, self.split)

    def of_votes(self, of: Mask, kept: Ints, draws: Ints, split: Floats) -> Columns:
        """The columns in which some rows (``of``) are as so many copies make them, of which ``kept`` kept the class and, of antithetic
        pairs, ``split`` pairs disagree (NaN: they are independent); all (n,)."""
        if not of.any():
            return self
        changed = {name: self.column(name, np.float64).copy() for name in ("value", "lower", "upper", "std_error", "split", "interval")}
        kinds = (*self._intervals, Interval(IntervalKind.CLOPPER_PEARSON), Interval(IntervalKind.ANTITHETIC))
        for pairs in (False, True):
            some = of & (np.isnan(split) != pairs)
            if not some.any():
                continue
            k, n, apart = kept[some], draws[some], split[some] if pairs else None
            lower, upper = clopper_pearson(k, n) if apart is None else antithetic_share(k, apart, n)
            value = k / n
            changed["value"][some], changed["split"][some] = value, split[some]
            changed["lower"][some], changed["upper"][some] = np.minimum(value, lower), np.maximum(value, upper)
            changed["std_error"][some] = np.sqrt(share_variance(value, n.astype(np.float64), apart))
            changed["interval"][some] = len(self._intervals) + pairs
        columns = {**self._columns, **changed, "kept": np.where(of, kept, self.kept), "draws": np.where(of, draws, self.draws)}
        return Columns(self.key, self.ids, columns, kinds, self.classes, self._left_out)


def antithetic(split: Floats) -> Floats | None:
    """The pairs that disagree, where all rows have some number of them; None where votes are independent (NaN)."""
    return None if np.isnan(split).any() else split


def alike(draws: Ints) -> int | None:
    """The number that all rows have, more than 0; None where there is none."""
    return int(draws[0]) if len(draws) and draws[0] > 0 and (draws == draws[0]).all() else None


class Draft:
    """Columns in the making.

    Args:
        key: what the rows have in common.
        ids: names of the images.
    """

    def __init__(self, key: GroupKey, ids: Ids) -> None:
        self.key, self._ids, self._classes = key, ids, 0
        self._lines: list[tuple[float, ...]] = []
        self._blocks: list[tuple[int, list[NDArray[Any]]]] = []
        self._intervals: dict[Interval, int] = {}

    def add(self, row: Row, place: int = 0) -> None:
        """Add a row of the image at a place."""
        label, votes, split = row.label, row.votes, math.nan
        draws = kept = hits = -1
        label_draws, label_split = 0, math.nan
        if votes is not None and votes.counts:
            self._classes = max(self._classes, len(votes.counts))
            draws, kept = votes.draws, votes.counts[row.predicted] if row.predicted < len(votes.counts) else -1
            if votes.split is not None:
                split = votes.split
            if label is not None:
                hits, label_draws = votes.of(label), draws
                if votes.split is not None:
                    label_split = split if label == row.predicted else hits % 2
        interval = self._intervals.setdefault(row.interval, len(self._intervals))
        self._lines.append(
            (
                place,
                NO_CLASS if label is None else label,
                row.predicted,
                -1 if row.correct is None else row.correct,
                NO_CLASS if row.flips_to is None else row.flips_to,
                row.value,
                _or_nan(row.lower),
                _or_nan(row.upper),
                _or_nan(row.std_error),
                interval,
                bool(row.note),
                row.forwards,
                kept,
                max(draws, 0),
                split,
                max(hits, 0),
                label_draws,
                label_split,
                _or_nan(row.certified_class),
                math.nan if row.loss is None else _or_nan(row.loss.highest),
                *(_NO_CLEAN if row.clean is None else (_or_nan(row.clean.difficulty), _or_nan(row.clean.margin))),
                *(_NO_CERTIFICATE if (of := row.certificate) is None else (_or_nan(of.alpha), _or_nan(of.largest), _or_nan(of.asked))),
                math.nan if row.search is None else _or_nan(row.search.step),
            )
        )
        if len(self._lines) >= _BLOCK:
            self._pack()

    def _pack(self) -> None:
        if self._lines:
            table = np.array(self._lines, dtype=np.float64)
            self._blocks.append((len(table), [_small(column) for column in table.T]))
            self._lines = []

    def columns(self) -> Columns:
        """The columns of the rows so far."""
        self._pack()
        sizes = [size for size, _ in self._blocks]
        parts = zip(*(block for _, block in self._blocks), strict=True)
        columns = dict(zip(_COLUMNS, (_joined(blocks, sizes) for blocks in parts), strict=True))
        columns = columns or dict.fromkeys(_COLUMNS, np.empty(0))
        return Columns(self.key, self._ids, columns, tuple(self._intervals), self._classes)


def _or_nan(value: float | None) -> float:
    return math.nan if value is None else value


def _small(column: Floats) -> NDArray[Any]:
    """The numbers in as few bytes as hold them: one number where all are equal, integers where they are whole."""
    zero = column == 0
    if not (zero & np.signbit(column)).any():  # which only a float has
        if (column == column[0]).all() or np.isnan(column).all():
            return column[:1].copy()
        low, high = column.min(), column.max()
        for kind in (np.int8, np.int16, np.int32):
            if np.iinfo(kind).min <= low and high <= np.iinfo(kind).max and (column == np.trunc(column)).all():
                return column.astype(kind)
    return column.copy()


def _joined(blocks: Sequence[NDArray[Any]], sizes: Sequence[int]) -> NDArray[Any]:
    """The blocks one after the other; a single number is repeated for the whole block."""
    if all(len(block) == 1 for block in blocks) and len({block.astype(np.float64).tobytes() for block in blocks}) == 1:
        return np.broadcast_to(blocks[0], sum(sizes))
    return np.concatenate([np.broadcast_to(_small(block) if len(block) == 1 else block, n) for block, n in zip(blocks, sizes, strict=True)])


class Ids(Sequence[str]):
    """Names in a few bytes more than their text."""

    def __init__(self) -> None:
        self._text, self._ends = bytearray(), array("Q", [0])

    def append(self, name: str) -> None:
        """Add a name behind the others."""
        self._text += name.encode("utf-8", "surrogatepass")
        self._ends.append(len(self._text))

    def __len__(self) -> int:
        return len(self._ends) - 1

    @overload
    def __getitem__(self, index: int) -> str: ...

    @overload
    def __getitem__(self, index: slice) -> list[str]: ...

    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        place = range(len(self))[index]
        return self._text[self._ends[place] : self._ends[place + 1]].decode("utf-8", "surrogatepass")


class FrameBuilder:
    """Collects rows; the rows of an image come one after the other."""

    def __init__(self) -> None:
        self._ids = Ids()
        self._last: str | None = None
        self._drafts: dict[tuple[Any, ...], Draft] = {}

    def add(self, row: Row) -> None:
        """Add a row."""
        if row.sample_id != self._last:
            self._ids.append(row.sample_id)
            self._last = row.sample_id
        key = row.estimator, row.noise, row.level, row.level_name, row.quantity
        draft = self._drafts.get(key)
        if draft is None:
            draft = self._drafts[key] = Draft(GroupKey.of(row), self._ids)
        draft.add(row, len(self._ids) - 1)

    def frame(self) -> Frame:
        """The rows so far."""
        return Frame(self._ids, {draft.key: draft.columns() for draft in self._drafts.values()})


class Frame(Mapping[GroupKey, Columns]):
    """The results of a run by estimator, noise level and quantity, in order of first appearance, which is the spec's order.

    Attributes:
        ids: of the images; columns have their places.
        memo: results that are costly to compute, kept by whoever computed them.
    """

    def __init__(self, ids: Ids, columns: Mapping[GroupKey, Columns]) -> None:
        self.ids, self._columns = ids, columns
        self.memo: dict[Any, Any] = {}

    @staticmethod
    def of(rows: Iterable[Row]) -> Frame:
        """The frame of some rows. Those of an iterator must have the rows of an image together, as a run has them."""
        builder = FrameBuilder()
        for row in _together(rows) if isinstance(rows, list | tuple) else rows:
            builder.add(row)
        return builder.frame()

    def __getitem__(self, key: GroupKey) -> Columns:
        return self._columns[key]

    def __iter__(self) -> Iterator[GroupKey]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)


def _together(rows: Sequence[Row]) -> Iterable[Row]:
    """The rows in order, grouped by image."""
    of_image: dict[str, list[Row]] = {}
    for row in rows:
        of_image.setdefault(row.sample_id, []).append(row)
    return chain.from_iterable(of_image.values())


def measuring(
    run: Results,
    quantities: Collection[str],
    estimators: Sequence[str],
    levels: LevelChoice | Sequence[float],
    *,
    called: str,
    lacking: tuple[str, str],
) -> list[Columns]:
    """The results of some quantities, in the run's order.

    Args:
        run: a finished run.
        quantities: their names.
        estimators, levels: only these.
        called: what such values are called in messages, in the plural.
        lacking: what a run without any lacks, and what would add some.

    Raises:
        RunError: the run has no such result among those named.
    """
    kept = [one for one in run.groups(estimators, levels).values() if one.key.quantity in quantities]
    if kept:
        return kept
    there = [key.estimator for key in run.frame if key.quantity in quantities]
    if there:
        known = ", ".join(dict.fromkeys(there))
        raise RunError(str(run.path), f"has no {called} among the results asked for", f"its {called}: {known}")
    raise RunError(str(run.path), *lacking)


def common_names(columns: Iterable[Columns]) -> list[str]:
    """The ids of the images that all of some results have, of different runs perhaps, in the order of the first."""
    first, *others = (one.names for one in columns)
    kept = reduce(lambda known, names: known & set(names), others, set(first))
    return [name for name in first if name in kept]


def common_places(columns: Iterable[Columns]) -> Ints:
    """The places of the images that all of some results have (n,), ascending."""
    return reduce(np.intersect1d, (one.place for one in columns))


def one_result(rows: Columns | Iterable[Row], where: str) -> Columns:
    """The columns of one result, from its rows if need be.

    Raises:
        NothingLeftError: there is no row.
        ValueError: the rows belong to several results.
    """
    if isinstance(rows, Columns):
        return rows
    frame = Frame.of(rows)
    if not frame:
        raise NothingLeftError(where, "there are no results to read", "audit at least one sample")
    if len(frame) > 1:
        raise ValueError(f"{where}: rows of several groups: {', '.join(map(str, frame))}")
    return next(iter(frame.values()))
