"""The pages: one for each paper, written item by item, and an index of all conclusions."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from robaudit.files import write_atomically
from tests.research.benchmarks.machine import machine
from tests.research.papers.item import (
    FEWEST,
    ITEMS,
    LEVEL,
    Claim,
    Item,
    Part,
    Session,
    Verdict,
    table,
)

FAMILY = 0.05
"""Level of all tests together, after Holm's correction."""
_HEAD = "## Conclusions"
_CONCLUSIONS = "conclusions.json"


def heading(one: Item) -> str:
    """The heading of an item's part of the page."""
    return f"{one.name}: {one.title}"


def link(one: Item) -> str:
    """A link to it, within its page."""
    anchor = re.sub(r"[^\w\- ]", "", heading(one).lower()).replace(" ", "-")
    return f"[{one.name}](#{anchor})"


def measured_on(session: Session) -> str:
    """Date, hardware and form of a measurement."""
    about = machine(torch.device(session.device))
    where = f"{about['gpu']}, " if "gpu" in about else ""
    return (
        f"*{about['date']}, {session.budget.name} form; {where}{about['cpu']}, torch "
        f"{about['torch']}.*"
    )


def holm(p_values: Sequence[float], family: float) -> list[bool]:
    """Which tests reject if they are corrected for their number (Holm 1979): the smallest p-value
    is compared with family / n, the next with family / (n - 1), and so on until one does not
    reject.

    Args:
        p_values: of the tests.
        family: the probability that any test rejects wrongly is at most this.
    """
    rejected = [False] * len(p_values)
    for rank, place in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        if p_values[place] > family / (len(p_values) - rank):
            break
        rejected[place] = True
    return rejected


def corrected(claims: Sequence[Claim]) -> list[Verdict]:
    """The verdicts after Holm's correction at :data:`FAMILY`: those that it does not confirm cannot
    be told."""
    tested = {i: p for i, one in enumerate(claims) if (p := one.p_value) is not None}
    rejected = holm(list(tested.values()), FAMILY)
    confirmed = {i for i, one in zip(tested, rejected, strict=True) if one}
    return [one.verdict if i in confirmed else Verdict.OPEN for i, one in enumerate(claims)]


def conclusions(pages: Path) -> dict[str, list[Claim]]:
    """The conclusions of all items that are made, by the item's name, in the order of
    :data:`ITEMS`."""
    path = pages / _CONCLUSIONS
    known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return {
        name: [Claim(**one | {"verdict": Verdict(one["verdict"])}) for one in known[name]]
        for name in ITEMS
        if name in known
    }


@dataclass(frozen=True, slots=True)
class Decided:
    """A conclusion, and what is left of its verdict after the correction."""

    claim: Claim
    corrected: Verdict


def write(session: Session, made: Mapping[str, Part]) -> list[Path]:
    """Write the pages of some items; what is above the conclusions, and other items, stay on their
    page as they are. The corrected verdicts of all pages depend on every item, so that all pages
    are written.

    Args:
        session: where to.
        made: by the name of the item.

    Returns:
        The pages that exist, and the index.
    """
    session.pages.mkdir(parents=True, exist_ok=True)
    known = conclusions(session.pages)
    known |= {name: list(part.claims) for name, part in made.items()}
    kept = {name: [asdict(one) for one in known[name]] for name in ITEMS if name in known}
    text = json.dumps(kept, indent=1, ensure_ascii=False) + "\n"
    write_atomically(session.pages / _CONCLUSIONS, text.encode())

    everything = [(name, one) for name, claims in known.items() for one in claims]
    verdicts = corrected([one for _, one in everything])
    decided: dict[str, list[Decided]] = {name: [] for name in known}
    for (name, one), verdict in zip(everything, verdicts, strict=True):
        decided[name].append(Decided(one, verdict))

    papers = dict.fromkeys(ITEMS[name].paper for name in known)
    pages = [_write(session, paper, made, decided) for paper in papers]
    index = session.pages / "README.md"
    write_atomically(index, _index(session.pages, decided).encode())
    return [*pages, index]


def _write(
    session: Session,
    paper: str,
    made: Mapping[str, Part],
    decided: Mapping[str, Sequence[Decided]],
) -> Path:
    path = session.pages / f"{paper}.md"
    before = path.read_text(encoding="utf-8") if path.exists() else ""
    sections = []
    rows = []
    for name, one in ITEMS.items():
        if one.paper != paper:
            continue
        if name in made:
            body = made[name].body.strip()
            sections.append(f"## {heading(one)}\n\n{body}\n\n{measured_on(session)}\n")
        elif kept := re.search(
            rf"^## {re.escape(name)}: .*?(?=^## |\Z)", before, re.MULTILINE | re.DOTALL
        ):
            sections.append(kept[0])
        else:
            sections.append(f"## {heading(one)}\n\nNot made yet.\n")
        rows += [
            (link(one), d.claim.text, f"**{d.claim.verdict}**", d.corrected, d.claim.evidence)
            for d in decided.get(name, ())
        ]
    tests = (
        f"Each conclusion is decided by a test at {LEVEL:g}; intervals are 95 %, both by "
        "robaudit's bootstrap over images unless stated; of a mean, the larger p-value of it and a "
        "t test counts. "
        f"With fewer than {FEWEST} images, or with images that are all alike, nothing is decided. "
        "*Corrected*: for the number of tests on all pages ([how](README.md))."
    )
    head = before.partition(_HEAD)[0].strip() or f"# {paper}"
    columns = ("item", "the paper's conclusion", "here", "corrected", "measured")
    found = table(columns, rows).replace("---:", "---")
    parts = "\n".join(part.rstrip() + "\n" for part in sections)
    write_atomically(path, f"{head}\n\n{_HEAD}\n\n{tests}\n\n{found}\n\n{parts}".encode())
    return path


def _counts(decided: Sequence[Decided]) -> list[str]:
    """How many conclusions have each verdict, and how many do after the correction."""
    return [
        f"{sum(one.claim.verdict is verdict for one in decided)} "
        f"({sum(one.corrected is verdict for one in decided)})"
        for verdict in Verdict
    ]


def _index(pages: Path, decided: Mapping[str, Sequence[Decided]]) -> str:
    rows = []
    for paper in dict.fromkeys(one.paper for one in ITEMS.values()):
        path = pages / f"{paper}.md"
        title = paper
        if path.exists():
            first = path.read_text(encoding="utf-8").partition("\n")[0].lstrip("# ")
            title = f"[{first}]({path.name})"
        items = [name for name, one in ITEMS.items() if one.paper == paper]
        made = [name for name in items if name in decided]
        here = [one for name in made for one in decided[name]]
        rows.append((title, f"{len(made)} of {len(items)}", *_counts(here)))
    everything = [one for each in decided.values() for one in each]
    rows.append(("all", "", *_counts(everything)))
    found = table(("paper", "items made", *map(str, Verdict)), rows)
    tests = sum(one.claim.p_value is not None for one in everything)
    return f"""# The papers, again

Tables and figures of the papers behind robaudit, made again with robaudit on networks and images
that fit two cores, with error bars and a verdict for each of the papers' conclusions.

    make papers                     # all, in the standard form; interrupted, it continues later
    make papers ONLY=han-fig4       # one item, or all whose names begin so
    .venv/bin/python -m tests.research.papers han-fig1 --full --device cuda

It reads the networks and images in `../shared`, and keeps its runs in `build/papers`; each is an
ordinary run folder. The standard form takes about five hours of one core (AMD EPYC), and may be
interrupted at any moment.

{found}

A conclusion *holds* or *does not hold* if a test at {LEVEL:g} says so, and *cannot be told*
otherwise. The tests are about the networks and images named on the page: often others than the
paper's. Each of {tests} tests decides wrongly with probability {LEVEL:g} at most. In brackets: what
is left if they are corrected for their number by Holm's method. With probability {1 - FAMILY:g} or
more, no verdict in brackets is wrong, as far as the tests keep their levels: with skewed
values of few images (30 photos, say) they decide wrongly more often. And where a first, smaller
measurement could not tell, more images were taken and the first kept among them, so that some
p-values are a little too small. All conclusions with their p-values:
[conclusions.json](conclusions.json).

What depends on the estimator or the attack:

- `taylor` follows `mmse` closely on one of five networks, a CNN of MNIST ([han.md](han.md)).
- Softmax and p_robust correlate more on robust networks if `mmse` estimates p_robust. By counted
votes they do on one network of two.
- `mmse` with 10 copies is further from its limit than `mc` with 1,000 copies is from its own, on
three networks of three.
- Norms at q = 100 and more need a sampler that follows the loss: plain copies stay below. At q = 10
two ordinary networks need it, too (a CNN of MNIST and ResNet20), and robust ones do not
([rice.md](rice.md)).
- R_nu varies less than R_m between easy and hard images, but not on an adversarially trained
network. It rewards a small slope of a logistic regression, which changes no decision
([giraudon.md](giraudon.md)).
- ASR depends on the strength of the attack; the tests use the nearest flip that a stronger one
finds ([smoothed.md](smoothed.md)).

Not made: ResNet18, and networks trained on all of CIFAR-10, which is not at hand; heat maps, and
l2 attacks of the smoothed analysis; times on a GPU. Where an item has a form for that, its part of
the page names the command.
"""
