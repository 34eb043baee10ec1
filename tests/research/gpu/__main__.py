"""Measure robaudit on a CUDA card: see the docstring of the package."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import tests.research.gpu
from tests.research.gpu import installed


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the parts, or print the page of their results."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.research.gpu",
        description=tests.research.gpu.__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("--device", default="cuda", help="cuda (default), cuda:N or cpu")
    parser.add_argument("--tiny", action="store_true", help="tiny sizes, to see that all works")
    parser.add_argument("--minutes", type=float, default=8.0, help="for all parts; default 8")
    parser.add_argument("--only", help="parts, separated by commas; default: all")
    parser.add_argument(
        "--out",
        type=Path,
        help="folder of the results; default: $OUT, or a new folder here",
    )
    parser.add_argument(
        "--page", type=Path, metavar="RESULT", help="print the Markdown of a result.json, and end"
    )
    given = parser.parse_args(arguments)
    installed.make_known()
    try:
        # These import robaudit, whose plugins must be known first.
        import torch

        from tests.research.gpu import page
        from tests.research.gpu.session import PARTS, Session, Wanted
    except ModuleNotFoundError as error:
        lines = [str(error), *installed.lacking()]
        lines.append("python -m tests.research.gpu.wheels FOLDER fetches what is missing")
        parser.exit(2, "\n".join(lines) + "\n")

    if given.page is not None:
        print(page.markdown(json.loads(given.page.read_text())))
        return 0
    parts = list(PARTS) if given.only is None else given.only.split(",")
    unknown = sorted(set(parts) - set(PARTS))
    if unknown:
        parser.error(f"unknown parts: {', '.join(unknown)}; there are {', '.join(PARTS)}")
    device = torch.device(given.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        parser.error("torch finds no CUDA device here; --device cpu --tiny tries the command out")
    if device == torch.device("cuda"):
        device = torch.device("cuda", 0)
    out = given.out or Path(os.environ.get("OUT") or _new_folder())
    session = Session(Wanted(device, out.resolve(), given.tiny, given.minutes, parts))
    session.run()
    print(f"{out}/result.json, {out}/page.md")
    return int(bool(session.wrong))


def _new_folder() -> str:
    """A name with the time."""
    return f"gpu-{datetime.now(UTC):%Y-%m-%d-%H%M%S}"


if __name__ == "__main__":
    sys.exit(main())
