"""The rooms of the package import downwards only, and nothing imports the command line."""

from __future__ import annotations

import ast
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "robaudit"

# From the ground up: a room may import itself and what stands before it.
ROOMS = (
    (
        "errors",
        "text",
        "names",
        "quantities",
        "levels",
        "results",
        "files",
        "progress",
        "system",
        "memory",
        "python_code",
        "plugins",
        "estimates",
        "records",
    ),
    ("spec",),
    ("numerics",),
    ("noise",),
    ("datasets",),
    ("models",),
    ("engine",),
    ("runs",),
    ("stats",),
    ("gates",),
    ("auditing",),
    ("compare",),
    ("validation",),
    ("demo",),
    ("report",),
    ("api",),
    ("cli", "pytest"),
    ("methods",),
)
FLOOR = {room: floor for floor, rooms in enumerate(ROOMS) for room in rooms}


def room_of(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def imported(path: Path) -> list[tuple[int, str]]:
    """Modules of the package that a file imports anywhere, those for type annotations included."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level:
            found.append((node.lineno, "robaudit (relative: write the whole path)"))
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "robaudit":
            names = [f"robaudit.{alias.name}" for alias in node.names] if node.module == "robaudit" else [node.module or ""]
            found += [(node.lineno, name) for name in names]
        elif isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names if alias.name.split(".")[0] == "robaudit"]
    return found


FILES = sorted(path for path in PACKAGE.rglob("*.py") if path.parent != PACKAGE or path.stem not in ("__init__", "__main__"))


def test_every_file_has_a_room() -> None:
    rooms = {path.relative_to(PACKAGE).parts[0].removesuffix(".py") for path in FILES}
    assert rooms == set(FLOOR)


def test_imports_go_down() -> None:
    upwards = []
    for path in FILES:
        where = path.relative_to(PACKAGE)
        floor = FLOOR[where.parts[0].removesuffix(".py")]
        upwards += [f"{where}:{line}: {name}" for line, name in imported(path) if FLOOR.get(room_of(name), len(ROOMS)) > floor]
    assert not upwards
