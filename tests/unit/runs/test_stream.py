"""Rows written and read piece by piece: the same text, the same rows, the same refusals, and never
all of them at once."""

from __future__ import annotations

import io
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from robaudit.errors import RunError
from robaudit.results import Votes
from robaudit.runs.rows import Row
from robaudit.runs.serialise import pieces, rows_csv, rows_json, stream_rows_json
from tests.golden import Golden
from tests.rows import json_text
from tests.unit.runs.test_text import BARE, ROW

MEGABYTE = 2**20


def streamed(text: str | bytes) -> list[Row]:
    return list(stream_rows_json(io.BytesIO(text if isinstance(text, bytes) else text.encode())))


def many(count: int) -> Iterator[Row]:
    """Rows of which no two are the same object."""
    return (
        replace(ROW, sample_id=f"folder/{i}.png", votes=Votes(tuple(range(i, i + 20))))
        for i in range(count)
    )


@given(st.lists(st.text(max_size=9)), st.integers(1, 20))
def test_pieces_are_the_text(texts: list[str], size: int) -> None:
    found = list(pieces(texts, size))
    assert "".join(found) == "".join(texts)
    assert all(size <= len(piece) < size + 9 for piece in found[:-1])


def test_many_rows_come_in_pieces() -> None:
    for pieces_of in (rows_csv, rows_json):
        found = list(pieces_of(many(2000)))
        assert len(found) > 1
        assert max(map(len, found)) < MEGABYTE


def test_memory_does_not_grow_with_the_rows(tmp_path: Path) -> None:
    peaks = []
    for count in (600, 2400):
        tracemalloc.start()
        try:
            for name, chunks in (("samples.csv", rows_csv), ("samples.json", rows_json)):
                with (tmp_path / name).open("w") as file:
                    file.writelines(chunks(many(count)))
            with (tmp_path / "samples.json").open("rb") as stream:
                assert sum(1 for _ in stream_rows_json(stream)) == count
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    assert (tmp_path / "samples.json").stat().st_size > 0.9 * MEGABYTE
    assert peaks[1] < MEGABYTE
    assert peaks[1] < 1.2 * peaks[0]


GOOD = json_text([ROW, BARE])
HEAD, COLUMNS_LINE, BEGIN, FIRST, SECOND, END, _ = [*GOOD.splitlines(keepends=True), ""]
DAMAGED = {
    "empty": "",
    "another type": "[]",
    "rows that are a number": HEAD + COLUMNS_LINE + '"rows": 3}\n',
    "no rows": HEAD + COLUMNS_LINE + BEGIN,
    "no second row": HEAD + COLUMNS_LINE + BEGIN + FIRST,
    "cut": GOOD[:-40],
    "a correct of another type": GOOD.replace('"correct": true', '"correct": 3'),
    "a value out of range": GOOD.replace('"value": 0.8', '"value": 1e308'),
    "an end that is not finite": GOOD.replace('"upper": 0.9', '"upper": Infinity'),
    "no prediction": GOOD.replace('"predicted": 0, ', ""),
    "a row that is a list": GOOD.replace(FIRST, "[],\n"),
    "lists in lists": GOOD.replace(FIRST, "[" * 100_000 + "\n"),
    "a number of 10,000 digits": GOOD.replace('"forwards": 11', '"forwards": ' + "9" * 10_000),
    "bytes that are no text": GOOD.encode().replace(b'"a"', b'"\xff"'),
    "a line of 16 MB": GOOD.replace(FIRST, " " * 2**24 + FIRST),
}


@pytest.mark.parametrize("text", DAMAGED.values(), ids=list(DAMAGED))
def test_a_damaged_stream_says_in_which_line(text: str | bytes, golden: Golden) -> None:
    with pytest.raises(RunError) as error:
        streamed(text)
    golden(error.value)


def test_the_rows_before_a_fault_are_given() -> None:
    stream = stream_rows_json(io.BytesIO(GOOD[:-10].encode()))
    assert next(stream) == ROW
    with pytest.raises(RunError):
        next(stream)


def test_texts_that_repeat_are_held_once() -> None:
    """Half of the memory of many rows."""
    first, second = streamed(json_text([ROW, replace(ROW, sample_id="c")]))
    assert (first.interval.text, first.noise) == ("clopper-pearson", "gaussian")
    assert first.interval is second.interval
    assert first.noise is second.noise
