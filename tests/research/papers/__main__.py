"""Make the pages of docs/papers: all items, or those whose names begin with one of the
arguments."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import robaudit
from tests.research.papers import giraudon, han, rice, smoothed  # noqa: F401  they enter their items
from tests.research.papers.item import FULL, ITEMS, STANDARD, Session
from tests.research.papers.page import write
from tests.shared import SHARED

ROOT = Path(__file__).parents[3]


def main(arguments: list[str] | None = None) -> int:
    """Make items, each written to its page at once."""
    parser = argparse.ArgumentParser(prog="python -m tests.research.papers", description=__doc__)
    parser.add_argument(
        "only",
        nargs="*",
        metavar="NAME",
        help=f"such as han or han-fig4; there are: {', '.join(ITEMS)}",
    )
    parser.add_argument(
        "--full",
        action="store_true",
        help="ten times the images and draws, and what is left to a GPU",
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--pages", type=Path, default=ROOT / "docs" / "papers")
    parser.add_argument(
        "--build", type=Path, default=ROOT / "build" / "papers", help="where the runs are kept"
    )
    given = parser.parse_args(arguments)
    chosen = [
        one for name, one in ITEMS.items() if not given.only or name.startswith(tuple(given.only))
    ]
    if not chosen:
        parser.error(f"no item is called {' '.join(given.only)}; there are: {', '.join(ITEMS)}")
    if not SHARED.is_dir():
        sys.stderr.write(
            f"error: {SHARED}: is not there; it has the networks and images of the papers\n"
        )
        return 2
    session = Session(
        given.build, given.pages, FULL if given.full else STANDARD, device=given.device
    )
    for one in chosen:
        start = time.monotonic()
        try:
            write(session, {one.name: one.make(session)})
        except robaudit.RobauditError as error:
            sys.stderr.write(f"error: {one.name}: {error}\n")
            return 2
        sys.stdout.write(f"{one.name}: {time.monotonic() - start:.0f} s\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
