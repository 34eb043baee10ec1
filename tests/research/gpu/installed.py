"""robaudit in a copy of its repository: its plugins without an installation, and the packages that
are missing or older than it asks for."""

from __future__ import annotations

import os
import re
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, distribution, version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
_REQUIREMENT = re.compile(r"(?P<name>[\w.-]+)(?:\[[^]]*\])?(?:>=(?P<least>[\d.]+))?")


def project() -> dict[str, Any]:
    """The section ``project`` of pyproject.toml."""
    found: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return found


def name_of(requirement: str) -> str:
    """The package that a requirement names."""
    match = _REQUIREMENT.match(requirement)
    assert match is not None
    return match["name"].lower()


def make_known() -> None:
    """Register robaudit's plugins in this process and those that it starts, if robaudit is not
    installed.

    Plugins are found by entry points, which are read from the metadata of installed packages.
    """
    try:
        distribution("robaudit")
    except PackageNotFoundError:
        folder = tempfile.mkdtemp(prefix="robaudit-metadata-")
        write_metadata(Path(folder), project())
        sys.path.append(folder)
        before = os.environ.get("PYTHONPATH")
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (before, folder)))


def write_metadata(folder: Path, about: Mapping[str, Any]) -> None:
    """Write what an installation says of name, version and entry points."""
    metadata = folder / f"{about['name']}-{about['version']}.dist-info"
    metadata.mkdir()
    head = f"Metadata-Version: 2.1\nName: {about['name']}\nVersion: {about['version']}\n"
    (metadata / "METADATA").write_text(head)
    lines = list[str]()
    for group, points in about["entry-points"].items():
        lines.append(f"[{group}]")
        lines += [f"{name} = {value}" for name, value in points.items()]
    (metadata / "entry_points.txt").write_text("\n".join(lines) + "\n")


def lacking() -> Iterator[str]:
    """The requirements of robaudit that are not met here, with the versions found."""
    for requirement in (*project()["dependencies"], "pytest"):
        match = _REQUIREMENT.match(requirement)
        assert match is not None
        try:
            found = version(match["name"])
        except PackageNotFoundError:
            yield f"{requirement} is not installed"
            continue
        if match["least"] and _numbers(found) < _numbers(match["least"]):
            yield f"{requirement}: {found} is installed"


def _numbers(text: str) -> tuple[int, ...]:
    """The numbers at the beginning of a version: (2, 11, 0) of 2.11.0+cu130."""
    match = re.match(r"\d+(?:\.\d+)*", text)
    return tuple(int(part) for part in match[0].split(".")) if match else ()
