"""Draw docs/demo.svg: what `robaudit demo` prints of the ordinary classifier, as a terminal shows it.

Usage: python docs/make_picture.py RUN, where RUN is the run folder that `robaudit demo` has written (runs/demo-ordinary).
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

import robaudit

COLUMNS = 116
INSTALLED = f"{Path(robaudit.__file__).parents[1]}/"
PICTURE = Path(__file__).with_name("demo.svg")


def main(run: str) -> None:
    """Run the three reading commands in colour and record what they print."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    for arguments in (
        ["show", run],
        ["bias-report", run, "--estimator", "mc", "--sigma", "0.25"],
        ["flag-samples", run, "--estimator", "mc", "--sigma", "0.25"],
    ):
        console.print(Text(f"$ robaudit {' '.join(arguments)}", style="bold"))
        environment = {**os.environ, "COLUMNS": str(COLUMNS), "FORCE_COLOR": "1", "TERM": "xterm-256color"}
        done = subprocess.run(["robaudit", *arguments], capture_output=True, text=True, check=True, env=environment)  # noqa: S603, S607
        console.print(Text.from_ansi(done.stdout.replace(INSTALLED, "")))
    PICTURE.write_text(console.export_svg(title="robaudit", clear=False), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
