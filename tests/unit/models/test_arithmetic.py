"""A model file computes, and does nothing else: every operator is on one list, wherever it is and whenever it runs."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from robaudit.models.arithmetic import is_arithmetic
from tests.system.hostile.archives import rewrite
from tests.unit.models.conftest import load, refusal
from tests.unit.models.test_files import script

pytest.importorskip("torchvision")


class _Flat(nn.Module):
    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return images.flatten(1)


class _Reads(_Flat):
    def forward(self, images: torch.Tensor) -> torch.Tensor:
        read: torch.Tensor = torch.ops.image.read_file("/etc/passwd")
        return read.float()


class _Prints(_Flat):
    def forward(self, images: torch.Tensor) -> torch.Tensor:
        print("\x1b[2J::warning ::")  # noqa: T201
        return images.flatten(1)


class _Inside(_Flat):
    def __init__(self) -> None:
        super().__init__()
        self.inner = _Prints()

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.inner(images) if images.sum() > 1e9 else images.flatten(1)


def _shout(images: torch.Tensor) -> torch.Tensor:
    print("::warning ::")  # noqa: T201
    return images


class _Forks(_Flat):
    def forward(self, images: torch.Tensor) -> torch.Tensor:
        future = torch.jit.fork(_shout, images)
        shouted: torch.Tensor = torch.jit.wait(future)
        return shouted.flatten(1)


class _Never(_Flat):
    """Nothing calls the second method."""

    @torch.jit.export
    def other(self, images: torch.Tensor) -> torch.Tensor:
        print("::warning ::")  # noqa: T201
        return images


class _State(_Flat):
    @torch.jit.export
    def __getstate__(self) -> bool:
        return self.training

    @torch.jit.export
    def __setstate__(self, state: bool) -> None:
        print("::warning ::")  # noqa: T201
        self.training = state


PRINTS = "calls 'prim::Print', which is not plain arithmetic"


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        (_Reads, "has 'ops', which torch would run"),
        *((kind, PRINTS) for kind in (_Inside, _Forks, _Never)),
        (_State, "has '__setstate__', which torch would run"),
    ],
)
def test_torchscript_that_does_more_than_compute(
    kind: Callable[[], nn.Module], says: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = script(tmp_path, kind())
    said = refusal(path)
    assert says in said
    assert said.endswith("pass --trust if you trust the file")
    assert capfd.readouterr() == ("", "")
    load(path, trust=True)


def test_objects_of_a_librarys_classes(tmp_path: Path) -> None:
    path = script(tmp_path, _Flat())
    with zipfile.ZipFile(path) as archive:
        (pickled,) = (archive.read(name) for name in archive.namelist() if name.endswith("/data.pkl"))
    kind = pickled[pickled.index(b"c__torch__") :].split(b"\n")[:2]  # of the network
    other = b"c__torch__.torch\nclasses.rnn.Cell"
    rewrite(path, lambda name, content: content.replace(b"\n".join(kind), other) if name.endswith("/data.pkl") else content)
    assert "holds an object of classes.rnn.Cell" in refusal(path)


def test_operators_that_exports_call() -> None:
    for name in ("_convolution", "_log_softmax", "_to_copy", "_native_batch_norm_legit_no_training", "__getitem__"):
        assert is_arithmetic("aten", name)
    for name in ("_reshape_alias", "_nested_view_from_jagged", "_copy_from", "_print", "from_file", "save", "warn"):
        assert not is_arithmetic("aten", name)
