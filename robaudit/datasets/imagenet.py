"""ImageNet's validation images: names of synsets, and files that give the label of each image.

The class index of a synset (``n01440764``) is its place among all synsets of the data set in sorted order. No such list is part of this
package: they lie beside the images of whoever has them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from robaudit.datasets.base import reason
from robaudit.errors import DataError
from robaudit.spec.class_names import SYNSET_WORDS, first_synonyms

WORDS = ("LOC_synset_mapping.txt", "synset_words.txt")
"""Files with a synset and its names on each line."""
LABELS = (
    "LOC_val_solution.csv",
    "imagenet_2012_validation_synset_labels.txt",
    "val.txt",
    "ILSVRC2012_validation_ground_truth.txt",
)
"""Files with the labels of images that lie in one folder."""
_LEVELS = 3  # folders above the images in which such files are looked for: ILSVRC/Data/CLS-LOC/val
_LARGEST = 2**27
_SOLUTION = re.compile(r"([^,\s]+),\s*(n\d{8})\b.*")
_LISTED = re.compile(r"(\S.*)\s(n\d{8}|\d{1,6})")
_NUMBERED = re.compile(r".*?_(\d{8})\.[^.]+")
_SYNSET = re.compile(r"n\d{8}")


def are_synsets(texts: Sequence[str]) -> bool:
    """Whether all of them are names of synsets."""
    return bool(texts) and all(map(_SYNSET.fullmatch, texts))


@dataclass(frozen=True, slots=True)
class Classes:
    """Class indices by what the data call the classes, and their names by index (None: not known)."""

    index: Mapping[str, int]
    names: tuple[str, ...] | None


def synset_classes(folder: Path, synsets: Sequence[str], asked: tuple[str, ...] | None) -> Classes | None:
    """The classes of synsets by their sorted order; None where the user's names cannot be in that order.

    Args:
        folder: of the images; the names of all synsets are in a file beside it, if any.
        synsets: those of the data.
        asked: the class names that the user gave: used by index where there are as many as synsets.
    """
    words = _words(folder)
    known = sorted(words) if words and set(synsets) <= set(words) else sorted(set(synsets))
    if asked is not None and len(asked) != len(known):
        return None
    names = asked or (first_synonyms([words[one] for one in known], known) if words and set(known) <= set(words) else tuple(known))
    return Classes({synset: number for number, synset in enumerate(known)}, names)


def _words(folder: Path) -> dict[str, str]:
    path = _beside(folder, WORDS)
    if path is None:
        return {}
    found = [SYNSET_WORDS.fullmatch(line) for line in _lines(path)]
    return {match[1]: match[2] for match in found if match}


def labels_file(folder: Path) -> Path | None:
    """The file beside the images of a folder that gives their labels, if any."""
    return _beside(folder, LABELS)


def image_labels(path: Path, images: Sequence[str], where: str) -> dict[str, str]:
    """The label of each image, as a synset or a class index.

    Args:
        path: one of the files of :data:`LABELS`, or one like it: ``ImageId,PredictionString`` (Kaggle), a synset for each image by its
            number, or ``name index`` on each line.
        images: names of the files.
        where: what messages call the folder.

    Raises:
        DataError: it is none of these, or has no label for an image.
    """
    lines = [line for line in _lines(path) if line]
    if not lines:
        raise DataError(str(path), "has no labels", "give a file with a label for each image")
    if lines[0].replace(" ", "").lower().startswith("imageid,"):
        by_name = _matches(path, _SOLUTION, lines[1:], 2)
        return {name: _label_of(name.rpartition(".")[0], by_name, path, where) for name in images}
    if _SYNSET.fullmatch(lines[0]):
        return {name: _by_number(name, lines, path, where) for name in images}
    if lines[0].isdecimal():
        return _by_devkit(path, lines, images, where)
    by_name = {Path(name).name: label for name, label in _matches(path, _LISTED, lines, 1).items()}
    return {name: _label_of(name, by_name, path, where) for name in images}


def _matches(path: Path, pattern: re.Pattern[str], lines: Sequence[str], first: int) -> dict[str, str]:
    found = {}
    for number, line in enumerate(lines, first):
        match = pattern.fullmatch(line)
        if match is None:
            remedy = "known are LOC_val_solution.csv, a synset on each line, 'name index' on each line, and metadata.csv"
            raise DataError(f"{path}:{number}", "is not a label of an image", remedy)
        found[match[1].strip()] = match[2]
    return found


def _label_of(name: str, labels: Mapping[str, str], path: Path, where: str) -> str:
    if name not in labels:
        raise DataError(f"{where}/{name}", f"has no label in {path.name}", "set labels to the file that has it")
    return labels[name]


def _by_number(name: str, lines: Sequence[str], path: Path, where: str) -> str:
    match = _NUMBERED.fullmatch(name)
    number = int(match[1]) if match else 0
    if not 1 <= number <= len(lines):
        what = f"has no number from 1 to {len(lines)} at its end, by which {path.name} would give its label"
        raise DataError(f"{where}/{name}", what, "images are called ILSVRC2012_val_00000001.JPEG, ...")
    return lines[number - 1]


def _by_devkit(path: Path, lines: Sequence[str], images: Sequence[str], where: str) -> dict[str, str]:
    """The development kit numbers the synsets in an order of its own, which ``map_clsloc.txt`` tells."""
    mapping = path.with_name("map_clsloc.txt")
    if not mapping.is_file():
        what = "numbers the classes in the order of the development kit, which is not that of models"
        raise DataError(str(path), what, "put map_clsloc.txt beside it, or use imagenet_2012_validation_synset_labels.txt")
    found = [re.fullmatch(r"(n\d{8}) (\d+) .*", line) for line in _lines(mapping)]
    synsets = {match[2]: match[1] for match in found if match}
    return {name: _label_of(_by_number(name, lines, path, where), synsets, mapping, where) for name in images}


def _beside(folder: Path, names: Sequence[str]) -> Path | None:
    """The first of these files in the folder, or in one of those above it."""
    places = [folder, *folder.absolute().parents[:_LEVELS]]
    return next((place / name for place in places for name in names if (place / name).is_file()), None)


def _lines(path: Path) -> list[str]:
    try:
        if path.stat().st_size > _LARGEST:
            raise DataError(str(path), f"has more than {_LARGEST} bytes", "give a list of labels or names")
        return [line.strip() for line in path.read_text(encoding="utf-8-sig").splitlines()]
    except UnicodeDecodeError:
        raise DataError(str(path), "is not UTF-8 text", "save it as UTF-8") from None
    except OSError as error:
        raise DataError(str(path), f"cannot be read ({reason(error)})", "give a file that you may read") from None
