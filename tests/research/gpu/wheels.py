"""Fetch the wheels that a machine with torch, torchvision, timm and transformers may lack, and say
how to use them there: `python -m tests.research.gpu.wheels FOLDER`.

The folder travels with the repository to a machine without a network; git ignores wheels/.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.research.gpu.installed import name_of, project

LIKELY_THERE = (
    "torch",
    "torchvision",
    "numpy",
    "scipy",
    "pyyaml",
    "safetensors",
    "scikit-learn",
    "pillow",
)
"""Large, and where torch, timm and transformers are, so are usually these."""
TESTS = ("pytest>=8.3",)
"""What the tests' own modules import."""
MOST_MIB = 60
PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64")


def main(arguments: Sequence[str] | None = None) -> int:
    """Download, and print what there is and the command."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.research.gpu.wheels",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("folder", type=Path, help="where the wheels go")
    parser.add_argument(
        "--with",
        dest="more",
        default="",
        metavar="NAMES",
        help=f"also these, separated by commas: {', '.join(LIKELY_THERE)}",
    )
    parser.add_argument("--python", default="3.12", help="of the machine; default 3.12")
    given = parser.parse_args(arguments)
    more = [name for name in given.more.split(",") if name]
    unknown = sorted(set(more) - set(LIKELY_THERE))
    if unknown:
        parser.error(f"--with {', '.join(unknown)}: choose from {', '.join(LIKELY_THERE)}")
    for requirements, alone in requests(more):
        fetch(given.folder, requirements, given.python, alone=alone)
    return report(given.folder)


def requests(more: Sequence[str]) -> list[tuple[list[str], bool]]:
    """What to download: requirements, and whether without what they need in turn."""
    needed = [*project()["dependencies"], *TESTS]
    small = [one for one in needed if name_of(one) not in LIKELY_THERE]
    large = [one for one in needed if name_of(one) in more]
    if "scikit-learn" in more:
        large += ["joblib", "threadpoolctl"]
    found = [(small, False)]
    return [*found, (large, True)] if large else found


def fetch(folder: Path, requirements: Iterable[str], python: str, *, alone: bool) -> None:
    """Download wheels for Linux on x86-64."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--dest", str(folder)]
    command += ["--only-binary", ":all:", "--python-version", python, "--implementation", "cp"]
    for platform in PLATFORMS:
        command += ["--platform", platform]
    if alone:
        command.append("--no-deps")
    subprocess.run([*command, *requirements], check=True)


def report(folder: Path) -> int:
    """Print the wheels and the command; 1 if they are too large to travel."""
    wheels = sorted(folder.glob("*.whl"), key=lambda path: -path.stat().st_size)
    for wheel in wheels:
        print(f"{wheel.stat().st_size / 2**20:8.2f} MiB  {wheel.name}")
    total = sum(wheel.stat().st_size for wheel in wheels) / 2**20
    print(f"{total:8.2f} MiB in all, of {MOST_MIB} at most")
    there = set(LIKELY_THERE) - {_package(wheel) for wheel in wheels}
    print(f"not fetched, likely there: {', '.join(sorted(there))} (--with NAMES fetches some)\n")
    print(command(folder))
    return int(total > MOST_MIB)


def command(folder: Path) -> str:
    """The line for the machine, in the root of the repository.

    Into a folder of its own, without looking at what is installed: nothing there changes.
    """
    site = f"{folder}/site"
    install = (
        "python3 -m pip install --quiet --no-index --no-deps --no-compile --upgrade "
        f"--target {site} {folder}/*.whl"
    )
    return f"{install} && PYTHONPATH={site} python3 -m tests.research.gpu"


def _package(wheel: Path) -> str:
    """The package that a wheel holds."""
    return re.sub(r"[-_.]+", "-", wheel.name.partition("-")[0]).lower()


if __name__ == "__main__":
    sys.exit(main())
