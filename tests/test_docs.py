"""Everything is documented: commands, options, estimators and their options, keys of the spec,
quantities of gates."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from robaudit.methods.training import TrainingSpec
from robaudit.methods.training.network import objective_class
from robaudit.methods.training.spec import NetworkSpec
from robaudit.plugins import OBJECTIVES, installed
from robaudit.spec.gate_grammar import QUANTITIES
from robaudit.spec.schema import spec_schema
from tests import commands_page as commands
from tests.research import rooms
from tests.unit.engine.tools import installed_estimators

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"


def words(*names: str) -> set[str]:
    """Everything in backquotes in these pages, taken apart into words."""
    text = "\n".join((ROOT / name).read_text(encoding="utf-8") for name in names)
    quoted = re.findall(r"```.*?```|`[^`\n]+`", text, re.DOTALL)
    return {word for piece in quoted for word in re.findall(r"[A-Za-z_][\w.-]*", piece)}


def flags(command: Any) -> set[str]:
    """The options of a command; a switch has two."""
    return {flag for one in command.params for flag in (*one.opts, *one.secondary_opts)}


def test_the_page_of_commands_is_what_the_program_says() -> None:
    assert commands.PATH.read_text(encoding="utf-8") == commands.text(), (
        "python -m tests.commands_page writes it"
    )


@pytest.mark.parametrize("name", commands.commands())
def test_every_command_has_help_and_an_example(name: str) -> None:
    command = commands.commands()[name]
    known = flags(command)
    example = " ".join(command.help.partition("Example:")[2].split())
    assert example.startswith(f"robaudit {name}")
    assert set(re.findall(r"(?<=\s)--[\w-]+", example)) <= known
    assert all(one.help for one in command.params)


def test_the_command_lines_of_the_pages() -> None:
    known = {name: flags(command) for name, command in commands.commands().items()}
    for page in (ROOT / "README.md", ROOT / "configs" / "README.md", *DOCS.rglob("*.md")):
        text = page.read_text(encoding="utf-8")
        for line, name, rest in re.findall(
            r"(?:^ {4}|`)(robaudit ([a-z][a-z-]*)\b([^`\n#]*))", text, re.MULTILINE
        ):
            assert name in known, f"{page.name}: {line}"
            assert set(re.findall(r"(?<=\s)--?[a-z][\w-]*", rest)) <= known[name], (
                f"{page.name}: {line}"
            )


def keys(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> Iterator[str]:
    """The names of all properties below."""
    for name, inner in schema.get("properties", {}).items():
        yield name
        yield from keys(inner, definitions)
    for inner in (
        schema.get("items"),
        *schema.get("anyOf", ()),
        *schema.get("oneOf", ()),
        *schema.get("prefixItems", ()),
    ):
        if isinstance(inner, Mapping):
            yield from keys(inner, definitions)
    if "$ref" in schema:
        yield from keys(definitions[schema["$ref"].rpartition("/")[2]], definitions)


def test_every_key_of_the_spec() -> None:
    schema = spec_schema({})
    ours = set(keys(schema, schema.get("$defs", {})))
    assert {"model", "sigma", "gates", "labels_key"} <= ours
    assert ours - words("docs/spec.md") == set()


def test_every_estimator_and_option() -> None:
    table = words("docs/spec.md")
    for name, cls in installed_estimators().items():
        if cls.__module__.startswith("robaudit."):
            assert name in words("docs/estimators.md")
            assert {name, *cls.model_fields} - table == set()


def test_every_key_and_objective_of_a_training() -> None:
    page = words("docs/training.md")
    assert set(TrainingSpec.model_fields) | set(NetworkSpec.model_fields) <= page
    for name in installed(OBJECTIVES, "objective"):
        cls = objective_class(name)
        if cls.__module__.startswith("robaudit."):
            assert {name, *cls.model_fields} <= page
            assert cls.summary
            assert cls.source


def test_the_defaults_of_the_estimators() -> None:
    """Numbers that follow an option's name in its row, such as `samples` (10000)."""
    rows = re.findall(
        r"^\| `(\w+)` \| (.*) \|$", (DOCS / "spec.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    ours = installed_estimators()
    stated = [
        (f"{name}.{option}", float(number), default)
        for name, text in rows
        if name in ours
        for option, number in re.findall(r"`(\w+)` \((\d[\de.-]*)\b", text)
        if isinstance(default := ours[name].model_fields[option].default, int | float)
    ]
    assert len(stated) > 20
    assert [one for one in stated if one[1] != one[2]] == []


def test_every_quantity_of_a_gate() -> None:
    assert set(QUANTITIES) - words("docs/gates.md") == set()


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_links_lead_somewhere() -> None:
    for page in (ROOT / "README.md", ROOT / "configs" / "README.md", *DOCS.rglob("*.md")):
        for target, anchor in re.findall(
            r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)", page.read_text(encoding="utf-8")
        ):
            if "://" not in target:
                path = page.parent / target if target else page
                assert path.exists(), f"{page.name}: {target}"
                assert not anchor or anchor in anchors(path), f"{page.name}: {target}#{anchor}"


def test_the_design_notes_name_what_there_is() -> None:
    rows = re.findall(
        r"^\| .* \| (`[^|]*`) \| (`[^|]*`) \|$",
        (DOCS / "design.md").read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    assert len(rows) > 10
    for files, names in rows:
        code = "".join(
            (ROOT / "robaudit" / name).read_text(encoding="utf-8")
            for name in re.findall(r"`([^`]+)`", files)
        )
        for name in re.findall(r"`([^`]+)`", names):
            assert re.search(rf"^(class|def) {name}\b", code, re.MULTILINE), (
                f"docs/design.md: {files} without {name}"
            )


def test_the_picture_of_the_rooms_is_drawn_from_the_imports() -> None:
    assert rooms.PATH.read_text(encoding="utf-8") == rooms.svg(), (
        "python -m tests.research.rooms draws it"
    )


def test_the_design_notes_lead_to_tests_that_exist() -> None:
    text = (DOCS / "design.md").read_text(encoding="utf-8")
    paths = set(re.findall(r"`(tests/[\w/]+(?:\.py)?)`", text))
    assert len(paths) > 5
    assert [path for path in sorted(paths) if not (ROOT / path).exists()] == []
