"""Verification of a run: recompute random rows from the model and the data, and compare them."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Annotated

import numpy as np
import torch

from robaudit.auditing.audit import compute
from robaudit.auditing.claim import noises_of, spec_of, without_download
from robaudit.auditing.environment import (
    deterministic,
    device_name,
    image_digest,
    pick_device,
    versions,
)
from robaudit.auditing.fastest_form import in_recorded_form
from robaudit.auditing.prepare import Request, prepare
from robaudit.auditing.rounds import Round, rounds_of
from robaudit.datasets.dataset import Dataset
from robaudit.datasets.open_dataset import open_dataset
from robaudit.datasets.select import Selected
from robaudit.engine.registry import Task
from robaudit.errors import RunError
from robaudit.files import file_sha256
from robaudit.levels import NoiseLevel
from robaudit.models.logits import rounded_products
from robaudit.numerics.image_intervals import ROW_CONFIDENCE, share_bounds
from robaudit.progress import Listener
from robaudit.quantities import IntervalKind, Quantity
from robaudit.records import Inline, Record
from robaudit.results import Votes
from robaudit.runs.folder import OUTPUTS, RunFolder
from robaudit.runs.info import NetworkForm, RowBits, device_type, kind_of
from robaudit.runs.rows import Row, bits_of_votes
from robaudit.runs.run import Run
from robaudit.runs.state import NAME as STATE
from robaudit.settings import DEVICE

# Rounding in other versions and batches stays below these tolerances; a changed third digit does
# not. The relative one is of the distance to the nearer end of the range.
_RELATIVE = 5e-4
_ABSOLUTE = 1e-7
_VOTES = 2  # that may move to another class
_FROM_VOTES = (
    IntervalKind.CLOPPER_PEARSON,
    IntervalKind.ANTITHETIC,
    IntervalKind.CONFIDENCE_SEQUENCE,
)
_IDENTICAL = ("label", "predicted", "noise", "quantity", "interval")
_CLOSE = ("value", "lower", "upper", "std_error")


@dataclass(frozen=True, slots=True)
class Mismatch(Record):
    """A number of a row that was not reproduced.

    Attributes:
        row: as recorded in the run.
        field: which column.
        recorded, recomputed: the value in the run, and the one computed now.
    """

    row: Annotated[Row, Inline("sample_id", "estimator", "at")]
    field: str
    recorded: object
    recomputed: object


@dataclass(frozen=True, slots=True)
class Verification(Record):
    """The result of a verification.

    Attributes:
        samples, rows: how many were recomputed.
        identical: how many of those rows have the same bits.
        differences: numbers that differ beyond the tolerance.
        altered: files of the run that have changed since they were written.
    """

    samples: int
    rows: int
    identical: int
    differences: tuple[Mismatch, ...]
    altered: tuple[str, ...]

    @property
    def good(self) -> bool:
        """Whether all numbers were reproduced, and no file has changed."""
        return not self.differences and not self.altered


def verify(
    run: Run,
    samples: int | None = 20,
    *,
    seed: int | None = None,
    device: str | None = None,
    trust: bool = False,
    listener: Listener | None = None,
) -> Verification:
    """Recompute all rows of random samples of a run from its spec, its weights and its data, and
    compare them.

    A number differs if it is off by more than 5e-4 of its distance to the nearer end of its range
    (at least 1e-7), votes if more than two moved. Float rounding in other versions and batches
    stays below that; a changed third digit does not. Rows with the same bits are counted. On the
    same machine with the same versions, a run that measured its rows to be independent of the batch
    gives the same bits again.

    Args:
        run: a finished run.
        samples: number of samples, drawn at random; None for all. With 0 neither model nor data are
            opened: the files are compared with their digests, and every row with its own votes.
        seed: of the choice of samples. None: random, so that the checked rows are unpredictable.
        device: cpu, cuda, ...; by default the kind that the run was made on.
        trust: whether Python code that the spec names may run.
        listener: receives notes and progress.

    Raises:
        RobauditError: the model or the data have changed, or cannot be read.
    """
    # All rows, not only those that are recomputed: this costs no pass.
    differences = list(chain.from_iterable(map(_differences_from_votes, run.rows)))
    altered = _altered(run)
    if samples == 0:
        return Verification(0, 0, 0, tuple(differences), altered)
    made_on = run.info.device
    chosen_device = pick_device(device or device_type(made_on), DEVICE.words)
    if kind_of(device_name(chosen_device)) != kind_of(made_on):
        what = f"was made on {made_on}, and {device_name(chosen_device)} draws other noise"
        raise RunError(str(run.path), what, f"verify it on {kind_of(made_on)}")
    spec = spec_of(run)
    dataset = open_dataset(without_download(spec.dataset), base_dir=spec.base_dir, trust=trust)
    ids = list(dict.fromkeys(row.sample_id for row in run.rows))
    listener = listener or Listener()
    if samples is not None and run.info.rows.kind is RowBits.MIXED:
        # Other batches would give other values.
        listener.note("its model looks at all the images of a batch, so all samples are recomputed")
    elif samples is not None and samples < len(ids):
        ids = random.Random(seed).sample(ids, samples)  # noqa: S311  not a secret
    chosen_ids = set(ids)
    rows = [row for row in run.rows if row.sample_id in chosen_ids]
    subset = _subset(run, dataset, chosen_ids)
    with deterministic(spec.run.deterministic, chosen_device), rounded_products(False):
        request = Request(spec, trust=trust, dataset=subset)
        recomputed, form = _recompute(run, rows, request, chosen_device, listener)
    identical = 0
    for row in rows:
        now = recomputed[row.key]
        differences += _differences(run, row, now)
        # Without the notes, to which the end of a run adds.
        identical += replace(row, note="") == replace(now, note="")
    made_in = run.info.form
    same_form = made_in is None or (made_in == form and not made_in.earlier)
    if identical < len(rows) and same_form and _same_bits_promised(run, chosen_device):
        listener.warn(
            f"{len(rows) - identical} rows have other bits, although nothing but the batches may "
            "have changed since the run"
        )
    return Verification(len(chosen_ids), len(rows), identical, tuple(differences), altered)


def _altered(run: Run) -> tuple[str, ...]:
    """The files of a run whose digests differ from those in its run.json."""
    if not run.info.has_outputs:
        return ()
    digests = {name: file_sha256(run.path / name) for name in (*OUTPUTS, STATE)}
    if digests[STATE] is None:  # the state may be deleted
        del digests[STATE]
    return tuple(name for name, digest in digests.items() if digest != run.info.files.get(name))


def _differences_from_votes(row: Row) -> Iterator[Mismatch]:
    """The value and the ends of the interval of a row, where its own votes give other numbers."""
    votes = _votes_behind(row)
    if votes is None:
        return
    draws = max(1, votes.draws)
    share = votes.for_class(row.predicted) / draws
    expected = {"value": share}
    # A confidence sequence also depends on the looks at its votes.
    if row.interval.kind is not IntervalKind.CONFIDENCE_SEQUENCE:
        split = None if votes.split is None else np.array([float(votes.split)])
        lower, upper = share_bounds(np.array([share]), draws, ROW_CONFIDENCE, split)
        expected["lower"] = float(lower[0])
        expected["upper"] = float(upper[0])
    for name, number in expected.items():
        recorded = getattr(row, name)
        # `not ... <=` is true for NaN, too.
        if recorded is None or not abs(recorded - number) <= _ABSOLUTE:
            yield Mismatch(row, name, recorded, number)


def _votes_behind(row: Row) -> Votes | None:
    """The votes of a row whose value is the share of votes for the predicted class; None for other
    rows."""
    votes = row.votes
    if votes is None or row.interval.kind not in _FROM_VOTES or row.predicted >= len(votes.counts):
        return None
    return votes


def _same_bits_promised(run: Run, device: torch.device) -> bool:
    """Whether the run measured rows that do not depend on the batch, on this device and with these
    versions."""
    info = run.info
    return (
        info.rows.kind is RowBits.BITWISE
        and info.device == device_name(device)
        and info.versions == versions()
    )


def _subset(run: Run, dataset: Dataset, ids: set[str]) -> Selected:
    """These samples of the run's data set, in its order.

    Raises:
        RunError: a sample is missing, or its image has changed.
    """
    indices = [index for index in range(len(dataset)) if dataset.sample_id(index) in ids]
    if len(indices) < len(ids):
        lost = next(iter(ids - {dataset.sample_id(index) for index in indices}))
        raise RunError(
            str(run.path),
            f"its data set no longer has the sample {lost!r}",
            "restore the data set the run was made on",
        )
    # Empty if the state was deleted: then the rows alone tell.
    recorded_digests = RunFolder(run.path).image_digests(run.info)
    for index in indices:
        sample = dataset[index]
        recorded_digest = recorded_digests.get(sample.id)
        if recorded_digest is not None and recorded_digest != image_digest(sample):
            raise RunError(
                f"{dataset.where}: {sample.id}",
                "this image has changed since the run",
                "restore the data of the run",
            )
    return Selected(dataset, indices)


def _recompute(
    run: Run, rows: Sequence[Row], request: Request, device: torch.device, listener: Listener
) -> tuple[Mapping[tuple[str, NoiseLevel, str], Row], NetworkForm | None]:
    """Compute rows of a run as its audit would, with as many copies as they have and in the form of
    the network that it had.

    Args:
        run: the run.
        rows: the rows.
        request: for an audit of their samples.
        device: where to compute.
        listener: receives notes and progress.

    Returns:
        The rows by their keys, and the form in which they were computed.
    """
    noises_of(run, request.spec)
    audit = prepare(request, device, Listener())
    if audit.info.model.sha256 != run.info.model.sha256:
        what = f"was made with other weights than {audit.info.model.name} holds now"
        raise RunError(str(run.path), what, "restore the model the run was made with")
    if run.info.form is not None:
        audit = in_recorded_form(audit, run.info.form, listener)
    in_rounds = [task for task in audit.tasks if task.estimator.most_draws is not None]
    others = [task for task in audit.tasks if task.estimator.most_draws is None]
    recomputed = dict[tuple[str, NoiseLevel, str], Row]()
    ids_by_draws = _ids_by_draws(rows, in_rounds)
    for draws, ids in sorted(ids_by_draws.items()):
        data = _chosen(audit.data, ids)
        # In the rounds of the run: a network that mixes the images of a batch then sees the same.
        rounds = [earlier for earlier in rounds_of(audit.tasks) if earlier.draws < draws]
        rounds.append(Round(draws, 1.0))
        computed = compute(audit, audit.engine, data, in_rounds, listener, rounds=rounds).rows
        recomputed.update(
            (row.key, computed[row.key])
            for row in rows
            if row.key in computed and _draws_behind(row) == draws
        )
    if others:
        ids = {row.sample_id for row in rows}
        data = _chosen(audit.data, ids)
        recomputed.update(compute(audit, audit.engine, data, others, listener).rows)
    return recomputed, audit.info.form


def _ids_by_draws(rows: Sequence[Row], in_rounds: Sequence[Task]) -> dict[int, set[str]]:
    """The samples that have results of these tasks from each number of copies."""
    names = {task.label for task in in_rounds}
    ids = dict[int, set[str]]()
    for row in rows:
        if row.estimator in names:
            ids.setdefault(_draws_behind(row), set()).add(row.sample_id)
    return ids


def _draws_behind(row: Row) -> int:
    """The copies behind a result; a clean pass comes before them."""
    return row.votes.draws if row.votes is not None else row.forwards - 1


def _chosen(data: Dataset, ids: set[str]) -> Dataset:
    """These samples of a data set, in its order; the data set itself if they are all."""
    places = [place for place in range(len(data)) if data.sample_id(place) in ids]
    return data if len(places) == len(data) else Selected(data, places)


def _differences(run: Run, row: Row, now: Row) -> Iterator[Mismatch]:
    """The numbers of a row that differ from those computed now, beyond the tolerance."""
    for name in _IDENTICAL:
        if getattr(row, name) != getattr(now, name):
            yield Mismatch(row, name, getattr(row, name), getattr(now, name))
    recorded_counts = None if row.votes is None else row.votes.counts
    recomputed_counts = None if now.votes is None else now.votes.counts
    moved = _votes_moved(recorded_counts, recomputed_counts)
    if moved > _VOTES:
        yield Mismatch(row, "votes", recorded_counts, recomputed_counts)
    yield from _other_draws(row, now)
    slack = 0.0
    votes = _votes_behind(row)
    if votes is not None:
        # Numbers that the row's own votes contradict are reported already.
        if any(True for _ in _differences_from_votes(row)):
            return
        slack = moved / max(1, votes.draws)  # a value computed from votes moves with them
    quantity = run.quantities[row.quantity]
    for name in _CLOSE:
        recorded = getattr(row, name)
        recomputed = getattr(now, name)
        if not _close(recorded, recomputed, quantity, slack):
            yield Mismatch(row, name, recorded, recomputed)


def _close(
    recorded: float | None, recomputed: float | None, quantity: Quantity, slack: float
) -> bool:
    """Whether two numbers of a quantity differ by rounding, and by ``slack``, only."""
    if recorded is None or recomputed is None:
        return recorded is recomputed
    if math.isnan(recorded) or math.isnan(recomputed):
        return math.isnan(recorded) and math.isnan(recomputed)
    # Relative to the distance to the nearer end: a probability of 0.9999 has the precision of its
    # complement. A range without ends leaves the number itself.
    to_end = min(abs(recomputed - quantity.low), abs(quantity.high - recomputed))
    scale = to_end if math.isfinite(to_end) else abs(recomputed)
    return abs(recorded - recomputed) <= slack + max(_ABSOLUTE, _RELATIVE * scale)


def _other_draws(row: Row, now: Row) -> Iterator[Mismatch]:
    """The first draw that kept the class in only one of the rows, if more draws differ than
    rounding explains."""
    if row.votes is None or row.votes.bits is None:
        return
    recorded = bits_of_votes(row.votes, row.predicted)
    recomputed = None if now.votes is None else bits_of_votes(now.votes, row.predicted)
    if recorded is None or recomputed is None or len(recorded) != len(recomputed):
        yield Mismatch(row, "kept", "in the row", "not")
        return
    differing = np.flatnonzero(recorded != recomputed)
    if differing.size > _VOTES:
        first = int(differing[0])
        yield Mismatch(row, f"kept of draw {first}", bool(recorded[first]), bool(recomputed[first]))


def _votes_moved(before: Sequence[int] | None, now: Sequence[int] | None) -> int:
    """The number of votes that moved to another class; more than allowed if the votes cannot be
    compared."""
    if before is None or now is None or len(before) != len(now):
        return 0 if before is now else _VOTES + 1
    # A vote that moves changes two counts; one whose logits became infinite changes a single one.
    return (sum(abs(a - b) for a, b in zip(before, now, strict=True)) + 1) // 2
