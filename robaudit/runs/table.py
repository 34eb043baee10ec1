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
# Up to here float64, through which all numbers pass, has every integer. A damaged file may have
# larger ones.
_LARGEST_WHOLE = 2.0**53
_BLOCK = 1024  # rows converted to columns at a time: few enough to hold, enough for NumPy


Reader = Callable[[Row], Any]
"""Reads the number of a column from a row; None where the row has none."""


def _float_column(read: Reader) -> dict[str, Any]:
    """Metadata of a column of floats, NaN where a row has none."""
    return {"read": read, "kind": np.float64}


def _int_column(read: Reader, unknown: int = 0) -> dict[str, Any]:
    """Metadata of a column of integers, ``unknown`` where a row has none."""
    return {"read": read, "kind": np.int64, "unknown": unknown}


def _class_column(read: Reader) -> dict[str, Any]:
    """Metadata of a column of class indices, -1 where a row has none."""
    return {"read": read, "kind": np.int32, "unknown": NO_CLASS}


def _bool_column(read: Reader) -> dict[str, Any]:
    """Metadata of a column of booleans."""
    return {"read": read, "kind": np.bool_}


def _predicted_votes(row: Row) -> int | None:
    """The votes for the predicted class."""
    if row.votes is None or row.predicted >= len(row.votes.counts):
        return None
    return row.votes.counts[row.predicted]


def _label_votes(row: Row) -> int | None:
    """The votes for the label."""
    if row.votes is None or row.label is None:
        return None
    return row.votes.for_class(row.label)


def _label_draws(row: Row) -> int | None:
    """The noisy copies behind the votes for the label."""
    if row.votes is None or row.label is None:
        return None
    return row.votes.draws


def _label_split(row: Row) -> float | None:
    """The antithetic pairs of which exactly one copy votes for the label."""
    if row.label is None or row.votes is None or row.votes.split is None:
        return None
    if row.label == row.predicted:
        return row.votes.split
    # Unknown, so the fewest that the votes allow: the more pairs agree, the larger the variance.
    return row.votes.for_class(row.label) % 2


@dataclass(eq=False)
class Columns:
    """The results of one estimator at one noise level as columns, with a number for each row (n,).

    Attributes:
        key: estimator, noise level and quantity.
        ids: of the run's samples.
        intervals: the distinct intervals, which the column ``interval`` indexes.
        place: indices of the samples in :attr:`ids`.
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
        label_split: antithetic pairs that disagree about the label. Unknown where the label is not
            the predicted class: then as if the copies of all pairs agreed, which has the largest
            variance.
        certified_class, alpha, largest, asked: of certificates
            (:class:`robaudit.results.Certificate`); NaN where a row does not say, as in the columns
            that follow.
        highest: the largest losses of the search or the copies.
        difficulty, margin: of the clean images.
        step: of the grids of radii.
        classes: the number of classes that votes are counted for; 0 without votes.
        left_out: number of rows without a finite value that were left out.
        cache: costly results by the arguments of the functions that computed and look them up.
    """

    key: GroupKey
    ids: Sequence[str]
    intervals: tuple[Interval, ...]
    place: Ints
    interval: Ints
    # Each column from here on says how its number is read from a row: see _READ.
    label: Ints = field(metadata=_class_column(lambda row: row.label))
    predicted: Ints = field(metadata=_class_column(lambda row: row.predicted))
    judged: Mask = field(metadata=_bool_column(lambda row: row.correct is not None))
    correct: Mask = field(metadata=_bool_column(lambda row: row.correct is True))
    flips_to: Ints = field(metadata=_class_column(lambda row: row.flips_to))
    values: Floats = field(metadata=_float_column(lambda row: row.value))
    lower: Floats = field(metadata=_float_column(lambda row: row.lower))
    upper: Floats = field(metadata=_float_column(lambda row: row.upper))
    std_error: Floats = field(metadata=_float_column(lambda row: row.std_error))
    remarked: Mask = field(metadata=_bool_column(lambda row: bool(row.note)))
    forwards: Ints = field(metadata=_int_column(lambda row: row.forwards))
    kept: Ints = field(metadata=_int_column(_predicted_votes, -1))
    draws: Ints = field(metadata=_int_column(lambda row: row.votes and row.votes.draws))
    split: Floats = field(metadata=_float_column(lambda row: row.votes and row.votes.split))
    hits: Ints = field(metadata=_int_column(_label_votes))
    label_draws: Ints = field(metadata=_int_column(_label_draws))
    label_split: Floats = field(metadata=_float_column(_label_split))
    # Numbers of typed parts, which few estimators give.
    certified_class: Floats = field(metadata=_float_column(lambda row: row.certified_class))
    highest: Floats = field(metadata=_float_column(lambda row: row.loss and row.loss.highest))
    difficulty: Floats = field(
        metadata=_float_column(lambda row: row.clean and row.clean.difficulty)
    )
    margin: Floats = field(metadata=_float_column(lambda row: row.clean and row.clean.margin))
    alpha: Floats = field(
        metadata=_float_column(lambda row: row.certificate and row.certificate.alpha)
    )
    largest: Floats = field(
        metadata=_float_column(lambda row: row.certificate and row.certificate.largest)
    )
    asked: Floats = field(
        metadata=_float_column(lambda row: row.certificate and row.certificate.asked)
    )
    step: Floats = field(metadata=_float_column(lambda row: row.search and row.search.step))
    classes: int = 0
    left_out: int = 0
    cache: dict[Any, Any] = field(default_factory=dict)

    @staticmethod
    def from_rows(rows: Iterable[Row]) -> Columns:
        """The columns of one or more rows of the same result."""
        (columns,) = ResultTable.from_rows(rows).values()
        return columns

    def __len__(self) -> int:
        return len(self.values)

    # --- selections

    def take(self, chosen: Mask | Ints) -> Columns:
        """A selection of the rows, by a mask or by their indices."""
        columns = {name: getattr(self, name)[chosen] for name in ("place", "interval", *_READ)}
        return replace(self, cache={}, left_out=0, **columns)

    def of_images(self, names: Sequence[str]) -> Columns:
        """The rows of these samples, in this order."""
        row_of = {name: index for index, name in enumerate(self.names)}
        return self.take(np.array([row_of[name] for name in names], dtype=np.int64))

    @cached_property
    def finite(self) -> Columns:
        """The rows whose value is a finite number."""
        known = np.isfinite(self.values)
        if known.all():
            return self  # the same object, so that its memo is shared
        return replace(self.take(known), left_out=self.not_finite)

    @property
    def not_finite(self) -> int:
        """Number of rows without a finite value, whether present or left out."""
        return self.left_out + int((~np.isfinite(self.values)).sum())

    @property
    def names(self) -> list[str]:
        """Ids of the samples."""
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
        # Rows share a few distinct intervals, so it is those that are looked at.
        matching = [i for i, interval in enumerate(self.intervals) if interval.kind in kinds]
        return np.isin(self.interval, matching)

    @property
    def covers_bias(self) -> Mask:
        """Whether a row's interval covers all of its error (n,)."""
        matching = [i for i, interval in enumerate(self.intervals) if interval.covers_bias]
        return np.isin(self.interval, matching)

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
        """The lower and the upper ends of the rows' intervals (n,): infinite where an interval is
        open on that side, NaN where there is no interval.

        A censored value is the lower end of its interval, which is open above. If the row's lower
        end is smaller, a search found nothing, but may have missed something nearer; the interval
        is then open below, too. An upper bound is open below, a lower bound above.
        """
        value = self.values
        lower = self.lower
        upper = self.upper
        no_lower = np.isnan(lower)
        no_upper = np.isnan(upper)
        # Each case is skipped where no row needs it: the columns may be as long as the run, and
        # arrays that all rows share (see _Column) stay as they are.
        if (no_lower != no_upper).any():
            lower = np.where(no_lower & ~no_upper, -np.inf, lower)
            upper = np.where(no_upper & ~no_lower, np.inf, upper)
        is_upper_bound = self.of_kind(IntervalKind.UPPER_BOUND)
        if is_upper_bound.any():
            lower = np.where(is_upper_bound, -np.inf, lower)
            upper = np.where(is_upper_bound, np.where(no_upper, value, self.upper), upper)
        is_lower_bound = self.of_kind(IntervalKind.LOWER_BOUND)
        if is_lower_bound.any():
            lower = np.where(is_lower_bound, np.where(no_lower, value, self.lower), lower)
            upper = np.where(is_lower_bound, np.inf, upper)
        is_censored = self.is_censored
        if is_censored.any():
            open_or_value = np.where(self.lower < value, -np.inf, value)
            lower = np.where(is_censored, open_or_value, lower)
            upper = np.where(is_censored, np.inf, upper)
        return lower, upper

    def restated(self, tail: float | None) -> tuple[Floats, Floats]:
        """The lower and upper ends (n,) of intervals that miss on a given side with a probability
        of at most ``tail``.

        NaN where there is no interval, or where images stopped adaptively. ``tail`` None: the
        :attr:`ends`.
        """
        if tail is None:
            return self.ends
        if self.adaptive:
            # A confidence sequence cannot be restated at another confidence from its last interval.
            return np.full(len(self), np.nan), np.full(len(self), np.nan)
        return restated(self.values, *self.ends, self.share_draws, tail, self.split)

    @property
    def lowers(self) -> Floats:
        """The lower :attr:`ends` (n,); the value itself where there is no interval."""
        return self._or_value(self.ends[0])

    @property
    def uppers(self) -> Floats:
        """The upper :attr:`ends` (n,); the value itself where there is no interval."""
        return self._or_value(self.ends[1])

    def _or_value(self, ends: Floats) -> Floats:
        """The ends (n,), with the value in place of NaN."""
        unknown = np.isnan(ends)
        return np.where(unknown, self.values, ends) if unknown.any() else ends

    @property
    def errors(self) -> Floats | None:
        """Standard errors (n,); None if any row has none."""
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
    def is_chained(self) -> Mask:
        """Whether a row is from chains, whose errors images may share (n,)."""
        return self.of_kind(IntervalKind.CHAINS)

    @property
    def cap(self) -> float:
        """The smallest value of the censored rows; infinite without any."""
        return float(self.values[self.is_censored].min(initial=math.inf))

    @property
    def not_found(self) -> int:
        """Number of rows of a search that found nothing, but may have missed something nearer."""
        # Such a search stores a lower end below its value; see :attr:`ends`.
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
        """Whether a row's value is an estimate, not a bound (n,)."""
        return ~self.of_kind(
            IntervalKind.UPPER_BOUND, IntervalKind.LOWER_BOUND, IntervalKind.CENSORED
        )

    # --- votes

    @cached_property
    def share_draws(self) -> Ints:
        """The draws behind values that are shares of votes for the predicted class, with a number
        of draws fixed in advance (n,); 0 for other values."""
        draws = self.draws
        kept = self.kept
        independent = self.of_kind(IntervalKind.CLOPPER_PEARSON) & np.isnan(self.split)
        is_share = independent | self.of_kind(IntervalKind.ANTITHETIC)
        is_share &= (draws > 0) & (kept >= 0)
        # A row may have votes and another value; a share that was stored differs by rounding only.
        is_share &= np.abs(kept / np.maximum(draws, 1) - self.values) < 1e-9
        return draws if is_share.all() else np.where(is_share, draws, 0)

    def images(self, low: float, high: float, unknown: int = 0) -> MeasuredImages:
        """The rows as measured images, for intervals over them.

        Args:
            low, high: the range of possible values.
            unknown: number of further images without a known value.
        """
        draws, split = pooled_votes(self.share_draws, self.split)
        return MeasuredImages(
            self.values,
            self.lowers,
            self.uppers,
            low,
            high,
            unknown,
            draws,
            self.adaptive,
            split,
            self.is_chained,
        )

    @property
    def approximated(self) -> Mask:
        """Whether a row's value is an approximation of ``p_robust``, and the row also has the votes
        of the same copies (n,)."""
        if self.key.quantity != P_ROBUST.name:
            return np.zeros(len(self), dtype=np.bool_)
        return ~self.covers_bias & (self.draws > 0) & (self.kept >= 0)

    def by_votes(self) -> Columns:
        """The columns with shares of votes and their intervals in place of values whose own
        interval leaves out a bias.

        Votes have no bias for any network, and their interval holds for every p. Rows without
        votes, and rows whose interval covers all of their error, stay as they are.
        """
        return self._by_votes

    @cached_property
    def _by_votes(self) -> Columns:
        """The value of :meth:`by_votes`; statistics and gates ask for it many times."""
        return self.of_votes(self.approximated, self.kept, self.draws, self.split)

    def of_votes(self, chosen: Mask, kept: Ints, draws: Ints, split: Floats) -> Columns:
        """The columns with shares of votes in place of the values of some rows.

        Args:
            chosen: which rows (n,).
            kept: copies that kept the class (n,).
            draws: copies (n,).
            split: antithetic pairs that disagree (n,); NaN: the copies are independent.
        """
        if not chosen.any():
            return self
        # Copies, because the columns may be read-only views of stored numbers.
        new_values = self.values.copy()
        new_lower = self.lower.copy()
        new_upper = self.upper.copy()
        new_std_error = self.std_error.copy()
        new_split = self.split.copy()
        new_interval = self.interval.copy()
        # The two intervals come last, in the order of the loop, so `in_pairs` is the index.
        new_intervals = (
            *self.intervals,
            Interval(IntervalKind.CLOPPER_PEARSON),
            Interval(IntervalKind.ANTITHETIC),
        )
        for in_pairs in (False, True):
            subset = chosen & (np.isnan(split) != in_pairs)
            k = kept[subset]
            n = draws[subset]
            share = k / n
            pairs = split[subset]
            lower, upper = antithetic_share(k, pairs, n) if in_pairs else clopper_pearson(k, n)
            new_values[subset] = share
            new_split[subset] = pairs
            new_interval[subset] = len(self.intervals) + in_pairs
            # Rounding must not put the share outside its own interval.
            new_lower[subset] = np.minimum(share, lower)
            new_upper[subset] = np.maximum(share, upper)
            variance = share_variance(share, n.astype(np.float64), pairs if in_pairs else None)
            new_std_error[subset] = np.sqrt(variance)
        voted = replace(
            self,
            intervals=new_intervals,
            interval=new_interval,
            kept=np.where(chosen, kept, self.kept),
            draws=np.where(chosen, draws, self.draws),
            cache={},
        )
        voted.values = new_values
        voted.lower = new_lower
        voted.upper = new_upper
        voted.std_error = new_std_error
        voted.split = new_split
        return voted


# A new column is stated once, in Columns: building and selecting columns follow this mapping.
_READ: Mapping[str, Mapping[str, Any]] = {
    column.name: column.metadata for column in fields(Columns) if "read" in column.metadata
}
"""Metadata of the columns that are read from rows."""


def antithetic(split: Floats) -> Floats | None:
    """The antithetic pairs that disagree in each row (n,); None if the copies of any row are
    independent (NaN)."""
    return None if np.isnan(split).any() else split


def pooled_votes(draws: Ints, split: Floats) -> tuple[Ints | None, Floats | None]:
    """The ``draws`` and ``split`` of :class:`robaudit.numerics.image_intervals.MeasuredImages`.

    Args:
        draws: the votes of each row (n,), in numbers fixed before the draws; 0 without such votes.
        split: antithetic pairs that disagree (n,); NaN where copies are independent.

    Returns:
        (draws, split). No draws: some row has none, or rows have different numbers and pairs.
    """
    if not len(draws) or (draws <= 0).any():
        return None, None
    if (draws == draws[0]).all():
        return draws, antithetic(split)
    return (draws if np.isnan(split).all() else None), None


class _Column:
    """A column under construction.

    While all rows have the same bits, it takes the memory of a single number. Many columns of a run
    stay so: draws, split, certificates.

    Args:
        read: reads the number of a row; None where it has none.
        kind: type of the numbers.
        unknown: in place of None in a column of integers.
    """

    def __init__(self, read: Reader, kind: type[np.generic], unknown: int = 0) -> None:
        self._read = read
        self._kind = kind
        self._unknown = unknown
        self._first = b""  # the bytes of the first number
        self._size = 0
        self._data = bytearray()  # all numbers, once two of them differ

    def extend(self, rows: Sequence[Row]) -> None:
        """Add the numbers of these rows."""
        numbers = np.array([self._read(row) for row in rows], dtype=np.float64)
        if issubclass(self._kind, np.integer):
            most = min(_LARGEST_WHOLE, np.iinfo(self._kind).max)
            numbers = np.where(np.isnan(numbers), self._unknown, numbers).clip(-most, most)
        column = numbers.astype(self._kind)
        self._first = self._first or column[:1].tobytes()
        added = column.tobytes()
        # Bytes are compared, because NaN differs from itself and 0.0 equals -0.0.
        if self._data:
            self._data += added
        elif added != self._first * len(rows):
            self._data += self._first * self._size + added
        self._size += len(rows)

    def column(self) -> NDArray[Any]:
        """All numbers so far, without a copy."""
        if self._data:
            return np.frombuffer(self._data, self._kind)
        return np.broadcast_to(np.frombuffer(self._first, self._kind), self._size)


class ColumnsBuilder:
    """Collects the rows of one result, and turns them into columns.

    Args:
        key: of the rows.
        ids: of the run's samples.
    """

    def __init__(self, key: GroupKey, ids: Sequence[str]) -> None:
        self.key = key
        self._ids = ids
        self._pending: list[Row] = []
        self._places = array("q")
        self._interval_indices = array("q")
        self._columns = {name: _Column(**metadata) for name, metadata in _READ.items()}
        self._intervals: dict[Interval, int] = {}
        self._classes = 0

    def add(self, row: Row, place: int = 0) -> None:
        """Add a row of the sample at a place."""
        if row.votes is not None:
            self._classes = max(self._classes, len(row.votes.counts))
        self._places.append(place)
        # A new interval gets the next index.
        index = self._intervals.setdefault(row.interval, len(self._intervals))
        self._interval_indices.append(index)
        self._pending.append(row)
        if len(self._pending) >= _BLOCK:
            self._convert_pending()

    def _convert_pending(self) -> None:
        """Convert the pending rows to numbers, and let go of them."""
        for column in self._columns.values():
            column.extend(self._pending)
        self._pending = []

    def columns(self) -> Columns:
        """The columns of the rows so far."""
        if self._pending:
            self._convert_pending()
        numbers: dict[str, Any] = {name: column.column() for name, column in self._columns.items()}
        return Columns(
            self.key,
            self._ids,
            tuple(self._intervals),
            np.frombuffer(self._places, np.int64),
            np.frombuffer(self._interval_indices, np.int64),
            **numbers,
            classes=self._classes,
        )


class _Ids(Sequence[str]):
    """Ids in little more memory than their text; by index only, without slices."""

    def __init__(self) -> None:
        self._text = bytearray()
        self._ends = array("Q", [0])

    def append(self, name: str) -> None:
        # Ids may have lone surrogates, as file names that are not UTF-8 do.
        self._text += name.encode("utf-8", "surrogatepass")
        self._ends.append(len(self._text))

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __getitem__(self, index: Any) -> Any:
        place = range(len(self))[index]  # a range checks the index, and counts negative ones back
        start = self._ends[place]
        end = self._ends[place + 1]
        return self._text[start:end].decode("utf-8", "surrogatepass")


def with_values(groups: Iterable[Columns]) -> list[Columns]:
    """The results that have a finite value; all if none has, for the caller to refuse."""
    results = list(groups)
    finite = [columns for columns in results if len(columns.finite)]
    return finite or results


class TableBuilder:
    """Collects the rows of a run; those of a sample come one after the other."""

    def __init__(self) -> None:
        self._ids = _Ids()
        self._last_id = ""
        self._drafts: dict[tuple[Any, ...], ColumnsBuilder] = {}

    def add(self, row: Row) -> None:
        """Add a row."""
        if not self._ids or row.sample_id != self._last_id:
            self._ids.append(row.sample_id)
            self._last_id = row.sample_id
        # The parts of a GroupKey, which is made for the first row of a result only.
        key_parts = row.estimator, row.noise, row.level, row.level_name, row.quantity
        draft = self._drafts.get(key_parts)
        if draft is None:
            draft = ColumnsBuilder(GroupKey.from_row(row), self._ids)
            self._drafts[key_parts] = draft
        draft.add(row, len(self._ids) - 1)

    def table(self) -> ResultTable:
        """The table of the rows so far."""
        columns = {draft.key: draft.columns() for draft in self._drafts.values()}
        return ResultTable(self._ids, columns)


class ResultTable(Mapping[GroupKey, Columns]):
    """The results of a run by estimator, noise level and quantity, in order of first appearance,
    which is the spec's order.

    Attributes:
        ids: of the samples; columns have their places in it.
        cache: costly results by the arguments of the functions that computed and look them up.
    """

    def __init__(self, ids: Sequence[str], columns: Mapping[GroupKey, Columns]) -> None:
        self.ids = ids
        self._columns = columns
        self.cache: dict[Any, Any] = {}

    @staticmethod
    def from_rows(rows: Iterable[Row]) -> ResultTable:
        """The table of these rows. An iterator must give the rows of a sample together, as a run
        does."""
        # Only rows in memory can be put in order; a stream from a file is in order.
        in_order = _by_sample(rows) if isinstance(rows, list | tuple) else rows
        builder = TableBuilder()
        for row in in_order:
            builder.add(row)
        return builder.table()

    def __getitem__(self, key: GroupKey) -> Columns:
        return self._columns[key]

    def __iter__(self) -> Iterator[GroupKey]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)


def _by_sample(rows: Sequence[Row]) -> Iterable[Row]:
    """The rows grouped by sample, in the order in which the samples appear."""
    rows_of: dict[str, list[Row]] = {}
    for row in rows:
        rows_of.setdefault(row.sample_id, []).append(row)
    return chain.from_iterable(rows_of.values())


def common_names(columns: Iterable[Columns]) -> list[str]:
    """The ids of the samples that all these results have, perhaps from different runs, in the order
    of the first."""
    return common_ids(result.names for result in columns)


def common_ids(lists: Iterable[Sequence[str]]) -> list[str]:
    """The ids that all these lists have, in the order of the first."""
    first, *others = lists
    common = set(first).intersection(*others)
    return [name for name in first if name in common]


def common_places(columns: Iterable[Columns]) -> Ints:
    """The places of the samples that all these results have (n,), ascending. For results of one
    run."""
    return reduce(np.intersect1d, (result.place for result in columns))
