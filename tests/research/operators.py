"""The list of operators that a model file may use without ``--trust``, made from ordinary networks.

``python -m tests.research.operators`` builds image classifiers of torchvision, timm and
Transformers and layers of torch.nn with random weights, writes each as TorchScript (traced and
scripted) and .pt2, the smallest of each family as .pt2 in core operators and as ONNX and some as
quantised ONNX, collects the operators that the files use, and writes
``robaudit/models/operators.yaml``. It takes about an hour on two cores and needs the package
onnxscript. What is collected of a network is kept in ``--cache``, so that the command can be
interrupted; ``--only NAME ...`` adds to the list what these networks use.
"""

from __future__ import annotations

import argparse
import io
import json
import tempfile
import warnings
import zipfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import torch
import yaml
from torch import nn

from robaudit.models import exported, onnx_file, operators, torchscript
from robaudit.models.operators import LIST, Operator
from robaudit.models.safety import reader_of
from robaudit.models.transformers_model import Logits

Network = tuple[nn.Module, torch.Tensor]
Collected = dict[str, set[Operator]]
"""Operators by part of the list."""

EACH = 3
"""How many networks of each family of timm are taken: its smallest, since depth adds no
operators."""
_UNCHECKED = "takes sizes from its arguments without a check, and reaches other memory"
NEVER = {
    ("prim", "Print"): "writes text of the file to standard output",
    ("aten", "manual_seed"): "changes the noise of the audit",
    ("", "Loop"): "may never end, and no export of a classifier has it",
    **{
        ("aten", f"_native_batch_norm_legit{kind}"): _UNCHECKED
        for kind in ("", "_functional", "_no_training")
    },
    **{
        ("aten", f"_upsample_{kind}2d_aa"): _UNCHECKED
        for kind in ("bicubic", "bilinear", "lanczos")
    },
    **{("aten", name): _UNCHECKED for name in ("_weight_norm", "_weight_norm_interface")},
    **{
        ("aten", name): _UNCHECKED
        for name in ("_native_multi_head_attention", "_transformer_encoder_layer_fwd")
    },
    **{("aten", name): _UNCHECKED for name in ("lstm", "gru", "rnn_relu", "rnn_tanh")},
    ("aten", "as_strided"): "chooses elements of a storage by number",
    ("aten", "set_"): "replaces the storage of a tensor",
}
"""Operators that are left out although a network may use them, with the reason."""

ALSO: Collected = {
    "torch": set(),
    "onnx": {
        # The same layers in files of other exporters (Keras, PaddlePaddle, older versions of
        # torch).
        *(
            ("", name)
            for name in ("Dropout", "GlobalMaxPool", "LRN", "LpNormalization", "LpPool", "Mean")
        ),
        *(
            ("", name)
            for name in ("MeanVarianceNormalization", "ReduceL1", "ReduceLogSum", "ReduceSumSquare")
        ),
        *(
            ("", name)
            for name in ("Size", "Softsign", "SpaceToDepth", "Sum", "ThresholdedRelu", "Upsample")
        ),
        # Labels and maps beside the scores: a look-up in a table of the file.
        *(("ai.onnx.ml", name) for name in ("LabelEncoder", "ZipMap")),
    },
}
"""What the networks here do not use, and other ordinary ones do."""

HEAD = """\
# Operators that a model file may use without --trust: what ordinary image classifiers use.
# Made by `python -m tests.research.operators`. An operator that is missing here needs --trust.
#
# torch: TorchScript and .pt2, by namespace. "python": functions of TorchScript's source;
#        "*": methods and properties of tensors and lists, whose namespace depends on their type.
# onnx: by domain; "" is ONNX's own.
"""


def torchscript_operators(network: Any) -> set[Operator]:
    """The operators of a scripted or traced network, as its file has them."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "net.pt"
        torch.jit.save(network, path)
        used = set(torchscript.source_of(reader_of(path), str(path)).outside())
        unit: Any = torch._C.CompilationUnit()
        torch._C.import_ir_module(unit, str(path), torch.device("cpu"), {}, False)  # type: ignore[call-arg]
        return used | set(torchscript.graph_operators(unit))


def traced(network: nn.Module, images: torch.Tensor) -> Collected:
    """Of TorchScript by tracing."""
    with torch.no_grad():
        return {"torch": torchscript_operators(torch.jit.trace(network, images, check_trace=False))}


def scripted(network: nn.Module, images: torch.Tensor) -> Collected:
    """Of TorchScript by scripting."""
    return {"torch": torchscript_operators(torch.jit.script(network))}


def pt2(network: nn.Module, images: torch.Tensor) -> Collected:
    """Of torch.export, with a free batch size where the network allows it."""
    return _saved(_program(network, images))


def decomposed(network: nn.Module, images: torch.Tensor) -> Collected:
    """Of torch.export after ``run_decompositions``, in torch's core operators."""
    return _saved(_program(network, images).run_decompositions())


def training(network: nn.Module, images: torch.Tensor) -> Collected:
    """Of networks exported in training mode, which are refused in words of their own."""
    program = _program(network.train(), images)
    return {"torch": _saved(program)["torch"] | _saved(program.run_decompositions())["torch"]}


def _saved(program: Any) -> Collected:
    stream = io.BytesIO()
    torch.export.save(program, stream)
    with zipfile.ZipFile(stream) as archive:
        graphs = [
            json.loads(archive.read(name)) for name in archive.namelist() if "/models/" in name
        ]
    return {"torch": {operator for graph in graphs for operator in exported.graph_operators(graph)}}


def _program(network: nn.Module, images: torch.Tensor) -> Any:
    try:
        batch = ({0: torch.export.Dim("batch")},)
        return torch.export.export(network, (images,), dynamic_shapes=batch)
    except Exception:  # noqa: BLE001  some networks fix the batch size
        return torch.export.export(network, (images,))


def onnx(network: nn.Module, images: torch.Tensor) -> Collected:
    """Of ONNX by torch's exporter."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "net.onnx"
        torch.onnx.export(_program(network, images), dynamo=True, verbose=False).save(path)  # type: ignore[union-attr]
        return {"onnx": set(onnx_file.read_contents(path).operators)}


def legacy_onnx(network: nn.Module, images: torch.Tensor) -> Collected:
    """Of ONNX by torch's old exporter, which goes through a trace."""
    with tempfile.TemporaryDirectory() as folder:
        path = _legacy(network, images, Path(folder))
        return {"onnx": set(onnx_file.read_contents(path).operators)}


def _legacy(network: nn.Module, images: torch.Tensor, folder: Path) -> Path:
    path = folder / "net.onnx"
    torch.onnx.export(network, (images,), path, dynamo=False, verbose=False, input_names=["x"])
    return path


def quantised(network: nn.Module, images: torch.Tensor) -> Collected:
    """Of ONNX quantised by onnxruntime: dynamically, and statically in both of its forms."""
    from onnxruntime import quantization as library

    class Reader(library.CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self.left = iter([{"x": images.numpy()}])

        def get_next(self) -> Any:
            return next(self.left, None)

    used = set[Operator]()
    with tempfile.TemporaryDirectory() as folder:
        path = _legacy(network, images, Path(folder))
        library.shape_inference.quant_pre_process(path, path, skip_symbolic_shape=True)
        result = path.with_name("quantised.onnx")
        library.quantize_dynamic(path, result)
        used |= set(onnx_file.read_contents(result).operators)
        for form in (library.QuantFormat.QDQ, library.QuantFormat.QOperator):
            library.quantize_static(path, result, Reader(), quant_format=form)
            used |= set(onnx_file.read_contents(result).operators)
    return {"onnx": used}


Form = Callable[[nn.Module, torch.Tensor], Collected]
TORCH: tuple[Form, ...] = (traced, scripted, pt2)
OF_FAMILY: tuple[Form, ...] = (decomposed, onnx, legacy_onnx)
ONNX_SAMPLE: tuple[Form, ...] = (legacy_onnx,)
"""What needs no package besides onnx."""
IN_TRAINING = ("layer:batch_norm", "layer:dropouts")
QUANTISED = (
    *("torchvision:resnet18", "torchvision:mobilenet_v2", "torchvision:mobilenet_v3_small"),
    *("torchvision:shufflenet_v2_x0_5", "torchvision:squeezenet1_1", "torchvision:densenet121"),
    *("timm:resnet26", "timm:vit_tiny_patch16_224", "timm:swin_tiny_patch4_window7_224"),
)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A network whose operators are collected.

    Attributes:
        name: library and name.
        build: makes it, with two images.
        family: networks of one family are built by the same code.
    """

    name: str
    build: Callable[[], Network]
    family: str


def torchvision_networks() -> Iterator[Candidate]:
    """All classifiers of torchvision."""
    from torchvision import models

    for name in models.list_models(module=models):
        module = models.get_model_builder(name).__module__
        yield Candidate(f"torchvision:{name}", partial(_torchvision, name), module)


def _torchvision(name: str) -> Network:
    from torchvision import models

    weights: Any = models.get_model_weights(name)
    side = weights.DEFAULT.transforms.keywords["crop_size"]
    options = {"init_weights": False} if name in ("googlenet", "inception_v3") else {}
    return models.get_model(name, weights=None, **options).eval(), torch.rand(2, 3, side, side)


def timm_networks() -> Iterator[Candidate]:
    """The smallest classifiers with published weights of each of timm's families."""
    import timm

    for family in sorted(timm.list_modules()):
        names = [name for name in timm.list_models(module=family) if timm.is_model_pretrained(name)]
        sizes = {name: size for name in names if (size := _size(name)) is not None}
        for name in sorted(sizes, key=sizes.__getitem__)[:EACH]:
            yield Candidate(f"timm:{name}", partial(_timm, name), family)


def _timm(name: str) -> Network:
    import timm

    network: Any = timm.create_model(name, exportable=True).eval()
    return network, torch.rand(2, *network.pretrained_cfg["input_size"])


def _size(name: str) -> int | None:
    """Number of weights; None for a network without a classifier, or that the meta device cannot
    hold."""
    import timm

    try:
        with torch.device("meta"):
            network = timm.create_model(name)
    except Exception:  # noqa: BLE001
        return None
    if not getattr(network, "num_classes", 0):
        return None
    return sum(parameter.numel() for parameter in network.parameters())


class Tokens(nn.Module):
    """A layer on the channels as tokens."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Apply it."""
        y: torch.Tensor = self.layer(x.flatten(2))
        return y


class Recurrent(Tokens):
    """A recurrent layer; its last state."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Apply it."""
        y: torch.Tensor = self.layer(x.flatten(2))[0]
        return y[:, -1]


class Attention(nn.Module):
    """Attention among the channels."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.MultiheadAttention(64, 2, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Apply it."""
        tokens = x.flatten(2)
        y: torch.Tensor = self.layer(tokens, tokens, tokens)[0]
        return y


class Pairs(Tokens):
    """A layer of two inputs."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Apply it."""
        y: torch.Tensor = self.layer(x.flatten(1), x.flatten(1))
        return y


class Functions(nn.Module):
    """Functions of numbers."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Apply them."""
        y = x.abs().clamp(0.1, 0.9) + x.exp() + x.log1p() + (x + 1).log() + (x + 1).rsqrt()
        y = y + x.sin() + x.cos() + x.tanh() + x.erf() + x.square() + x.reciprocal().sign()
        y = y + x.floor() + x.ceil() + x.round() + x.neg() + x.pow(3) + x.atan()
        y = y * torch.maximum(x, y) / (1.0 + torch.minimum(x, y).abs()) - torch.softmax(x, 1)
        y = y - x.mean((2, 3), keepdim=True) + x.std((2, 3), keepdim=True) + x.var(1, keepdim=True)
        y = (
            y
            + x.amax((2, 3), keepdim=True)
            + x.amin(1, keepdim=True)
            + x.logsumexp(1, keepdim=True)
        )
        y = y + x.cumsum(1) + x.max() + x.min() + x.sum(1, keepdim=True) + x.norm(2, 1, True)
        y = y + x.max(1, keepdim=True)[0] + x.min(1, keepdim=True)[0] + x.prod(1, keepdim=True)
        return torch.lerp(y, x, 0.5) + torch.addcmul(x, x, y)


class Gates(nn.Module):
    """Comparisons, choices and indices."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Apply them."""
        mask = (x > 0.5) & (x <= 0.9) | (x < 0.1) & ~(x == 0.0) ^ (x >= 0.99) | (x != x)
        y = torch.where(mask, x, 1.0 - x).masked_fill(mask, 0.0)
        y = (
            y.sort(1)[0]
            + y.topk(4, 1)[0]
            + y.gather(1, x.argsort(1))
            + y.index_select(1, x.new_zeros(4).long())
        )
        one_hot = nn.functional.one_hot(y.argmax(1), 4).permute(0, 3, 1, 2).to(x.dtype)
        z = torch.zeros_like(x) + torch.ones_like(x) + torch.full_like(x, 2.0) + one_hot
        z = z + y.logical_not().float() + torch.arange(8, device=x.device) + x.isnan().to(x.dtype)
        return z + x.triu() + x.tril() + torch.eye(8, device=x.device) + x.argmin(1, keepdim=True)


class Shapes(nn.Module):
    """Reshapes, products and joins."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1, 4, 1, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Apply them."""
        a, b = x.chunk(2, 1)
        y = torch.cat([b, a], 1) + torch.stack([x, x], 1).sum(1) + x.flip(3) + x.roll(1, 2)
        y = y + x.transpose(2, 3) @ x + torch.einsum("nchw,nchv->nchv", x, x) + x.movedim(1, 1)
        y = y * self.scale.expand_as(x) + x[:, :, ::2, 1::2].repeat(1, 1, 2, 2) + x.narrow(1, 0, 4)
        y = y + torch.bmm(x[:, 0], x[:, 1]).unsqueeze(1) + x.squeeze().reshape(x.shape)
        y = (
            y
            + nn.functional.normalize(x, dim=1)
            + nn.functional.cosine_similarity(x, y).unsqueeze(1)
        )
        y = (
            y
            + x.unbind(1)[0][:, None]
            + x.split(1, 1)[0]
            + x.swapaxes(2, 3)
            + x.view(x.size(0), 4, 8, 8)
        )
        z = torch.baddbmm(y[:, 0], y[:, 1], y[:, 2]).flatten(1)
        return torch.add(z, y[:, 3].contiguous().view(x.size(0), -1))


class Further(nn.Module):
    """Less usual functions."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Apply them."""
        y = x.atan2(x) + x.erfc() + (x + 1).log2() + x.trunc() + x.frac() + x.nan_to_num()
        y = y + torch.ones(8, device=x.device) + x.new_ones(8) + nn.functional.relu6(x)
        y = y + torch.logical_and(x > 0, x < 1).float() + torch.logical_or(x > 0, x < 1).float()
        y = y + x.isinf().float() + x.clamp_max(0.5) + x.median(1, keepdim=True)[0]
        y = y + torch.std_mean(x, 1, keepdim=True)[0] + torch.var_mean(x, 1, keepdim=True)[1]
        y = y + x.diagonal(0, 2, 3).unsqueeze(2) + x.rot90(1, [2, 3]) + x.broadcast_to(x.size())
        y = y + torch.hstack([x[:, :2], x[:, 2:]]) + x.flatten(0, 2).t().t().view_as(x)
        y = (
            y
            + torch.linalg.norm(x, dim=1, keepdim=True)
            + self.embedding(torch.arange(8, device=x.device))
        )
        y = (
            y
            + torch.zeros_like(x).scatter(1, x.argsort(1), x)
            + torch.outer(x[0, 0, 0], x[0, 0, 0])
        )
        y = y.clamp_(-9.0, 9.0).mul_(2.0).sub_(1.0).tanh_()
        y[:, :, 0] = 0.5
        y[:, :, x[0, 0, 0].argsort()] = 0.25
        return torch.add(
            y, nn.functional.max_pool1d(x.flatten(1, 2), 2).repeat_interleave(2, 2).view(x.size())
        )


class Warped(nn.Module):
    """Images sampled at the places of a grid, as in spatial transformers; patches taken apart and
    put together."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Apply them."""
        turn = torch.tensor([[0.0, -1.0, 0.0], [1.0, 0.0, 0.0]], device=x.device).expand(
            x.size(0), 2, 3
        )
        grid = nn.functional.affine_grid(turn, [x.size(0), 4, 8, 8], align_corners=False)
        y = nn.functional.grid_sample(x, grid, align_corners=False)
        return y + nn.functional.fold(nn.functional.unfold(x, 2, stride=2), 8, 2, stride=2)


LAYERS: dict[str, Callable[[], nn.Module]] = {
    "celu": nn.CELU,
    "elu": nn.ELU,
    "selu": nn.SELU,
    "gelu_tanh": partial(nn.GELU, "tanh"),
    "glu": partial(nn.GLU, 1),
    "hardshrink": nn.Hardshrink,
    "hardsigmoid": nn.Hardsigmoid,
    "hardswish": nn.Hardswish,
    "hardtanh": nn.Hardtanh,
    "leaky_relu": nn.LeakyReLU,
    "log_sigmoid": nn.LogSigmoid,
    "mish": nn.Mish,
    "prelu": nn.PReLU,
    "relu6": nn.ReLU6,
    "rrelu": nn.RReLU,
    "silu": nn.SiLU,
    "softplus": nn.Softplus,
    "softshrink": nn.Softshrink,
    "softsign": nn.Softsign,
    "tanhshrink": nn.Tanhshrink,
    "threshold": partial(nn.Threshold, 0.1, 0.0),
    "softmax": partial(nn.Softmax, 1),
    "softmin": partial(nn.Softmin, 1),
    "log_softmax": partial(nn.LogSoftmax, 1),
    "batch_norm": partial(nn.BatchNorm2d, 4),
    "group_norm": partial(nn.GroupNorm, 2, 4),
    "instance_norm": partial(nn.InstanceNorm2d, 4, affine=True),
    "instance_norm_tracked": partial(nn.InstanceNorm2d, 4, track_running_stats=True),
    "layer_norm": partial(nn.LayerNorm, (4, 8, 8)),
    "local_response_norm": partial(nn.LocalResponseNorm, 2),
    "rms_norm": partial(nn.RMSNorm, (4, 8, 8)),
    "conv_grouped": partial(nn.Conv2d, 4, 4, 3, groups=2, dilation=2),
    "conv_same": partial(nn.Conv2d, 4, 4, 3, padding="same"),
    "conv_reflect": partial(nn.Conv2d, 4, 4, 3, padding=1, padding_mode="reflect"),
    "conv_circular": partial(nn.Conv2d, 4, 4, 3, padding=1, padding_mode="circular"),
    "conv_transpose": partial(nn.ConvTranspose2d, 4, 4, 3),
    "max_pool": partial(nn.MaxPool2d, 2, ceil_mode=True),
    "avg_pool": partial(nn.AvgPool2d, 2, count_include_pad=False),
    "lp_pool": partial(nn.LPPool2d, 2, 2),
    "adaptive_max_pool": partial(nn.AdaptiveMaxPool2d, 4),
    "adaptive_avg_pool": partial(nn.AdaptiveAvgPool2d, (4, 2)),
    "zero_pad": partial(nn.ZeroPad2d, 1),
    "reflection_pad": partial(nn.ReflectionPad2d, 1),
    "replication_pad": partial(nn.ReplicationPad2d, 1),
    "circular_pad": partial(nn.CircularPad2d, 1),
    "constant_pad": partial(nn.ConstantPad2d, 1, 0.5),
    "pixel_shuffle": partial(nn.PixelShuffle, 2),
    "pixel_unshuffle": partial(nn.PixelUnshuffle, 2),
    "channel_shuffle": partial(nn.ChannelShuffle, 2),
    "upsample_nearest": partial(nn.Upsample, scale_factor=2),
    "upsample_bilinear": partial(nn.Upsample, scale_factor=2, mode="bilinear"),
    "upsample_bicubic": partial(nn.Upsample, scale_factor=2, mode="bicubic"),
    "dropouts": lambda: nn.Sequential(nn.Dropout(), nn.Dropout2d(), nn.AlphaDropout()),
    "unfold": partial(nn.Unfold, 3),
    "weight_norm": lambda: nn.utils.parametrizations.weight_norm(nn.Conv2d(4, 4, 3)),
    "spectral_norm": lambda: nn.utils.parametrizations.spectral_norm(nn.Conv2d(4, 4, 3)),
    "lstm": lambda: Recurrent(nn.LSTM(64, 8, batch_first=True)),
    "gru": lambda: Recurrent(nn.GRU(64, 8, batch_first=True)),
    "rnn": lambda: Recurrent(nn.RNN(64, 8, batch_first=True)),
    "attention": Attention,
    "transformer": lambda: Tokens(nn.TransformerEncoderLayer(64, 2, 32, batch_first=True)),
    "bilinear": lambda: Pairs(nn.Bilinear(4 * 64, 4 * 64, 8)),
    "functions": Functions,
    "further": Further,
    "gates": Gates,
    "shapes": Shapes,
    "softmax_scripted": lambda: nn.Sequential(
        nn.Softmax(1), nn.LogSoftmax(1), nn.InstanceNorm2d(4)
    ),
    "warped": Warped,
}
"""Layers of torch.nn and functions of tensors that networks of one's own are made of, by name; they
take images 4 x 8 x 8."""


def layers() -> Iterator[Candidate]:
    """A small network for each layer."""
    for name in LAYERS:
        yield Candidate(f"layer:{name}", partial(_layer, name), f"layer:{name}")


def _layer(name: str) -> Network:
    return nn.Sequential(LAYERS[name](), nn.Flatten()).eval(), torch.rand(2, 4, 8, 8)


TRANSFORMERS = (
    "vit",
    "deit",
    "beit",
    "swin",
    "swinv2",
    "convnext",
    "convnextv2",
    "resnet",
    "regnet",
)
"""Types of models of Transformers."""


def transformers_networks() -> Iterator[Candidate]:
    """Some image classifiers of Transformers, in their usual sizes."""
    for kind in TRANSFORMERS:
        yield Candidate(f"transformers:{kind}", partial(_transformers, kind), kind)


def _transformers(kind: str) -> Network:
    import transformers

    config = transformers.AutoConfig.for_model(kind)
    library: Any = transformers.AutoModelForImageClassification
    network = library.from_config(config)
    return Logits(network).eval(), torch.rand(2, 3, 224, 224)


def networks() -> Iterator[tuple[Candidate, tuple[Form, ...]]]:
    """All networks, and the forms in which each is written."""
    families = set[str]()
    for candidate in chain(
        layers(), torchvision_networks(), transformers_networks(), timm_networks()
    ):
        forms = TORCH
        if candidate.name in IN_TRAINING:
            forms += (training,)
        if candidate.family not in families:
            forms += OF_FAMILY
        if candidate.name in QUANTISED:
            forms += (quantised,)
        families.add(candidate.family)
        yield candidate, forms


def collect(
    build: Callable[[], Network], forms: Iterable[Form]
) -> tuple[Collected, dict[str, str]]:
    """What a network uses in these forms, and why a form was not possible."""
    used: Collected = {"torch": set(), "onnx": set()}
    failed = dict[str, str]()
    for form in forms:
        try:
            network, images = build()  # anew, since an export may change it
            for part, found in form(network, images).items():
                used[part] |= found
        except Exception as error:  # noqa: BLE001  not every network can be written in every form
            failed[form.__name__] = f"{type(error).__name__}: {error}"[:200]
    return used, failed


def as_document(used: Collected) -> dict[str, dict[str, list[str]]]:
    """The operators by part and namespace, without those that are never listed."""
    document: dict[str, dict[str, list[str]]] = {}
    for part, found in used.items():
        spaces = document.setdefault(part, {})
        for space, name in sorted((found | ALSO[part]) - NEVER.keys()):
            spaces.setdefault(space, []).append(name)
    return document


def write(used: Collected) -> None:
    """Write the list."""
    text = yaml.safe_dump(as_document(used), sort_keys=True, width=100, default_flow_style=False)
    LIST.write_text(f"{HEAD}\n{text}")


def main() -> None:
    """Collect from all networks, or from those named, and write the list."""
    parser = argparse.ArgumentParser(prog="python -m tests.research.operators", description=__doc__)
    parser.add_argument("--only", nargs="+", default=(), help="add what these networks use")
    parser.add_argument(
        "--cache", type=Path, help="folder where the operators of each network are kept"
    )
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    total: Collected = {"torch": set(), "onnx": set()}
    if given.only:
        total = {part: set(operators.allowed(part)) for part in ("torch", "onnx")}
    for candidate, forms in networks():
        name = candidate.name
        if given.only and name not in given.only:
            continue
        kept = None if given.cache is None else given.cache / f"{name.replace(':', '-')}.json"
        if kept is None or not kept.exists():
            used, failed = collect(candidate.build, forms)
            if kept is not None:
                lists = {part: sorted(found) for part, found in used.items()}
                kept.write_text(json.dumps({"used": lists, "failed": failed}))
        else:
            stored = json.loads(kept.read_text())
            used = {part: set(map(tuple, found)) for part, found in stored["used"].items()}
            failed = stored["failed"]
        new = {operator for part, found in used.items() for operator in found - total[part]}
        for part, found in used.items():
            total[part] |= found
        print(f"{name}: new {sorted(new)}, not written {failed}", flush=True)
    write(total)


if __name__ == "__main__":
    main()
