"""No load runs code that a file brings along, and what is refused leaves no trace."""

from __future__ import annotations

import io
import json
import os
import pickle
import re
import warnings
import zipfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from robaudit.errors import ModelError
from robaudit.models.exported import check_graph
from robaudit.models.operators import allowed
from tests.golden import Golden
from tests.system.hostile.archives import rewrite
from tests.unit.models.conftest import load, pixels, refusal, small_net
from tests.unit.models.test_model_files import script

CANARY = "canary"


class Bomb:
    """Makes a folder when it is unpickled."""

    def __init__(self, folder: Path) -> None:
        self.target = str(folder / CANARY)

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (self.target,)


@pytest.fixture(autouse=True)
def _no_trace(tmp_path: Path) -> Any:
    yield
    assert not (tmp_path / CANARY).exists()


def zipped_pickle(value: object) -> bytes:
    stream = io.BytesIO()
    torch.save(value, stream)
    return stream.getvalue()


@cache
def archive() -> bytes:
    """A harmless .pt2 file."""
    stream = io.BytesIO()
    torch.export.save(
        torch.export.export(
            small_net(), (pixels(3),), dynamic_shapes=({0: torch.export.Dim("batch")},)
        ),
        stream,
    )
    return stream.getvalue()


@pytest.fixture
def exported(tmp_path: Path) -> Path:
    (tmp_path / "net.pt2").write_bytes(archive())
    return tmp_path / "net.pt2"


@pytest.mark.parametrize(
    "member", ["data/sample_inputs/model.pt", "data/constants/model.pt", "data/weights/model.pt"]
)
def test_pickles_inside_pt2(exported: Path, member: str, golden: Golden) -> None:
    bomb = zipped_pickle((Bomb(exported.parent),))
    rewrite(
        exported, lambda name, content: None if name.endswith(member) else content, {member: bomb}
    )
    golden(refusal(exported))


@pytest.mark.parametrize(
    "member",
    ["data/constants/custom_obj_0", "data/constants/OPAQUE_obj_0", "data/aotinductor/model/a.so"],
)
def test_objects_in_pt2(exported: Path, member: str, golden: Golden) -> None:
    rewrite(exported, lambda _, content: content, {member: pickle.dumps(Bomb(exported.parent))})
    golden(refusal(exported))


@pytest.mark.parametrize(
    ("file", "use_pickle", "zipped"),
    [
        ("weight_0", True, True),
        ("weight_0", True, False),
        ("opaque_obj_0", False, False),
        ("../../x", False, False),
    ],
)
def test_payloads_of_pt2(
    exported: Path, file: str, use_pickle: bool, zipped: bool, golden: Golden
) -> None:
    def change(name: str, content: bytes) -> bytes:
        if name.endswith("weights_config.json"):
            config = json.loads(content)
            next(iter(config["config"].values())).update(path_name=file, use_pickle=use_pickle)
            return json.dumps(config).encode()
        bomb = Bomb(exported.parent)
        return (
            (zipped_pickle(bomb) if zipped else pickle.dumps(bomb))
            if name.endswith("weight_0")
            else content
        )

    rewrite(exported, change)
    golden(refusal(exported))


def test_old_layout_of_pt2(exported: Path, golden: Golden) -> None:
    """torch would read it without the checks of a graph."""
    rewrite(exported, lambda _, content: content)
    with zipfile.ZipFile(exported, "a") as archive:
        archive.writestr("serialized_exported_program.json", "{}")
    golden(refusal(exported))


RELU = "torch.ops.aten.relu.default"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Symbol('s", "__import__('os').mkdir('X') or Symbol('s"),
        (RELU, "torch.os.mkdir"),
        (RELU, "torch.mkdir"),
        (RELU, "torch.ops.aten.__class__.mro"),
        (RELU, "torch.ops.aten.relu.__call__"),
        (RELU, "torch.ops.aten.from_file.default"),
        (RELU, "torch.ops.image.write_file.default"),
        (RELU, "_operator.setitem"),
        (RELU, "#evil:op"),
        ('"name": "relu"', '"name": "relu=__import__(1)"'),
        ("builtins.tuple", "evil.Class"),
        (r"\"context\": \"null\"", r"\"context\": \"{}\""),
    ],
)
def test_code_in_the_graph_of_pt2(exported: Path, old: str, new: str, golden: Golden) -> None:
    def change(name: str, content: bytes) -> bytes:
        if not name.endswith("models/model.json"):
            return content
        text = json.dumps(json.loads(content))
        assert old in text, text[:4000]
        return text.replace(old, new.replace("X", str(exported.parent / CANARY))).encode()

    rewrite(exported, change)
    golden(refusal(exported))


def test_an_operator_outside_the_list_runs_with_trust(exported: Path, golden: Golden) -> None:
    def change(name: str, content: bytes) -> bytes:
        return (
            content.replace(RELU.encode(), b"torch.ops.aten._print.default")
            if name.endswith("models/model.json")
            else content
        )

    rewrite(exported, change)
    golden(refusal(exported))
    assert "calls" not in refusal(exported, trust=True)


@pytest.mark.parametrize(
    "expression",
    [
        *(
            "__import__('os')",
            "s0.__class__",
            "(lambda: 1)()",
            "exec('x1')",
            "Symbol('a b')",
            "f'{s0}'",
            "s0; s1",
            "",
        ),
        *("9**9**9**9", "Pow(Integer(9), Integer(9))", "'s0'*999999999", "1 << 99999999"),
        *("1" * 100_000, "Integer(9" * 20_000),
    ],
)
def test_other_size_expressions_are_refused(expression: str, golden: Golden) -> None:
    with pytest.raises(ModelError) as caught:
        check_graph({"as_expr": {"expr_str": expression}}, "net.pt2")
    golden(caught.value)


def test_guards_are_never_compiled(exported: Path) -> None:
    def change(name: str, content: bytes) -> bytes:
        if not name.endswith("models/model.json"):
            return content
        program = json.loads(content)
        program["guards_code"] = [f"__import__('os').mkdir({str(exported.parent / CANARY)!r})"]
        return json.dumps(program).encode()

    rewrite(exported, change)
    assert load(exported)(pixels()).shape == (5, 3)


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("name", ["{}", "{}\0", "UPPER"])
def test_a_member_that_is_there_twice(tmp_path: Path, first: bool, name: str) -> None:
    """Whichever of the two torch loads is the one that is looked at."""
    path = script(tmp_path, small_net())
    with zipfile.ZipFile(path) as archive:
        members = [(member, archive.read(member)) for member in archive.namelist()]
    code = next(member for member, _ in members if member.endswith(".py"))
    harmful = dict(members)[code].replace(
        b"def forward(", WRITES.format(tmp_path / CANARY).encode() + b"  def forward(", 1
    )
    other = code.upper() if name == "UPPER" else name.format(code)
    with warnings.catch_warnings(), zipfile.ZipFile(path, "w") as archive:
        warnings.simplefilter("ignore")  # of the name that is there twice
        for member, content in members:
            both = [(member, content), (other, harmful)] if member == code else [(member, content)]
            for one in both[:: 1 if first else -1]:
                archive.writestr(*one)
    try:
        load(path)(pixels())
    except ModelError as error:
        either = "its code is not what torch.jit.save writes|zip archive"
        assert re.search(either, str(error))  # noqa: PT017  either is right


WRITES = "def other(self, x: Tensor) -> Tensor:\n    torch.save(x, '{}')\n    return x\n"


def test_two_directories(tmp_path: Path, golden: Golden) -> None:
    """Python and torch find the zip64 record of an archive in different ways: what torch would load
    is what is looked at."""
    content = script(tmp_path, small_net()).read_bytes()
    record = content[-98:-42]
    locator = content[-42:-22]
    last = content[-22:]
    assert (record[:4], locator[:4]) == (b"PK\6\6", b"PK\6\7")
    begin = int.from_bytes(record[-8:], "little")
    shifted = record[:-8] + (begin + len(record)).to_bytes(8, "little")
    elsewhere = locator[:8] + begin.to_bytes(8, "little") + locator[16:]
    (tmp_path / "net.pt").write_bytes(
        content[:begin] + record + content[begin:-98] + shifted + elsewhere + last
    )
    golden(refusal(tmp_path / "net.pt"))


def test_a_tensor_that_reaches_beyond_its_record(tmp_path: Path, golden: Golden) -> None:
    path = script(tmp_path, small_net())
    rewrite(
        path,
        lambda name, content: (
            content.replace(b"(K\x03K\x90t", b"(K\x04K\x90t")
            if name.endswith("/data.pkl")
            else content
        ),
    )
    golden(refusal(path))


@pytest.mark.parametrize(
    "save",
    [script, lambda folder, net: torch.save(net.state_dict(), folder / "net.pt")],
    ids=["graph", "weights"],
)
def test_a_flipped_bit_of_a_weight_is_noticed(
    save: Callable[[Path, nn.Module], object], tmp_path: Path, golden: Golden
) -> None:
    """It would silently give another network."""
    save(tmp_path, net := small_net())
    content = bytearray((tmp_path / "net.pt").read_bytes())
    content[content.index(net.get_parameter("3.bias").detach().numpy().tobytes())] ^= 1
    (tmp_path / "net.pt").write_bytes(content)
    golden(refusal(tmp_path / "net.pt"))


# --- a graph computes, and does nothing else: every operator is on one list, wherever it is and
# whenever it runs


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


@pytest.mark.parametrize("kind", [_Reads, _Inside, _Never, _Forks, _State])
def test_torchscript_that_does_more_than_compute(
    kind: Callable[[], nn.Module], tmp_path: Path, capfd: pytest.CaptureFixture[str], golden: Golden
) -> None:
    path = script(tmp_path, kind())
    said = refusal(path)
    golden(said)
    assert capfd.readouterr() == ("", "")
    load(path, trust=True)


def test_objects_of_a_librarys_classes(tmp_path: Path, golden: Golden) -> None:
    path = script(tmp_path, _Flat())
    with zipfile.ZipFile(path) as archive:
        (pickled,) = (
            archive.read(name) for name in archive.namelist() if name.endswith("/data.pkl")
        )
    kind = pickled[pickled.index(b"c__torch__") :].split(b"\n")[:2]  # of the network
    other = b"c__torch__.torch\nclasses.rnn.Cell"
    rewrite(
        path,
        lambda name, content: (
            content.replace(b"\n".join(kind), other) if name.endswith("/data.pkl") else content
        ),
    )
    golden(refusal(path))


def test_operators_that_networks_use() -> None:
    listed = {name for space, name in allowed("torch") if space == "aten"}
    for name in ("_convolution", "_log_softmax", "linear", "max_pool2d", "__getitem__"):
        assert name in listed
    for name in (
        "_reshape_alias",
        "_copy_from",
        "_print",
        "from_file",
        "save",
        "lstm",
        "_weight_norm",
        "segment_reduce",
    ):
        assert name not in listed
