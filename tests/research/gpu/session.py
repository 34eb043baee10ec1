"""The parts one after the other, within the time there is, and their results."""

from __future__ import annotations

import gc
import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from robaudit.auditing.environment import versions
from tests.research.benchmarks.machine import machine
from tests.research.gpu import audit, checks, counts, page, passes, repeats, workers
from tests.research.gpu.clock import Clock, TimeIsUpError, interrupted_after
from tests.research.gpu.installed import lacking
from tests.research.gpu.part import Part, write


@dataclass(frozen=True, slots=True)
class Step:
    """A part, and its share of the time."""

    measure: Callable[[Part], None]
    share: float


PARTS: dict[str, Step] = {
    "checks": Step(checks.measure, 0.07),
    "passes": Step(passes.measure, 0.43),
    "audit": Step(audit.measure, 0.18),
    "counts": Step(counts.measure, 0.07),
    "workers": Step(workers.measure, 0.20),
    "repeats": Step(repeats.measure, 0.05),
}
"""In the order of their importance. What a part does not take is the next one's."""
RESULT = "result.json"
PAGE = "page.md"
_GRACE = 10.0  # seconds that a part may take to end by itself


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a session is to do.

    Attributes:
        device: where the networks run.
        out: folder of the results.
        tiny: sizes that show only that all works.
        minutes: for all parts.
        parts: their names.
    """

    device: torch.device
    out: Path
    tiny: bool = False
    minutes: float = 8.0
    parts: Sequence[str] = tuple(PARTS)


class Session:
    """Measures the parts and keeps the file of results.

    Args:
        wanted: what to do. Results that the folder has from other parts are kept.
    """

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted
        self._path = wanted.out / RESULT
        self._clock = Clock(60.0 * wanted.minutes)
        wanted.out.mkdir(parents=True, exist_ok=True)
        self.document: dict[str, Any] = {"parts": {}}
        if self._path.exists():
            self.document = json.loads(self._path.read_text())
        self.document |= {
            "machine": machine(wanted.device),
            "versions": versions(),
            "lacking": list(lacking()),
            "minutes": wanted.minutes,
            "tiny": wanted.tiny,
        }

    @property
    def wrong(self) -> list[str]:
        """Failures of parts, and everything that should not be."""
        found = list[str]()
        for name, part in self.document["parts"].items():
            found += [f"{name}: {line}" for line in part["wrong"]]
            if part["error"]:
                found.append(f"{name} failed: {part['error'].splitlines()[-1]}")
        return found

    def run(self) -> None:
        """Measure all parts, each within its share of the time."""
        page.print_head(self.document)
        names = list(self._wanted.parts)
        for number, name in enumerate(names):
            share = PARTS[name].share / sum(PARTS[other].share for other in names[number:])
            part = self._measured(name, share * self._clock.left())
            page.print_part(name, part.document())
            rest = names[number + 1 :]
            if part.error and part.on_card and rest and not passes.works(part.device):
                restart(self._wanted, rest, self._clock.left())
        page.print_end(self.document, self.wrong)

    def _measured(self, name: str, seconds: float) -> Part:
        """A part, measured for so many seconds at most."""
        part = Part(self._wanted.device, self._wanted.tiny, Clock(seconds), self._earlier())

        def save() -> None:
            part.seconds = time.perf_counter() - started
            self.document["parts"][name] = part.document()
            write(self._path, self.document)
            (self._wanted.out / PAGE).write_text(page.markdown(self.document))

        started = time.perf_counter()
        part.saved = save
        part.say = page.say
        try:
            with interrupted_after(min(seconds + _GRACE, self._clock.left())):
                PARTS[name].measure(part)
        except TimeIsUpError:
            part.left_out.append("the rest: its time was over")
        except Exception:  # noqa: BLE001  the other parts go on
            part.error = "".join(traceback.format_exc(limit=-3)).strip()[-1500:]
        save()
        gc.collect()
        if part.on_card and passes.works(part.device):
            torch.cuda.empty_cache()  # other processes measure what is free
        return part

    def _earlier(self) -> Mapping[str, Any]:
        return {name: part["rows"] for name, part in self.document["parts"].items()}


def restart(wanted: Wanted, names: Sequence[str], seconds: float) -> None:
    """Go on with the other parts in a fresh process in place of this one: after some errors a
    process can use its card no more."""
    command = ["-m", "tests.research.gpu", "--device", str(wanted.device)]
    command += ["--out", str(wanted.out), "--minutes", f"{seconds / 60:.3f}"]
    command += ["--only", ",".join(names)]
    if wanted.tiny:
        command.append("--tiny")
    print("the card answers no more: going on in a fresh process", flush=True)
    os.execv(sys.executable, [sys.executable, *command])  # noqa: S606  our own command
