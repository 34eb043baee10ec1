"""What counts as the time of a step."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from robaudit import audit
from robaudit.auditing import chunks
from robaudit.auditing.environment import image_digest
from robaudit.datasets.base import Sample
from robaudit.spec.model import AuditSpec
from tests.clock import Clock
from tests.specs import digits


def test_the_clean_pass_is_timed_without_the_digests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()

    def slow(sample: Sample) -> str:
        clock.now += 5.0
        return image_digest(sample)

    monkeypatch.setattr(chunks, "time", SimpleNamespace(perf_counter=clock))
    monkeypatch.setattr(chunks, "image_digest", slow)
    spec = AuditSpec.model_validate(digits(limit=3, estimators=["softmax"])).located(tmp_path, "spec")
    run = audit(spec, out=tmp_path / "run")
    assert clock.now == 1000.0 + 3 * 5.0
    assert set(run.info["seconds"].values()) == {0.0}
