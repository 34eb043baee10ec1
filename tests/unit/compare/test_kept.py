"""Which draws kept the class: written as text, read back, refused where votes say otherwise."""

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

from robaudit.compare.matching import common_draws
from robaudit.errors import RunError
from robaudit.quantities import Interval
from robaudit.results import MOST_STORED_DRAWS, Votes
from robaudit.runs.rows import Row, bits_as_text, bits_of
from robaudit.runs.serialise import stream_rows_json
from robaudit.runs.state import Flush, State
from tests.golden import Golden
from tests.levels import gaussian_process
from tests.rows import ROW as PLAIN_ROW
from tests.rows import csv_text, json_text
from tests.unit.compare.tools import with_bits
from tests.unit.engine.tools import SHAPE, build, curved, known, linear, work_on

ROW = replace(PLAIN_ROW, value=0.7, lower=0.3, std_error=0.1)
bits = st.lists(st.booleans(), min_size=1, max_size=70)


def row_of(kept: list[bool], **fields: object) -> Row:
    """A row of these draws."""
    (text,) = bits_as_text(torch.tensor([kept]))
    count = sum(kept)
    row = replace(
        ROW,
        value=count / len(kept),
        votes=Votes((count, len(kept) - count), bits=text if 0 < count < len(kept) else None),
    )
    return replace(row, **fields)  # type: ignore[arg-type]


@given(bits)
def test_bits_come_back(kept: list[bool]) -> None:
    row = row_of(kept)
    found = bits_of(row)
    assert found is not None
    assert found.tolist() == kept
    text = json_text([row])
    assert list(stream_rows_json(io.BytesIO(text.encode()))) == [row]
    assert list(stream_rows_json(io.BytesIO(text.encode()), bits=False)) == [with_bits(row)]
    with State() as state:
        state.write(Flush([row]))
        assert [one for sample in state.stored() for one in sample.rows] == [row]
    assert csv_text([row]) == csv_text([with_bits(row)]), "samples.csv has no bits"


@given(
    bits.flatmap(
        lambda one: st.tuples(
            st.just(one), st.lists(st.booleans(), min_size=len(one), max_size=len(one))
        )
    )
)
def test_discordant_draws(pair: tuple[list[bool], list[bool]]) -> None:
    base, new = (np.array(one) for one in pair)
    rows = tuple(map(row_of, pair))
    found = common_draws(*rows)
    assert found[:5] == (len(base), int((base & ~new).sum()), int((new & ~base).sum()), 0, 0)
    assert found.kept == (base.sum(), new.sum())


GOOD = row_of([True, False, True, True, False, True, True, True, False, True])
DATA = base64.b64decode((GOOD.votes and GOOD.votes.bits) or "")


@pytest.mark.parametrize("kept", ["\u00e4", "%%%%", "AAA", "A" * 10**5, 7, ["A"]])
def test_bits_that_are_no_text_of_bits_are_refused(kept: object, golden: Golden) -> None:
    document = json.loads(json_text([GOOD]))
    document["rows"][0]["votes"]["bits"] = kept
    text = (
        '{"schema_version": 2,\n"columns": [],\n"rows": [\n'
        + json.dumps(document["rows"][0])
        + "\n]}\n"
    )
    with pytest.raises(RunError) as error:
        list(stream_rows_json(io.BytesIO(text.encode())))
    golden(error.value)


def test_rows_that_do_not_say_have_no_bits() -> None:
    for row in (
        replace(GOOD, votes=Votes((7, 3))),
        replace(GOOD, interval=Interval.parse("confidence-sequence")),
        replace(GOOD, votes=None),
        replace(GOOD, votes=Votes((7, 3), bits=base64.b64encode(DATA + b"\0").decode())),
        replace(GOOD, votes=Votes((7, 3), bits="")),
    ):
        assert bits_of(row) is None
        assert common_draws(row, GOOD).draws == 0
    broken = replace(GOOD, votes=Votes((7, 2), lost=1, bits=base64.b64encode(DATA).decode()))
    assert bits_of(broken) is not None, "copies that gave no finite logits count as flips"


def test_mc_says_which_draws_kept_the_class() -> None:
    network = curved()
    work = work_on(network, images=4, sigma=0.8)
    found = build("mc", draws=50).estimate(work)
    for b, one in enumerate(found):
        z = torch.cat(list(gaussian_process(0, torch.device("cpu")).blocks(work.ids[b], 50, SHAPE)))
        expected = network(work.x[b] + 0.8 * z).argmax(1) == work.predicted[b]
        assert one.votes is not None
        if expected.all() or not expected.any():
            assert one.votes.bits is None
        else:
            assert one.votes.bits == next(bits_as_text(expected[None]))
    assert any(one.votes and one.votes.bits for one in found)


@pytest.mark.families
def test_no_bits_where_draws_are_too_many() -> None:
    work = work_on(linear(3), images=2, sigma=0.8)
    many = build("mc", draws=MOST_STORED_DRAWS + 1).estimate(work)
    assert {known(one.votes).bits for one in many} == {None}
    assert any(known(one.votes).bits for one in build("mc", draws=MOST_STORED_DRAWS).estimate(work))


def test_antithetic_copies_are_paired_pair_by_pair() -> None:
    """Base and new kept 11 01 10 00 and 00 11 10 00: one pair loses both copies, one wins one."""
    before, now = (
        next(bits_as_text(torch.tensor([draws]).bool()))
        for draws in ([1, 1, 0, 1, 1, 0, 0, 0], [0, 0, 1, 1, 1, 0, 0, 0])
    )
    base = replace(GOOD, votes=Votes((4, 4), split=2, bits=before))
    new = replace(GOOD, votes=Votes((3, 5), split=1, bits=now))
    found = common_draws(base, new)
    assert (found.lost, found.half_lost, found.half_won, found.won, found.draws) == (1, 0, 1, 0, 8)
    single = replace(new, votes=Votes((3, 5), bits=now))
    assert common_draws(base, single).draws == 0, "pairs and single draws have no draw in common"
