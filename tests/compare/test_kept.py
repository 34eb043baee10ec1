"""Which draws kept the class: packed, read back, and refused where the votes say otherwise."""

from __future__ import annotations

import base64
import io
import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from robaudit.compare.matching import common
from robaudit.errors import RunError
from robaudit.noise.registry import gaussian_source
from robaudit.quantities import Interval
from robaudit.rows import MOST_STORED_DRAWS, Row, bits_of, packed
from robaudit.store.serialise import rows_csv, rows_json, stream_rows_json
from robaudit.store.state import Flush, State
from tests.estimators.tools import SHAPE, build, curved, linear, work_on

ROW = Row("a", 0, 0, True, "gaussian", "sigma", 0.1, "mc", "p_robust", 0.7, 0.3, 0.9, 0.1, 1, 11, 0, "", Interval.parse("clopper-pearson"))
bits = st.lists(st.booleans(), min_size=1, max_size=70)


def row_of(kept: list[bool], **fields: object) -> Row:
    """A row of these draws."""
    (text,) = packed(torch.tensor([kept]))
    count = sum(kept)
    row = replace(ROW, value=count / len(kept), votes=(count, len(kept) - count), kept=text if 0 < count < len(kept) else None)
    return replace(row, **fields)  # type: ignore[arg-type]


@given(bits)
def test_bits_come_back(kept: list[bool]) -> None:
    row = row_of(kept)
    found = bits_of(row)
    assert found is not None
    assert found.tolist() == kept
    text = rows_json([row])
    assert list(stream_rows_json(io.BytesIO(text.encode()))) == [row]
    assert list(stream_rows_json(io.BytesIO(text.encode()), kept=False)) == [replace(row, kept=None)]
    with State() as state:
        state.write(Flush([row]))
        assert list(state.rows()) == [row]
    assert rows_csv([row]) == rows_csv([replace(row, kept=None)]), "samples.csv has no bits"


@given(bits.flatmap(lambda one: st.tuples(st.just(one), st.lists(st.booleans(), min_size=len(one), max_size=len(one)))))
def test_discordant_draws(pair: tuple[list[bool], list[bool]]) -> None:
    base, new = (np.array(one) for one in pair)
    rows = tuple(map(row_of, pair))
    found = common(*rows)
    assert found[:5] == (len(base), int((base & ~new).sum()), int((new & ~base).sum()), 0, 0)
    assert found.kept == (base.sum(), new.sum())


GOOD = row_of([True, False, True, True, False, True, True, True, False, True])
DATA = base64.b64decode(GOOD.kept or "")


@pytest.mark.parametrize("kept", ["\u00e4", "%%%%", "AAA", "A" * 10**5, 7, ["A"]])
def test_bits_that_are_no_text_of_bits_are_refused(kept: object) -> None:
    document = json.loads(rows_json([GOOD]))
    document["rows"][0]["kept"] = kept
    text = '{"schema_version": 2,\n"columns": [],\n"rows": [\n' + json.dumps(document["rows"][0]) + "\n]}\n"
    with pytest.raises(RunError, match="kept: "):
        list(stream_rows_json(io.BytesIO(text.encode())))


def test_rows_that_do_not_say_have_no_bits() -> None:
    for row in (
        replace(GOOD, kept=None),
        replace(GOOD, interval=Interval.parse("confidence-sequence")),
        replace(GOOD, votes=None, kept=None),
        replace(GOOD, kept=base64.b64encode(DATA + b"\0").decode()),
        replace(GOOD, kept=""),
    ):
        assert bits_of(row) is None
        assert common(row, GOOD).draws == 0
    broken = replace(GOOD, votes=(7, 2), not_finite=1)
    assert bits_of(broken) is not None, "copies that gave no finite logits count as flips"


def test_mc_says_which_draws_kept_the_class() -> None:
    network = curved()
    work = work_on(network, images=4, sigma=0.8)
    found = build("mc", samples=50).estimate(work)
    for b, one in enumerate(found):
        z = torch.cat(list(gaussian_source(0, torch.device("cpu")).blocks(work.ids[b], 50, SHAPE)))
        expected = network(work.x[b] + 0.8 * z).argmax(1) == work.clean.predicted[b]
        assert one.votes is not None
        if expected.all() or not expected.any():
            assert one.kept is None
        else:
            assert one.kept == next(packed(expected[None]))
    assert any(one.kept for one in found)


def test_no_bits_where_draws_are_too_many_or_stop_by_themselves() -> None:
    work = work_on(linear(3), images=2, sigma=0.8)
    many = build("mc", samples=MOST_STORED_DRAWS + 1).estimate(work)
    stopped = build("mc", tolerance=0.05, max_samples=100).estimate(work)
    assert {one.kept for one in (*many, *stopped)} == {None}
    assert any(one.kept for one in build("mc", samples=MOST_STORED_DRAWS).estimate(work))


def test_antithetic_copies_are_paired_pair_by_pair() -> None:
    """Base and new kept 11 01 10 00 and 00 11 10 00: one pair loses both copies, one wins one."""
    base = replace(GOOD, votes=(4, 4), split=2, kept=next(packed(torch.tensor([[1, 1, 0, 1, 1, 0, 0, 0]]).bool())))
    new = replace(GOOD, votes=(3, 5), split=1, kept=next(packed(torch.tensor([[0, 0, 1, 1, 1, 0, 0, 0]]).bool())))
    found = common(base, new)
    assert (found.lost, found.half_lost, found.half_won, found.won, found.draws) == (1, 0, 1, 0, 8)
    assert common(base, replace(new, split=None)).draws == 0, "pairs and single draws have no draw in common"
