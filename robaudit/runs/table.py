"""The results of a run as columns of numbers, read in one pass over its rows."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, reduce
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robaudit.numerics.image_intervals import Floats, Mask, MeasuredImages, restated
from robaudit.numerics.intervals import antithetic_share, clopper_pearson, share_variance
from robaudit.quantities import P_ROBUST, Interval, IntervalKind
from robaudit.runs.groups import GroupKey
from robaudit.runs.rows import Row

Ints = NDArray[Any]
"""Integers."""
NO_CLASS = -1
"""The index of an unknown class."""
_MOST = 2.0**53  # the largest integer; a damaged file may have larger ones
_BLOCK = 1024  # rows converted to columns at a time


Reader = Callable[[Row], Any]


def _number(read: Reader) -> dict[str, Any]:
    """Metadata of a column of floats, NaN where a row has none."""
    return {"read": read, "kind": np.float64}


def _whole(read: Reader, unknown: int = 0) -> dict[str, Any]:
    """Metadata of a column of integers."""
    return {"read": read, "kind": np.int64, "unknown": unknown}


def _class(read: Reader) -> dict[str, Any]:
    """Metadata of a column of classes."""
    return {"read": read, "kind": np.int32, "unknown": NO_CLASS}


def _fact(read: Reader) -> dict[str, Any]:
    """Metadata of a column of booleans."""
    return {"read": read, "kind": np.bool_}


def _kept(row: Row) -> int | None:
    """The votes for the predicted class."""
    return (
        row.votes.counts[row.predicted]
        if row.votes is not None and row.predicted < len(row.votes.counts)
        else None
    )


def _label_split(row: Row) -> float | None:
    if row.label is None or row.votes is None or row.votes.split is None:
        return None
    return row.votes.split if row.label == row.predicted else row.votes.of(row.label) % 2


@dataclass(eq=False)
class Columns:
    """The results of one estimator at one noise level as columns, with a number for each row (n,).

    Attributes:
        key: estimator, noise level and quantity.
        ids: names of the run's images.
        intervals: the distinct intervals, which the column ``interval`` indexes.
        place: indices of the images in :attr:`ids`.
        label, predicted: classes of the clean images; a label is -1 where unknown.
        judged, correct: whether correctness is known, and whether the clean image is classified
            correctly.
        flips_to: classes that images flip to; -1 where unknown.
        values, lower, upper, std_error: as stored; NaN where a row has none.
        interval: indices of the intervals.
        remarked: whether a row has a note.
        forwards: forward passes.
        kept, draws: votes for the predicted class (-1 without votes), and the noisy copies behind
            them (0 without).
        split: antithetic pairs that disagree; NaN where copies are independent.
        hits, label_draws: votes for the label, and the noisy copies behind them (0 without a label
            or votes).
        label_split: as ``split``, for the votes for the label; unknown where that is not the
            predicted class: then as if the copies of all pairs agreed, which has the largest
            variance.
        certified_class, alpha, largest, asked: of certificates
            (:class:`robaudit.results.Certificate`); NaN where a row does not say, as in the columns
            that follow.
        highest: the largest losses of the search or the copies.
        difficulty, margin: of the clean images.
        step: of the grids of radii.
        classes: the number of classes that votes are counted for; 0 without votes.
        left_out: number of rows without a finite value that were left out.
        memo: cache of costly results for the functions that compute them.
    """

    key: GroupKey
    ids: Sequence[str]
    intervals: tuple[Interval, ...]
    place: Ints
    interval: Ints
    label: Ints = field(metadata=_class(lambda row: row.label))
    predicted: Ints = field(metadata=_class(lambda row: row.predicted))
    judged: Mask = field(metadata=_fact(lambda row: row.correct is not None))
    correct: Mask = field(metadata=_fact(lambda row: row.correct is True))
    flips_to: Ints = field(metadata=_class(lambda row: row.flips_to))
    values: Floats = field(metadata=_number(lambda row: row.value))
    lower: Floats = field(metadata=_number(lambda row: row.lower))
    upper: Floats = field(metadata=_number(lambda row: row.upper))
    std_error: Floats = field(metadata=_number(lambda row: row.std_error))
    remarked: Mask = field(metadata=_fact(lambda row: bool(row.note)))
    forwards: Ints = field(metadata=_whole(lambda row: row.forwards))
    kept: Ints = field(metadata=_whole(_kept, -1))
    draws: Ints = field(metadata=_whole(lambda row: row.votes and row.votes.draws))
    split: Floats = field(metadata=_number(lambda row: row.votes and row.votes.split))
    hits: Ints = field(
        metadata=_whole(
            lambda row: None if row.votes is None or row.label is None else row.votes.of(row.label)
        )
    )
    label_draws: Ints = field(
        metadata=_whole(
            lambda row: None if row.votes is None or row.label is None else row.votes.draws
        )
    )
    label_split: Floats = field(metadata=_number(_label_split))
    certified_class: Floats = field(metadata=_number(lambda row: row.certified_class))
    highest: Floats = field(metadata=_number(lambda row: row.loss and row.loss.highest))
    difficulty: Floats = field(metadata=_number(lambda row: row.clean and row.clean.difficulty))
    margin: Floats = field(metadata=_number(lambda row: row.clean and row.clean.margin))
    alpha: Floats = field(metadata=_number(lambda row: row.certificate and row.certificate.alpha))
    largest: Floats = field(
        metadata=_number(lambda row: row.certificate and row.certificate.largest)
    )
    asked: Floats = field(metadata=_number(lambda row: row.certificate and row.certificate.asked))
    step: Floats = field(metadata=_number(lambda row: row.search and row.search.step))
    classes: int = 0
    left_out: int = 0
    memo: dict[Any, Any] = field(default_factory=dict)

    @staticmethod
    def of(rows: Iterable[Row]) -> Columns:
        """The columns of one or more rows of the same result."""
        (columns,) = ResultTable.of(rows).values()
        return columns

    def __len__(self) -> int:
        return len(self.values)

    # --- selections

    def take(self, chosen: Mask | Ints) -> Columns:
        """A selection of the rows, by a mask or by their places."""
        return replace(
            self,
            memo={},
            left_out=0,
            **{name: getattr(self, name)[chosen] for name in ("place", "interval", *_READ)},
        )

    def of_images(self, names: Sequence[str]) -> Columns:
        """The rows of these images, in this order."""
        places = {name: i for i, name in enumerate(self.names)}
        return self.take(np.array([places[name] for name in names], dtype=np.int64))

    @cached_property
    def finite(self) -> Columns:
        """The rows whose value is a finite number."""
        known = np.isfinite(self.values)
        return self if known.all() else replace(self.take(known), left_out=self.not_finite)

    @property
    def not_finite(self) -> int:
        """Number of rows without a finite value, whether present or left out."""
        return self.left_out + int((~np.isfinite(self.values)).sum())

    @property
    def names(self) -> list[str]:
        """Ids of the images."""
        return [self.ids[place] for place in self.place.tolist()]

    @property
    def noted(self) -> int:
        """Number of rows with a note."""
        return int(self.remarked.sum())

    @property
    def label_errors(self) -> Floats:
        """The share of the noisy copies whose class is not the label (n,); 1 without votes."""
        return 1.0 - self.hits / np.maximum(self.draws, 1)

    # --- intervals

    def of_kind(self, *kinds: IntervalKind) -> Mask:
        """Whether a row's interval is of one of these kinds (n,)."""
        return np.isin(
            self.interval,
            [i for i, interval in enumerate(self.intervals) if interval.kind in kinds],
        )

    @property
    def covers_bias(self) -> Mask:
        """Whether a row's interval covers all of its error."""
        return np.isin(
            self.interval, [i for i, interval in enumerate(self.intervals) if interval.covers_bias]
        )

    @property
    def is_censored(self) -> Mask:
        """Whether the true value is only known to be larger (n,)."""
        return self.of_kind(IntervalKind.CENSORED)

    @property
    def censored(self) -> int:
        """Number of censored rows."""
        return int(self.is_censored.sum())

    @cached_property
    def ends(self) -> tuple[Floats, Floats]:
        """The ends of the rows' intervals: infinite where an interval is open on that side, NaN
        where there is none.

        A censored value is open above and its own lower end, unless the row's lower end is smaller:
        then a search found nothing, but may have missed something nearer, and the interval is open
        below, too. An upper bound is open below, a lower bound above.
        """
        value = self.values
        lower = self.lower
        upper = self.upper
        no_lower = np.isnan(lower)
        no_upper = np.isnan(upper)
        if (no_lower != no_upper).any():
            lower = np.where(no_lower & ~no_upper, -np.inf, lower)
            upper = np.where(no_upper & ~no_lower, np.inf, upper)
        if (mask := self.of_kind(IntervalKind.UPPER_BOUND)).any():
            lower = np.where(mask, -np.inf, lower)
            upper = np.where(mask, np.where(no_upper, value, self.upper), upper)
        if (mask := self.of_kind(IntervalKind.LOWER_BOUND)).any():
            lower = np.where(mask, np.where(no_lower, value, self.lower), lower)
            upper = np.where(mask, np.inf, upper)
        if (mask := self.is_censored).any():
            lower = np.where(mask, np.where(self.lower < value, -np.inf, value), lower)
            upper = np.where(mask, np.inf, upper)
        return lower, upper

    def restated(self, tail: float | None) -> tuple[Floats, Floats]:
        """Intervals that miss on a given side with a chance of at most ``tail``; None: the
        :attr:`ends`. NaN where there is none, or where images stopped adaptively and ``tail`` is
        given."""
        if tail is None:
            return self.ends
        if self.adaptive:
            return np.full(len(self), np.nan), np.full(len(self), np.nan)
        return restated(self.values, *self.ends, self.share_draws, tail, self.split)

    @property
    def lowers(self) -> Floats:
        """The lower :attr:`ends`; the value itself where there is none. ``uppers``: the upper
        ones."""
        return self._or_value(self.ends[0])

    @property
    def uppers(self) -> Floats:
        """See :attr:`lowers`."""
        return self._or_value(self.ends[1])

    def _or_value(self, ends: Floats) -> Floats:
        unknown = np.isnan(ends)
        return np.where(unknown, self.values, ends) if unknown.any() else ends

    @property
    def errors(self) -> Floats | None:
        """Standard errors (n,); None where a row has none."""
        return None if np.isnan(self.std_error).any() else self.std_error

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
        """Number of rows of a search that found nothing, but may have missed something nearer."""
        return int((self.is_censored & (self.lower < self.values)).sum())

    @property
    def upper_bounds(self) -> int:
        """Number of rows whose true value is at most their value."""
        return int(self.of_kind(IntervalKind.UPPER_BOUND).sum())

    @property
    def lower_bounds(self) -> int:
        """Number of rows whose true value is at least their value."""
        return int(self.of_kind(IntervalKind.LOWER_BOUND).sum())

    @property
    def open_below(self) -> int:
        """Number of rows that are estimates, not bounds, and whose interval has no lower end."""
        return int((np.isneginf(self.ends[0]) & self._estimated).sum())

    @property
    def open_above(self) -> int:
        """Number of rows that are estimates, not bounds, and whose interval has no upper end."""
        return int(self.is_open_above.sum())

    @property
    def is_open_above(self) -> Mask:
        """Whether a row is an estimate whose interval has no upper end (n,)."""
        return np.isposinf(self.ends[1]) & self._estimated

    @property
    def _estimated(self) -> Mask:
        return ~self.of_kind(
            IntervalKind.UPPER_BOUND, IntervalKind.LOWER_BOUND, IntervalKind.CENSORED
        )

    # --- votes

    @cached_property
    def share_draws(self) -> Ints:
        """The draws behind a value that is the share of votes for the predicted class, of a number
        fixed in advance; 0 for other values (n,)."""
        draws = self.draws
        kept = self.kept
        counted = (
            self.of_kind(IntervalKind.CLOPPER_PEARSON) & np.isnan(self.split)
        ) | self.of_kind(IntervalKind.ANTITHETIC)
        counted &= (draws > 0) & (kept >= 0)
        counted &= np.abs(kept / np.maximum(draws, 1) - self.values) < 1e-9
        return draws if counted.all() else np.where(counted, draws, 0)

    def images(self, low: float, high: float, unknown: int = 0) -> MeasuredImages:
        """The rows as measured images, for intervals over them.

        Args:
            low, high: the range of possible values.
            unknown: number of further images without a known value.
        """
        draws = alike(self.share_draws)
        split = None if draws is None else antithetic(self.split)
        return MeasuredImages(
            self.values, self.lowers, self.uppers, low, high, unknown, draws, self.adaptive, split
        )

    @property
    def approximated(self) -> Mask:
        """Whether a row's value is an approximation, and the row has votes of the same copies,
        which have no bias (n,)."""
        if self.key.quantity != P_ROBUST.name:
            return np.zeros(len(self), dtype=np.bool_)
        return ~self.covers_bias & (self.draws > 0) & (self.kept >= 0)

    def by_votes(self) -> Columns:
        """The columns with shares of votes and their intervals in place of values whose own
        interval leaves out a bias.

        Votes have no bias for any network, and their interval holds for every p. Rows that have
        none, and rows whose interval covers all of their error, stay as they are.
        """
        return self._voted

    @cached_property
    def _voted(self) -> Columns:
        return self.of_votes(self.approximated, self.kept, self.draws, self.split)

    def of_votes(self, chosen: Mask, kept: Ints, draws: Ints, split: Floats) -> Columns:
        """The columns with shares of votes in place of the values of ``chosen`` rows: ``kept`` of
        ``draws`` copies kept the class, and ``split`` antithetic pairs disagree (NaN: the copies
        are independent); all (n,)."""
        if not chosen.any():
            return self
        value, lower, upper, error, pairs_apart = (
            column.copy()
            for column in (self.values, self.lower, self.upper, self.std_error, self.split)
        )
        kind = self.interval.copy()
        for pairs in (False, True):
            subset = chosen & (np.isnan(split) != pairs)
            k = kept[subset]
            n = draws[subset]
            ends = antithetic_share(k, split[subset], n) if pairs else clopper_pearson(k, n)
            value[subset], pairs_apart[subset], kind[subset] = (
                k / n,
                split[subset],
                len(self.intervals) + pairs,
            )
            lower[subset] = np.minimum(k / n, ends[0])
            upper[subset] = np.maximum(k / n, ends[1])
            error[subset] = np.sqrt(
                share_variance(k / n, n.astype(np.float64), split[subset] if pairs else None)
            )
        kinds = (
            *self.intervals,
            Interval(IntervalKind.CLOPPER_PEARSON),
            Interval(IntervalKind.ANTITHETIC),
        )
        kept = np.where(chosen, kept, self.kept)
        draws = np.where(chosen, draws, self.draws)
        voted = replace(self, intervals=kinds, interval=kind, kept=kept, draws=draws, memo={})
        voted.values = value
        voted.lower = lower
        voted.upper = upper
        voted.std_error = error
        voted.split = pairs_apart
        return voted


_READ: Mapping[str, Mapping[str, Any]] = {
    column.name: column.metadata for column in fields(Columns) if "read" in column.metadata
}
"""Metadata of the columns that are read from rows."""


def antithetic(split: Floats) -> Floats | None:
    """The antithetic pairs that disagree in each row; None if the votes of a row are independent
    (NaN)."""
    return None if np.isnan(split).any() else split


def alike(draws: Ints) -> int | None:
    """The number of draws, if all rows have the same number above 0; else None."""
    return int(draws[0]) if len(draws) and draws[0] > 0 and (draws == draws[0]).all() else None


class _Column:
    """A column under construction; it takes the memory of one number while all rows have the same
    bits.

    Args:
        read: the number of a row; None where it has none.
        kind: type of the numbers.
        unknown: in place of None in a column of integers.
    """

    def __init__(self, read: Reader, kind: type[np.generic], unknown: int = 0) -> None:
        self._read = read
        self._kind = kind
        self._unknown = unknown
        self._first = b""
        self._size = 0
        self._data = bytearray()

    def extend(self, rows: Sequence[Row]) -> None:
        """Add the numbers of these rows."""
        numbers = np.array([self._read(row) for row in rows], dtype=np.float64)
        if issubclass(self._kind, np.integer):
            most = min(_MOST, np.iinfo(self._kind).max)
            numbers = np.where(np.isnan(numbers), self._unknown, numbers).clip(-most, most)
        column = numbers.astype(self._kind)
        self._first = self._first or column[:1].tobytes()
        added = column.tobytes()
        if self._data or added != self._first * len(rows):
            self._data += added if self._data else self._first * self._size + added
        self._size += len(rows)

    def column(self) -> NDArray[Any]:
        """All numbers so far, without a copy."""
        if self._data:
            return np.frombuffer(self._data, self._kind)
        return np.broadcast_to(np.frombuffer(self._first, self._kind), self._size)


class Draft:
    """Columns under construction.

    Args:
        key: what the rows have in common.
        ids: names of the images.
    """

    def __init__(self, key: GroupKey, ids: Sequence[str]) -> None:
        self.key = key
        self._ids = ids
        self._rows: list[Row] = []
        self._places = array("q")
        self._kinds = array("q")
        self._columns = {name: _Column(**about) for name, about in _READ.items()}
        self._intervals: dict[Interval, int] = {}
        self._classes = 0

    def add(self, row: Row, place: int = 0) -> None:
        """Add a row of the image at a place."""
        if row.votes is not None:
            self._classes = max(self._classes, len(row.votes.counts))
        self._places.append(place)
        self._kinds.append(self._intervals.setdefault(row.interval, len(self._intervals)))
        self._rows.append(row)
        if len(self._rows) >= _BLOCK:
            self._pack()

    def _pack(self) -> None:
        for column in self._columns.values():
            column.extend(self._rows)
        self._rows = []

    def columns(self) -> Columns:
        """The columns of the rows so far."""
        if self._rows:
            self._pack()
        columns: dict[str, Any] = {name: column.column() for name, column in self._columns.items()}
        place, kinds = (np.frombuffer(numbers, np.int64) for numbers in (self._places, self._kinds))
        return Columns(
            self.key,
            self._ids,
            tuple(self._intervals),
            place,
            kinds,
            **columns,
            classes=self._classes,
        )


class _Ids(Sequence[str]):
    """Ids in little more memory than their text; by index only, without slices."""

    def __init__(self) -> None:
        self._text = bytearray()
        self._ends = array("Q", [0])

    def append(self, name: str) -> None:
        self._text += name.encode("utf-8", "surrogatepass")
        self._ends.append(len(self._text))

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __getitem__(self, index: Any) -> Any:
        place = range(len(self))[index]
        return self._text[self._ends[place] : self._ends[place + 1]].decode(
            "utf-8", "surrogatepass"
        )


def with_values(groups: Iterable[Columns]) -> list[Columns]:
    """The results that have a finite value; all if none has, to be refused."""
    every = list(groups)
    return [columns for columns in every if len(columns.finite)] or every


class TableBuilder:
    """Collects rows; the rows of an image come one after the other."""

    def __init__(self) -> None:
        self._ids = _Ids()
        self._last = ""
        self._drafts: dict[tuple[Any, ...], Draft] = {}

    def add(self, row: Row) -> None:
        """Add a row."""
        if not self._ids or row.sample_id != self._last:
            self._ids.append(row.sample_id)
            self._last = row.sample_id
        about = row.estimator, row.noise, row.level, row.level_name, row.quantity
        draft = self._drafts.get(about)
        if draft is None:
            draft = self._drafts[about] = Draft(GroupKey.of(row), self._ids)
        draft.add(row, len(self._ids) - 1)

    def table(self) -> ResultTable:
        """The rows so far."""
        return ResultTable(
            self._ids, {draft.key: draft.columns() for draft in self._drafts.values()}
        )


class ResultTable(Mapping[GroupKey, Columns]):
    """The results of a run by estimator, noise level and quantity, in order of first appearance,
    which is the spec's order.

    Attributes:
        ids: of the images; columns have their places.
        memo: cache of costly results for the functions that compute them.
    """

    def __init__(self, ids: Sequence[str], columns: Mapping[GroupKey, Columns]) -> None:
        self.ids = ids
        self._columns = columns
        self.memo: dict[Any, Any] = {}

    @staticmethod
    def of(rows: Iterable[Row]) -> ResultTable:
        """The frame of these rows. An iterator must give the rows of an image together, as a run
        does."""
        builder = TableBuilder()
        for row in _together(rows) if isinstance(rows, list | tuple) else rows:
            builder.add(row)
        return builder.table()

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


def common_names(columns: Iterable[Columns]) -> list[str]:
    """The ids of the images that all these results have, perhaps from different runs, in the order
    of the first."""
    return common_ids(result.names for result in columns)


def common_ids(lists: Iterable[Sequence[str]]) -> list[str]:
    """The ids that all these lists have, in the order of the first."""
    first, *others = lists
    common = set(first).intersection(*others)
    return [name for name in first if name in common]


def common_places(columns: Iterable[Columns]) -> Ints:
    """The places of the images that all these results have (n,), ascending."""
    return reduce(np.intersect1d, (result.place for result in columns))
