"""How do two runs on the same samples differ?"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from robaudit.compare.columns import Group
from robaudit.compare.groups import compared
from robaudit.compare.matching import Matching, described, match, pairs
from robaudit.compare.paired import Ends, paired_difference
from robaudit.compare.result import Comparison, Difference
from robaudit.errors import NothingLeftError, RunError
from robaudit.store.run import Run
from robaudit.summary.groups import GroupKey

_SHOWN = 3


def compare(
    base: Run,
    new: Run,
    *,
    estimators: Sequence[str] = (),
    sigmas: Sequence[float] = (),
    below: float | None = None,
    confidence: float = 0.95,
) -> Comparison:
    """Set the results of two runs against each other, sample by sample and, where both saw the same noise, draw by draw.

    Args:
        base, new: finished runs, read with their bits (``read_run(path, kept=True)``) to be paired by draws.
        estimators, sigmas: only these; all that both have by default.
        below: the threshold of flagged samples; the usual one of the quantity by default.
        confidence: of the intervals. Those of single samples are of 95 %.

    Raises:
        RunError: they have other noise, no sample or no results in common, or one estimator gave other quantities.
        NothingLeftError: a group without a pair of finite values.
    """
    matching = match(base, new)
    groups: dict[tuple[str, float], Group] = {}
    correct: list[tuple[bool, bool]] = []
    samples = 0
    for found in pairs(base, new, matching):
        samples += 1
        if found and found[0][0].correct is not None and found[0][1].correct is not None:
            correct.append((found[0][0].correct, found[0][1].correct))
        for pair in found:
            key = pair[1].estimator, pair[1].sigma
            if key not in groups:
                groups[key] = _group(base, new, pair[0].quantity, pair[1].quantity, key, matching)
            groups[key].add(pair)
    for row in matching.lost:
        if (row.estimator, row.sigma) in groups:
            groups[row.estimator, row.sigma].lose(row)
    where = f"{base.path} and {new.path}"
    if not samples:
        what = "have no sample in common"
        if matching.other_images:
            what = f"have other images under the same ids (the first: {matching.other_images[0]!r})"
        raise RunError(where, what, "compare runs on the same data, prepared alike")
    if not groups:
        raise RunError(where, "have no estimator at a noise level in common", "compare runs with the same estimators and levels")
    for key, group in groups.items():
        if not len(group):
            raise NothingLeftError(where, f"{key[0]} at sigma {key[1]:g} has no finite value in both")
    chosen = new.chosen(groups, estimators, sigmas)
    _warn(matching)
    names = new.class_names or base.class_names
    return Comparison(
        matching,
        samples,
        _clean(correct, matching, confidence),
        len({row.sample_id for row in matching.lost if row.correct is not None}),
        tuple(compared(groups[key], matching, names, below, confidence) for key in chosen),
    )


def _group(base: Run, new: Run, before: str, now: str, key: tuple[str, float], matching: Matching) -> Group:
    if before != now or base.quantities[before] != new.quantities[now]:
        where = f"{base.path} and {new.path}"
        raise RunError(where, f"{key[0]!r} is {before} in the one and {now} in the other", "compare estimators of one quantity")
    about = GroupKey(*key, described(new).kind, now)
    return Group(about, new.quantities[now], same_noise=matching.same_noise, paired=key[0] in matching.paired)


def _clean(correct: Sequence[tuple[bool, bool]], matching: Matching, confidence: float) -> Difference | None:
    """Exact for these images; for images of this kind by those that only one of the models has right (as McNemar's test)."""
    if not correct:
        return None
    table = np.array(correct)
    before, now = table.mean(0)
    value = float(now) - float(before)
    lost, won = int((table[:, 0] & ~table[:, 1]).sum()), int((table[:, 1] & ~table[:, 0]).sum())
    if matching.same_model and not lost + won:
        population = Ends(0.0, 0.0, "the same model")
    else:
        lower, upper = paired_difference(lost, won, len(correct), confidence)
        population = Ends(float(lower), float(upper), "paired images")
    return Difference(float(before), float(now), value, Ends(value, value, "counted"), population)


def _warn(matching: Matching) -> None:
    skipped = set(matching.skipped)
    for ids, words in (
        (matching.skipped, "skipped by the new run"),
        ([one for one in matching.only_base if one not in skipped], "only in the base run"),
        (matching.only_new, "only in the new run"),
        (matching.other_images, "another image in each run, and left out"),
    ):
        if ids:
            more = ", ..." if len(ids) > _SHOWN else ""
            count = f"{len(ids)} sample{' is' if len(ids) == 1 else 's are'}"
            matching.warnings.append(f"{count} {words}: {', '.join(ids[:_SHOWN])}{more}")
    if matching.other_labels:
        matching.warnings.append(f"{matching.other_labels} samples have another label in each run; those of the new run name the classes")
