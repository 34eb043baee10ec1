"""Signs of life of an audit: what is computed is named, and progress moves within long
computations, pass by pass of the network."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from robaudit import audit
from robaudit.models.architectures import digits_cnn
from robaudit.progress import Listener
from robaudit.spec.model import AuditSpec
from tests.clock import Clock
from tests.specs import digits

PASS = 0.5  # seconds
LEAST = 2.0  # seconds within which a user is to see something move

LONG: dict[str, dict[str, Any]] = {
    "mc": {"draws": 5000},
    "certified_radius": {"draws": 5000},
    "splitting": {"particles": 500, "repeats": 8},
    "qnorm_path": {"q": [100], "chains": 4},
    "radius_attack": {"norm": ["l2"]},
    "noise_tolerance": {},
    "adversarial_loss": {"steps": 40},
}


class Slow(nn.Module):
    """A network that calls a function at each pass; the audit's copy of it calls the same one."""

    def __init__(self, at_pass: Callable[[], None]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.network = digits_cnn()
        self.at_pass = at_pass

    def forward(self, x: Tensor) -> Tensor:
        self.at_pass()
        out: Tensor = self.network(x)
        return out


class Watching(Listener):
    """Remembers the stages, and when it heard of how much."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.stages = list[str]()
        self.heard = list[tuple[float, float]]()
        self.begun = self.ended = 0.0

    def doing(self, what: str) -> None:
        self.stages.append(what)

    def begin(self, total: int, done: int) -> None:
        self.begun = self.clock.now

    def working(self, share: float) -> None:
        self.heard.append((self.clock.now, share))

    def end(self) -> None:
        self.ended = self.clock.now


def watched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, estimators: list[Any], **sections: Any
) -> Watching:
    clock = Clock()

    def at_pass() -> None:
        clock.now += PASS

    for module in ("chunks", "main_loop"):
        monkeypatch.setattr(f"robaudit.auditing.{module}.time", SimpleNamespace(perf_counter=clock))
    told = Watching(clock)
    spec = digits(
        limit=1,
        model={"format": "python", "architecture": "nothing:here"},
        estimators=estimators,
        **sections,
    )
    audit(AuditSpec.model_validate(spec), out=tmp_path / "run", model=Slow(at_pass), listener=told)
    return told


@pytest.mark.parametrize("name", LONG)
def test_it_moves_within_one_image(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noise = {"kind": "uniform", "eps": 0.3} if name == "adversarial_loss" else {"sigma": 0.15}
    told = watched(tmp_path, monkeypatch, [{name: LONG[name]}], noise=noise)
    times = [told.begun, *(time for time, _ in told.heard), told.ended]
    assert told.ended - told.begun > 5 * LEAST, "long enough to be of interest"
    assert max(later - earlier for earlier, later in pairwise(times)) <= LEAST
    shares = [share for _, share in told.heard]
    assert shares == sorted(shares)
    assert 0 <= shares[0] < 0.5
    assert shares[-1] == 1
    assert len(set(shares)) > 5


def test_every_stage_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = watched(
        tmp_path, monkeypatch, [{"mc": {"draws": 100}}, "softmax"], noise={"sigma": [0.1, 0.2]}
    )
    start = told.stages.index("reading images")
    assert told.stages[:start] == [
        "reading the spec",
        "opening the data set",
        "loading the model",
        "checking model and data on the first images",
        "measuring memory",
        "comparing batches of different sizes",
    ]
    order = ["mc at sigma 0.1", "softmax at sigma 0.1", "mc at sigma 0.2", "softmax at sigma 0.2"]
    # Each round comes back to them.
    stages = [stage for stage in dict.fromkeys(told.stages[start:]) if stage != "reading images"]
    assert stages == [*order, "writing the results"]
