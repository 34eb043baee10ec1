"""Make the pages of docs/gallery: all, or those that are named."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import robaudit
from tests.research.gallery.catalogue import PAGES
from tests.research.gallery.gallery import ROOT, ContradictionError, Gallery
from tests.research.gallery.pages import write
from tests.shared import SHARED


def main(arguments: list[str] | None = None) -> int:
    """Make pages, each written at once."""
    parser = argparse.ArgumentParser(prog="python -m tests.research.gallery", description=__doc__)
    parser.add_argument("only", nargs="*", metavar="NAME", help=f"of: {', '.join(PAGES)}")
    parser.add_argument("--pages", type=Path, default=ROOT / "docs" / "gallery")
    parser.add_argument(
        "--out",
        type=Path,
        default=ROOT / "build" / "gallery",
        help="where the runs are kept; what is there is not computed again",
    )
    given = parser.parse_args(arguments)
    unknown = [name for name in given.only if name not in PAGES]
    if unknown:
        parser.error(f"no page is called {' '.join(unknown)}; there are: {', '.join(PAGES)}")
    if not SHARED.is_dir():
        sys.stdout.write("skipped: ../shared is not there; it has the networks and images\n")
        return 0
    gallery = Gallery(given.out, given.pages)
    for name, page in PAGES.items():
        if given.only and name not in given.only:
            continue
        start = time.monotonic()
        try:
            write(gallery, page, page.make(gallery))
        except (robaudit.RobauditError, ContradictionError) as error:
            sys.stderr.write(f"error: {name}: {error}\n")
            return 2
        sys.stdout.write(f"{name}: {time.monotonic() - start:.0f} s\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
