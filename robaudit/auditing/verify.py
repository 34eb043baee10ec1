"""Verification of a run: random rows are computed anew from the model and the data, and compared."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from robaudit.auditing.environment import deterministic, image_digest, pick_device
from robaudit.auditing.loop import names_of, work_off
from robaudit.auditing.setup import make_engine, make_model
from robaudit.datasets.base import Dataset
from robaudit.datasets.load import open_dataset
from robaudit.datasets.select import Selected
from robaudit.errors import RunError
from robaudit.estimators import registry
from robaudit.estimators.registry import tasks_of
from robaudit.files import file_sha256
from robaudit.models.logits import LogitModel, for_noisy_passes, rounded_products
from robaudit.progress import Listener, Silent
from robaudit.quantities import IntervalKind
from robaudit.rows import Row, bits_of
from robaudit.spec.model import AuditSpec
from robaudit.store.folder import OUTPUTS, RunFolder
from robaudit.store.run import Run
from robaudit.store.state import State

RELATIVE, ABSOLUTE = 5e-4, 1e-7
_VOTES = 2
_OF_VOTES = (IntervalKind.CLOPPER_PEARSON, IntervalKind.CONFIDENCE_SEQUENCE)
_FIELDS = ("value", "lower", "upper", "std_error")


@dataclass(frozen=True, slots=True)
class Difference:
    """A number of a row that did not come out again.

    Attributes:
        row: as the run has it.
        field: which column.
        written, found: the value in the run, and the one computed now.
    """

    row: Row
    field: str
    written: object
    found: object


@dataclass(frozen=True, slots=True)
class Verification:
    """What a verification found.

    Attributes:
        samples, rows: how many were computed anew.
        differences: numbers beyond the tolerance.
        altered: files of the run that are not as they were written.
    """

    samples: int
    rows: int
    differences: tuple[Difference, ...]
    altered: tuple[str, ...]

    @property
    def good(self) -> bool:
        """Whether all is as written."""
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
    """Compute all rows of random samples of a run anew, from its spec, its weights and its data, and compare.

    A number differs when it is off by more than 5e-4 of its distance to the nearer end of its range (at least 1e-7), votes when more
    than two moved: what float rounding of other versions and batches explains, and a changed third digit does not.

    Args:
        run: a finished run.
        samples: how many samples, drawn at random; None for all.
        seed: of the draw; None for a fresh one each time, so that nobody knows in advance which rows are looked at.
        device: cpu, cuda, ...; default the kind the run was made on.
        trust: allow Python code that the spec names.
        listener: hears notes and progress.

    Raises:
        RobauditError: the model or the data are not what they were, or cannot be read.
    """
    made_on = str(run.info["device"]).partition(" ")[0].partition(":")[0]
    chosen = pick_device(device or made_on, "--device")
    if chosen.type != made_on:
        raise RunError(str(run.path), f"was made on {made_on}, where the noise is another", f"verify it with --device {made_on}")
    spec = AuditSpec.model_validate(run.info["spec"]).located(Path(run.info["spec_folder"]), run.info["name"])
    dataset = open_dataset(spec.dataset, base_dir=spec.base_dir, trust=trust)
    ids = list(dict.fromkeys(row.sample_id for row in run.rows))
    ears = listener or Silent()
    if samples is not None and run.info.get("batch_dependent"):
        ears.note("its model looks at all the images of a batch, so all samples are computed anew")
    elif samples is not None and samples < len(ids):
        ids = random.Random(seed).sample(ids, samples)  # noqa: S311  no secret: any rows will do
    drawn = set(ids)
    rows = [row for row in run.rows if row.sample_id in drawn]
    found = _computed(run, spec, _subset(run, dataset, drawn), str(chosen), trust=trust, listener=ears)
    differences = [difference for row in rows for difference in _differences(run, row, found[row.key])]
    altered = [name for name in OUTPUTS if file_sha256(run.path / name) != run.info["files"].get(name)]
    return Verification(len(drawn), len(rows), tuple(differences), tuple(altered))


def _subset(run: Run, dataset: Dataset, ids: set[str]) -> Selected:
    indices = [i for i in range(len(dataset)) if dataset.sample_id(i) in ids]
    if len(indices) < len(ids):
        lost = next(iter(ids - {dataset.sample_id(i) for i in indices}))
        raise RunError(str(run.path), f"its data set has no sample {lost!r} any more", "restore the data set the run was made on")
    before = RunFolder(run.path).image_digests()
    for i in indices:
        sample = dataset[i]
        if sample.id in before and before[sample.id] != image_digest(sample):
            raise RunError(f"{dataset.where}: {sample.id}", "this image has changed since the run", "restore the data of the run")
    return Selected(dataset, indices)


def _computed(
    run: Run, spec: AuditSpec, dataset: Dataset, device: str, *, trust: bool, listener: Listener
) -> Mapping[tuple[str, float, str], Row]:
    """The rows of a data set, computed as a run would."""
    with deterministic(spec.run.deterministic, pick_device(device)), rounded_products(spec.run.precision == "tf32"):
        return _rows(run, spec, dataset, make_model(spec, None, pick_device(device), trust=trust), listener)


def _rows(run: Run, spec: AuditSpec, dataset: Dataset, network: LogitModel, listener: Listener) -> Mapping[tuple[str, float, str], Row]:
    if network.sha256 != run.info["model"]["sha256"]:
        raise RunError(
            str(run.path), f"was made with other weights than {network.name} holds now", "restore the model the run was made with"
        )
    noisy = for_noisy_passes(network, spec.run.precision)
    image = dataset[0].pixels
    engine = make_engine(spec, network, noisy, run.info["model"]["classes"], image)
    tasks = tasks_of(spec.noise.sigma, registry.build(spec.estimators))
    with State() as state:
        state.begin(dataset, names_of(tasks))
        work_off(state, spec, engine, dataset, tasks, image, listener, batch_dependent=bool(run.info.get("batch_dependent")))
        return {row.key: row for sample in state.results() for row in sample.rows}


def _differences(run: Run, row: Row, now: Row) -> Iterator[Difference]:
    for name in ("label", "predicted", "noise", "quantity", "interval"):
        if getattr(row, name) != getattr(now, name):
            yield Difference(row, name, getattr(row, name), getattr(now, name))
    quantity = run.quantities[row.quantity]
    moved = _moved(row.votes, now.votes)
    if moved > _VOTES:
        yield Difference(row, "votes", row.votes, now.votes)
    yield from _other_draws(row, now)
    if row.votes is not None and row.interval.kind in _OF_VOTES and row.predicted < len(row.votes):
        slack = moved / max(1, row.draws)  # a value made of votes moves with them
        if abs(row.value - row.votes[row.predicted] / max(1, row.draws)) > ABSOLUTE:
            yield Difference(row, "value", row.value, row.votes[row.predicted] / max(1, row.draws))
            return
    else:
        slack = 0.0
    for name in _FIELDS:
        written, found = getattr(row, name), getattr(now, name)
        if written is None or found is None:
            same = written is found
        else:
            room = min(abs(found - quantity.low), abs(quantity.high - found))
            same = abs(written - found) <= slack + max(ABSOLUTE, RELATIVE * (room if math.isfinite(room) else abs(found)))
        if not same:
            yield Difference(row, name, written, found)


def _other_draws(row: Row, now: Row) -> Iterator[Difference]:
    """The first draw that kept the class in the one row and not in the other, where more do than rounding explains."""
    if row.kept is None:
        return
    before, found = bits_of(row), bits_of(now)
    if before is None or found is None or len(before) != len(found):
        yield Difference(row, "kept", "in the row", "not")
    elif (differing := np.flatnonzero(before != found)).size > _VOTES:
        first = int(differing[0])
        yield Difference(row, f"kept of draw {first}", bool(before[first]), bool(found[first]))


def _moved(before: Sequence[int] | None, now: Sequence[int] | None) -> int:
    """Votes that went elsewhere."""
    if before is None or now is None or len(before) != len(now):
        return 0 if before is now else _VOTES + 1
    return (sum(abs(a - b) for a, b in zip(before, now, strict=True)) + 1) // 2
