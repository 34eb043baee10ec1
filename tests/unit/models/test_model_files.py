"""Every mistake with a weights file is one line that says what would be right."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from torchvision.models import regnet_y_400mf

from robaudit.errors import ModelError
from robaudit.models.architectures import ShallowCnn, small_cnn
from tests.golden import Golden
from tests.unit.models.conftest import load, one_line, pixels, refusal, small_net

SMALL: dict[str, Any] = {
    "architecture": "robaudit:small_cnn",
    "architecture_options": {
        "image_size": 8,
        "kernel": 3,
        "stride": 1,
        "channels": [2, 3],
        "hidden": 5,
        "num_classes": 4,
    },
}


def small_state() -> dict[str, torch.Tensor]:
    return small_cnn(**SMALL["architecture_options"]).state_dict()


def saved(folder: Path, state: dict[str, torch.Tensor]) -> Path:
    save_file(state, folder / "net.safetensors")
    return folder / "net.safetensors"


def script(folder: Path, net: nn.Module, name: str = "net.pt") -> Path:
    """Save a scripted module; newer versions of torch warn that they would rather not."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.save(torch.jit.script(net), folder / name)
    return folder / name


def test_missing_directory_empty_and_unknown(tmp_path: Path, golden: Golden) -> None:
    saved(tmp_path, small_state())
    golden(refusal(tmp_path / "met.safetensors"))
    golden(refusal(tmp_path / "nowhere" / "net.pt"))
    golden(refusal(tmp_path))
    (tmp_path / "empty.pt").touch()
    golden(refusal(tmp_path / "empty.pt"))
    (tmp_path / "net.bin").write_bytes(b"nonsense" * 9)
    golden(refusal(tmp_path / "net.bin"))
    (tmp_path / "lfs.pt").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:00\n")
    golden(refusal(tmp_path / "lfs.pt"))
    golden(refusal(None, architecture="robaudit:mlp"))


def test_a_header_length_that_looks_like_a_pickle(tmp_path: Path) -> None:
    path = saved(tmp_path, {"1.weight": torch.ones(3, 64), "1.bias": torch.zeros(3)})
    assert path.read_bytes()[0] == 0x80
    assert (
        load(path, architecture="robaudit:mlp", architecture_options={"sizes": [64, 3]}).format
        == "safetensors"
    )


def test_declared_format_is_not_the_files(tmp_path: Path, golden: Golden) -> None:
    path = script(tmp_path, small_net())
    golden(refusal(path, format="pt2"))
    path = saved(tmp_path, small_state())
    golden(refusal(path, format="onnx"))
    assert load(path, format="safetensors", **SMALL).format == "safetensors"
    renamed = path.rename(tmp_path / "net.weights")
    assert load(renamed, **SMALL).format == "safetensors"


def test_state_dict_must_fit(tmp_path: Path, golden: Golden) -> None:
    golden(refusal(saved(tmp_path, small_state())))
    said = refusal(tmp_path / "net.safetensors", architecture="robaudit:smal_cnn")
    golden(said)
    for change in ({"num_classes": 7}, {"channels": [2, 4]}):
        options = SMALL["architecture_options"] | change
        said = refusal(
            tmp_path / "net.safetensors",
            architecture=SMALL["architecture"],
            architecture_options=options,
        )
        golden(said)
        assert ("num_classes" in said) == ("num_classes" in change)
    state = small_state()
    state["8.weight"] = state.pop("0.weight")
    said = refusal(saved(tmp_path, state), **SMALL)
    golden(said)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_must_be_numbers(tmp_path: Path, value: float, golden: Golden) -> None:
    state = small_state()
    state["5.bias"][0] = value
    golden(refusal(saved(tmp_path, state), **SMALL))
    net = small_net()
    with torch.no_grad():
        net.get_parameter("3.bias")[0] = value
    golden(refusal(script(tmp_path, net)))


@pytest.mark.parametrize("zipped", [True, False])
def test_state_dict_of_torch_save(tmp_path: Path, zipped: bool) -> None:
    path = tmp_path / "net.pth"
    torch.save(small_state(), path, _use_new_zipfile_serialization=zipped)
    model = load(path, **SMALL)
    assert model.format == "state dict"
    assert model(pixels()).shape == (5, 4)


def test_a_link_and_a_file_without_checksums(tmp_path: Path) -> None:
    torch.serialization.set_crc32_options(False)
    try:
        torch.save(small_state(), tmp_path / "net.pth")
    finally:
        torch.serialization.set_crc32_options(True)
    (tmp_path / "link.pt").symlink_to("net.pth")
    assert load(tmp_path / "link.pt", **SMALL).format == "state dict"


def test_old_state_dicts_without_batch_counters(tmp_path: Path) -> None:
    state = {
        key: tensor
        for key, tensor in ShallowCnn(image_size=8).state_dict().items()
        if "num_batches" not in key
    }
    assert load(
        saved(tmp_path, state),
        architecture="robaudit:shallow_cnn",
        architecture_options={"image_size": 8},
    )(pixels()).shape == (
        5,
        10,
    )


class Stacked(nn.Module):
    def forward(self, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        return (first + second).flatten(1)


def test_graphs_with_two_inputs(tmp_path: Path, golden: Golden) -> None:
    torch.export.save(torch.export.export(Stacked(), (pixels(2), pixels(2))), tmp_path / "net.pt2")
    golden(refusal(tmp_path / "net.pt2"))
    with pytest.raises(ModelError) as caught:
        load(script(tmp_path, Stacked()))(pixels(2))
    golden(caught.value)
    assert one_line(caught.value)


@pytest.mark.filterwarnings("ignore:.isinstance.treespec, LeafSpec:FutureWarning")  # of torch 2.10
@pytest.mark.parametrize(
    ("layers", "decomposed"),
    [([nn.BatchNorm2d(1), nn.Flatten()], True), ([nn.Flatten(), nn.Dropout()], False)],
)
def test_training_mode_graphs(
    tmp_path: Path, layers: list[nn.Module], decomposed: bool, golden: Golden
) -> None:
    """A script can still be switched to eval mode, an exported graph cannot."""
    net = nn.Sequential(*layers, nn.Linear(64, 3)).train()
    path = tmp_path / "net.pt2"
    program = torch.export.export(net, (pixels(2),))
    torch.export.save(program.run_decompositions() if decomposed else program, path)
    golden(refusal(path))
    assert torch.allclose(load(script(tmp_path, net))(pixels()), net.eval()(pixels()), atol=1e-6)


def test_fixed_batch_is_split_and_padded(tmp_path: Path) -> None:
    net = small_net()
    torch.export.save(torch.export.export(net, (pixels(4),)), tmp_path / "net.pt2")
    model = load(tmp_path / "net.pt2")
    assert (model.info.least_batch, model.info.most_batch) == (4, 4)
    assert any("fixed at 4" in note and "slow" in note for note in model.notes)
    for count in (1, 4, 11):
        assert torch.allclose(model(pixels(count)), net(pixels(count)), atol=1e-6)


class Mapping(nn.Module):
    def forward(self, images: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"logits": images.flatten(1).float(), "features": images}


def test_exported_mapping_and_fixed_precision(tmp_path: Path, golden: Golden) -> None:
    torch.export.save(torch.export.export(Mapping(), (pixels(2),)), tmp_path / "net.pt2")
    assert load(tmp_path / "net.pt2", output="logits")(pixels(2)).shape == (2, 64)
    with pytest.raises(ModelError) as caught:
        load(tmp_path / "net.pt2")(pixels(2))
    golden(caught.value)
    torch.export.save(
        torch.export.export(nn.Sequential(nn.Flatten(), ToFloat(), nn.Linear(64, 3)), (pixels(2),)),
        tmp_path / "net.pt2",
    )
    with pytest.raises(ModelError) as caught:
        load(tmp_path / "net.pt2", dtype=torch.float64)(pixels(2))
    golden(caught.value)
    assert one_line(caught.value)


class ToFloat(nn.Module):
    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return images.to(torch.float32)


def test_a_network_far_larger_than_its_weights_is_not_built(tmp_path: Path, golden: Golden) -> None:
    path = saved(tmp_path, ShallowCnn().state_dict())
    said = refusal(
        path, architecture="robaudit:cifar_resnet", architecture_options={"depth": 2_000_000}
    )
    golden(said)
    said = refusal(
        path, architecture="robaudit:cifar_resnet", architecture_options={"depth": 99_998}
    )
    golden(said)
    said = refusal(
        path, architecture="robaudit:mlp", architecture_options={"sizes": [64, 45_000, 45_000, 10]}
    )
    golden(said)


def test_a_builder_that_reads_values_of_tensors(tmp_path: Path, golden: Golden) -> None:
    """Torchvision's RegNet computes its widths with tensors, so it cannot be built on the meta
    device."""
    with torch.device("meta"), pytest.raises(NotImplementedError):
        regnet_y_400mf(weights=None)
    state = regnet_y_400mf(weights=None, num_classes=3).state_dict()
    fields: dict[str, Any] = {
        "architecture": "torchvision:regnet_y_400mf",
        "architecture_options": {"num_classes": 3},
    }
    found = load(saved(tmp_path, state), **fields).network.state_dict()
    assert all(torch.equal(found[key], state[key]) for key in state)
    golden(
        refusal(
            tmp_path / "net.safetensors",
            **fields | {"architecture_options": {"num_classes": 100_000}},
        )
    )
