"""Consistency of the results of a run: the relations that must hold between them, and
contradictions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated

from robaudit.numerics.image_intervals import TAIL
from robaudit.plugins import RELATIONS, blaming, entry_point, names_in
from robaudit.records import Inline, Record, published
from robaudit.runs.groups import GroupKey, by_sample
from robaudit.runs.rows import Row
from robaudit.runs.run import Run
from robaudit.stats.relations import (
    BoundingPair,
    Claim,
    Relation,
    Setting,
    Verdict,
    installed_relations,
)

CONFIDENCE = 0.999
"""The probability that a correct run shows no violation, over all its comparisons."""


@dataclass(frozen=True, slots=True)
class Bound(Record):
    """A result, and its bound on a number, beyond its interval."""

    key: Annotated[GroupKey, Inline()]
    bound: float

    @staticmethod
    def of(claim: Claim, tail: float) -> Bound:
        """The bound of a claim, missed with a chance of at most ``tail``."""
        return Bound(GroupKey.of(claim.row), claim.end(tail))

    def __str__(self) -> str:
        return f"{self.bound:.6g} by {self.key}"


@dataclass(frozen=True, slots=True)
class Contradiction(Record):
    """Two results of an image that exclude each other.

    Attributes:
        sample_id: of the image.
        relation: name of the violated relation.
        verdict: what the contradiction means.
        number: the number that both results bound.
        at_least, at_most: the bounds.
        wrong: the results that may be at fault: one where that is clear, else both.
    """

    sample_id: str
    relation: str
    verdict: Verdict
    number: str
    at_least: Bound
    at_most: Bound
    wrong: tuple[GroupKey, ...]

    @property
    def text(self) -> str:
        """The contradiction on one line."""
        return (
            f"{self.sample_id}: {self.number} is at least {self.at_least}, at most {self.at_most}"
        )

    @property
    def blamed(self) -> str:
        """The results that may be at fault: "one or other"."""
        return " or ".join(dict.fromkeys(key.estimator for key in self.wrong))


@dataclass(frozen=True, slots=True)
class CheckedRelation(Record):
    """A relation, and how often it was checked and did not hold."""

    relation: Annotated[Relation, Inline(relation="name", says="says", source="source")]
    comparisons: int
    images: int
    contradictions: int


@dataclass(frozen=True, slots=True)
class Consistency(Record):
    """The outcome of comparing a run's results.

    Attributes:
        images: how many were checked.
        tail: the chance that an end of an interval misses.
        relations: every relation, in order.
        contradictions: in the order of relations and of the run.
    """

    images: int
    confidence: float = field(default=CONFIDENCE, kw_only=True)
    tail: float
    relations: tuple[CheckedRelation, ...]
    contradictions: tuple[Contradiction, ...]

    @property
    @published(after="tail")
    def comparisons(self) -> int:
        """The number of comparisons."""
        return sum(relation.comparisons for relation in self.relations)

    @property
    @published(after="comparisons")
    def violations(self) -> int:
        """The number of contradictions that only a bug explains."""
        return len(self.of(Verdict.VIOLATION))

    def of(self, verdict: Verdict) -> tuple[Contradiction, ...]:
        """The contradictions with this verdict."""
        return tuple(
            contradiction
            for contradiction in self.contradictions
            if contradiction.verdict is verdict
        )

    def blamed(self, verdict: Verdict) -> list[tuple[Contradiction, ...]]:
        """The contradictions with this verdict, grouped by the results at fault, the largest group
        first."""
        groups: dict[str, list[Contradiction]] = {}
        for contradiction in self.of(verdict):
            groups.setdefault(contradiction.blamed, []).append(contradiction)
        return sorted(map(tuple, groups.values()), key=lambda group: -len(group))


def check(run: Run) -> Consistency:
    """Compare the results of every image with each other.

    A 95 % interval misses for one image in twenty. So two results contradict each other only if
    their bounds do with intervals so wide that all comparisons of the run hold together with a
    probability of :data:`CONFIDENCE` (Bonferroni). Rows are read once; only the pairs that
    contradict each other at 95 % stay in memory.
    """
    relations = installed_relations()
    # in the same order
    points = [entry_point(RELATIONS, "relation", name) for name in names_in(RELATIONS)]
    owners = dict(zip((relation.name for relation in relations), points, strict=True))
    setting = Setting.of(run.info)
    images = 0
    random = 0
    pairs = Counter[str]()
    seen = Counter[str]()
    suspects: dict[str, list[BoundingPair]] = {relation.name: [] for relation in relations}
    for rows in by_sample(run.rows):
        images += 1
        for relation in relations:
            before = pairs[relation.name]
            with blaming(f"relation {relation.name!r}", owners[relation.name]):
                claimed = list(relation.pairs(rows, setting))
            for pair in claimed:
                pairs[relation.name] += 1
                random += pair.least.random or pair.most.random
                if relation.excludes(pair, TAIL):
                    suspects[relation.name].append(pair)
            seen[relation.name] += pairs[relation.name] > before
    tail = min(TAIL, (1.0 - CONFIDENCE) / (2 * random)) if random else TAIL
    excluded = {
        relation.name: [pair for pair in suspects[relation.name] if relation.excludes(pair, tail)]
        for relation in relations
    }
    return Consistency(
        images=images,
        tail=tail,
        relations=tuple(
            CheckedRelation(
                relation, pairs[relation.name], seen[relation.name], len(excluded[relation.name])
            )
            for relation in relations
        ),
        contradictions=tuple(
            _contradiction(relation, pair, tail, setting)
            for relation in relations
            for pair in excluded[relation.name]
        ),
    )


def _contradiction(
    relation: Relation, pair: BoundingPair, tail: float, setting: Setting
) -> Contradiction:
    wrong, verdict = _judged(pair, setting)
    keys = tuple(dict.fromkeys(map(GroupKey.of, wrong)))
    least = Bound.of(pair.least, tail)
    most = Bound.of(pair.most, tail)
    return Contradiction(
        pair.least.row.sample_id, relation.name, verdict, pair.number, least, most, keys
    )


def _judged(pair: BoundingPair, setting: Setting) -> tuple[Sequence[Row], Verdict]:
    """The results at fault, and what the contradiction means."""
    both = (pair.least, pair.most)
    if loose := [claim.row for claim in both if claim.approximate]:
        return loose, Verdict.APPROXIMATION
    if declared := [claim.row for claim in both if setting.declares(claim.row)]:
        return declared, Verdict.DECLARED
    return [claim.row for claim in both] if pair.wrong is None else [pair.wrong], Verdict.VIOLATION
