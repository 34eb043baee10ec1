"""Times of whole audits of generated images, files and checks included."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from robaudit import AuditSpec, audit
from robaudit.datasets.base import Labels, Sample
from tests.benchmarks.timing import timed


@dataclass(frozen=True)
class Repeated:
    """Images in memory as a data set of any size: they repeat under new ids, so that each has noise of its own."""

    images: Tensor
    count: int
    where: str = "images in memory"
    class_names: tuple[str, ...] | None = None

    def __len__(self) -> int:
        return self.count

    def sample_id(self, index: int) -> str:
        """The index as text."""
        return str(range(self.count)[index])

    def labels(self) -> Labels | None:
        """None."""
        return None

    def __getitem__(self, index: int) -> Sample:
        """One sample."""
        return Sample(self.sample_id(index), self.images[range(self.count)[index] % len(self.images)], None)


def audit_seconds(
    network: nn.Module, images: Repeated, estimator: Mapping[str, Any], sigma: float, device: torch.device, **model: Any
) -> tuple[float, float]:
    """Seconds of the whole audit, and of them those in the estimator and its clean pass."""
    document = {
        "model": {"path": "in-memory", **model},
        "dataset": {"kind": "digits"},
        "noise": {"sigma": [sigma]},
        "estimators": [dict(estimator)],
        "run": {"device": str(device)},
    }
    with tempfile.TemporaryDirectory() as folder:
        spec = AuditSpec.model_validate(document).located(Path(folder), "bench")
        run, wall = timed(lambda: audit(spec, out=Path(folder) / "run", model=network, dataset=images), device)
    return wall, float(sum(run.info["seconds"].values()))
