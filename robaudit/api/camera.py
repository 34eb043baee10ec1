"""The noise of a camera from Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robaudit.api.arguments import naming_arguments
from robaudit.api.run import TemporaryFolder
from robaudit.camera.measure import measure
from robaudit.camera.noise_file import (
    PICTURE,
    entries,
    files_of,
    names_of,
    refuse_existing,
    write_noise,
)
from robaudit.camera.result import CameraNoise
from robaudit.errors import SpecError
from robaudit.models.pretrained import filled
from robaudit.progress import Listener
from robaudit.records import json_values
from robaudit.report.camera_tables import camera_tables, fit_text, remark_lines
from robaudit.report.tables import Terminal
from robaudit.spec.model import AuditSpec, ImageOptions, NoiseSpec
from robaudit.spec.read import load_spec

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from robaudit.report.pictures.page import Drawing

_FILE = "noise.yaml"  # in a temporary folder
_TAKEN = ("resize", "crop")  # keys of a spec that change the size of a photo


@dataclass(frozen=True, repr=False)
class MeasuredNoise:
    """The noise of a camera; ``print`` shows its tables.

    Attributes:
        noises: what was measured: one noise, or one for each scene where they differ.
        path: the file of the noise, for ``noise:`` in a spec.
    """

    noises: tuple[CameraNoise, ...]
    path: Path
    _home: TemporaryFolder | None = field(default=None, compare=False)

    @property
    def noise(self) -> list[dict[str, Any]]:
        """The noises for :func:`robaudit.audit`: the chosen ones first, at half, once and twice the
        measured level."""
        found = []
        files = files_of(self.path, self.noises)
        for noise, name, file in zip(self.noises, names_of(self.noises), files, strict=True):
            found += entries(noise, name, str(file.absolute()))
        return found

    @property
    def fits(self) -> bool:
        """Whether a kind of noise fits, for every scene."""
        return all(noise.fits for noise in self.noises)

    @property
    def remarks(self) -> list[str]:
        """What was left out or removed, in lines."""
        return [line for noise in self.noises for line in remark_lines(noise.remarks)]

    def document(self) -> dict[str, Any]:
        """Everything that was measured, as JSON values."""
        return {"noises": [json_values(noise.document()) for noise in self.noises]}

    def plot(self, path: str | Path | None = None, *, scene: str | None = None) -> Figure:
        """The picture of a noise, as a figure that a notebook shows.

        Args:
            path: also write it to this file: .png, .svg or .pdf.
            scene: the name of the noise, where there are several. Default: the first.

        Raises:
            RobauditError: matplotlib is not installed, there is no such scene, or the file cannot
                be written.
        """
        from robaudit.report.pictures import can_draw

        # Before the next imports, which need matplotlib.
        can_draw(required=True, where="plot")
        from robaudit.report.pictures.kinds import figure_of, size_of

        drawing = self._drawing(self._place(scene))
        if path is not None:
            _write_picture(Path(path), drawing)
        return figure_of(drawing, size_of(7.0, title=True, caption=True))

    def save_pictures(self) -> list[Path]:
        """Write a picture of each noise beside its file.

        Raises:
            RobauditError: matplotlib is not installed, or a file cannot be written.
        """
        written = []
        for place, file in enumerate(files_of(self.path, self.noises)):
            picture = file.with_suffix(PICTURE)
            _write_picture(picture, self._drawing(place))
            written.append(picture)
        return written

    def _place(self, scene: str | None) -> int:
        """The place of a noise by its name.

        Raises:
            SpecError: there is no such noise.
        """
        names = [noise.name for noise in self.noises]
        if scene is None:
            return 0
        if scene not in names:
            raise SpecError("scene", f"{scene!r} is unknown", f"one of {', '.join(names)}")
        return names.index(scene)

    def _drawing(self, place: int) -> Drawing:
        from robaudit.report.pictures.camera import drawing

        noise = self.noises[place]
        file = files_of(self.path, self.noises)[place]
        name = names_of(self.noises)[place]
        chosen = NoiseSpec.model_validate(entries(noise, name, file.name)[0])
        return drawing(noise, chosen, self.path.absolute().parent)

    def __str__(self) -> str:
        return str(Terminal(camera_tables(self.noises)))

    def __repr__(self) -> str:
        told = ", ".join(
            f"{noise.name}: {fit_text(noise)}" if noise.fits else f"{noise.name}: no kind fits"
            for noise in self.noises
        )
        return f"<MeasuredNoise {told}>"


def _write_picture(path: Path, drawing: Drawing) -> None:
    """Write a picture; the suffix chooses its format."""
    from robaudit.api import arguments
    from robaudit.files import write_atomically
    from robaudit.report.pictures import FORMATS
    from robaudit.report.pictures.kinds import picture, size_of

    format_ = path.suffix.lower().lstrip(".")
    arguments.choose("path", format_, FORMATS)
    write_atomically(path, picture(drawing, format_, size_of(7.0, title=True, caption=True)))


@naming_arguments()
def measure_noise(
    frames: str | Path,
    *,
    spec: AuditSpec | str | Path | None = None,
    resize: int | None = None,
    crop: int | None = None,
    channels: int | None = None,
    out: str | Path | None = None,
    overwrite: bool = True,
    settings: Sequence[str] = (),
    listener: Listener | None = None,
) -> MeasuredNoise:
    """Measure the noise of a camera from shots of still scenes, and find the kind of noise that
    fits.

    ``robaudit.measure_noise("shots/", spec="audit.yaml", out="noise.yaml")`` does what ``robaudit
    measure-noise`` does. The result's ``noise`` goes into :func:`robaudit.audit`.

    Args:
        frames: a folder of shots (PNG, TIFF, JPEG, .npy), a folder of such folders, or a .npy or
            .npz stack (n, c, h, w), (n, h, w, c) or (n, h, w) of uint8, uint16, or floats in
            [0, 1]; two shots of a scene or more, in the order in which they were taken.
        spec: prepare the shots as this spec does its images: the noise that a model sees is what is
            left after resize and crop.
        resize, crop, channels: instead of a spec, as its keys under ``dataset``.
        out: the YAML file to write, for ``noise:`` in a spec; the noise itself is written beside
            it. Default: a temporary folder, which is removed with the result.
        overwrite: whether existing files are overwritten; if not, they are refused.
        settings: ``key=value`` changes of the spec, as ``--set``.
        listener: receives notes and progress.

    Raises:
        RobauditError: there are no shots, or none that differ in noise alone; the message says why.
    """
    listener = listener or Listener()
    options = _options(spec, {"resize": resize, "crop": crop, "channels": channels}, settings)
    if options is None:
        listener.note(
            "the data of the spec are no image files, so it says nothing of resize and crop: the "
            "shots are measured as they are, and should be as large as the model's images"
        )
    prepared = options or ImageOptions(kind="images").of_photos()
    noises = measure(Path(frames), prepared, listener)
    home = None
    if out is None:
        home = TemporaryFolder()
        path = home.path / _FILE
    else:
        path = Path(out)
    measured = MeasuredNoise(noises, path, home)
    if not overwrite:
        refuse_existing(path, noises)
    write_noise(path, noises, _comments(noises, frames, prepared))
    return measured


def _options(
    spec: AuditSpec | str | Path | None, given: Mapping[str, Any], settings: Sequence[str]
) -> ImageOptions | None:
    """How shots are prepared; None where a spec's data are no image files.

    Raises:
        SpecError: the spec is not valid, or there are keys beside it.
    """
    keys = {key: value for key, value in given.items() if value is not None}
    if spec is None:
        if settings:
            raise SpecError("settings", "change a spec, and there is none", "give spec=")
        photos = ImageOptions(kind="images").of_photos()
        return photos if not keys else ImageOptions.model_validate({"kind": "images", **keys})
    if keys:
        first = next(iter(keys))
        raise SpecError(first, "is given beside a spec, which says it", "leave out one of them")
    if not isinstance(spec, AuditSpec):
        spec = load_spec(Path(spec), settings=settings)
    dataset = filled(spec).dataset
    return dataset if isinstance(dataset, ImageOptions) else None


def _comments(
    noises: Sequence[CameraNoise], frames: str | Path, options: ImageOptions
) -> list[str]:
    """Comments for the file of the noise: on its origin, and on each noise."""
    shots = sum(noise.shots for noise in noises)
    changes = {key: getattr(options, key) for key in _TAKEN if getattr(options, key) is not None}
    how = ", ".join(f"{key}: {value}" for key, value in changes.items()) or "shots as they are"
    name = Path(frames).absolute().name
    head = f"Measured by robaudit measure-noise from {shots} shots in {name} ({how})"
    return [_plain(head), *(_plain(_comment(noise)) for noise in noises)]


def _comment(noise: CameraNoise) -> str:
    """The verdict on a noise."""
    if noise.fits:
        return f"{noise.name}: {noise.nearest} fits; frames: the noise itself, to judge it by"
    return f"{noise.name}: no kind fits; the noise itself, and the nearest kind as a comment"


def _plain(text: str) -> str:
    """Text on one line, without what would end a comment."""
    return " ".join("".join(c if c.isprintable() else "?" for c in text).split())
