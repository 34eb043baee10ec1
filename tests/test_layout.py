"""The rooms of the package import downwards only; the core knows no family, by import or by name,
and works without any of them."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "robaudit"

# From the ground up: a room may import itself and what stands before it.
ROOMS = (
    (
        "settings",
        "errors",
        "text",
        "names",
        "quantities",
        "levels",
        "forms",
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
    ("camera",),
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
FAMILIES = ("average_case", "intermediate_q", "radius", "certificates", "training")
USES = {"certificates": {"radius"}, "training": {"intermediate_q"}}
"""The families that a family may import; its docstring says why."""
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
            names = (
                [f"robaudit.{alias.name}" for alias in node.names]
                if node.module == "robaudit"
                else [node.module or ""]
            )
            found += [(node.lineno, name) for name in names]
        elif isinstance(node, ast.Import):
            found += [
                (node.lineno, alias.name)
                for alias in node.names
                if alias.name.split(".")[0] == "robaudit"
            ]
    return found


FILES = sorted(
    path
    for path in PACKAGE.rglob("*.py")
    if path.parent != PACKAGE or path.stem not in ("__init__", "__main__")
)


def test_every_file_has_a_room() -> None:
    rooms = {path.relative_to(PACKAGE).parts[0].removesuffix(".py") for path in FILES}
    assert rooms == set(FLOOR)


def test_the_tests_have_the_same_rooms() -> None:
    folders = {
        path.name
        for path in (PACKAGE.parent / "tests" / "unit").iterdir()
        if (path / "__init__.py").exists()
    }
    assert folders <= set(FLOOR)
    families = {
        path.name
        for path in (PACKAGE.parent / "tests" / "unit" / "methods").iterdir()
        if (path / "__init__.py").exists()
    }
    assert families == set(FAMILIES)


def test_imports_go_down() -> None:
    upwards = []
    for path in FILES:
        where = path.relative_to(PACKAGE)
        floor = FLOOR[where.parts[0].removesuffix(".py")]
        upwards += [
            f"{where}:{line}: {name}"
            for line, name in imported(path)
            if FLOOR.get(room_of(name), len(ROOMS)) > floor
        ]
    assert not upwards


def test_a_family_imports_only_the_families_that_its_docs_name() -> None:
    wrong = []
    for family in FAMILIES:
        about = (
            ast.get_docstring(ast.parse((PACKAGE / "methods" / family / "__init__.py").read_text()))
            or ""
        )
        assert all(other in about for other in USES.get(family, ())), family
        for path in sorted((PACKAGE / "methods" / family).rglob("*.py")):
            for line, name in imported(path):
                other = name.split(".")[2] if name.startswith("robaudit.methods.") else family
                if other not in (family, *USES.get(family, ())):
                    wrong.append(f"{path.relative_to(PACKAGE)}:{line}: {name}")
    assert not wrong
    assert set(FAMILIES) == {
        path.name for path in (PACKAGE / "methods").iterdir() if (path / "__init__.py").exists()
    }


# --- names

ORDINARY = {"radius", "softmax", "training", "certificates"}
"""Names that are also words of mathematics: of a ball, a function, a mode of networks. Rooms below
the run may say them."""
BELOW_RUNS = {room for rooms in ROOMS[: ROOMS.index(("runs",))] for room in rooms} | {"demo"}
MEMBERS = {"difficulty"}
"""Names that are also members of a row, and so of samples.json: how easy the clean image is."""
ALLOWED = {
    ("cli/init.py", "training"): "normalised as in training",
    ("spec/first_spec.py", "training"): "the same",
    ("cli/demo.py", "training"): "noise that the network was trained without",
    (
        "runs/serialise.py",
        "mc",
    ): "a typical row: what others share with it takes few bytes in state.db",
    ("stats/spectrum.py", "radius"): "heads of a table about distances",
}


def names_in(path: Path, names: set[str]) -> list[tuple[int, str]]:
    """Where the code of a file, without its docstrings, says one of these names, as a word of a
    text or as an identifier."""
    tree = ast.parse(path.read_text())
    strings = [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    ]
    found = []
    for node in ast.walk(tree):
        words: list[str] = []
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in strings:
            words = re.findall(r"\w+", node.value)
        elif isinstance(node, ast.Name):
            words = [node.id]
        elif isinstance(node, ast.Attribute):
            words = [node.attr]
        elif isinstance(node, ast.arg | ast.keyword):
            words = [node.arg or ""]
        found += [(getattr(node, "lineno", 0), word) for word in words if word in names]
    return found


def test_the_core_says_no_name_of_a_family_or_an_estimator() -> None:
    estimators = tomllib.loads((PACKAGE.parent / "pyproject.toml").read_text())["project"][
        "entry-points"
    ]["robaudit.estimators"]
    named = []
    for path in FILES:
        where = path.relative_to(PACKAGE)
        room = where.parts[0].removesuffix(".py")
        if room == "methods" or where.name == "quantities.py":  # quantities have names of their own
            continue
        names = {*estimators, *FAMILIES} - MEMBERS - (ORDINARY if room in BELOW_RUNS else set())
        named += [
            f"{where}:{line}: {name}"
            for line, name in names_in(path, names)
            if (where.as_posix(), name) not in ALLOWED
        ]
    assert not named


# --- without a family

CORE = ["gates", "spec", "stats"]
"""The rooms whose tests run without a family in the default suite; the slow tests take them all."""


def without(family: str, rooms: list[str]) -> str:
    """What the tests of some rooms say if a family does not exist, and none that imports it."""
    gone = ",".join([family, *(other for other, uses in USES.items() if family in uses)])
    folders = [f"tests/unit/{room}" for room in rooms]
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "tests.without_family",
        "--without",
        gone,
        "-n",
        "0",
        "-p",
        "no:cacheprovider",
        *folders,
    ]
    done = subprocess.run(command, cwd=PACKAGE.parent, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stdout[-3000:]


def test_the_core_works_without_a_family() -> None:
    assert without("certificates", CORE) == ""


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_the_core_works_without_each_family(family: str) -> None:
    rooms = sorted(
        path.name
        for path in (PACKAGE.parent / "tests" / "unit").iterdir()
        if path.is_dir() and path.name != "methods"
    )
    assert without(family, [room for room in rooms if not room.startswith("_")]) == ""


# --- circles


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(
        ".__init__"
    )


MODULES = {module_of(path): path for path in PACKAGE.rglob("*.py")}


def for_annotations_only(node: ast.AST) -> bool:
    """Whether a block is ``if TYPE_CHECKING``."""
    return (
        isinstance(node, ast.If)
        and isinstance(node.test, ast.Name)
        and node.test.id == "TYPE_CHECKING"
    )


def loaded(node: ast.AST) -> set[str]:
    """Modules of the package that a piece of code imports when it runs, inside its functions or
    not."""
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
