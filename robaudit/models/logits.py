"""The model as a function from pixels to logits, and its precisions.

Pixels are clipped and normalised, the network runs, and its output is picked and checked.
"""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import wraps
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from torch import nn

from robaudit.errors import ModelError, did_you_mean
from robaudit.memory import is_out_of_memory
from robaudit.models.failures import REMEDIES, Cause, cause_text, known_cause
from robaudit.models.formats import LoadedNetwork, check_finite
from robaudit.numerics.margins import NEVER
from robaudit.spec.model import IN_MEMORY, Precision
from robaudit.text import count

T = TypeVar("T")
PIXELS = {
    "fp32": torch.float32,
    "tf32": torch.float32,
    "bf16": torch.float32,
    "fp64": torch.float64,
}
"""The dtype of pixels, clean passes and gradients by precision."""


def _exactly(in_memory: bool) -> str:
    """How to ask for full precision, in a spec or in Python."""
    return "use precision='fp32'" if in_memory else "use run.precision fp32"


def pick_output(
    returned: object,
    output: str | int | None,
    where: str,
    *,
    in_memory: bool = False,
) -> torch.Tensor:
    """The tensor that ``output`` names in a network's result.

    Args:
        returned: a tensor, or a mapping or sequence of tensors.
        output: key or index; not needed for a plain tensor (``logits`` is accepted), nor for a
            mapping that holds only logits.
        where: the model's name in messages.
        in_memory: whether messages name an argument in Python rather than a key of a spec.

    Raises:
        ModelError: a key or index is needed, does not exist, or names something other than a
            tensor.
    """
    option = "output" if in_memory else "model.output"
    if isinstance(returned, torch.Tensor):
        if output not in (None, "logits"):
            what = f"the network returns one tensor, but {option} asks for {output!r}"
            raise ModelError(where, what, f"remove {option}")
        return returned
    kind = type(returned).__name__
    if isinstance(returned, Mapping):
        names = [str(key) for key in returned]
        values = list(returned.values())
        described = f"a mapping with the keys {', '.join(names)}"
        wanted = "KEY"
    elif isinstance(returned, Sequence) and not isinstance(returned, str | bytes):
        names = list(getattr(returned, "_fields", ()))
        values = list(returned)
        described = f"a {kind} of {len(values)}" + (f" ({', '.join(names)})" if names else "")
        wanted = "INDEX, from 0"
    else:
        raise ModelError(
            where,
            f"the network returns {kind}, not a tensor",
            "it must return a tensor of logits (n, classes)",
        )
    # A mapping of logits alone leaves no choice; networks of Transformers may return one.
    if output is None and names == ["logits"]:
        output = "logits"
    if output is None:
        remedy = f"say which are the logits: {option}{'=' if in_memory else ': '}{wanted}"
        raise ModelError(where, f"the network returns {described}", remedy)
    index = names.index(output) if output in names else output
    if not isinstance(index, int) or not -len(values) <= index < len(values):
        remedy = f"give an index from 0 to {len(values) - 1}"
        if names:
            remedy = did_you_mean(str(output), names)
        raise ModelError(where, f"the network returns {described}, which has no {output!r}", remedy)
    picked = values[index]
    if not isinstance(picked, torch.Tensor):
        what = f"the network's output {output!r} is {type(picked).__name__}, not a tensor"
        raise ModelError(where, what, f"pick the logits with {option}")
    return picked


def as_logits(
    tensor: torch.Tensor,
    images: int,
    dtype: torch.dtype,
    where: str,
    *,
    in_memory: bool = False,
) -> torch.Tensor:
    """The tensor as logits (images, classes); one logit z becomes the two classes (0, z).

    Shapes (images, classes, 1) and (images, classes, 1, 1), as of a last convolution, are accepted.

    Args:
        tensor: the network's output.
        images: the number of images.
        dtype: of the logits.
        where: the model's name in messages.
        in_memory: whether messages name an argument in Python rather than a key of a spec.

    Raises:
        ModelError: the tensor has another shape, integers, or less than the requested precision.
    """
    shape = " x ".join(map(str, tensor.shape)) or "a single number"
    if not tensor.is_floating_point():
        raise ModelError(
            where,
            f"the network returns {str(tensor.dtype).removeprefix('torch.')}, not logits",
            "return the scores, not the class",
        )
    while tensor.dim() > 2 and tensor.shape[-1] == 1:
        tensor = tensor.squeeze(-1)
    one_row_an_image = tensor.dim() in (1, 2) and tensor.shape[0] == images
    if not one_row_an_image or tensor.shape[-1] == 0:
        remedy = "it must return logits of shape n x classes"
        if tensor.dim() == 4 and tensor.shape[0] == images:
            remedy += "; a map of scores (segmentation) cannot be audited"
        raise ModelError(where, f"the network returns shape {shape} for {images} images", remedy)
    # Results of a lower precision, cast to float64, would only look precise.
    if dtype is torch.float64 and tensor.dtype is not torch.float64:
        returned = str(tensor.dtype).removeprefix("torch.")
        what = f"the network returns {returned} although fp64 was requested"
        remedy = f"its code or graph fixes the precision: {_exactly(in_memory)}"
        if not in_memory:
            remedy += ", or load it from safetensors or an unfrozen TorchScript file"
        raise ModelError(where, what, remedy)
    logits = tensor.to(dtype)
    if logits.dim() == 1:
        logits = logits.unsqueeze(1)
    # sigmoid(z) is the softmax of (0, z): the same probabilities, and the same decision at z = 0.
    return F.pad(logits, (1, 0)) if logits.shape[1] == 1 else logits


def _without_masks(logits: torch.Tensor) -> torch.Tensor:
    """The logits (images, classes) with `NEVER` in place of minus infinity.

    Without gradients, an image whose classes are all masked keeps minus infinity: no class wins.
    """
    # A search makes many short passes, in which each operation costs a kernel: one is enough.
    if logits.requires_grad:
        return logits.clamp_min(NEVER)
    # Most networks mask no class. On CUDA, to ask would be to wait for the device.
    if logits.device.type == "cpu" and float(logits.amin()) > NEVER:
        return logits
    # The lower limit is the largest logit, if this is below NEVER: an image without any class.
    lowest = logits.amax(1, keepdim=True).clamp_max(NEVER)
    return torch.clamp(logits, min=lowest)


class ReversedChannels(nn.Module):
    """A network that takes blue, green, red, as a function of red, green, blue."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: torch.Tensor) -> Any:
        """The output for images (n, channels, height, width)."""
        return self.network(x.flip(1))


class LogitModel(nn.Module):
    """The function from pixels in [0, 1] to logits, ``network((clip(x) - mean) / std)``.

    It is always in eval mode, and its weights are fixed. It works under ``torch.inference_mode``
    and under autograd with respect to the pixels. A binary network with one logit z has the two
    classes (0, z).

    Args:
        loaded: the network and what is known about it; it is moved to ``device`` and ``dtype``.
        mean: per channel, or one number for all; none: 0.
        std: the same; none: 1.
        output: key or index of the logits if the network returns a mapping or a sequence.
        device: of the network.
        dtype: of the pixels and the logits, and of the network unless :meth:`compute_in` says
            otherwise.
        name: the model's name in messages.

    Raises:
        ModelError: a weight is NaN or infinite.

    Attributes:
        clip: whether the pixels are clipped to [0, 1] first: see :meth:`clipping`.
        rounds: whether the network's float32 products may be rounded on CUDA: see :meth:`rounding`.
        info: the `LoadedNetwork`.
        in_memory: whether it was an object of a Python program, whose messages name arguments.
        format, sha256, differentiable: from ``info``.
        memory_format: the fastest memory format for inputs.
        notes: lines for the user; may grow with the first call.
    """

    mean: torch.Tensor
    std: torch.Tensor

    def __init__(
        self,
        loaded: LoadedNetwork,
        *,
        mean: Sequence[float] = (),
        std: Sequence[float] = (),
        output: str | int | None = None,
        device: torch.device | None = None,
        dtype: torch.dtype = torch.float32,
        name: str = "model",
    ) -> None:
        super().__init__()
        self.info = loaded
        self.name = name
        self.output = loaded.output if output is None else output
        self.in_memory = loaded.format == IN_MEMORY
        self.format = loaded.format
        self.sha256 = loaded.sha256
        self.differentiable = loaded.differentiable
        self.clip = False
        self.rounds = False
        self.device = device or torch.device("cpu")
        self.dtype = dtype
        self._compute = dtype  # of the network
        self.notes = list(loaded.notes)
        self.network = loaded.network.to(device=self.device, dtype=dtype)
        check_finite(self.network, name)
        # Gradients are taken with respect to the pixels alone; those of the weights cost memory.
        for parameter in self.network.parameters():
            parameter.requires_grad_(False)
        self._normalises = bool(mean or std)
        for key, values, neutral in (("mean", mean, 0.0), ("std", std, 1.0)):
            tensor = torch.tensor(tuple(values) or (neutral,), device=self.device, dtype=dtype)
            self.register_buffer(key, tensor.reshape(1, -1, 1, 1), persistent=False)
        # Convolutions are faster in this format. Where the network does not work in it, `raw` falls
        # back to the usual one.
        self.memory_format = torch.contiguous_format
        if any(parameter.dim() == 4 for parameter in self.network.parameters()):
            self._lay_out(torch.channels_last)
        # The shapes of images (channels, height, width) that the network has taken.
        self._proven: set[torch.Size] = set()
        self.training = False

    def compute_in(self, dtype: torch.dtype) -> None:
        """Cast the network.

        Normalised pixels are cast for it, and its logits are cast back to :attr:`dtype`.
        """
        with torch.inference_mode(False), torch.no_grad():
            self.network.to(dtype=dtype)
        self._compute = dtype
        self._proven.clear()

    def clipping(self, clip: bool) -> LogitModel:
        """The same model, with or without clipping pixels to [0, 1] first.

        Everything else is shared.
        """
        if clip == self.clip:
            return self
        other = copy.copy(self)
        other.clip = clip
        return other

    def rounding(self, allowed: bool) -> LogitModel:
        """The same model, with or without rounding float32 products to TF32 on CUDA.

        Everything else is shared.
        """
        if allowed == self.rounds:
            return self
        other = copy.copy(self)
        other.rounds = allowed
        return other

    def with_network(
        self, network: nn.Module, memory_format: torch.memory_format, rows: int | None = None
    ) -> LogitModel:
        """The same model with another network of the same function.

        Args:
            network: on the model's device, in its dtype.
            memory_format: of its weights.
            rows: the only batch size that it takes; None: it takes any.
        """
        other = copy.copy(self)
        # A shallow copy shares the tables of submodules and hooks.
        other._modules = {**self._modules, "network": network.eval()}
        other._forward_hooks = OrderedDict()
        other.memory_format = memory_format
        other._proven = set()
        if rows is not None:
            other.info = replace(self.info, least_batch=rows, most_batch=rows)
        return other

    def train(self, mode: bool = True) -> LogitModel:
        """Stay in eval mode."""
        return self

    def forward(self, images: torch.Tensor, *, normalised: bool = False) -> torch.Tensor:
        """Logits (n, classes) of pixels (n, channels, height, width).

        A class whose logit is minus infinity has the logit `NEVER`.

        Args:
            images: pixels, or with ``normalised`` the network's input as :meth:`inputs` makes it,
                which the network may change.
            normalised: whether the images are clipped and normalised already.

        Raises:
            ModelError: the network raises an exception, or its results are not logits. Lack of
                memory passes through unchanged.
        """
        return _without_masks(self._raw_of_inputs(images) if normalised else self.raw(images))

    def raw(self, images: torch.Tensor) -> torch.Tensor:
        """As :meth:`forward`, with minus infinity for classes that the network masks."""
        return self._raw_of_inputs(self.inputs(images))

    def _raw_of_inputs(self, inputs: torch.Tensor) -> torch.Tensor:
        """:meth:`raw` of clipped and normalised images."""
        proven = inputs.shape[1:] in self._proven
        contiguous = self.memory_format is torch.contiguous_format
        # The network may write into its input, and a first call may have to be repeated.
        first_try = inputs if proven or contiguous else inputs.clone()
        try:
            logits = self._logits(first_try)
        except ModelError:
            raise
        except Exception as error:
            # "could not create a primitive" may mean a lack of memory, or that oneDNN has none for
            # this memory format.
            may_be_format = "primitive" in str(error) and not proven
            if is_out_of_memory(error) and not may_be_format:
                raise
            if contiguous or proven:
                raise self._refusal(inputs, error) from error
            # A network may also use `view`, which takes no tensor with the channels last.
            self._lay_out(torch.contiguous_format)
            return self._raw_of_inputs(inputs)
        self._proven.add(inputs.shape[1:])
        return logits

    def inputs(self, images: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
        """The network's input: pixels clipped if asked, minus mean, divided by std.

        Args:
            images: pixels (n, channels, height, width), which do not change.
            out: where to write it; default: a new tensor.

        Raises:
            ModelError: the shape does not fit images, or mean and std.
        """
        channels = max(self.mean.shape[1], self.std.shape[1])
        if images.dim() != 4:
            raise ModelError(
                self.name,
                f"images have shape {tuple(images.shape)}",
                "they must be (n, channels, height, width)",
            )
        if channels not in (1, images.shape[1]):
            options = "mean and std" if self.in_memory else "model.mean and model.std"
            has = count(images.shape[1], "channel")
            what = f"{options} have {channels} values, but the images have {has}"
            raise ModelError(self.name, what, "give one value for each channel, or one for all")
        if images.dtype != self.dtype:
            images = images.to(self.dtype)
        if self.clip:
            images = images.clamp(0.0, 1.0)
        if self._normalises and out is None:
            return (images - self.mean) / self.std
        if self._normalises:
            return torch.sub(images, self.mean, out=out).div_(self.std)
        if out is not None:
            return out.copy_(images)
        # The network may write in place, into the caller's pixels.
        return images if self.clip else images.clone()

    def _logits(self, inputs: torch.Tensor) -> torch.Tensor:
        """The logits of normalised images, in batches that the network accepts."""
        inputs = inputs.to(self._compute)
        # Convolutions would also take the other format, and convert it each for itself.
        if inputs.dim() == 4:
            inputs = inputs.contiguous(memory_format=self.memory_format)
        least = self.info.least_batch
        most = self.info.most_batch or max(least, len(inputs))
        if least <= len(inputs) <= most:
            return self._once(inputs)
        parts = []
        for part in torch.split(inputs, most):
            # The last batch is filled with copies of its last image.
            missing = max(least - len(part), 0)
            padding = part[-1:].expand(missing, *part.shape[1:])
            logits = self._once(torch.cat([part, padding]))
            parts.append(logits[: len(part)])
        return torch.cat(parts)

    def _once(self, inputs: torch.Tensor) -> torch.Tensor:
        """The logits of normalised images in one call of the network."""
        precision = rounded_products(True) if self.rounds else nullcontext()
        with precision:
            returned = self.network(inputs)
        picked = pick_output(returned, self.output, self.name, in_memory=self.in_memory)
        return as_logits(picked, len(inputs), self.dtype, self.name, in_memory=self.in_memory)

    def _lay_out(self, memory_format: torch.memory_format) -> None:
        """Convert the network's weights to a memory format."""
        with torch.inference_mode(False), torch.no_grad():
            self.network.to(memory_format=memory_format)
        self.memory_format = memory_format

    def _refusal(self, inputs: torch.Tensor, error: Exception) -> ModelError:
        """The error about an exception of the network, with a remedy where its cause is known."""
        shape = " x ".join(map(str, inputs.shape[1:]))
        reason = cause_text(error)
        # A frequent mistake is a fixed batch size; the text of the exception rarely shows it.
        takes_one = len(inputs) > 1 and self._takes(inputs[:1])
        if inputs.shape[1:] in self._proven:
            kind = type(error).__name__
            what = f"the network took images of {shape}, but then raised {kind} ({reason})"
            remedy = "it must take batches of any size, however often it is called"
            return ModelError(self.name, what, remedy if takes_one else "")
        if takes_one:
            what = (
                f"the network takes one image of {shape}, but not {len(inputs)} at once ({reason})"
            )
            remedy = "it must take batches of any size: x.flatten(1), not x.view(1, -1)"
            return ModelError(self.name, what, remedy)
        cause = known_cause(error)
        if self._compute is not self.dtype:
            remedy = "its graph may hold float32 constants, which do not mix with bfloat16: "
            remedy += _exactly(self.in_memory)
        elif cause is Cause.PRECISION and self.dtype is torch.float64:
            remedy = "it must run in float64, but its graph may hold float32 constants: "
            remedy += _exactly(self.in_memory)
        elif cause is not None:
            remedy = REMEDIES[cause]
        else:
            what = f"on images of {shape} the network raised {type(error).__name__}: {reason}"
            return ModelError(self.name, what)
        what = f"the network does not take images of {shape} ({reason})"
        return ModelError(self.name, what, remedy)

    def _takes(self, inputs: torch.Tensor) -> bool:
        """Whether the network takes these normalised images."""
        try:
            self._logits(inputs)
        except Exception:  # noqa: BLE001  networks may raise anything
            return False
        return True


def cached_by_model(
    compute: Callable[[LogitModel, torch.Tensor], T],
) -> Callable[[LogitModel, torch.Tensor], T]:
    """Cache a function by network, normalisation and image shape (channels, height, width)."""
    # Weak: the cache must not keep a network in memory that the caller has dropped.
    cache: WeakKeyDictionary[nn.Module, dict[tuple[object, ...], T]] = WeakKeyDictionary()

    @wraps(compute)
    def cached(model: LogitModel, image: torch.Tensor) -> T:
        key = (
            tuple(image.shape),
            tuple(model.mean.flatten().tolist()),
            tuple(model.std.flatten().tolist()),
            model.output,
            model.dtype,
        )
        results = cache.setdefault(model.network, {})
        if key not in results:
            results[key] = compute(model, image)
        return results[key]

    return cached


@contextmanager
def rounded_products(allowed: bool) -> Iterator[None]:
    """Let CUDA's float32 products (matmul, cuDNN) round their factors to TF32's 10 bits, or not.

    torch's own default leaves convolutions to cuDNN, which rounds. torch has two sets of switches,
    ``allow_tf32`` and ``fp32_precision``, and the first cannot be read after the caller has used
    the second: both are set, and restored as far as they could be read.

    Args:
        allowed: whether they may round within the block.
    """
    allowed_before = [_allow_tf32(backend) for backend in _with_allow_tf32()]
    precisions_before = [backend.fp32_precision for backend in _with_fp32_precision()]
    precision = "tf32" if allowed else "ieee"
    _set_products([allowed] * len(allowed_before), [precision] * len(precisions_before))
    try:
        yield
    finally:
        _set_products(allowed_before, precisions_before)


def _with_allow_tf32() -> list[Any]:
    return [torch.backends.cuda.matmul, torch.backends.cudnn]


def _with_fp32_precision() -> list[Any]:
    return [torch.backends.cuda.matmul, torch.backends.cudnn.conv, torch.backends.cudnn.rnn]  # type: ignore[attr-defined]


def _allow_tf32(backend: Any) -> bool | None:
    """The old switch of a backend; None if it cannot be read."""
    try:
        return bool(backend.allow_tf32)
    except RuntimeError:
        return None


def _set_products(allowed: Sequence[bool | None], precisions: Sequence[str]) -> None:
    """Set both sets of switches; the old ones first, because they change the new ones, too."""
    for backend, value in zip(_with_allow_tf32(), allowed, strict=True):
        if value is not None:
            backend.allow_tf32 = value
    for backend, precision in zip(_with_fp32_precision(), precisions, strict=True):
        if backend.fp32_precision != precision:
            backend.fp32_precision = precision


def for_noisy_passes(model: LogitModel, precision: Precision) -> LogitModel:
    """The model for noisy forward passes.

    For tf32, a copy whose products are rounded; for bf16, a copy that computes in bfloat16;
    otherwise the model itself. Pixels, normalisation and logits stay float32.

    Raises:
        ModelError: the network cannot be copied and cast to bfloat16, or computes in float32 only.
    """
    if not model.differentiable and precision in ("bf16", "tf32"):
        what = f"{model.format} networks run in fp32 only"
        raise ModelError(model.name, what, _exactly(model.in_memory))
    if precision != "bf16":
        return model.rounding(precision == "tf32")
    try:
        with torch.inference_mode(False):
            lower = copy.deepcopy(model)
            lower.compute_in(torch.bfloat16)
    except Exception as error:
        what = f"cannot be copied and cast to bfloat16 ({type(error).__name__}: {error})"[:300]
        raise ModelError(model.name, what, _exactly(model.in_memory)) from error
    return lower
