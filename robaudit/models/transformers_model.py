"""Image classifiers of Transformers, from the config.json beside the weights.

The library translates the keys of the weights.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from robaudit.errors import ModelError, did_you_mean, needs_extra
from robaudit.models.formats import Source
from robaudit.models.model_files import CONFIG, read_object
from robaudit.models.size import build_on_trial
from robaudit.settings import TRUST
from robaudit.text import clipped, count, first_line

TRANSFORMERS = "transformers:"
"""The prefix of names of its classes."""
_COUNTER = "num_batches_tracked"
"""The end of the names of batch norms' counters, which old files lack and evaluation ignores."""
_IGNORED = frozenset(
    (
        # The audit sets the number format.
        "dtype",
        "torch_dtype",
        "quantization_config",
        # These could fetch code.
        "auto_map",
        "attn_implementation",
        "experts_implementation",
        "use_kernels",
        # These could fetch weights.
        "backbone",
        "backbone_config",
        "backbone_kwargs",
        "use_timm_backbone",
        "use_pretrained_backbone",
    )
)
"""Entries of config.json that are ignored."""
_MODEL_TYPES = frozenset(
    (
        "beit",
        "bit",
        "clip",
        "convnext",
        "convnextv2",
        "cvt",
        "data2vec-vision",
        "deit",
        "dinat",
        "dinov2",
        "dinov2_with_registers",
        "donut-swin",
        "efficientnet",
        "focalnet",
        "hgnet_v2",
        "hiera",
        "ijepa",
        "imagegpt",
        "levit",
        "metaclip_2",
        "mobilenet_v1",
        "mobilenet_v2",
        "mobilevit",
        "mobilevitv2",
        "nat",
        "perceiver",
        "poolformer",
        "pp_lcnet",
        "pvt",
        "pvt_v2",
        "regnet",
        "resnet",
        "segformer",
        "siglip",
        "siglip2",
        "swiftformer",
        "swin",
        "swinv2",
        "textnet",
        "van",
        "vit",
        "vit_hybrid",
        "vit_msn",
    )
)
"""Types of image classifiers that Transformers builds from their configuration alone. Others
(``timm_wrapper``) pass on options that name files."""


class Logits(nn.Module):
    """A network of Transformers as a function from normalised images to logits."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Logits (n, classes) of images (n, channels, height, width)."""
        logits: torch.Tensor = self.network(pixel_values=images, return_dict=True).logits
        return logits


def config_of(source: Source) -> Path:
    """The config.json next to the weights."""
    return source.file.parent / CONFIG


def build_transformers(source: Source, tensors: Mapping[str, torch.Tensor]) -> nn.Module:
    """The image classifier of a config.json with the weights next to it, in eval mode.

    No code comes from the folder, and nothing is looked up on the Hub. The library translates
    tensor names that changed between its versions.

    Args:
        source: names the weights file and the class.
        tensors: the weights, already read.

    Raises:
        RobauditError: Transformers is not installed, knows no such class, or the weights do not
            fit.
    """
    where = f"architecture {source.spec.architecture}"
    path = config_of(source)
    if not path.is_file():
        raise ModelError(
            where,
            f"needs the {CONFIG} of the model beside its weights",
            "give the folder that save_pretrained wrote",
        )
    try:
        transformers: Any = importlib.import_module("transformers")
    except ImportError as error:
        raise needs_extra(where, "transformers", "hf") from error

    wanted = (source.spec.architecture or "").partition(":")[2]
    values = _architecture_only(read_object(path))
    refuse_unlisted(values, path)
    # An audit starts from float32, also if the file has another type.
    state = {
        key: tensor.float() if tensor.is_floating_point() else tensor
        for key, tensor in tensors.items()
    }
    # Building a network draws random weights, from a state that the audit must not change.
    with quiet(transformers), torch.random.fork_rng(devices=[]):
        build = partial(_config_and_class, transformers, values)
        try:
            config, kind = build_on_trial(tensors, source.where, wanted, values, build)
        except ModelError:
            raise
        except Exception as error:
            what = (
                f"is of a model that Transformers {transformers.__version__} does not build "
                f"({first_line(error)})"
            )
            raise ModelError(
                str(path),
                what,
                "use the version that saved it; code that a folder brings along never runs",
            ) from error
        if kind.__name__ != wanted:
            raise ModelError(
                where, f"{path} describes a {kind.__name__}", did_you_mean(wanted, [kind.__name__])
            )
        # Tensors of other shapes are reported, and refused below with the names of all of them.
        try:
            network, report = kind.from_pretrained(
                None,
                config=config,
                state_dict=state,
                output_loading_info=True,
                ignore_mismatched_sizes=True,
            )
        except Exception as error:
            raise ModelError(
                source.where,
                f"Transformers cannot load it ({first_line(error)})",
                "save the model again",
            ) from error
    _check(report, source.where)
    return Logits(network.eval())


def refuse_unlisted(config: Mapping[str, Any], path: Path) -> None:
    """Refuse a type of model whose configuration might name files.

    Args:
        config: the content of config.json.
        path: of it, for messages.

    Raises:
        ModelError: the type is not on the list.
    """
    model_type = str(config.get("model_type"))
    if model_type in _MODEL_TYPES:
        return
    what = (
        f"its model_type {clipped(model_type, 60)!r} is not on the list of image classifiers "
        "that are built from a folder"
    )
    remedy = (
        "correct it, or load the network with your own function (format: python and "
        + TRUST
        + "); code that a folder brings along never runs"
    )
    raise ModelError(str(path), what, remedy)


def _config_and_class(transformers: Any, values: dict[str, Any]) -> tuple[Any, Any]:
    """The configuration, and the class of the network that the library builds from it."""
    config_class = type(transformers.AutoConfig.for_model(str(values.get("model_type"))))
    config = config_class.from_dict(values)
    auto = transformers.AutoModelForImageClassification
    network = auto.from_config(config, trust_remote_code=False)
    return config, type(network)


def _check(report: Mapping[str, Any], where: str) -> None:
    """Refuse weights if the library left any out or initialised any at random."""
    missing = sorted(key for key in report["missing_keys"] if not key.endswith(_COUNTER))
    # Entries are names, or tuples of a name and both shapes.
    entries = report["mismatched_keys"]
    mismatched = sorted(str(entry[0] if isinstance(entry, tuple) else entry) for entry in entries)
    unexpected = sorted(report["unexpected_keys"])
    complaints = (
        (missing, "of the network is missing", "of the network are missing"),
        (
            mismatched,
            "has another shape than the network's",
            "have another shape than the network's",
        ),
        (unexpected, "is not the network's", "are not the network's"),
    )
    for keys, of_one_tensor, of_several in complaints:
        if keys:
            listed = ", ".join(keys[:3])
            if len(keys) > 3:
                listed += ", ..."
            listed = clipped(listed, 300)  # keys of a stranger's file have any length
            what = of_several if len(keys) > 1 else of_one_tensor
            raise ModelError(
                where,
                f"{count(len(keys), 'tensor')} {what} ({listed})",
                f"weights and {CONFIG} must be of the same model",
            )


def _architecture_only(values: Any) -> Any:
    """The entries that describe the network, at every depth."""
    if isinstance(values, list):
        return [_architecture_only(value) for value in values]
    if not isinstance(values, dict):
        return values
    # Names with an underscore are the library's own, such as the place from which it loaded.
    return {
        key: _architecture_only(value)
        for key, value in values.items()
        if key not in _IGNORED and not key.startswith("_")
    }


@contextmanager
def quiet(transformers: Any) -> Iterator[None]:
    """Keep the library from printing, and from requests to the Hub."""
    log = transformers.utils.logging
    hub = importlib.import_module("huggingface_hub").constants
    level = log.get_verbosity()
    bars = log.is_progress_bar_enabled()
    offline = hub.HF_HUB_OFFLINE
    log.set_verbosity(log.CRITICAL)
    log.disable_progress_bar()
    hub.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        hub.HF_HUB_OFFLINE = offline
        log.set_verbosity(level)
        if bars:
            log.enable_progress_bar()
