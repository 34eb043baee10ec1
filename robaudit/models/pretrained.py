"""The spec keys for a trained model's input and classes, from its own files, read by the library
that wrote them."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from robaudit.errors import ModelError, RobauditError, needs_extra
from robaudit.files import expanded
from robaudit.models.model_files import CONFIG, PROCESSORS, read_object
from robaudit.models.transformers_model import TRANSFORMERS, quiet, refuse_unlisted
from robaudit.models.transforms import translated
from robaudit.spec.model import AuditSpec, BaseDatasetSpec, ImageOptions, ModelSpec
from robaudit.spec.origin import OwnPreparation
from robaudit.text import clipped, count, distinct, first_line

TIMM = "timm:"
TORCHVISION = "torchvision:"
_NORMALISATION = ("mean", "std")
_GEOMETRY = ("resize", "crop", "crop_rounding")
_ONLY_WEIGHTS = (".safetensors", ".bin")
_SHOWN = 3  # names
_UNNAMED = re.compile(r"LABEL_\d+")
_OTHER_TASKS = {
    "multi_label_classification": "may give an image several classes or none (problem_type "
    "multi_label_classification)",
    "regression": "estimates numbers (problem_type regression)",
}
_PROCESSORS = (
    *(
        "Beit",
        "Bit",
        "CLIP",
        "ConvNext",
        "DeiT",
        "Donut",
        "EfficientFormer",
        "EfficientNet",
        "ImageGPT",
    ),
    *(
        "Levit",
        "MobileNetV1",
        "MobileNetV2",
        "MobileViT",
        "PPLCNet",
        "Perceiver",
        "PoolFormer",
        "Pvt",
    ),
    *("Segformer", "Siglip", "Siglip2", "TextNet", "ViT", "ViTHybrid"),
)
"""Image processors of Transformers that only prepare images. Others open files that their options
name."""
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
        trained: whether it describes these weights, and not only their architecture.
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
    """The spec with the architecture, normalisation, image size and class names that its model's
    own files state.

    The spec takes precedence; mean and std belong together, and so do resize and crop. A filled
    spec does not change. ``origin.taken`` lists what was filled in, for the user.

    Raises:
        RobauditError: the model's files are damaged, or of a model that is not supported.
    """
    if spec.origin.taken:
        return spec
    pretrained = describe(spec.model, spec.base_dir)
    if pretrained is None:
        return spec
    model = _for_model(spec.model, pretrained)
    dataset = _for_dataset(spec.dataset, pretrained)
    try:
        changes = {
            "model": ModelSpec.model_validate(
                {**spec.model.model_dump(exclude_unset=True), **model}
            ),
            "dataset": type(spec.dataset).model_validate(
                {**spec.dataset.model_dump(exclude_unset=True), **dataset}
            ),
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
    lines = _lines(
        pretrained, {**model, **dataset}, source, files=isinstance(spec.dataset, ImageOptions)
    )
    done = spec.model_copy(update=changes)
    own = OwnPreparation(source, pretrained.input, pretrained.trained) if pretrained.input else None
    return done.with_origin(replace(spec.origin, taken=lines, own=own))


def _for_model(model: ModelSpec, pretrained: Pretrained) -> dict[str, Any]:
    """The model keys that the spec lacks."""
    written = model.model_fields_set
    taken = dict[str, Any]()
    if "architecture" not in written:
        taken["architecture"] = pretrained.architecture
    options = {**pretrained.options, **model.architecture_options}
    if (
        model.architecture in (None, pretrained.architecture)
        and options != model.architecture_options
    ):
        taken["architecture_options"] = options
    if "mean" not in written and "std" not in written:
        if pretrained.unknown is not None:
            raise pretrained.unknown
        taken |= {key: pretrained.input[key] for key in _NORMALISATION if key in pretrained.input}
    return taken


def _for_dataset(dataset: BaseDatasetSpec, pretrained: Pretrained) -> dict[str, Any]:
    """The dataset keys that the spec lacks; a geometry key in the spec rules out all geometry keys
    of the files."""
    written = dataset.model_fields_set
    taken = dict[str, Any]()
    if isinstance(dataset, ImageOptions):
        closed = {*written, *_NORMALISATION, *(_GEOMETRY if written & set(_GEOMETRY) else ())}
        if type(dataset).model_fields["channels"].default is None:
            closed.add("channels")
        taken = {key: value for key, value in pretrained.input.items() if key not in closed}
    if dataset.names_from_model and "class_names" not in written:
        taken |= {key: names for key, names in pretrained.classes.items() if key not in written}
    return taken


def _lines(
    pretrained: Pretrained, taken: dict[str, Any], source: str, *, files: bool
) -> tuple[str, ...]:
    """The filled-in values as a line for the user; for data without image files, also the size that
    the model expects."""
    shown = [
        f"{key} {_value(taken[key])}"
        for key in (*_NORMALISATION, *_GEOMETRY, "interpolation", "channels")
        if key in taken
    ]
    if "class_names" in taken:
        names = taken["class_names"]
        listed = ", ".join(clipped(name, 40) for name in names[:_SHOWN]) + (
            ", ..." if len(names) > _SHOWN else ""
        )
        shown.append(f"{count(len(names), 'class name')} ({listed})")
    side = pretrained.input.get("crop", pretrained.input.get("resize"))
    if side is not None and not files:
        height, width = side if isinstance(side, tuple) else (side, side)
        shown.append(f"made for images of {height} x {width}, which the data must have already")
    options = pretrained.options if "architecture_options" in taken else {}
    with_options = (
        f" ({', '.join(f'{key} {value}' for key, value in options.items())})" if options else ""
    )
    head = (
        f"{pretrained.architecture}{with_options}" if "architecture" in taken or not shown else ""
    )
    line = f"from {source}: {'; '.join(part for part in (head, *shown) if part)}"
    return (line, *(f"{source}: {note}" for note in pretrained.notes))


def _value(value: Any) -> str:
    if isinstance(value, tuple):
        return " ".join(f"{number:.6g}" for number in value)
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def describe(model: ModelSpec, base_dir: Path) -> Pretrained | None:
    """The description of a spec's model from its files; None if they have none, so that the spec
    must say everything.

    The configuration is used for a folder, and for a file beside it if the spec's architecture is
    from timm or Transformers (or missing, and the file is .safetensors or .bin).

    Raises:
        RobauditError: a file is damaged, or of a model that is not supported, or its library is not
            installed.
    """
    if model.format is not None and model.format != "safetensors":
        return None
    architecture = model.architecture or ""
    if model.path is not None:
        path = base_dir / expanded(model.path)
        from_library = (
            architecture.startswith((TIMM, TRANSFORMERS))
            if architecture
            else path.name.endswith(_ONLY_WEIGHTS)
        )
        is_folder = os.path.isdir(path)  # noqa: PTH112  a name may be too long, or no path at all: its loader says so
        if is_folder or (from_library and os.path.isfile(path)):  # noqa: PTH113
            pretrained = _of_folder(path if is_folder else path.parent, strict=is_folder)
            if pretrained is not None:
                return pretrained
    library, _, name = architecture.partition(":")
    of_name = {"timm": _of_timms_name, "torchvision": _of_torchvisions_name}.get(library)
    return None if of_name is None else of_name(name, model.architecture_options)


def _of_folder(folder: Path, *, strict: bool) -> Pretrained | None:
    path = folder / CONFIG
    if not path.is_file():
        return None
    config = read_object(path)
    if "architecture" in config:
        with _read_by("timm", str(path)):
            return _of_timms_folder(config, str(path))
    if "model_type" in config or "architectures" in config:
        with _read_by("transformers", str(path)):
            return _of_transformers(config, path)
    if strict:
        what = "is neither timm's nor Transformers' description of a model"
        raise ModelError(str(path), what, "give the weights file and its architecture")
    return None


@contextmanager
def _read_by(library: str, source: str) -> Iterator[None]:
    """Turn exceptions about a file that the library did not write into a single line."""
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
    """The input of a model as its library prepares it, and the error if it is not known."""
    try:
        with _read_by(library, source):
            found = read(*arguments)
    except ModelError as error:
        return {}, error
    if found is None:
        what = "prepares images in a way that is not known here"
        return {}, ModelError(
            source, what, "write mean and std in the model section, and what images need"
        )
    return found, None


def _of_timms_folder(config: dict[str, Any], source: str) -> Pretrained:
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
    options = {**({} if classes is None else {"num_classes": classes}), **arguments}
    named = settings.get("label_names") or settings.get("labels")
    known = dict[str, tuple[str, ...]]()
    if named:
        labels = _by_index(named) if isinstance(named, Mapping) else tuple(map(str, named))
        descriptions = settings.get("label_descriptions") or {}
        if len(labels) == (classes or len(labels)):
            known["class_names"] = distinct(
                [str(descriptions.get(label, label)) for label in labels],
                labels if descriptions else None,
            )
            known |= {"class_ids": distinct(labels)} if descriptions else {}
    elif classes == 1000 and str(settings.get("tag") or "").endswith("in1k"):
        known = imagenet_names()
    prepared = _input("timm", source, _timms_transform, settings, arguments)
    return Pretrained(source, f"{TIMM}{config['architecture']}", options, *prepared, known)


def _of_timms_name(name: str, options: Mapping[str, Any]) -> Pretrained | None:
    """timm's own entry for an architecture; None if timm has no such name (building the network
    then fails)."""
    with _read_by("timm", f"architecture {TIMM}{name}"):
        from timm.models import get_pretrained_cfg

        try:
            config: Any = get_pretrained_cfg(name)
        except (ValueError, RuntimeError, KeyError):
            config = None
        if config is None:
            return None
        settings = config.to_dict()
        source = (
            f"timm's entry for {name}{f'.{config.tag}' if config.tag and '.' not in name else ''}"
        )
        known = options.get("num_classes", settings.get("num_classes")) == 1000 and str(
            config.tag or ""
        ).endswith("in1k")
        prepared = _input("timm", source, _timms_transform, settings, options)
        trained = "." in name and options.get(
            "num_classes", settings.get("num_classes")
        ) == settings.get("num_classes")
        return Pretrained(
            source, TIMM + name, {}, *prepared, imagenet_names() if known else {}, trained=trained
        )


def imagenet_names() -> dict[str, tuple[str, ...]]:
    """Names and synsets of ImageNet's 1000 classes, from timm's own lists, as keys of a spec."""
    from timm.data.imagenet_info import ImageNetInfo

    info: Any = ImageNetInfo()
    ids = tuple(info.label_names())
    return {
        "class_names": distinct([info.label_name_to_description(synset) for synset in ids], ids),
        "class_ids": ids,
    }


def _timms_transform(
    settings: Mapping[str, Any], arguments: Mapping[str, Any]
) -> Mapping[str, Any] | None:
    """The evaluation transform of timm for a pretrained_cfg and the arguments of the model."""
    from timm import data as timms

    library: Any = timms
    sizes = settings.get("input_size") or (3, 224, 224)
    channels = arguments.get("in_chans") or sizes[0]
    side = arguments.get("img_size") if settings.get("fixed_input_size") else None
    sides = sizes[1:] if side is None else (side, side) if isinstance(side, int) else tuple(side)
    data = library.resolve_data_config(
        {"input_size": (channels, *sides)}, pretrained_cfg=dict(settings)
    )
    if len(data["mean"]) not in (1, channels):  # for another number of channels: left to the spec
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


def _of_transformers(config: dict[str, Any], path: Path) -> Pretrained:
    """The model in a folder of ``save_pretrained``: config.json, and beside it the description of
    the image processor."""
    kind = _class_of(config, path)
    labels = config.get("id2label") or {}
    refuse_other_tasks(config.get("problem_type"), str(path))
    # LABEL_0, LABEL_1, ...
    unnamed = all(_UNNAMED.fullmatch(str(label)) for label in labels.values())
    names = () if unnamed else distinct(_by_index(labels))
    classes = {"class_names": names} if names else {}
    processor = next(
        (file for file in (path.parent / name for name in PROCESSORS) if file.is_file()), None
    )
    if processor is None:
        note = f"there is no {PROCESSORS[0]} with it: mean, std, resize and crop are the spec's"
        return Pretrained(str(path), TRANSFORMERS + kind, classes=classes, notes=(note,))
    refuse_unlisted(config, path)
    for file in (
        path,
        *(path.parent / name for name in PROCESSORS),
    ):  # the library looks into all of them
        if file.is_file():
            _refuse_unlisted_processor(read_object(file), file)
    prepared = _input(
        "transformers", str(processor), _processor, path.parent, config.get("num_channels", 3)
    )
    return Pretrained(f"{path} and {processor.name}", TRANSFORMERS + kind, {}, *prepared, classes)


def _class_of(config: Mapping[str, Any], path: Path) -> str:
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
            named = str(part.get(key) or "ViTImageProcessor")
            base = (
                named.replace("FeatureExtractor", "ImageProcessor")
                .removesuffix("Fast")
                .removesuffix("Pil")
            )
            if base.removesuffix("ImageProcessor") not in _PROCESSORS or not base.endswith(
                "ImageProcessor"
            ):
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
    """The image processor of Transformers in its Pillow backend; code in the folder never runs, and
    nothing is looked up on the Hub."""
    import transformers

    library: Any = transformers
    with quiet(transformers):
        processor = library.AutoImageProcessor.from_pretrained(
            folder, backend="pil", use_fast=False, local_files_only=True, trust_remote_code=False
        )
        settings = processor.to_dict()
        crop = _size(settings["crop_size"]) if settings.get("do_center_crop") else None
        crop = crop[0] if isinstance(crop, tuple) and crop[0] == crop[1] else crop
        candidates: list[dict[str, Any]] = [{} if crop is None else {"crop": crop}]
        if settings.get("do_resize"):
            size = _size(settings["size"])
            side = _pair(size)[0]
            share = settings.get("crop_pct") or 224 / 256
            larger = int(
                side / share
                # PoolFormer's and LeViT's resize, and ConvNeXt's below 384, where it stretches the
                # image
            )
            pairs = (
                (size, crop),
                (larger, crop),
                (math.floor(side * 256 / 224), crop),
                (larger, side),
                ((side, side), None),
            )
            candidates = [
                {"resize": new, **({} if cut is None else {"crop": cut})} for new, cut in pairs
            ]
            candidates = [
                {**candidate, "interpolation": _FILTERS[settings["resample"]]}
                for candidate in candidates
            ]
        candidates = [
            {**candidate, **({"crop_rounding": "floor"} if "crop" in candidate else {})}
            for candidate in candidates
        ]
        return translated(
            lambda image: processor(image, return_tensors="pt")["pixel_values"][0],
            candidates,
            channels,
        )


def _size(size: Mapping[str, int]) -> int | tuple[int, int]:
    """The shorter side, or height and width."""
    return size["shortest_edge"] if size.get("shortest_edge") else (size["height"], size["width"])


def _pair(size: int | tuple[int, int]) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else size


def _by_index(labels: Mapping[Any, Any]) -> tuple[str, ...]:
    """The names in a JSON object by class index; empty if it does not name every class from 0
    on."""
    by_index = {int(index): str(name) for index, name in labels.items()}
    return (
        tuple(by_index[index] for index in range(len(by_index)))
        if max(by_index, default=0) < len(by_index)
        else ()
    )


def _of_torchvisions_name(name: str, chosen: Mapping[str, Any]) -> Pretrained | None:
    """torchvision's transform and class names for an architecture with the tag of its weights; None
    if there are none."""
    from torchvision import models

    model, _, tag = name.partition(".")
    weights: Any = (
        models.get_model_weights(model).__members__.get(tag)
        if model in models.list_models(module=models)
        else None
    )
    if weights is None:
        return None
    transform = weights.transforms()
    images = _geometry_of(transform)
    options: dict[str, Any] = {}  # changed by torchvision's builders for trained weights
    if model in ("googlenet", "inception_v3"):
        options["transform_input"] = True
    if model.startswith("vit_") and "min_size" in weights.meta:
        options["image_size"] = weights.meta["min_size"][0]
    source = f"torchvision's entry for {name}"
    names = distinct(weights.meta["categories"])
    prepared = _input("torchvision", source, translated, transform, [images], 3)
    own = chosen.get("num_classes", len(names)) == len(names)
    return Pretrained(
        source,
        TORCHVISION + name,
        options,
        *prepared,
        {"class_names": names} if own else {},
        trained=own,
    )


def published_geometry(model: ModelSpec) -> dict[str, Any]:
    """Resize, crop and interpolation of the default weights of a torchvision architecture; empty
    for others."""
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
