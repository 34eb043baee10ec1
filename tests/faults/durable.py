"""What a power failure would lose of what a command took for written."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tests.faults.fault import Event


def lost(events: Iterable[Event]) -> list[str]:
    """What a power cut could undo or tear, in words.

    A file must be on disk before it gets its name (else the name may lead to half a file), and its name before the next file gets
    its own and before the command ends (else a later file may be there without an earlier one that it builds on).
    """
    found: list[str] = []
    unsynced: set[str] = set()
    unnamed: dict[str, str] = {}  # folder -> the file that was renamed there last
    for event in events:
        path = event.paths[-1]
        if event.name in ("write", "pwrite", "writev", "truncate", "ftruncate"):
            unsynced.add(path)
        elif event.name in ("fsync", "fdatasync"):
            unsynced.discard(path)
            unnamed.pop(path, None)
        elif event.name in ("rename", "replace"):
            if event.paths[0] in unsynced:
                found.append(f"{path} gets its name before its content is on disk")
            found += [f"{path} gets its name before that of {name} is on disk" for name in unnamed.values()]
            unnamed = {str(Path(path).parent): path}
    return found + [f"the name of {name} is not on disk at the end" for name in unnamed.values()]
