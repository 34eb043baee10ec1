"""Fill in the spec from a trained model's own files, read by the library that wrote them."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from robaudit.errors import ModelError, RobauditError, needs_extra
from robaudit.files import expanded
from robaudit.models.model_files import CONFIG, PROCESSORS, read_object
from robaudit.models.transformers_model import TRANSFORMERS, quiet, refuse_unlisted
from robaudit.models.transforms import translated
from robaudit.spec.class_names import imagenet_names
from robaudit.spec.model import AuditSpec, BaseDatasetSpec, ImageOptions, ModelSpec
from robaudit.spec.origin import OwnPreparation
from robaudit.text import clipped, count, distinct, first_line

TIMM = "timm:"
TORCHVISION = "torchvision:"
_NORMALISATION = ("mean", "std")
_GEOMETRY = ("resize", "crop", "crop_rounding")
# Files of these suffixes hold weights only: a config.json beside them is theirs.
_ONLY_WEIGHTS = (".safetensors", ".bin")
_MOST_SHOWN = 3  # class names in a line for the user
_UNNAMED = re.compile(r"LABEL_\d+")  # what Transformers writes where a model has no class names
_OTHER_TASKS = {
    "multi_label_classification": "may give an image several classes or none (problem_type "
    "multi_label_classification)",
    "regression": "estimates numbers (problem_type regression)",
}
_PROCESSORS = (
    "Beit",
    "Bit",
    "CLIP",
    "ConvNext",
    "DeiT",
    "Donut",
    "EfficientFormer",
    "EfficientNet",
    "ImageGPT",
    "Levit",
    "MobileNetV1",
    "MobileNetV2",
    "MobileViT",
    "PPLCNet",
    "Perceiver",
    "PoolFormer",
    "Pvt",
    "Segformer",
    "Siglip",
    "Siglip2",
    "TextNet",
    "ViT",
    "ViTHybrid",
)
"""Image processors of Transformers that only prepare images. Others open files that their options
name."""
_IMAGENET = 1000  # classes
_FILTERS = ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")  # by Pillow's number


@dataclass(frozen=True, slots=True)
class Pretrained:
    """The description of a trained model.

    Attributes:
        source: the file or the library's entry, for messages.
        architecture: timm:NAME, transformers:CLASS or torchvision:NAME.
        options: keyword arguments of the architecture.
        input: the keys mean, std and those of `ImageOptions`.
        unknown: why the input is not known, raised unless the spec has mean or std; or None.
        classes: the keys class_names and class_ids.
        notes: further lines for the user.
        trained: whether it describes these weights; False: only their architecture.
    """

    source: str
    architecture: str
    options: Mapping[str, Any] = field(default_factory=dict)
    input: Mapping[str, Any] = field(default_factory=dict)
    unknown: ModelError | None = None
    classes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    trained: bool = True


def filled(spec: AuditSpec) -> AuditSpec:
    """The spec, filled in from its model's own files.

    Filled in are architecture, normalisation, image size and class names. The spec takes
    precedence; mean and std belong together, and so do resize and crop. A filled spec does not
    change. ``origin.taken`` lists what was filled in, for the user.

    Raises:
        RobauditError: the model's files are damaged, or of a model that is not supported.
    """
    if spec.origin.taken:
        return spec
    pretrained = describe(spec.model, spec.base_dir)
    if pretrained is None:
        return spec.with_origin(replace(spec.origin, own=_stated_beside(spec)))
    model_keys = _for_model(spec.model, pretrained)
    dataset_keys = _for_dataset(spec.dataset, pretrained)
    model = {**spec.model.model_dump(exclude_unset=True), **model_keys}
    dataset = {**spec.dataset.model_dump(exclude_unset=True), **dataset_keys}
    # Validated again: a file may have any value, such as a negative std.
    try:
        changes = {
            "model": ModelSpec.model_validate(model),
            "dataset": type(spec.dataset).model_validate(dataset),
        }
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        what = (
            f"gives {'.'.join(map(str, first['loc']))} a value that a spec cannot have: "
            f"{first['msg']}"
        )
        raise ModelError(
            pretrained.source, what, "restore the model's own file, or correct it"
        ) from error
    source = pretrained.source.replace(f"{spec.base_dir}/", "")
    has_files = isinstance(spec.dataset, ImageOptions)
    lines = _lines(pretrained, {**model_keys, **dataset_keys}, source, files=has_files)
    filled_spec = spec.model_copy(update=changes)
    own = _own(pretrained, source)
    return filled_spec.with_origin(replace(spec.origin, taken=lines, own=own))


def _own(pretrained: Pretrained, source: str) -> OwnPreparation | None:
    """How a model's own files prepare images; None where they do not say so."""
    if not pretrained.input:
        return None
    return OwnPreparation(source, pretrained.input, pretrained.trained, pretrained.architecture)


def _stated_beside(spec: AuditSpec) -> OwnPreparation | None:
    """What a config.json says that lies beside a file of another format, such as ONNX; None without
    one. Nothing is filled in from it: it may be about another export."""
    if spec.model.path is None:
        return None
    folder = (spec.base_dir / expanded(spec.model.path)).parent
    with suppress(RobauditError):
        pretrained = _from_folder(folder, strict=False)
        if pretrained is not None:
            return _own(pretrained, pretrained.source.replace(f"{spec.base_dir}/", ""))
    return None


def _for_model(model: ModelSpec, pretrained: Pretrained) -> dict[str, Any]:
    """The model keys that the spec lacks."""
    written = model.model_fields_set
    taken = dict[str, Any]()
    if "architecture" not in written:
        taken["architecture"] = pretrained.architecture
    # Options of one architecture mean nothing for another.
    options = {**pretrained.options, **model.architecture_options}
    is_same = model.architecture in (None, pretrained.architecture)
    if is_same and options != model.architecture_options:
        taken["architecture_options"] = options
    if "mean" not in written and "std" not in written:
        if pretrained.unknown is not None:
            raise pretrained.unknown
        taken |= {key: pretrained.input[key] for key in _NORMALISATION if key in pretrained.input}
    return taken


def _for_dataset(dataset: BaseDatasetSpec, pretrained: Pretrained) -> dict[str, Any]:
    """The dataset keys that the spec lacks.

    A geometry key in the spec rules out all geometry keys of the files.
    """
    written = dataset.model_fields_set
    taken = dict[str, Any]()
    if isinstance(dataset, ImageOptions):
        left_out = {*written, *_NORMALISATION}
        if written & set(_GEOMETRY):
            left_out |= set(_GEOMETRY)
        # A kind without a default for channels takes them from its images.
        if type(dataset).model_fields["channels"].default is None:
            left_out.add("channels")
        taken = {key: value for key, value in pretrained.input.items() if key not in left_out}
    if dataset.names_from_model and "class_names" not in written:
        taken |= {key: names for key, names in pretrained.classes.items() if key not in written}
    return taken


def _lines(
    pretrained: Pretrained, taken: dict[str, Any], source: str, *, files: bool
) -> tuple[str, ...]:
    """Lines for the user about the filled-in values.

    Args:
        pretrained: the description of the model.
        taken: the keys that were filled in.
        source: the file, for the user.
        files: whether the data are image files; for others, the line states the size that the model
            expects.
    """
    parts = [
        f"{key} {_value(taken[key])}"
        for key in (*_NORMALISATION, *_GEOMETRY, "interpolation", "channels")
        if key in taken
    ]
    if "class_names" in taken:
        names = taken["class_names"]
        listed = ", ".join(clipped(name, 40) for name in names[:_MOST_SHOWN])
        if len(names) > _MOST_SHOWN:
            listed += ", ..."
        parts.append(f"{count(len(names), 'class name')} ({listed})")
    side = pretrained.input.get("crop", pretrained.input.get("resize"))
    if side is not None and not files:
        height, width = side if isinstance(side, tuple) else (side, side)
        parts.append(f"made for images of {height} x {width}, which the data must have already")
    if "architecture" in taken or not parts:
        architecture = pretrained.architecture
        if pretrained.options and "architecture_options" in taken:
            options = (f"{key} {value}" for key, value in pretrained.options.items())
            architecture += f" ({', '.join(options)})"
        parts.insert(0, architecture)
    notes = [f"{source}: {note}" for note in pretrained.notes]
    return (f"from {source}: {'; '.join(filter(None, parts))}", *notes)


def _value(value: Any) -> str:
    """A value for the user: numbers with six digits."""
    if isinstance(value, tuple):
        return " ".join(f"{number:.6g}" for number in value)
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def describe(model: ModelSpec, base_dir: Path) -> Pretrained | None:
    """The description of a spec's model from its files, or from its library.

    The configuration is used for a folder, and for a file beside it if the spec's architecture is
    from timm or Transformers (or missing, and the file is .safetensors or .bin). Otherwise the
    architecture's own entry in timm or torchvision is used. None if there is neither: the spec must
    say everything.

    Raises:
        RobauditError: a file is damaged, or of a model that is not supported, or its library is not
            installed.
    """
    if model.format is not None and model.format != "safetensors":
        return None
    architecture = model.architecture or ""
    if model.path is not None:
        path = base_dir / expanded(model.path)
        from_library = architecture.startswith((TIMM, TRANSFORMERS))
        if not architecture:
            from_library = path.name.endswith(_ONLY_WEIGHTS)
        is_folder = os.path.isdir(path)  # noqa: PTH112  a name may be too long, or no path at all: its loader says so
        if is_folder or (from_library and os.path.isfile(path)):  # noqa: PTH113
            pretrained = _from_folder(path if is_folder else path.parent, strict=is_folder)
            if pretrained is not None:
                return pretrained
    library, _, name = architecture.partition(":")
    if library == "timm":
        return _from_timms_entry(name, model.architecture_options)
    if library == "torchvision":
        return _from_torchvisions_entry(name, model.architecture_options)
    return None


def _from_folder(folder: Path, *, strict: bool) -> Pretrained | None:
    """The description in a folder's config.json; None without one.

    Args:
        folder: of the model.
        strict: refuse a config.json of another program. For a file of weights it may be anybody's.
    """
    path = folder / CONFIG
    if not path.is_file():
        return None
    config = read_object(path)
    if "architecture" in config:
        with _read_by("timm", str(path)):
            return _from_timms_folder(config, str(path))
    if "model_type" in config or "architectures" in config:
        with _read_by("transformers", str(path)):
            return _from_transformers_folder(config, path)
    if strict:
        what = "is neither timm's nor Transformers' description of a model"
        raise ModelError(str(path), what, "give the weights file and its architecture")
    return None


@contextmanager
def _read_by(library: str, source: str) -> Iterator[None]:
    """Turn exceptions about a file that the library did not write into one line for the user."""
    try:
        yield
    except RobauditError:
        raise
    except ImportError as error:
        raise needs_extra(source, library, "timm" if library == "timm" else "hf") from error
    except Exception as error:
        what = (
            f"is not as {library} writes it "
            f"({clipped(f'{type(error).__name__}: {first_line(error)}', 300)})"
        )
        raise ModelError(
            source,
            what,
            "restore the model's own file, or correct it; or write what it says in the spec",
        ) from error


def _input(
    library: str, source: str, read: Callable[..., Mapping[str, Any] | None], *arguments: Any
) -> tuple[Mapping[str, Any], ModelError | None]:
    """The input of a model as its library prepares it.

    The error is returned: it is raised only if the spec lacks mean and std.

    Args:
        library: its name.
        source: the file or the library's entry, for messages.
        read: returns the keys of the input, or None if it does not know them.
        arguments: of ``read``.

    Returns:
        The keys of the input, and None; or no keys, and the error.
    """
    try:
        with _read_by(library, source):
            keys = read(*arguments)
    except ModelError as error:
        return {}, error
    if keys is None:
        what = "prepares images in a way that is not known here"
        return {}, ModelError(
            source, what, "write mean and std in the model section, and what images need"
        )
    return keys, None


def _from_timms_folder(config: dict[str, Any], source: str) -> Pretrained:
    """The model in a folder of ``timm.models.save_for_hf`` (or ``push_to_hf_hub``)."""
    settings = {**config.get("pretrained_cfg", {}), **config}  # one flat object in old files
    arguments = dict(config.get("model_args") or {})
    if settings.get("num_classes") == 0:
        raise ModelError(
            source,
            "describes a network without a classifier (num_classes 0)",
            "give a model that was trained to classify",
        )
    classes = settings.get("num_classes")
    options = arguments if classes is None else {"num_classes": classes, **arguments}
    architecture = f"{TIMM}{config['architecture']}"
    names = _timms_class_names(settings, classes)
    keys, unknown = _input("timm", source, _timms_transform, settings, arguments)
    return Pretrained(source, architecture, options, keys, unknown, names)


def _timms_class_names(
    settings: Mapping[str, Any], classes: int | None
) -> dict[str, tuple[str, ...]]:
    """The keys class_names and class_ids of a folder of timm; none if it has no names."""
    listed = settings.get("label_names") or settings.get("labels")
    if listed:
        labels = _by_index(listed) if isinstance(listed, Mapping) else tuple(map(str, listed))
        # A list for another number of classes is not this network's.
        if len(labels) != (classes or len(labels)):
            return {}
        descriptions = settings.get("label_descriptions") or {}
        if not descriptions:
            return {"class_names": distinct(labels)}
        # With descriptions, the labels are ids, such as synsets.
        texts = [str(descriptions.get(label, label)) for label in labels]
        return {"class_names": distinct(texts, labels), "class_ids": distinct(labels)}
    # in1k: trained on ImageNet's thousand classes, in their usual order.
    if classes == _IMAGENET and str(settings.get("tag") or "").endswith("in1k"):
        return imagenet_names()
    return {}


def _from_timms_entry(name: str, options: Mapping[str, Any]) -> Pretrained | None:
    """timm's own entry for an architecture.

    None if timm has no such name: building the network then fails.
    """
    with _read_by("timm", f"architecture {TIMM}{name}"):
        from timm.models import get_pretrained_cfg

        try:
            config: Any = get_pretrained_cfg(name)
        except (ValueError, RuntimeError, KeyError):
            config = None
        if config is None:
            return None
        settings = config.to_dict()
        source = f"timm's entry for {name}"
        # Without a tag, timm chooses the weights.
        if config.tag and "." not in name:
            source += f".{config.tag}"
        own_classes = settings.get("num_classes")
        classes = options.get("num_classes", own_classes)
        in1k = classes == _IMAGENET and str(config.tag or "").endswith("in1k")
        names = imagenet_names() if in1k else {}
        keys, unknown = _input("timm", source, _timms_transform, settings, options)
        # Without a tag, or with other classes, the weights may be anybody's.
        trained = "." in name and classes == own_classes
        return Pretrained(source, TIMM + name, {}, keys, unknown, names, trained=trained)


def _timms_transform(
    settings: Mapping[str, Any], arguments: Mapping[str, Any]
) -> Mapping[str, Any] | None:
    """The keys of timm's transform for evaluation; None if they cannot express it.

    Args:
        settings: the pretrained_cfg.
        arguments: of the model.
    """
    from timm import data as timms

    library: Any = timms
    sizes = settings.get("input_size") or (3, 224, 224)
    channels = arguments.get("in_chans") or sizes[0]
    sides = tuple(sizes[1:])
    # The arguments may change the size of a network that works for one size only.
    side = arguments.get("img_size") if settings.get("fixed_input_size") else None
    if side is not None:
        sides = (side, side) if isinstance(side, int) else tuple(side)
    data = library.resolve_data_config(
        {"input_size": (channels, *sides)}, pretrained_cfg=dict(settings)
    )
    # Mean and std for another number of channels are left to the spec.
    if len(data["mean"]) not in (1, channels):
        data |= {"mean": (0.0,), "std": (1.0,)}
    transform = library.create_transform(**data)
    images: dict[str, Any] = {}
    for step in transform.transforms:
        kind = type(step).__name__
        if kind == "Resize":
            images |= {"resize": step.size, "interpolation": step.interpolation.value}
        elif kind == "CenterCrop":
            height, width = step.size
            images["crop"] = height if height == width else (height, width)
    return translated(transform, [images], channels)


def _from_transformers_folder(config: dict[str, Any], path: Path) -> Pretrained:
    """The model in a folder of ``save_pretrained``.

    Args:
        config: the content of its config.json.
        path: of the config.json; beside it may be the description of the image processor.
    """
    architecture = TRANSFORMERS + _class_of(config, path)
    labels = config.get("id2label") or {}
    refuse_other_tasks(config.get("problem_type"), str(path))
    unnamed = all(_UNNAMED.fullmatch(str(label)) for label in labels.values())
    names = () if unnamed else distinct(_by_index(labels))
    classes = {"class_names": names} if names else {}
    processor_files = [path.parent / name for name in PROCESSORS]
    processor = next((file for file in processor_files if file.is_file()), None)
    if processor is None:
        note = f"there is no {PROCESSORS[0]} with it: mean, std, resize and crop are the spec's"
        return Pretrained(str(path), architecture, classes=classes, notes=(note,))
    refuse_unlisted(config, path)
    # The library looks for the processor's type in all of these files.
    for file in (path, *processor_files):
        if file.is_file():
            _refuse_unlisted_processor(read_object(file), file)
    channels = config.get("num_channels", 3)
    keys, unknown = _input("transformers", str(processor), _processor, path.parent, channels)
    return Pretrained(f"{path} and {processor.name}", architecture, {}, keys, unknown, classes)


def _class_of(config: Mapping[str, Any], path: Path) -> str:
    """The name of the network's class in Transformers.

    Raises:
        ModelError: it is not an image classifier.
    """
    listed = config.get("architectures")
    if not isinstance(listed, list) or len(listed) != 1 or not isinstance(listed[0], str):
        raise ModelError(
            str(path),
            "its 'architectures' is not a list of one class",
            "restore the model's own file, or correct it",
        )
    if "ForImageClassification" not in listed[0]:
        remedy = "give a model that was trained with a class such as ViTForImageClassification"
        raise ModelError(
            str(path),
            f"describes a {listed[0]}, which is not an image classifier of Transformers",
            remedy,
        )
    return listed[0]


def refuse_other_tasks(problem_type: object, where: str) -> None:
    """Refuse a network that does not choose one class for each image.

    Args:
        problem_type: of its configuration in Transformers.
        where: the configuration or the network, for messages.

    Raises:
        ModelError: its largest logit is not its answer.
    """
    task = _OTHER_TASKS.get(problem_type) if isinstance(problem_type, str) else None
    if task is not None:
        raise ModelError(
            where,
            f"{task}, and an audit follows the class of the largest logit",
            "give a model that chooses one class",
        )


def _refuse_unlisted_processor(document: Mapping[str, Any], path: Path) -> None:
    """Refuse a processor that might open files that its description names.

    Raises:
        ModelError: it is not on the list.
    """
    inner = document.get("image_processor")
    for part in (document, inner if isinstance(inner, Mapping) else {}):
        for key in ("image_processor_type", "feature_extractor_type"):
            # A type that is not stated follows from the type of the model, which is on a list.
            named = str(part.get(key) or "ViTImageProcessor")
            # The older name, and the suffixes of the library's backends.
            name = named.replace("FeatureExtractor", "ImageProcessor")
            name = name.removesuffix("Fast").removesuffix("Pil")
            is_listed = name.removesuffix("ImageProcessor") in _PROCESSORS
            if not is_listed or not name.endswith("ImageProcessor"):
                what = (
                    f"its {key} {clipped(named, 60)!r} is not on the list of those that only "
                    "prepare images"
                )
                raise ModelError(
                    str(path),
                    what,
                    "remove the file, and write mean, std, resize and crop in the spec",
                )


def _processor(folder: Path, channels: int) -> Mapping[str, Any] | None:
    """The keys of the image processor in a folder; None if they cannot express it.

    It is the library's processor with Pillow. Code in the folder never runs, and nothing is looked
    up on the Hub.
    """
    import transformers

    library: Any = transformers
    with quiet(transformers):
        processor = library.AutoImageProcessor.from_pretrained(
            folder, backend="pil", use_fast=False, local_files_only=True, trust_remote_code=False
        )
        candidates = _candidates(processor.to_dict())
        return translated(
            lambda image: processor(image, return_tensors="pt")["pixel_values"][0],
            candidates,
            channels,
        )


def _candidates(settings: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The ways in which processors of Transformers use their settings, as keys of `ImageOptions`.

    Each class has its own rule; the pixels show which one is right.
    """
    crop = _size(settings["crop_size"]) if settings.get("do_center_crop") else None
    if isinstance(crop, tuple) and crop[0] == crop[1]:
        crop = crop[0]
    if not settings.get("do_resize"):
        return [{} if crop is None else {"crop": crop, "crop_rounding": "floor"}]
    size = _size(settings["size"])
    side = size if isinstance(size, int) else size[0]
    # The crop is this share of an enlarged image.
    enlarged = int(side / (settings.get("crop_pct") or 224 / 256))
    pairs = (
        (size, crop),
        (enlarged, crop),  # PoolFormer
        (math.floor(side * 256 / 224), crop),  # LeViT
        (enlarged, side),  # ConvNeXt below 384 pixels
        ((side, side), None),  # ConvNeXt from 384 on: the image is stretched
    )
    candidates: list[dict[str, Any]] = []
    for resize, crop_of_pair in pairs:
        candidate: dict[str, Any] = {"resize": resize}
        if crop_of_pair is not None:
            candidate["crop"] = crop_of_pair
        candidate["interpolation"] = _FILTERS[settings["resample"]]
        if crop_of_pair is not None:
            candidate["crop_rounding"] = "floor"
        candidates.append(candidate)
    return candidates


def _size(size: Mapping[str, int]) -> int | tuple[int, int]:
    """The shorter side, or height and width."""
    return size["shortest_edge"] if size.get("shortest_edge") else (size["height"], size["width"])


def _by_index(labels: Mapping[Any, Any]) -> tuple[str, ...]:
    """The names in a JSON object by class index; empty unless it names every class from 0 on."""
    by_index = {int(index): str(name) for index, name in labels.items()}
    if max(by_index, default=0) >= len(by_index):
        return ()
    return tuple(by_index[index] for index in range(len(by_index)))


def _from_torchvisions_entry(name: str, chosen: Mapping[str, Any]) -> Pretrained | None:
    """torchvision's transform and class names for trained weights; None if it has no such weights.

    Args:
        name: of the architecture, and the tag of its weights.
        chosen: the user's options of the architecture.
    """
    from torchvision import models

    model, _, tag = name.partition(".")
    weights: Any = None
    if model in models.list_models(module=models):
        weights = models.get_model_weights(model).__members__.get(tag)
    if weights is None:
        return None
    transform = weights.transforms()
    images = _geometry_of(transform)
    # Options that torchvision's builders set for trained weights.
    options: dict[str, Any] = {}
    if model in ("googlenet", "inception_v3"):
        options["transform_input"] = True
    if model.startswith("vit_") and "min_size" in weights.meta:
        options["image_size"] = weights.meta["min_size"][0]
    source = f"torchvision's entry for {name}"
    names = distinct(weights.meta["categories"])
    keys, unknown = _input("torchvision", source, translated, transform, [images], 3)
    # With another number of classes, the network was fine-tuned: the names are not its own.
    own = chosen.get("num_classes", len(names)) == len(names)
    classes = {"class_names": names} if own else {}
    return Pretrained(source, TORCHVISION + name, options, keys, unknown, classes, trained=own)


def published_geometry(model: ModelSpec) -> dict[str, Any]:
    """Resize, crop and interpolation of a torchvision architecture's default weights.

    Empty for other architectures.
    """
    library, _, name = (model.architecture or "").partition(":")
    if f"{library}:" != TORCHVISION:
        return {}
    from torchvision import models

    name = name.partition(".")[0]
    if name not in models.list_models(module=models):
        return {}
    weights: Any = models.get_model_weights(name)
    return _geometry_of(weights.DEFAULT.transforms())


def _geometry_of(transform: Any) -> dict[str, Any]:
    """The keys for a transform of torchvision's weights."""
    (resize,) = transform.resize_size
    (crop,) = transform.crop_size
    return {"resize": resize, "crop": crop, "interpolation": transform.interpolation.value}
