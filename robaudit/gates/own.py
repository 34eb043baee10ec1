"""Which gates are a run's own: those that it was sampled for, else those of its spec?"""

from __future__ import annotations

from dataclasses import dataclass

from robaudit.gates.record import Looks, read_looks
from robaudit.store.run import Run


@dataclass(frozen=True, slots=True)
class OwnGates:
    """The gates of a run.

    Attributes:
        texts: as they were written; empty where it has none.
        where: what messages call their place.
        point: values without an interval decided by themselves when it was sampled for them.
        looks: the record of a run that was sampled until gates were decided.
    """

    texts: tuple[str, ...]
    where: str
    point: bool
    looks: Looks | None


def own_gates(run: Run) -> OwnGates:
    """The gates that a run was sampled for, or else those of the spec that it was made from.

    Raises:
        RunError: its record of looks is not what robaudit wrote.
    """
    looks = read_looks(run.path, run.info)
    if looks is not None:
        return OwnGates(tuple(looks.asked.gates), f"the looks at {run.path}", looks.point, looks)
    return OwnGates(tuple(run.info["spec"].get("gates", ())), f"the spec of {run.path}", False, None)
