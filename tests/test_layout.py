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
        "documents",
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


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")


MODULES = {module_of(path): path for path in PACKAGE.rglob("*.py")}


def for_annotations_only(node: ast.AST) -> bool:
    """Whether a block is ``if TYPE_CHECKING``."""
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def loaded(node: ast.AST) -> set[str]:
    """Modules of the package that a piece of code imports when it runs, inside its functions or not."""
    if for_annotations_only(node):
        return set()
    found = set()
    if isinstance(node, ast.Import):
        found |= {alias.name for alias in node.names}
    if isinstance(node, ast.ImportFrom):
        names = [f"{node.module}.{alias.name}" for alias in node.names]
        found |= {name if name in MODULES else str(node.module) for name in names}
    for child in ast.iter_child_nodes(node):
        found |= loaded(child)
    return found & MODULES.keys()


def test_no_modules_import_each_other_in_a_circle() -> None:
    """A circle cannot be read from one end, not even where an import inside a function hides it."""
    left = {name: loaded(ast.parse(path.read_text())) for name, path in MODULES.items()}
    while free := [name for name, others in left.items() if others.isdisjoint(left)]:
        for name in free:
            del left[name]
    assert not {name: sorted(others & left.keys()) for name, others in left.items()}
