"""How often intervals hold the truth, and how often the verdict is the right one."""

from __future__ import annotations

import tempfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.cameras import Camera
from tests.research.camera.cases import CASES, FLAT, SCENES, curve_truth, scene_of, truths
from tests.research.camera.measuring import Measure
from tests.research.camera.store import Store
from tests.research.coverage.study import Line

SHOTS = (2, 8)
MANY = 50
MANY_OF = ("gaussian", "sensor", "phone, JPEG 75")
"""Cameras that take many shots as well, of the texture."""
FLAT_OF = "sensor, patterns and defects"
"""The camera whose fixed pattern is known before a flat scene."""
TEXTURE_ALONE = (
    "gaussian, 16 bits",
    "gaussian, half a step",
    "sensor, 16 bits",
    "sensor, drift",
    "sensor, flicker",
    FLAT_OF,
)
"""Cameras close to another one: of one scene, to save time."""
REPETITIONS = 200
LEAST_COVERED = 0.93
LEAST_RIGHT = 0.95


@dataclass(frozen=True, slots=True)
class Setting:
    """One camera before one scene.

    Attributes:
        case: the name of the camera.
        scene: the name of the scene.
        shots: how many.
    """

    case: str
    scene: str
    shots: int

    def __str__(self) -> str:
        return f"{self.case}, {self.scene}, {self.shots} shots"

    @property
    def camera(self) -> Camera:
        """The camera with what happens between the shots."""
        case = CASES[self.case]
        return case.disturbed(case.camera, self.shots)


@dataclass(frozen=True, slots=True)
class Verdicts:
    """The verdicts of one setting.

    Attributes:
        setting: which camera, scene and number of shots.
        right: the noises that fit.
        counts: how often each verdict was given.
    """

    setting: str
    right: tuple[str, ...]
    counts: Mapping[str, int]

    @property
    def share(self) -> float:
        """The share of right verdicts."""
        right = sum(self.counts.get(kind, 0) for kind in self.right)
        return right / sum(self.counts.values())


def settings(only: str = "") -> list[Setting]:
    """All settings, or those of cameras with this in their name."""
    found = []
    for name, case in CASES.items():
        chosen = ["texture"] if name in TEXTURE_ALONE else [s for s in SCENES if s != FLAT]
        if name == FLAT_OF:
            chosen.append(FLAT)
        for scene in chosen:
            found += [Setting(name, scene, shots) for shots in SHOTS if shots >= case.fewest]
    found += [Setting(name, "texture", MANY) for name in MANY_OF]
    return [setting for setting in found if only in setting.case]


def repeat(setting: Setting, repetitions: int, measure: Measure, store: Store) -> None:
    """Measure this many series of shots, but those that the store has."""
    scene = scene_of(setting.scene)
    camera = setting.camera
    for repetition in range(repetitions):
        key = f"{setting}: {repetition}"
        if key in store.found:
            continue
        with tempfile.TemporaryDirectory() as folder:
            # a stack of what the files of the camera would hold
            # Settings have noise of their own, so that what they say can be added up.
            seed = zlib.crc32(key.encode())
            (shots,) = camera.write(Path(folder), scene, setting.shots, seed, "npy")
            store.add(key, asdict(measure(shots)))


def lines(setting: Setting, store: Store) -> Iterator[Line]:
    """The coverage of every interval whose truth is known."""
    documents = _documents(setting, store)
    if not documents:
        return
    for name, truth in truths(CASES[setting.case], setting.scene).items():
        ends = [one["intervals"][name] for one in documents if name in one["intervals"]]
        if not ends:
            continue
        lower = [end[0] for end in ends]
        upper = [end[1] for end in ends]
        yield Line.of(name, str(setting), truth, lower, upper, [setting.shots])
    yield from _of_curve(setting, documents)


def _of_curve(setting: Setting, documents: Sequence[Mapping[str, Any]]) -> Iterator[Line]:
    """The coverage of all points of the curve, as variances relative to the true ones."""
    lower = []
    upper = []
    for document in documents:
        for brightness, low, high in document["curve"]:
            truth = curve_truth(CASES[setting.case], brightness, 0)
            if truth is not None:
                lower.append(low / truth)
                upper.append(high / truth)
    if lower:
        yield Line.of("curve", str(setting), 1.0, lower, upper, [setting.shots])


def verdicts(setting: Setting, store: Store) -> Verdicts | None:
    """The verdicts; nothing on a flat scene, where several noises are right."""
    given = [one["verdict"] for one in _documents(setting, store) if one["verdict"]]
    if not given or setting.scene == FLAT:
        return None
    counts = {verdict: given.count(verdict) for verdict in sorted(set(given))}
    return Verdicts(str(setting), CASES[setting.case].right, counts)


def _documents(setting: Setting, store: Store) -> Sequence[Mapping[str, Any]]:
    """What was measured of a setting."""
    return [value for key, value in store.found.items() if key.startswith(f"{setting}: ")]
