"""Matching of two runs: the samples that they share, and whether their results may be compared."""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from itertools import groupby, zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from robaudit.errors import RunError
from robaudit.levels import FILE, INPUT, NoiseLevel, without_levels
from robaudit.quantities import IntervalKind
from robaudit.results import MOST_STORED_DRAWS
from robaudit.runs.folder import RunFolder
from robaudit.runs.info import kind_of
from robaudit.runs.rows import Bits, Row, bits_of
from robaudit.runs.run import Run
from robaudit.runs.table import NO_CLASS, common_ids
from robaudit.spec.model import BaseDatasetSpec, ImageOptions
from robaudit.text import count

Pair = tuple[Row, Row]
"""The rows of a sample in the base run and in the new run."""
Result = tuple[str, NoiseLevel]
"""The name of an estimator's result, and its noise level."""
_SHOWN = 3  # results in a warning
# Keys of a dataset section: those that choose and name samples, and those that make their pixels.
_SELECTION = BaseDatasetSpec.model_fields.keys() - {"kind"}
_PREPARATION = ImageOptions.model_fields.keys() - BaseDatasetSpec.model_fields.keys()


class Images(Enum):
    """How the images of two runs under the same id are related."""

    SAME = auto()
    """The same pixels, where the digests that both runs recorded do not say otherwise."""
    SAME_FILE = auto()
    """The same file with other pixels: resized or cropped in another way."""
    OTHER = auto()
    """Images of another size from elsewhere."""


@dataclass(slots=True)
class Matching:
    """The match between two runs.

    Attributes:
        same_model: both have the same weights, loaded and run alike on the same images: the true
            difference is 0.
        same_images: both prepared the images alike; False: they are the same files, prepared in
            other ways.
        same_generator: both drew their noise from the same random numbers, so that the errors may
            be correlated even where the noise differs.
        why_not: the reason if noise on the input differs; else "".
        on_files: labels of the noises on files. They are the same for networks of any input size.
        why_not_on_files: the reason if noise on files differs; else "".
        paired: labels of estimators with the same name in both runs: their recorded draws have the
            same order.
        warnings: remarks for the reader.
        only_base, only_new: ids of samples that only one run has.
        skipped: ids of samples in the base run that the new run skipped.
        lost: the base run's rows of skipped samples.
        skipped_besides: number of samples that the new run skipped and the base run lacks.
        other_images: ids of samples whose image differs between the runs.
        other_labels: number of samples whose label differs between the runs.
    """

    same_model: bool
    same_images: bool
    same_generator: bool
    why_not: str
    on_files: frozenset[str]
    why_not_on_files: str
    paired: frozenset[str]
    warnings: list[str]
    only_base: list[str] = field(default_factory=list)
    only_new: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    lost: list[Row] = field(default_factory=list)
    skipped_besides: int = 0
    other_images: list[str] = field(default_factory=list)
    other_labels: int = 0

    @property
    def same_noise(self) -> bool:
        """Whether both runs gave each sample the same noise, in all results."""
        return not self.why_not

    def why_other_noise(self, at: NoiseLevel) -> str:
        """The reason if the samples' noise at this level differs; else ""."""
        return self.why_not_on_files if at.noise in self.on_files else self.why_not


def _check_same_noise(base: Run, new: Run) -> None:
    """Refuse two runs whose noises of the same label differ."""
    # A noise of one run only is no obstacle: its results have no partner.
    before = _noises(base)
    now = _noises(new)
    for label in before.keys() & now.keys():
        if before[label] != now[label]:
            raise RunError(
                f"{base.path} and {new.path}",
                f"differ in the noise {label}",
                "compare runs with the same noise",
            )


def _noises(run: Run) -> dict[str, dict[str, Any]]:
    """The noises by label, each without its levels."""
    # Runs may differ in their levels; the files of a noise are part of it, like its options.
    files = run.info.noise_files
    # Earlier versions had no key for the place: their noise is on the input.
    return {
        str(entry["name"]): {
            "at": INPUT,
            **without_levels(entry),
            "files": files.get(entry["name"]),
        }
        for entry in run.info.spec["noise"]
    }


def _on_files(run: Run) -> frozenset[str]:
    """The labels of the noises on files."""
    return frozenset(label for label, noise in _noises(run).items() if noise["at"] == FILE)


def _estimators(run: Run) -> set[tuple[str, str]]:
    """Labels and names of the estimators."""
    return {(entry["label"], entry["name"]) for entry in run.info.spec["estimators"]}


def _model(run: Run) -> tuple[Any, ...]:
    """The identity of the model: equal for equal weights, loaded and run alike.

    It has the checksum and format of the weights, the spec's model section without the path, and
    the precision.
    """
    info = run.info
    spec = run.info.spec
    # A model is the same wherever its file is; its format is the one that was recognised.
    section = dict(spec["model"])
    section.pop("path", None)
    section.pop("format", None)
    # No checksum covers the user's own code, so such a model is the same only within a run.
    code = info.identity if info.model.format == "python" else None
    precision = spec["run"].get("precision")
    return info.model.sha256, info.model.format, section, precision, code


def check_comparable(base: Run, new: Run) -> None:
    """Refuse two runs that differ in an image or a noise, or share no sample.

    A comparison of two runs (:func:`match`, :func:`pairs`) is less strict: it leaves out single
    images that differ, and says so.

    Raises:
        RunError: they cannot be compared.
    """
    _check_same_images(base, new)
    _check_same_noise(base, new)
    if set(base.table.ids).isdisjoint(new.table.ids):
        raise no_common_sample(base, new)


def _check_same_images(base: Run, new: Run) -> None:
    """Refuse two runs with different images under the same id.

    Images are known by the digests of their pixels, as far as both runs recorded them. The same
    file may have other pixels in each run.
    """
    related = images_of(base, new)
    if related is Images.SAME_FILE:
        return
    if related is Images.OTHER:
        common = common_ids([base.table.ids, new.table.ids])
        if common:
            raise other_images(base, new, common[0])
    before = image_digests(base)
    now = image_digests(new)
    for sample_id, digest in before.items():
        if now.get(sample_id, digest) != digest:
            raise other_images(base, new, sample_id)


def images_of(base: Run, new: Run) -> Images:
    """How the images of two runs under the same id are related, by what the runs say of the data.

    Two networks of different input size see the same photo with other pixels.
    """
    sizes = [run.info.image_shape for run in (base, new)]
    same_size = None in sizes or sizes[0] == sizes[1]
    changed = _changed_keys(base, new).keys()
    # The same image files, whichever samples of them are audited, but prepared in another way.
    prepared_apart = not changed.isdisjoint(_PREPARATION)
    if prepared_apart and not changed - _SELECTION - _PREPARATION:
        return Images.SAME_FILE
    # Of one size, the digests tell.
    return Images.SAME if same_size else Images.OTHER


def _changed_keys(base: Run, new: Run) -> dict[str, tuple[Any, Any]]:
    """The keys of the dataset section that differ, with the values of both runs.

    A key that only one of them has is no difference: it is of another version of robaudit.
    """
    before = _dataset(base)
    now = _dataset(new)
    common = [key for key in before if key in now]
    return {key: (before[key], now[key]) for key in common if before[key] != now[key]}


def _dataset(run: Run) -> dict[str, Any]:
    """The spec's dataset section, whose paths no longer depend on the folder of the spec."""
    section = dict(run.info.spec.get("dataset", {}))
    for key in ("path", "root"):
        if isinstance(section.get(key), str):
            section[key] = str(Path(run.info.spec_folder, section[key]))
    return section


def check_same_classes(base: Run, new: Run) -> None:
    """Refuse two runs whose classes have other indices.

    The labels of common samples tell, not the names of the classes: one model says "great white
    shark" and another "great_white_shark", and a few labels may have been corrected.

    Raises:
        RunError: most of the samples that both have are labelled with other classes; or, without
            labels, the networks have other numbers of classes.
    """
    labels = [_labels(run) for run in (base, new)]
    common = labels[0].keys() & labels[1].keys()
    agreeing = sum(labels[0][sample_id] == labels[1][sample_id] for sample_id in common)
    numbers = [run.info.model.classes for run in (base, new)]
    same = 2 * agreeing > len(common) if common else numbers[0] == numbers[1]
    if not same:
        raise RunError(
            f"{base.path} and {new.path}",
            "have other classes under the same indices",
            "look at the classes of each run alone",
        )


def _labels(run: Run) -> dict[str, int]:
    """The labels of the labelled samples, by id."""
    labels = {}
    for columns in run.table.values():
        known = zip(columns.names, columns.label.tolist(), strict=True)
        labels.update({name: label for name, label in known if label != NO_CLASS})
        if len(labels) == len(run.table.ids):
            break  # the other results are of the same samples
    return labels


def other_images(base: Run, new: Run, sample_id: str) -> RunError:
    """The error for two runs with different images under the same id."""
    what = f"have different images under the same ids (the first: {sample_id!r})"
    return RunError(
        f"{base.path} and {new.path}", what, "compare runs on the same data, prepared alike"
    )


def no_common_sample(base: Run, new: Run) -> RunError:
    """The error for two runs without a sample in common."""
    return RunError(
        f"{base.path} and {new.path}",
        "have no sample in common",
        "compare runs on the same data, prepared alike",
    )


def match(base: Run, new: Run) -> Matching:
    """Check that the runs may be compared, and whether their draws can be paired.

    Raises:
        RunError: a noise of the same label differs, or the images are of another size and of other
            files.
    """
    _check_same_noise(base, new)
    images = images_of(base, new)
    if images is Images.OTHER:
        _check_same_images(base, new)
    generator_reasons = []
    seeds = [run.info.seed for run in (base, new)]
    # The generator of a GPU gives other numbers than the one of a CPU.
    devices = [kind_of(run.info.device) for run in (base, new)]
    if seeds[0] != seeds[1]:
        generator_reasons.append(f"the seeds differ ({seeds[0]} and {seeds[1]})")
    if devices[0] != devices[1]:
        generator_reasons.append(f"noise on {devices[0]} differs from noise on {devices[1]}")
    on_files = _on_files(base) & _on_files(new)
    # A file has a size of its own, whatever the size of the network's input is.
    why_not_on_files = " and ".join(generator_reasons + _other_files(base, new))
    why_not = " and ".join(generator_reasons + _other_size(base, new))
    if on_files and on_files == _noises(base).keys() & _noises(new).keys():
        why_not = why_not_on_files
    warnings = []
    if images is Images.SAME_FILE:
        warnings.append(_prepared(base, new))
    if why_not:
        paired_files = sorted(on_files) if not why_not_on_files else []
        besides = f" (those of {', '.join(paired_files)}, on the files, are paired)"
        warnings.append(
            f"noise draws are unpaired, as {why_not}: the errors of both runs' noise draws add "
            f"up{besides if paired_files else ''}"
        )
    base_results = _results(base)
    new_results = _results(new)
    warnings += _results_of_one_run("base", base_results, new_results)
    warnings += _results_of_one_run("new", new_results, base_results)
    # Another estimator under the same label may use its draws in another order.
    paired = frozenset(label for label, _ in _estimators(base) & _estimators(new))
    return Matching(
        same_model=images is Images.SAME and _model(base) == _model(new),
        same_images=images is Images.SAME,
        same_generator=not generator_reasons,
        why_not=why_not,
        on_files=on_files,
        why_not_on_files=why_not_on_files,
        paired=paired,
        warnings=warnings,
    )


def _other_size(base: Run, new: Run) -> list[str]:
    """The reason why noise on the input differs between inputs of other sizes; empty if it does
    not, or if a run does not say its size."""
    shapes = [run.info.image_shape for run in (base, new)]
    if None in shapes or shapes[0] == shapes[1]:
        return []
    sizes = []
    for channels, *sides in filter(None, shapes):
        size = f"{' x '.join(map(str, sides))} pixels"
        sizes.append((size, f"{size} of {count(channels, 'channel')}"))
    # The channels are named only where nothing else differs.
    same_sides = sizes[0][0] == sizes[1][0]
    before, now = (texts[same_sides] for texts in sizes)
    return [f"noise on {before} differs from noise on {now}"]


def _other_files(base: Run, new: Run) -> list[str]:
    """The reason why noise on files may differ: other files; empty for the same files."""
    changed = _changed_keys(base, new).keys() - _SELECTION
    if changed <= _PREPARATION:
        return []
    # Prepared alike, equal pixels are of equal files. A photo and its smaller copy, each prepared
    # in its own way, may have equal pixels, too.
    prepared_alike = changed.isdisjoint(_PREPARATION)
    if prepared_alike and image_digests(base) and image_digests(new):
        return []
    return ["the files are not known to be the same"]


def _prepared(base: Run, new: Run) -> str:
    """The warning about the same files with other pixels."""
    changes = [
        f"{key} {before} and {now}"
        for key, (before, now) in _changed_keys(base, new).items()
        if key in _PREPARATION
    ]
    return f"the same files, prepared in other ways ({', '.join(changes)}): paired by their ids"


def _results_of_one_run(
    which: str, results: Iterable[Result], others: Container[Result]
) -> list[str]:
    """The warning about results that the other run lacks; none if it has all."""
    alone = [f"{name} at {at}" for name, at in results if (name, at) not in others]
    if not alone:
        return []
    ellipsis = ", ..." if len(alone) > _SHOWN else ""
    return [f"only in the {which} run: {', '.join(alone[:_SHOWN])}{ellipsis}"]


def pairs(base: Run, new: Run, matching: Matching) -> Iterator[list[Pair]]:
    """The pairs of rows of each sample that both runs have.

    Both runs are read in step: if they have the same order, few rows are in memory at a time.
    ``matching`` is completed by the samples that do not match.
    """
    # The same file, resized in another way, has another digest.
    digests = [image_digests(run) if matching.same_images else {} for run in (base, new)]
    # The samples of each run whose partner has not been read.
    base_waiting: dict[str, list[Row]] = {}
    new_waiting: dict[str, list[Row]] = {}
    waiting = (base_waiting, new_waiting)
    for samples in zip_longest(_samples(base), _samples(new)):
        for side, sample in enumerate(samples):
            if sample is None:
                continue
            sample_id, rows = sample
            partner = waiting[1 - side].pop(sample_id, None)
            if partner is None:
                waiting[side][sample_id] = rows
                continue
            recorded = {known.get(sample_id) for known in digests}
            if len(recorded - {None, ""}) > 1:
                matching.other_images.append(sample_id)
                continue
            # The partner is of the other side, and was read earlier.
            before, now = (partner, rows) if side else (rows, partner)
            matching.other_labels += before[0].label != now[0].label
            yield _same_tasks(before, now)
    matching.only_base += base_waiting
    matching.only_new += new_waiting
    # A skipped sample is no sample of the new run, but was one that it was asked for.
    skips = {skip.sample_id for skip in new.info.skipped}
    matching.skipped += [sample_id for sample_id in base_waiting if sample_id in skips]
    matching.skipped_besides += len(skips) - len(matching.skipped)
    for sample_id in matching.skipped:
        matching.lost += base_waiting[sample_id]


class CommonDraws(NamedTuple):
    """The draws that two rows share.

    Attributes:
        draws: number of draws; 0 where the rows do not record them.
        lost, won: number of units that kept the class in the base run only, and in the new run
            only. A unit is a draw, or an antithetic pair, of which then both copies did so.
        half_lost, half_won: number of pairs in which one copy less, and one copy more, kept the
            class in the new run.
        kept: number of draws of each run that kept the class.
        split: number of antithetic pairs of each run that disagree; NaN where draws are
            independent.
    """

    draws: int = 0
    lost: int = 0
    won: int = 0
    half_lost: int = 0
    half_won: int = 0
    kept: tuple[int, int] = 0, 0
    split: tuple[float, float] = math.nan, math.nan


def common_draws(base: Row, new: Row) -> CommonDraws:
    """The common draws of two rows with the same noise: the first min(n) of both.

    Draw j is the same in both rows.
    """
    base_bits = bits_of(base)
    new_bits = bits_of(new)
    # Single draws and antithetic pairs use the noise in different ways.
    if base_bits is None or new_bits is None or _split(base) != _split(new):
        return CommonDraws()
    draws = min(len(base_bits), len(new_bits))
    before = base_bits[:draws]
    now = new_bits[:draws]
    kept = (int(before.sum()), int(now.sum()))
    if not _split(base):
        lost = int((before & ~now).sum())
        won = int((now & ~before).sum())
        return CommonDraws(draws, lost, won, kept=kept)
    # The copies of an antithetic pair follow each other; a pair changes by -2 to 2 copies.
    split = (_pairs_apart(before), _pairs_apart(now))
    changed_draws = now.astype(np.int64) - before
    change = changed_draws.reshape(-1, 2).sum(1)
    return CommonDraws(
        draws=draws,
        lost=int((change == -2).sum()),
        won=int((change == 2).sum()),
        half_lost=int((change == -1).sum()),
        half_won=int((change == 1).sum()),
        kept=kept,
        split=split,
    )


def _pairs_apart(bits: Bits) -> int:
    """The number of antithetic pairs of which one copy kept the class."""
    return int((bits[::2] != bits[1::2]).sum())


def _split(row: Row) -> bool:
    """Whether the row's draws come in antithetic pairs."""
    return row.votes is not None and row.votes.split is not None


def why_unpaired(base: Row, new: Row) -> str:
    """The reason why two rows with the same noise cannot be paired draw by draw."""
    for which, row in (("base", base), ("new", new)):
        # Such a run has other numbers of draws for each image, chosen by its own votes.
        if row.interval.kind is IntervalKind.CONFIDENCE_SEQUENCE:
            return f"the {which} run's images stopped adaptively"
        if not row.fixed_votes:
            return f"the {which} run's draws are not a fixed number of votes"
        if bits_of(row) is None:
            return (
                f"the {which} run does not record which draws kept the class (an older run, "
                f"or more than {MOST_STORED_DRAWS:,} draws)"
            )
    return ""


def _results(run: Run) -> list[Result]:
    """The results of each sample of a run, taken from its first sample."""
    for _, rows in _samples(run):
        return [(row.estimator, row.at) for row in rows]
    return []


def _samples(run: Run) -> Iterator[tuple[str, list[Row]]]:
    """The samples of a run, each with its rows."""
    for sample_id, rows in groupby(run.rows, key=lambda row: row.sample_id):
        yield sample_id, list(rows)


def _same_tasks(base: Sequence[Row], new: Sequence[Row]) -> list[Pair]:
    """The pairs of rows of one estimator and noise level, in the new run's order."""
    known = {(row.estimator, row.at): row for row in base}
    pairs = []
    for row in new:
        partner = known.get((row.estimator, row.at))
        if partner is not None:
            pairs.append((partner, row))
    return pairs


def image_digests(run: Run) -> Mapping[str, str]:
    """Digests of the pixels by sample id; empty without the run's state."""
    return RunFolder(run.path).image_digests(run.info)
