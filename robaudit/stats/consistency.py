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
"""The probability that a correct run shows no violation, over all its comparisons: a violation is
reported as a bug, so chance alone must hardly ever show one."""


@dataclass(frozen=True, slots=True)
class Bound(Record):
    """A result and its bound on a number, at a smaller chance of missing than its interval's."""

    key: Annotated[GroupKey, Inline()]
    bound: float

    @staticmethod
    def from_claim(claim: Claim, tail: float) -> Bound:
        """The bound of a claim, missed with a chance of at most ``tail``."""
        return Bound(GroupKey.from_row(claim.row), claim.end(tail))

    def __str__(self) -> str:
        return f"{self.bound:.6g} by {self.key}"


@dataclass(frozen=True, slots=True)
class Contradiction(Record):
    """Two results of an image that exclude each other.

    Attributes:
        sample_id: id of the image.
        relation: name of the violated relation.
        verdict: what the contradiction means.
        number: the number that both results bound, in a few words.
        at_least, at_most: the bounds that exclude each other.
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
        images: number of images checked.
        confidence: the probability that a correct run shows no violation.
        tail: the chance that an end of an interval misses, as used in the comparisons.
        relations: every relation, in order.
        contradictions: all contradictions, in the order of relations and of the run.
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
        return len(self.with_verdict(Verdict.VIOLATION))

    def with_verdict(self, verdict: Verdict) -> tuple[Contradiction, ...]:
        """The contradictions with this verdict."""
        return tuple(found for found in self.contradictions if found.verdict is verdict)

    def blamed(self, verdict: Verdict) -> list[tuple[Contradiction, ...]]:
        """The contradictions with this verdict, grouped by the results at fault, the largest group
        first."""
        groups: dict[str, list[Contradiction]] = {}
        for contradiction in self.with_verdict(verdict):
            groups.setdefault(contradiction.blamed, []).append(contradiction)
        return sorted(map(tuple, groups.values()), key=lambda group: -len(group))


def check(run: Run) -> Consistency:
    """Compare the results of every image with each other.

    A 95 % interval misses for one image in twenty. So two results contradict each other only if
    their bounds do with intervals so wide that all comparisons of the run hold together with a
    probability of :data:`CONFIDENCE` (Bonferroni).
    """
    relations = installed_relations()
    # Names come in the order of the relations.
    points = [entry_point(RELATIONS, "relation", name) for name in names_in(RELATIONS)]
    owners = dict(zip((relation.name for relation in relations), points, strict=True))
    setting = Setting.from_info(run.info)
    images = 0
    random_pairs = 0
    comparisons = Counter[str]()
    images_compared = Counter[str]()
    # Rows are read once. The final tail depends on the number of comparisons, and only a pair that
    # excludes itself at 95 % can do so with wider intervals: the others need not be remembered.
    suspects: dict[str, list[BoundingPair]] = {relation.name: [] for relation in relations}
    for rows in by_sample(run.rows):
        images += 1
        for relation in relations:
            name = relation.name
            with blaming(f"relation {name!r}", owners[name]):
                pairs = list(relation.pairs(rows, setting))
            comparisons[name] += len(pairs)
            images_compared[name] += bool(pairs)
            for pair in pairs:
                random_pairs += pair.least.random or pair.most.random
                if relation.excludes(pair, TAIL):
                    suspects[name].append(pair)
    # Bonferroni: each random pair has two ends that may miss.
    tail = min(TAIL, (1.0 - CONFIDENCE) / (2 * random_pairs)) if random_pairs else TAIL
    checked: list[CheckedRelation] = []
    contradictions: list[Contradiction] = []
    for relation in relations:
        name = relation.name
        excluded = [pair for pair in suspects[name] if relation.excludes(pair, tail)]
        checked.append(
            CheckedRelation(relation, comparisons[name], images_compared[name], len(excluded))
        )
        contradictions += [_contradiction(relation, pair, tail, setting) for pair in excluded]
    return Consistency(
        images=images,
        tail=tail,
        relations=tuple(checked),
        contradictions=tuple(contradictions),
    )


def _contradiction(
    relation: Relation, pair: BoundingPair, tail: float, setting: Setting
) -> Contradiction:
    """The contradiction of a pair whose bounds exclude each other."""
    wrong, verdict = _judged(pair, setting)
    return Contradiction(
        sample_id=pair.least.row.sample_id,
        relation=relation.name,
        verdict=verdict,
        number=pair.number,
        at_least=Bound.from_claim(pair.least, tail),
        at_most=Bound.from_claim(pair.most, tail),
        wrong=tuple(dict.fromkeys(map(GroupKey.from_row, wrong))),
    )


def _judged(pair: BoundingPair, setting: Setting) -> tuple[Sequence[Row], Verdict]:
    """The results at fault, and what the contradiction means."""
    both = (pair.least, pair.most)
    # The harmless explanations come first: only what they leave open is called a bug.
    loose = [claim.row for claim in both if claim.approximate]
    if loose:
        return loose, Verdict.APPROXIMATION
    declared = [claim.row for claim in both if setting.declares(claim.row)]
    if declared:
        return declared, Verdict.DECLARED
    if pair.wrong is not None:
        return [pair.wrong], Verdict.VIOLATION
    return [claim.row for claim in both], Verdict.VIOLATION
