"""`robaudit init`: write a first spec from a few options."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from robaudit.cli.options import OnErrorOption, SetOption, TrustOption
from robaudit.errors import RobauditError, SpecError
from robaudit.plugins import reference
from robaudit.settings import RUNNING, SPEC

if TYPE_CHECKING:
    from robaudit.auditing.first_audit import FirstAudit
    from robaudit.spec.first_spec import Given
    from robaudit.spec.model import AuditSpec

_MODEL = "Model and data"
_SIGMAS = "0.02,0.05"


def init(
    model: Annotated[
        str,
        typer.Option(
            metavar="PATH",
            rich_help_panel=_MODEL,
            help="The trained model: a .pt, .pth, .pt2, .safetensors or .onnx file, a folder "
            "that timm or Transformers saved, or module:function that returns it.",
        ),
    ],
    data: Annotated[
        str,
        typer.Option(
            metavar="DATA",
            rich_help_panel=_MODEL,
            help="The images: a .npz, .csv, .parquet or .tar file, a folder, digits, or "
            "torchvision:CIFAR10.",
        ),
    ],
    spec: Annotated[Path, typer.Argument(metavar="SPEC.yaml", help="The file to write.")] = Path(
        "audit.yaml"
    ),
    architecture: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            rich_help_panel=_MODEL,
            help="For a file of weights: torchvision:resnet18, timm:resnet18, or your own "
            "module:Class.",
        ),
    ] = None,
    normalise: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            rich_help_panel=_MODEL,
            help="As in training: none, imagenet, cifar10, cifar100, mnist, fashionmnist or half.",
        ),
    ] = None,
    sigma: Annotated[
        str | None,
        typer.Option(
            metavar="LEVELS",
            rich_help_panel=SPEC,
            help=f"Noise levels, for pixels in [0, 1]. Default: {_SIGMAS}.",
        ),
    ] = None,
    noise: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            rich_help_panel=SPEC,
            help="Instead of --sigma: a YAML file of noises, which are copied into the spec.",
        ),
    ] = None,
    resize: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="SIDE",
            rich_help_panel=_MODEL,
            help="For photos: the shorter side that they are resized to, as in training.",
        ),
    ] = None,
    crop: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="SIDE",
            rich_help_panel=_MODEL,
            help="For photos: the side of the centre crop after the resize, as in training.",
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            rich_help_panel=SPEC,
            help="How many images to audit. Default: 500, or what takes about ten minutes.",
        ),
    ] = None,
    draws: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            rich_help_panel=SPEC,
            help="Noisy copies of each image. Default: 1000, or what takes about ten minutes.",
        ),
    ] = None,
    samples: Annotated[
        int | None, typer.Option(min=1, hidden=True, help="The former name of --draws.")
    ] = None,
    gate: Annotated[
        str | None,
        typer.Option(
            metavar="SHARE",
            rich_help_panel=SPEC,
            help="The mean robustness that CI should require, for example 0.9.",
        ),
    ] = None,
    set_: SetOption = None,
    no_check: Annotated[
        bool,
        typer.Option(
            "--no-check", rich_help_panel=RUNNING, help="Write the spec without trying the model."
        ),
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", rich_help_panel=RUNNING, help="Overwrite an existing file.")
    ] = False,
    trust: TrustOption = False,
    on_error: OnErrorOption = "stop",
) -> None:
    """Write a first spec, after trying the model on the data: clean accuracy, pixel range,
    normalisation, time of an audit.

    Images and draws are as many as this machine computes in about ten minutes, at most 500 and
    1000.

    A class of your own (module:Class) needs --trust.

    Example: robaudit init --model model.pt --data test.npz --normalise cifar10 --gate 0.9
    """
    from robaudit.cli.console import say
    from robaudit.cli.output_streams import emit
    from robaudit.files import write_atomically
    from robaudit.spec.first_spec import (
        MOST_DRAWS,
        MOST_IMAGES,
        dataset_section,
        spec_text,
    )
    from robaudit.spec.noise_file import is_noise_file, read_noises
    from robaudit.spec.read import apply_setting
    from robaudit.spec.skipping import on_error_of
    from robaudit.text import shell

    errors = on_error_of(on_error)
    base = _folder_of(spec, force=force)
    # The model comes first: its own files may say the rest.
    section, source = _model_section(_known_file(model, base), architecture, base)
    draws = samples or draws
    given = _given(limit, draws, set_ or ())
    dataset = dataset_section(data, base, limit or MOST_IMAGES)
    dataset |= {key: side for key, side in (("resize", resize), ("crop", crop)) if side}
    section |= _normalisation(normalise, known=bool(source))
    least = _share(gate)
    document: dict[str, Any] = {
        "model": section,
        "dataset": dataset,
        "noise": {},
        "estimators": [{reference(): {"draws": draws or MOST_DRAWS}}],
    }
    document["noise"], gates = _noise_section(spec, document, noise, sigma, least)
    if gates:
        document["gates"] = gates
    # Last, so that they win over the options.
    for setting in set_ or ():
        apply_setting(document, setting)
    if is_noise_file(document["noise"]):
        document["noise"], _ = read_noises(base / document["noise"], base.resolve())
    # Paths in a spec are relative to its folder.
    source = source.replace(f"{base}/", "")
    written = _valid(spec, document, source)
    _check_levels(written)
    about_draws = ""
    if not no_check:
        first = _tried(written, given, trust=trust, skip_bad=errors != "stop")
        about_draws = first.comment
        _set_size(document, first)
    text = spec_text(document, source, about_draws)
    write_atomically(spec, text.encode())
    say(f"wrote {spec}")
    command = f"robaudit estimate {shell(spec)}{' --trust' if trust else ''}"
    if errors != "stop":
        command += f" --on-error {on_error}"
    gated = "" if least is None else f", then robaudit gate RUN; or both: {command} --until-decided"
    # To standard output: it is the result of the command, and the notes are not.
    emit(f"next: {command}{gated}\n", None)


def _noise_section(
    spec: Path,
    document: Mapping[str, Any],
    noise: str | None,
    sigma: str | None,
    least: float | None,
) -> tuple[Any, list[str]]:
    """The ``noise`` section, and a gate for each of its levels.

    Args:
        spec: the file to write.
        document: its other sections.
        noise: the value of ``--noise``, a file.
        sigma: the value of ``--sigma``.
        least: the mean robustness that the gates require; None: there are none.

    Raises:
        SpecError: both options are given, a level is not a positive number, or the file is missing
            or has no valid noises.
    """
    from robaudit.spec.first_spec import from_here, levels, mean_gates, spec_text
    from robaudit.spec.noise_file import is_noise_file, read_noises
    from robaudit.spec.read import load_spec

    if noise is None:
        chosen = levels(sigma or _SIGMAS)
        # Fractions stay as the user wrote them.
        gates = [f"mean(sigma={level}) >= {least!r}" for level in chosen]
        return {"sigma": chosen}, gates if least is not None else []
    if sigma is not None:
        raise SpecError("--noise", "cannot be combined with --sigma", "give one of them")
    if not is_noise_file(noise):
        remedy = "give a .yaml file that has a list of noises under the key noise"
        raise SpecError(f"--noise {noise}", "is not a YAML file", remedy)
    base = spec.absolute().parent
    written = from_here(noise, base)
    # Read as a spec that names the file, so that messages have its lines.
    present = load_spec(spec, text=spec_text({**document, "noise": written})).levels
    entries, _ = read_noises(base / written, base.resolve())
    return entries, mean_gates(present, least) if least is not None else []


def _folder_of(spec: Path, *, force: bool) -> Path:
    """The folder of the spec to write, the base of its relative paths.

    Raises:
        RobauditError: the file exists and is not to be overwritten, or there is no such folder.
    """
    if spec.exists() and not force:
        raise RobauditError(str(spec), "already exists", "name another file, or add --force")
    base = spec.absolute().parent
    if not base.is_dir():
        raise RobauditError(
            str(spec), "its folder does not exist", "create it first, or name another file"
        )
    return base


def _normalisation(name: str | None, *, known: bool) -> dict[str, Sequence[float]]:
    """Mean and std for the ``model`` section; empty where the spec need not state them.

    Args:
        name: the value of ``--normalise``.
        known: whether the model's own files state a normalisation.

    Raises:
        SpecError: the name is unknown.
    """
    from robaudit.spec.first_spec import normalisation

    mean, std = normalisation(name or "none")
    # An explicit "none" replaces what the model's own files say.
    replaces = known and name is not None
    if not mean and not replaces:
        return {}
    return {"mean": list(mean), "std": list(std)}


def _given(limit: int | None, draws: int | None, settings: Sequence[str]) -> Given:
    """Which numbers the user gives, by their options or with ``--set``."""
    from robaudit.spec.first_spec import Given

    keys = [setting.partition("=")[0].strip() for setting in settings]
    of_images = {"dataset", "dataset.limit", "dataset.sample", "dataset.sample.size", "dataset.ids"}
    sets_images = not of_images.isdisjoint(keys)
    # The name before it may be the estimator's own label; "samples" is the former name.
    sets_draws = any(key.endswith((".draws", ".samples")) for key in keys)
    replaces_estimators = any(key.startswith("estimators") for key in keys)
    return Given(
        images=limit is not None or sets_images,
        draws=draws is not None or sets_draws or replaces_estimators,
    )


def _set_size(document: dict[str, Any], first: FirstAudit) -> None:
    """Write the numbers that are proposed into the document, and leave the user's own."""
    if first.draws is not None:
        document["estimators"][0][reference()]["draws"] = first.draws
    if first.images is not None:
        dataset = document["dataset"]
        if "limit" in dataset:
            dataset["limit"] = first.images
        else:
            dataset["sample"] = {**dataset.get("sample", {}), "size": first.images}


def _valid(spec: Path, document: dict[str, Any], source: str) -> AuditSpec:
    """The spec that an audit would read from the document.

    Args:
        spec: the file, for messages.
        document: the sections; a random subset of all images is removed.
        source: the model's own files that complete the ``model`` section, or ''.

    Raises:
        RobauditError: the spec is not valid, or the data cannot be read.
    """
    from robaudit.spec.first_spec import spec_text
    from robaudit.spec.read import load_spec

    # Read before anything is written, so that no invalid spec is ever on disk.
    written = load_spec(spec, text=spec_text(document))
    sample = written.dataset.sample
    if sample is not None and _count_images(written) <= sample.size:
        # The subset would be all of them.
        del document["dataset"]["sample"]
    return load_spec(spec, text=spec_text(document, source))


def _known_file(text: str, base: Path) -> str:
    """The path of the model as the spec has it, or its code.

    Raises:
        SpecError: there is no such file, or the name is an architecture's, which has no weights.
    """
    from robaudit.files import expanded
    from robaudit.spec.first_spec import from_here

    if _is_own_code(text) and not expanded(text).exists():
        return text
    written = from_here(text, base)
    if (base / written).exists():
        return written
    # It may be the name of an architecture, which has no weights.
    if ":" in text:
        from robaudit.models.architectures import FAMILIES  # here, because it imports torch

        if text.startswith(FAMILIES):
            remedy = f"give the file of its weights: --model FILE --architecture {text}"
            raise SpecError(f"--model {text}", "is an architecture, which has no weights", remedy)
    raise SpecError(
        f"--model {text}",
        "no such file",
        "give the path of the trained model",
    )


def _is_own_code(text: str) -> bool:
    """Whether the text names the user's own class or function: module:Class."""
    if re.fullmatch(r"[^\W\d][\w.]*:[^\W\d][\w.]*", text) is None:
        return False
    from robaudit.models.architectures import FAMILIES  # here, because it imports torch

    return not text.startswith(FAMILIES)


def _model_section(path: str, architecture: str | None, base: Path) -> tuple[dict[str, Any], str]:
    """The ``model`` section, and the model's own files that complete it (or '').

    Raises:
        RobauditError: a file is damaged, or of a model that is not supported.
    """
    from robaudit.models.load_model import needs_architecture
    from robaudit.models.pretrained import describe
    from robaudit.spec.model import ModelSpec

    if _is_own_code(path):
        return {"format": "python", "architecture": path}, ""
    known = describe(ModelSpec(path=path, architecture=architecture), base)
    # Weights alone do not say which network they belong to.
    unnamed = architecture is None and known is None
    if unnamed and needs_architecture(base / path):
        remedy = "add --architecture torchvision:resnet18 or module:Class"
        raise SpecError(f"--model {path}", "needs its architecture", remedy)
    section = {"path": path}
    if architecture is not None:
        section["architecture"] = architecture
    if known is None or not (known.input or known.unknown):
        return section, ""
    return section, known.source


def _count_images(spec: AuditSpec) -> int:
    """The number of images in the data set, which a subset must not exceed.

    Raises:
        DataError: it cannot be read.
    """
    from robaudit.datasets.open_dataset import open_dataset

    whole = spec.dataset.model_copy(update={"sample": None})
    return len(open_dataset(whole, base_dir=spec.base_dir, trust=False))


def _share(text: str | None) -> float | None:
    """The share of ``--gate``.

    Raises:
        SpecError: it is not a number above 0 and at most 1.
    """
    if text is None:
        return None
    try:
        share = float(text)
    except ValueError:
        share = -1.0  # refused below, with the same words as a number out of range
    if not 0.0 < share <= 1.0:
        raise SpecError(
            f"--gate {text}",
            "is not a number above 0 and at most 1",
            "give the least mean robustness alone: --gate 0.9",
        )
    return share


def _check_levels(spec: AuditSpec) -> None:
    """Refuse levels that an audit would refuse for any pixels in [0, 1].

    Raises:
        SpecError: a level is refused.
    """
    import torch

    from robaudit.auditing.units import accepted, level_findings
    from robaudit.noise.installed import build

    noises = build(spec.noise, spec.base_dir, spec.origin)
    # The findings are about levels; any image with pixels in [0, 1] will do.
    pixels = torch.zeros(1, 8, 8)
    on_input = [noise.on_input() for noise in noises]
    accepted(level_findings(on_input, pixels, ""), as_given=spec.run.as_given)


def _tried(spec: AuditSpec, given: Given, *, trust: bool, skip_bad: bool) -> FirstAudit:
    """Load and check the model and the data as an audit would, report the result, and propose a
    first audit for this machine.

    Raises:
        RobauditError: an audit would refuse them; a line before it says that nothing was written.
    """
    from robaudit.auditing.environment import pick_device
    from robaudit.auditing.expected import measure_speed
    from robaudit.auditing.first_audit import first_audit
    from robaudit.auditing.prepare import Request, prepare
    from robaudit.cli.console import Reporter, say
    from robaudit.models.pretrained import filled

    with Reporter() as reporter:
        try:
            ready = prepare(
                Request(filled(spec), trust=trust, skip_bad=skip_bad), pick_device("cpu"), reporter
            )
        except RobauditError:
            say("nothing was written; to edit the spec by hand, write it with --no-check")
            raise
        first = first_audit(ready.spec, len(ready.data), measure_speed(ready), given)
        for note in first.notes:
            reporter.note(note)
    return first
