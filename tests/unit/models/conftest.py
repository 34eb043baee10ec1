"""How tests load a model, and a small random one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from robaudit.errors import ModelError
from robaudit.models import LogitModel, Source, load_model
from robaudit.spec.model import ModelSpec


def load(
    path: Path | None,
    *,
    dtype: torch.dtype = torch.float32,
    trust: bool = False,
    base_dir: Path | None = None,
    **fields: Any,
) -> LogitModel:
    """Load a file as the CLI would, with the spec's model fields as keywords."""
    spec = ModelSpec.model_validate({"path": str(path) if path else None, **fields})
    folder = base_dir or (path.parent if path else Path.cwd())
    return load_model(Source(spec, folder, dtype=dtype, trust=trust))


def refusal(path: Path | None, **fields: Any) -> str:
    """The one line that a failing load prints."""
    with pytest.raises(ModelError) as caught:
        load(path, **fields)
    return one_line(caught.value)


def one_line(error: ModelError) -> str:
    """The message of an error, which must be one line."""
    text = str(error)
    assert "\n" not in text
    assert len(text) < 700
    return text


def small_net(classes: int = 3, seed: int = 0) -> nn.Sequential:
    """A random network for 1 x 8 x 8 images."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(
            nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, classes)
        ).eval()


def pixels(count: int = 5, channels: int = 1, side: int = 8) -> torch.Tensor:
    """Some images in [0, 1]."""
    return torch.rand(count, channels, side, side, generator=torch.Generator().manual_seed(1))
