"""The pages: one for each paper, written item by item, and an index of all conclusions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import torch

from robaudit.files import write_atomically
from tests.research.benchmarks.machine import machine
from tests.research.papers.item import FEWEST, ITEMS, LEVEL, Item, Part, Session, Verdict, table

_HEAD = "## Conclusions"


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


def write(session: Session, made: Mapping[str, Part]) -> list[Path]:
    """Write the pages of some items; what is above the conclusions, and other items, stay on their
    page as they are.

    Args:
        session: where to.
        made: by the name of the item.

    Returns:
        The pages.
    """
    session.pages.mkdir(parents=True, exist_ok=True)
    papers = dict.fromkeys(ITEMS[name].paper for name in made)
    pages = [_write(session, paper, made) for paper in papers]
    index = session.pages / "README.md"
    write_atomically(index, _index(session.pages).encode())
    return [*pages, index]


def _write(session: Session, paper: str, made: Mapping[str, Part]) -> Path:
    path = session.pages / f"{paper}.md"
    before = path.read_text(encoding="utf-8") if path.exists() else ""
    sections = {}
    rows = []
    for name, one in ITEMS.items():
        if one.paper != paper:
            continue
        if name in made:
            sections[name] = (
                f"## {heading(one)}\n\n{made[name].body.strip()}\n\n{measured_on(session)}\n"
            )
            rows += [
                f"| {link(one)} | {c.text} | **{c.verdict}** | {c.evidence} |"
                for c in made[name].claims
            ]
        elif kept := re.search(
            rf"^## {re.escape(name)}: .*?(?=^## |\Z)", before, re.MULTILINE | re.DOTALL
        ):
            sections[name] = kept[0]
            rows += re.findall(rf"^\| \[{re.escape(name)}\].*$", before, re.MULTILINE)
        else:
            sections[name] = f"## {heading(one)}\n\nNot made yet.\n"
    tests = (
        f"Each conclusion is decided by a test at {LEVEL:g}; intervals are 95 %, both by "
        "robaudit's bootstrap over images unless stated. "
        f"With fewer than {FEWEST} images, or with images that are all alike, nothing is decided."
    )
    head = before.partition(_HEAD)[0].strip() or f"# {paper}"
    top = f"{head}\n\n{_HEAD}\n\n{tests}\n\n"
    conclusions = "\n".join(
        [
            table(("item", "the paper's conclusion", "here", "measured"), []).replace(
                "---:", "---"
            ),
            *rows,
        ]
    )
    text = (
        top + conclusions + "\n\n" + "\n".join(part.rstrip() + "\n" for part in sections.values())
    )
    write_atomically(path, text.encode())
    return path


def _index(pages: Path) -> str:
    rows = []
    for path in (
        pages / f"{paper}.md" for paper in dict.fromkeys(one.paper for one in ITEMS.values())
    ):
        page = path.read_text(encoding="utf-8") if path.exists() else ""
        counts = [len(re.findall(rf"\| \*\*{verdict}\*\* \|", page)) for verdict in Verdict]
        items = sum(name.startswith(path.stem) for name in ITEMS)
        made = len(re.findall(r"^\*\d{4}-", page, re.MULTILINE))
        title = page.partition("\n")[0].lstrip("# ") or path.stem
        rows.append((f"[{title}]({path.name})" if page else title, f"{made} of {items}", *counts))
    found = table(("paper", "items made", *map(str, Verdict)), rows)
    total = sum(count for _, _, *counts in rows for count in counts if isinstance(count, int))
    return f"""# The papers, again

Tables and figures of the papers behind robaudit, made again with robaudit on networks and images
that fit two cores, with error bars and a verdict for each of the papers' conclusions.

    make papers                     # all, in the standard form; interrupted, it continues later
    make papers ONLY=han-fig4       # one item, or all whose names begin so
    .venv/bin/python -m tests.research.papers han-fig1 --full --device cuda

It reads the networks and images in `../shared`, and keeps its runs in `build/papers`; each is an
ordinary run folder.

{found}

A conclusion *holds* or *does not hold* if a test at {LEVEL:g} says so, and *cannot be told*
otherwise. The tests are about the networks and images named on the page: often others than the
paper's. The {total} tests are not corrected for their number: one in a hundred may be wrong. The
pages say in which form they were made: *quick* had about a tenth of the images of *standard*.

What depends on the estimator or the attack:

- `taylor` follows `mmse` closely on some networks only; on ordinary ones it is far off
([han.md](han.md)).
- Softmax and p_robust correlate more on robust networks if p_robust is that of `mmse`; with
counted votes that cannot be told.
- Norms at q = 10 and more need a sampler that follows the loss: plain copies stay far below
([rice.md](rice.md)).
- R_nu rewards a small slope of a logistic regression, which changes no decision
([giraudon.md](giraudon.md)).
- ASR depends on the strength of the attack; the tests use the nearest flip that a stronger one
finds ([smoothed.md](smoothed.md)).

Not made: CIFAR-100 and ResNet18; heat maps, a clean accuracy of 98.5 %, and l2 attacks of the
smoothed analysis; Table 1 of Rice et al. on CIFAR-10 networks trained here, and on one trained
with PGD; times on a GPU. Where an item has a form for that, its part of the page names the command.
"""
