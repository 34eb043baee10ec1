"""How often intervals hold the truth, and how often the verdict is the right one."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.cameras import Camera, Suffix
from tests.research.camera.cases import CASES, FLAT, SCENES, scene_of, truths
from tests.research.camera.measuring import Measure
from tests.research.camera.store import Store
from tests.research.coverage.study import Line

SHOTS = (2, 8, 50)
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
        right: the noise that fits.
        counts: how often each verdict was given.
    """

    setting: str
    right: str
    counts: Mapping[str, int]

    @property
    def share(self) -> float:
        """The share of right verdicts."""
        return self.counts.get(self.right, 0) / sum(self.counts.values())


def settings(only: str = "") -> list[Setting]:
    """All settings, or those of cameras with this in their name."""
    found = []
    for name, case in CASES.items():
        for scene in SCENES:
            found += [Setting(name, scene, shots) for shots in SHOTS if shots >= case.fewest]
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
            shots = Path(folder) / "shots"
            camera.write(shots, scene, setting.shots, seed=repetition, suffix=suffix(camera))
            store.add(key, asdict(measure(shots)))


def suffix(camera: Camera) -> Suffix:
    """The format that this camera would write."""
    if camera.bits == 16:
        return "npy"
    return "png" if camera.jpeg is None else "jpeg"


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
