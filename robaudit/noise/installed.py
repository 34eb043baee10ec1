"""Installed noises by name, through the entry-point group ``robaudit.noise``, and the noises of a
run."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import EntryPoint
from pathlib import Path

from pydantic import ValidationError

from robaudit.errors import SpecError
from robaudit.levels import FILE, name_in_label
from robaudit.noise.noise import BASE_DIR, Noise
from robaudit.noise.process import NoiseProcess
from robaudit.plugins import NOISES, blaming, installed, load_class
from robaudit.spec.model import NoiseSpec
from robaudit.spec.origin import Location, Origin
from robaudit.spec.validation_errors import explain


def registered() -> dict[str, EntryPoint]:
    """Entry points of the installed kinds of noise by name, in alphabetical order; nothing is
    imported.

    Raises:
        RobauditError: two packages register the same name, or none is registered at all.
    """
    return installed(NOISES, "noise kind")


def load(name: str, where: str = "noise") -> type[Noise]:
    """The class registered under a name.

    Raises:
        SpecError: unknown name, with a did-you-mean.
        RobauditError: the plugin cannot be imported, is not a Noise, or lacks a required
            declaration.
    """
    return load_class(NOISES, "noise kind", name, Noise, where)  # type: ignore[type-abstract]


def build(
    specs: Sequence[NoiseSpec], base_dir: Path, origin: Origin | None = None
) -> tuple[NoiseProcess, ...]:
    """The noises of a run, with their options and levels checked.

    Args:
        specs: the spec's noises.
        base_dir: the folder that paths among their options are relative to.
        origin: location of the spec's parts in a file, for messages. Default: no file.

    Raises:
        SpecError: unknown kind or option, bad value, or a level out of range.
    """
    if origin is None or not origin.where:
        # A spec with a single noise is usually written without a list: messages say noise.key, and
        # not noise[0].key.
        moved: dict[Location, Location] = {}
        if len(specs) <= 1:
            moved = {("noise", 0): ("noise",)}
        origin = Origin(moved=moved)
    return tuple(_build(spec, base_dir, ("noise", i), origin) for i, spec in enumerate(specs))


def _build(spec: NoiseSpec, base_dir: Path, place: Location, origin: Origin) -> NoiseProcess:
    """One noise of a run, checked; ``place`` is its location in the spec."""

    def where(key: str) -> str:
        return origin.place((*place, key))

    cls = load(spec.kind, where("kind"))
    if spec.level_name != cls.level_name:
        what = f"the level of {spec.kind} is called {cls.level_name}, not {spec.level_name}"
        levels = ", ".join(f"{level:g}" for level in spec.levels)
        raise SpecError(where(spec.level_name), what, f"write {cls.level_name}: {levels}")
    # A validator of a plugin may raise anything; such an exception names the plugin.
    with blaming(f"noise {spec.label}", cls):
        name = name_in_label(spec.label, spec.at)
        options = {**spec.options, "name": name, "clip": spec.clip, "at": spec.at}
        try:
            noise = cls.model_validate(options, context={BASE_DIR: base_dir})
        except ValidationError as error:
            raise explain(error, origin, place) from error
    if spec.clip and cls.quantises:
        raise SpecError(where("clip"), f"{spec.kind} already clips to [0, 1]", "leave clip out")
    if spec.clip and spec.at == FILE:
        what = "the pixels of a file always are in [0, 1]"
        raise SpecError(where("clip"), what, "leave clip out")
    # Levels are known to be numbers; which ones make sense is known to the kind alone.
    for level in spec.levels:
        is_in_range = cls.least <= level <= cls.most
        if not is_in_range or (cls.whole and level != int(level)):
            kind = "a whole number" if cls.whole else "one"
            raise SpecError(
                where(spec.level_name),
                f"{level:g} is not a level of {spec.kind}",
                f"give {kind} from {cls.least:g} to {cls.most:g}",
            )
    return NoiseProcess(noise, spec.kind, levels=spec.at_levels)
