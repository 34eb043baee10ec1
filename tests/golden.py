"""The texts of messages: one file a room in tests/messages, which the fixture ``golden`` compares
with what a test provokes.

A file has the tests in order, and below each, indented, a line for each message that it provokes:
the class of the error and its text. Folders of one run of the tests are written as ``TMP`` and
``REPO``; ``[...]`` stands for anything, such as the words of a library.

pytest -n 0 --write-messages tests/unit/spec

writes the messages of the tests that it runs. A line with ``[...]`` that still fits stays as it is.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
ROOT = TESTS.parent
MESSAGES = TESTS / "messages"
_ANYTHING = "[...]"
_INDENT = "    "

Texts = dict[str, list[str]]
"""The messages of a room by test: ``test_load.py::test_values[case]``."""
written: dict[str, Texts] = {}
"""By room, what the tests of this session have provoked; only with ``--write-messages``."""
deselected: set[tuple[str, str]] = set()
"""Tests of this session that are left out, by room and key: their messages stay."""


class Golden:
    """Compares messages with those of a test in its room's file, in order.

    Args:
        room, test: the place of the messages.
        folder: the folder of all temporary folders.
        write: collect the messages instead.
    """

    def __init__(self, room: str, test: str, folder: Path, *, write: bool) -> None:
        self._room = room
        self._test = test
        self._folder = folder
        self._write = write
        self.said: list[str] = []

    def __call__(self, message: BaseException | str) -> None:
        """Compare the next message: an error, with its class, or a text. It is a single line."""
        place = len(self.said)
        text = self._text(message)
        assert "\n" not in text
        self.said.append(text)
        if self._write:
            return
        known = read(self._room).get(self._test, [])
        wanted = (
            known[place]
            if place < len(known)
            else f"nothing: pytest -n 0 --write-messages tests/{_folder_of(self._room)}"
        )
        if not fits(text, wanted):
            pytest.fail(
                f"tests/messages/{self._room}.txt, {self._test}\n  has:  {wanted}\n  said: {text}"
            )

    def lines(self, text: str, begin: str = "") -> None:
        """Compare each line of a text, or those that begin so."""
        for line in text.splitlines():
            if line.startswith(begin) and line.strip():
                self(line)

    @contextmanager
    def raises(self, kind: type[BaseException]) -> Iterator[None]:
        """Expect an error of this class, which is the next message."""
        with pytest.raises(kind) as error:
            yield
        self(error.value)

    def finished(self) -> None:
        """Check that all messages of the test were provoked, or keep them."""
        if self._write:
            if self.said:
                written.setdefault(self._room, {})[self._test] = self.said
        elif len(self.said) < len(known := read(self._room).get(self._test, [])):
            pytest.fail(f"{self._test} did not provoke: {known[len(self.said)]}")

    def _text(self, message: BaseException | str) -> str:
        text = str(message)
        text = re.sub(rf"{re.escape(str(self._folder))}/[\w-]+", "TMP", text)
        text = text.replace(str(ROOT), "REPO")
        return f"{type(message).__name__}: {text}" if isinstance(message, BaseException) else text


def place_of(item: pytest.Item) -> tuple[str, str]:
    """The room of a test, and its key there."""
    *folders, name = item.path.relative_to(TESTS).parts
    if folders == ["unit", "methods"]:  # about several families
        return "methods", f"{name}::{item.name}"
    rooms = [folder for folder in folders if folder not in ("unit", "methods")] or ["ground"]
    return rooms[0], "/".join([*rooms[1:], f"{name}::{item.name}"])


def _folder_of(room: str) -> str:
    """The folder of a room's tests."""
    return next(
        f"{above}{room}"
        for above in ("unit/", "unit/methods/", "")
        if (TESTS / above / room).is_dir()
    )


def fits(text: str, wanted: str) -> bool:
    """Whether a text is as wanted, where ``[...]`` stands for anything."""
    return re.fullmatch(".*".join(map(re.escape, wanted.split(_ANYTHING))), text) is not None


@cache
def read(room: str) -> Texts:
    """The messages of a room."""
    path = MESSAGES / f"{room}.txt"
    texts: Texts = {}
    said: list[str] = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        if line.startswith(_INDENT):
            said.append(line.removeprefix(_INDENT))
        elif not line.startswith("#"):
            said = texts[line] = []
    return texts


def write(collected: set[tuple[str, str]]) -> None:
    """Write the files of the rooms whose tests were run. ``collected``: the tests of this session,
    whether run or skipped."""
    collected = collected | deselected
    functions = {(room, test.partition("[")[0]) for room, test in collected}
    for room, new in written.items():
        old = read(room)
        texts = {
            test: said
            for test, said in old.items()
            if (room, test) in collected or (room, test.partition("[")[0]) not in functions
        }
        texts = {test: said for test, said in texts.items() if exists(room, test)}
        for test, said in new.items():
            before = old.get(test, [])
            same = len(before) == len(said)
            texts[test] = (
                [
                    kept if fits(text, kept) else text
                    for text, kept in zip(said, before, strict=True)
                ]
                if same
                else said
            )
        lines = (
            f"{test}\n" + "".join(f"{_INDENT}{text}\n" for text in texts[test])
            for test in sorted(texts)
        )
        MESSAGES.mkdir(exist_ok=True)
        (MESSAGES / f"{room}.txt").write_text(
            f"# See tests/golden.py.\n{''.join(lines)}", encoding="utf-8"
        )


def exists(room: str, test: str) -> bool:
    """Whether there is such a test function."""
    file, _, name = test.partition("::")
    path = TESTS / _folder_of(room) / file
    return path.exists() and name.partition("[")[0] in _functions(path)


@cache
def _functions(path: Path) -> frozenset[str]:
    return frozenset(
        node.name
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef)
    )
