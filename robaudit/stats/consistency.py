"""The results of a run against each other: what must hold between them, and where it does not."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from robaudit.documents import Document, json_number, json_values
from robaudit.rows import Row
from robaudit.stats.claims import Setting
from robaudit.stats.frame import Results
from robaudit.stats.groups import GroupKey
from robaudit.stats.intervals import TAIL
from robaudit.stats.relations import RELATIONS, Pair, Relation, Verdict

CONFIDENCE = 0.999
"""That no run without a bug is accused of one by chance, all its comparisons together."""


@dataclass(frozen=True, slots=True)
class Contradiction:
    """Two results of an image that exclude each other.

    Attributes:
        relation: what does not hold.
        verdict: what that means.
        sample_id: of the image.
        number: what both bound.
        low, high: the results; ``least``, ``most``: that the number is at least and at most, beyond their intervals.
        wrong: the results that may be at fault: one where that is clear, else both.
    """

    relation: Relation
    verdict: Verdict
    sample_id: str
    number: str
    low: GroupKey
    least: float
    high: GroupKey
    most: float
    wrong: tuple[GroupKey, ...]

    @property
    def text(self) -> str:
        """All of it in a line."""
        return f"{self.sample_id}: {self.number} is at least {self.least:.6g} by {self.low}, at most {self.most:.6g} by {self.high}"

    def document(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "sample_id": self.sample_id,
            "relation": self.relation.name,
            "verdict": self.verdict.value,
            "number": self.number,
            "at_least": {**self.low.document(), "bound": json_number(self.least)},
            "at_most": {**self.high.document(), "bound": json_number(self.most)},
            "wrong": json_values(self.wrong),
        }


@dataclass(frozen=True, slots=True)
class Blamed:
    """A result that contradictions accuse, or two of which either may be at fault.

    Attributes:
        name: of the result; of two, "one or other".
        contradictions: at least one.
    """

    name: str
    contradictions: tuple[Contradiction, ...]

    @property
    def images(self) -> int:
        """How many images they are about."""
        return len({one.sample_id for one in self.contradictions})


@dataclass(frozen=True, slots=True)
class Checked(Document):
    """A relation, and how often it was looked at and did not hold."""

    members = (
        "relation=relation.name relation.says relation.source relation.allowance kind=relation.verdict comparisons images contradictions"
    )

    relation: Relation
    comparisons: int
    images: int
    contradictions: int


@dataclass(frozen=True, slots=True)
class Consistency:
    """What the comparison of a run's results has found.

    Attributes:
        checked: every relation, in order.
        found: the contradictions, in the order of relations and of the run.
        images: how many were looked at.
        tail: the chance with which each end of an interval may miss.
    """

    checked: tuple[Checked, ...]
    found: tuple[Contradiction, ...]
    images: int
    tail: float

    def of(self, verdict: Verdict) -> tuple[Contradiction, ...]:
        """The contradictions of a kind."""
        return tuple(one for one in self.found if one.verdict is verdict)

    @property
    def violations(self) -> tuple[Contradiction, ...]:
        """Those that only a bug explains."""
        return self.of(Verdict.VIOLATION)

    def blamed(self, verdict: Verdict) -> list[Blamed]:
        """The results that contradictions of a kind accuse, the most often first."""
        found: dict[tuple[str, ...], list[Contradiction]] = {}
        for one in self.of(verdict):
            found.setdefault(tuple(dict.fromkeys(key.estimator for key in one.wrong)), []).append(one)
        return sorted((Blamed(" or ".join(names), tuple(ones)) for names, ones in found.items()), key=lambda one: -len(one.contradictions))

    def document(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "images": self.images,
            "confidence": CONFIDENCE,
            "tail": self.tail,
            "comparisons": sum(one.comparisons for one in self.checked),
            "violations": len(self.violations),
            "relations": json_values(self.checked),
            "contradictions": [one.document() for one in self.found],
        }


def by_sample(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """The rows of each image; a run has them together."""
    for _, group in itertools.groupby(rows, key=attrgetter("sample_id")):
        yield list(group)


def check(run: Results, relations: Sequence[Relation] = RELATIONS) -> Consistency:
    """Compare the results of every image with each other.

    Intervals that hold with 95 % miss in one of twenty images by chance. Two results contradict each other only where their bounds still
    do with intervals so wide that all comparisons of the run together are free of such chance with a probability of :data:`CONFIDENCE`
    (Bonferroni). Rows are read once; what is kept are the pairs that contradict each other at 95 %.

    Args:
        run: a finished run.
        relations: what must hold.
    """
    setting = Setting.of(run.info)
    pairs, seen, random, images = Counter[str](), Counter[str](), 0, 0
    suspects: dict[str, list[Pair]] = {relation.name: [] for relation in relations}
    for rows in by_sample(run.rows):
        images += 1
        for relation in relations:
            before = pairs[relation.name]
            for pair in relation.pairs(rows, setting):
                pairs[relation.name] += 1
                random += pair.least.random or pair.most.random
                if excluded(relation, pair, TAIL):
                    suspects[relation.name].append(pair)
            seen[relation.name] += pairs[relation.name] > before
    tail = min(TAIL, (1.0 - CONFIDENCE) / (2 * random)) if random else TAIL
    found = [_contradiction(one, pair, tail, setting) for one in relations for pair in suspects[one.name] if excluded(one, pair, tail)]
    counts = Counter(one.relation.name for one in found)
    checked = (Checked(one, pairs[one.name], seen[one.name], counts[one.name]) for one in relations)
    return Consistency(tuple(checked), tuple(found), images, tail)


def excluded(relation: Relation, pair: Pair, tail: float) -> bool:
    """Whether the bounds of a pair exclude each other, at a chance ``tail`` that each misses."""
    return pair.least.end(tail) > pair.most.end(tail) * (1.0 + relation.relative) + relation.absolute


def _contradiction(relation: Relation, pair: Pair, tail: float, setting: Setting) -> Contradiction:
    both = (pair.least, pair.most)
    loose = [claim.row for claim in both if claim.approximate]
    told = [claim.row for claim in both if setting.declares(claim.row)]
    wrong, verdict = ([pair.least.row, pair.most.row] if pair.wrong is None else [pair.wrong]), relation.verdict
    if loose:
        wrong = loose
        verdict = Verdict.APPROXIMATION if verdict is Verdict.VIOLATION else verdict
    elif told and verdict is Verdict.VIOLATION:
        wrong, verdict = told, Verdict.DECLARED
    return Contradiction(
        relation=relation,
        verdict=verdict,
        sample_id=pair.least.row.sample_id,
        number=pair.number,
        low=GroupKey.of(pair.least.row),
        least=pair.least.end(tail),
        high=GroupKey.of(pair.most.row),
        most=pair.most.end(tail),
        wrong=tuple(dict.fromkeys(map(GroupKey.of, wrong))),
    )
