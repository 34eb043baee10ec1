"""Verification of a run: recompute random rows from the model and the data, and compare them."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
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
from robaudit.auditing.prepare import Request, prepare
from robaudit.datasets.dataset import Dataset
from robaudit.datasets.open_dataset import open_dataset
from robaudit.datasets.select import Selected
from robaudit.errors import RunError
from robaudit.files import file_sha256
from robaudit.levels import NoiseLevel
from robaudit.models.logits import rounded_products
from robaudit.numerics.image_intervals import ROW_CONFIDENCE, share_bounds
from robaudit.progress import Listener
from robaudit.quantities import IntervalKind
from robaudit.records import Inline, Record
from robaudit.results import Votes
from robaudit.runs.folder import OUTPUTS, RunFolder
from robaudit.runs.info import RowBits, device_type, kind_of
from robaudit.runs.rows import Row, bits_of
from robaudit.runs.run import Run
from robaudit.runs.state import NAME as STATE
from robaudit.settings import DEVICE

# tolerances
_RELATIVE = 5e-4
_ABSOLUTE = 1e-7
_VOTES = 2
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
        """Whether everything was reproduced, and no file has changed."""
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
    compare.

    A number differs when it is off by more than 5e-4 of its distance to the nearer end of its range
    (at least 1e-7), votes when more than two moved: float rounding in other versions and batches
    stays below that, a changed third digit does not. Rows with the same bits are counted; a run
    that measured them to be independent of the batch gives them again on the same machine with the
    same versions.

    Args:
        run: a finished run.
        samples: how many samples, drawn at random; None for all. With 0 neither model nor data are
            opened: the files are compared with their digests, and every row with its own votes.
        seed: of the draw; None for a fresh seed, so that nobody knows in advance which rows are
            checked.
        device: cpu, cuda, ...; by default the kind that the run was made on.
        trust: allow Python code that the spec names.
        listener: receives notes and progress.

    Raises:
        RobauditError: the model or the data have changed, or cannot be read.
    """
    differences = [difference for row in run.rows for difference in _own_votes(row)]
    altered = _altered(run)
    if samples == 0:
        return Verification(0, 0, 0, tuple(differences), altered)
    made_on = run.info.device
    chosen = pick_device(device or device_type(made_on), DEVICE.words)
    if kind_of(device_name(chosen)) != kind_of(made_on):
        what = f"was made on {made_on}, and {device_name(chosen)} draws other noise"
        raise RunError(str(run.path), what, f"verify it on {kind_of(made_on)}")
    spec = spec_of(run)
    dataset = open_dataset(without_download(spec.dataset), base_dir=spec.base_dir, trust=trust)
    ids = list(dict.fromkeys(row.sample_id for row in run.rows))
    listener = listener or Listener()
    if samples is not None and run.info.rows.kind is RowBits.MIXED:
        listener.note("its model looks at all the images of a batch, so all samples are recomputed")
    elif samples is not None and samples < len(ids):
        ids = random.Random(seed).sample(ids, samples)  # noqa: S311  not a secret
    drawn = set(ids)
    rows = [row for row in run.rows if row.sample_id in drawn]
    subset = _subset(run, dataset, drawn)
    with deterministic(spec.run.deterministic, chosen), rounded_products(False):
        recomputed = _recompute(run, Request(spec, trust=trust, dataset=subset), chosen, listener)
    differences += [
        difference for row in rows for difference in _differences(run, row, recomputed[row.key])
    ]
    # the end of a run adds notes
    identical = sum(replace(row, note="") == replace(recomputed[row.key], note="") for row in rows)
    if identical < len(rows) and _same_bits_promised(run, chosen):
        listener.warn(
            f"{len(rows) - identical} rows have other bits, although nothing but the batches may "
            "have changed since the run"
        )
    return Verification(len(drawn), len(rows), identical, tuple(differences), altered)


def _altered(run: Run) -> tuple[str, ...]:
    """The files of a run that are not those whose digests are in its run.json. The state may be
    missing: it may be deleted."""
    digests = {name: file_sha256(run.path / name) for name in (*OUTPUTS, STATE)}
    if digests[STATE] is None:
        del digests[STATE]
    return tuple(name for name, digest in digests.items() if digest != run.info.files.get(name))


def _own_votes(row: Row) -> Iterator[Mismatch]:
    """Where the value and the interval of a row are not those of its votes."""
    votes = _votes_behind(row)
    if votes is None:
        return
    draws = max(1, votes.draws)
    share = votes.of(row.predicted) / draws
    expected = {"value": share}
    if (
        row.interval.kind is not IntervalKind.CONFIDENCE_SEQUENCE
    ):  # depends on more than the final votes
        split = None if votes.split is None else np.array([float(votes.split)])
        lower, upper = share_bounds(np.array([share]), draws, ROW_CONFIDENCE, split)
        expected |= {"lower": float(lower[0]), "upper": float(upper[0])}
    for name, number in expected.items():
        recorded = getattr(row, name)
        if recorded is None or not abs(recorded - number) <= _ABSOLUTE:
            yield Mismatch(row, name, recorded, number)


def _votes_behind(row: Row) -> Votes | None:
    """The votes of a row whose value is the share of those for the predicted class."""
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
    indices = [i for i in range(len(dataset)) if dataset.sample_id(i) in ids]
    if len(indices) < len(ids):
        lost = next(iter(ids - {dataset.sample_id(i) for i in indices}))
        raise RunError(
            str(run.path),
            f"its data set no longer has the sample {lost!r}",
            "restore the data set the run was made on",
        )
    before = RunFolder(run.path).image_digests(run.info)
    for i in indices:
        sample = dataset[i]
        if sample.id in before and before[sample.id] != image_digest(sample):
            raise RunError(
                f"{dataset.where}: {sample.id}",
                "this image has changed since the run",
                "restore the data of the run",
            )
    return Selected(dataset, indices)


def _recompute(
    run: Run, request: Request, device: torch.device, listener: Listener
) -> Mapping[tuple[str, NoiseLevel, str], Row]:
    """Compute the rows of a data set as an audit would."""
    noises_of(run, request.spec)
    audit = prepare(request, device, Listener())
    if audit.info.model.sha256 != run.info.model.sha256:
        what = f"was made with other weights than {audit.info.model.name} holds now"
        raise RunError(str(run.path), what, "restore the model the run was made with")
    return compute(audit, audit.engine, audit.data, audit.tasks, listener).rows


def _differences(run: Run, row: Row, now: Row) -> Iterator[Mismatch]:
    for name in _IDENTICAL:
        if getattr(row, name) != getattr(now, name):
            yield Mismatch(row, name, getattr(row, name), getattr(now, name))
    quantity = run.quantities[row.quantity]
    votes = _votes_behind(row)
    counts = [None if each.votes is None else each.votes.counts for each in (row, now)]
    moved = _moved(*counts)
    if moved > _VOTES:
        yield Mismatch(row, "votes", *counts)
    yield from _other_draws(row, now)
    if votes is None:
        slack = 0.0
    elif any(True for _ in _own_votes(row)):
        return  # said already
    else:
        slack = moved / max(1, votes.draws)  # a value computed from votes moves with them
    for name in _CLOSE:
        recorded = getattr(row, name)
        recomputed = getattr(now, name)
        if recorded is None or recomputed is None:
            same = recorded is recomputed
        elif math.isnan(recorded) or math.isnan(recomputed):
            same = math.isnan(recorded) and math.isnan(recomputed)
        else:
            to_end = min(abs(recomputed - quantity.low), abs(quantity.high - recomputed))
            scale = to_end if math.isfinite(to_end) else abs(recomputed)
            same = abs(recorded - recomputed) <= slack + max(_ABSOLUTE, _RELATIVE * scale)
        if not same:
            yield Mismatch(row, name, recorded, recomputed)


def _other_draws(row: Row, now: Row) -> Iterator[Mismatch]:
    """The first draw that kept the class in only one of the rows, if more draws differ than
    rounding explains."""
    if row.votes is None or row.votes.bits is None:
        return
    recorded = bits_of(row)
    recomputed = bits_of(now)
    if recorded is None or recomputed is None or len(recorded) != len(recomputed):
        yield Mismatch(row, "kept", "in the row", "not")
    elif (differing := np.flatnonzero(recorded != recomputed)).size > _VOTES:
        first = int(differing[0])
        yield Mismatch(row, f"kept of draw {first}", bool(recorded[first]), bool(recomputed[first]))


def _moved(before: Sequence[int] | None, now: Sequence[int] | None) -> int:
    """The number of votes that moved to another class."""
    if before is None or now is None or len(before) != len(now):
        return 0 if before is now else _VOTES + 1
    return (sum(abs(a - b) for a, b in zip(before, now, strict=True)) + 1) // 2
