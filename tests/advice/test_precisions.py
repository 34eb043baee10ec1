"""A lower precision is offered where it is faster, and said to be of no use where it is not."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import robaudit
from robaudit.advice import precisions
from robaudit.advice.plan import snippet
from robaudit.advice.precisions import Offer, precision_offers
from robaudit.auditing.prepare import Ready, prepare
from robaudit.progress import Silent
from tests.advice.test_plan import everything
from tests.specs import digits, write


class Threshold(nn.Module):
    """Ten classes, of which two are ever taken: is the mean pixel above .305? In bfloat16 305 is 304 or 306."""

    def __init__(self) -> None:
        super().__init__()
        self.threshold = nn.Parameter(torch.tensor(305.0))

    def forward(self, x: Tensor) -> Tensor:
        above = 1000 * x.float().mean((1, 2, 3)) - self.threshold.float()
        return torch.cat([torch.zeros(len(x), 1), above[:, None], torch.full((len(x), 8), -1e6)], dim=1)


def ready(tmp_path: Path, model: nn.Module | None = None, **run: object) -> Ready:
    spec = robaudit.load_spec(write(tmp_path, digits(limit=40, run=run or None)))
    return prepare(spec, None, "", model, None, torch.device("cpu"), Silent(), trust=False, skip_bad=False)


def as_fast(monkeypatch: pytest.MonkeyPatch, ratio: float) -> None:
    monkeypatch.setattr(precisions, "_speed", lambda *_: ratio)


def test_a_slower_precision_is_not_looked_at_further(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    as_fast(monkeypatch, 0.4)
    (offer,) = precision_offers(ready(tmp_path))
    assert offer == Offer("bf16", 0.4, None, None, recommended=False)
    assert offer.text == "precision bf16: noisy passes 0.4 times as fast: not worth it here"


def test_a_faster_one_is_recommended_if_it_changes_little(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    as_fast(monkeypatch, 2.0)
    (offer,) = precision_offers(ready(tmp_path))
    assert offer.changed is not None
    assert offer.shift is not None
    assert 0 <= offer.shift <= offer.changed < 0.02
    assert offer.recommended == (offer.shift <= 0.002)
    assert "noisy passes 2 times as fast" in offer.text


def test_a_faster_one_that_shifts_the_values_is_not_recommended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    as_fast(monkeypatch, 2.0)
    (offer,) = precision_offers(ready(tmp_path, Threshold()))
    assert offer.changed is not None
    assert offer.shift is not None
    assert offer.changed >= offer.shift > 0.002
    assert not offer.recommended


def test_what_the_spec_has_chosen_stays(tmp_path: Path) -> None:
    assert precision_offers(ready(tmp_path, precision="bf16")) == []
    assert precision_offers(ready(tmp_path, precision="fp64")) == []


def test_the_speed_is_measured(tmp_path: Path) -> None:
    (offer,) = precision_offers(ready(tmp_path))
    assert 0.001 < offer.speed < 1000


def test_a_network_that_cannot_be_cast_has_no_offer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise RuntimeError("not implemented for 'BFloat16'")

    monkeypatch.setattr(precisions, "_speed", refuse)
    assert precision_offers(ready(tmp_path)) == []


def test_the_recommended_one_is_in_the_snippet(tmp_path: Path) -> None:
    spec, plan = robaudit.load_spec(write(tmp_path, digits())), everything(8, 60.0)[0]
    kept, taken = Offer("bf16", 2.0, 0.1, 0.01, recommended=False), Offer("bf16", 2.0, 0.001, 0.0005, recommended=True)
    assert "precision" not in snippet(spec, plan, 8, [kept])
    assert snippet(spec, plan, 8, [taken]).endswith("run:  # likewise\n  precision: bf16\n")
