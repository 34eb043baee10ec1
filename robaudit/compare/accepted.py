"""The file of accepted findings."""

from __future__ import annotations

import json
import math
import os
import stat
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from robaudit.errors import RunError
from robaudit.files import write_atomically
from robaudit.rows import LARGEST
from robaudit.text import printable

SCHEMA_VERSION = 1
_REMEDY = "restore it, or delete it and write another one with --update"
_LARGEST_FILE = 2**28

Key = tuple[str, float, str]
Number = Annotated[float, Field(gt=-LARGEST, lt=LARGEST)]


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, protected_namespaces=())


class AcceptedFinding(_Strict):
    """A sample that is known not to be robust.

    Attributes:
        image: digest of its pixels; None where the run did not say.
        value: what it was when it was accepted.
        reason: what somebody wrote beside it; kept as it is.
    """

    estimator: str
    sigma: Number
    sample_id: str
    image: str | None
    value: Number
    reason: str | None = None

    @property
    def key(self) -> Key:
        """What it is a finding of."""
        return self.estimator, self.sigma, self.sample_id


class Threshold(_Strict):
    """Where a finding begins, for one estimator at one noise level."""

    estimator: str
    sigma: Number
    below: Number


class _Model(_Strict):
    name: str
    sha256: str


class Accepted(_Strict):
    """The file.

    Attributes:
        model: that of the run whose findings were accepted last.
        noise: the kind of noise.
        include: whether findings are those sure beyond their interval, or all beyond the threshold.
    """

    schema_version: Literal[1]
    model: _Model
    noise: str
    include: Literal["surely", "maybe"]
    thresholds: list[Threshold]
    findings: list[AcceptedFinding]

    def by_key(self) -> dict[Key, AcceptedFinding]:
        """The findings by what they are of."""
        return {one.key: one for one in self.findings}

    def below(self) -> dict[tuple[str, float], float]:
        """The thresholds by estimator and noise level."""
        return {(one.estimator, one.sigma): one.below for one in self.thresholds}


def read_accepted(path: Path) -> Accepted | None:
    """Read the file; None where there is none.

    Raises:
        RunError: it is not such a file, or of a newer version.
    """
    where = str(path)
    try:
        if not path.exists():
            return None
        if not path.is_file() or path.stat().st_size > _LARGEST_FILE:
            raise RunError(where, "is not a file of accepted findings", "name a JSON file that --update has written")
        document = json.loads(path.read_bytes(), object_pairs_hook=_once)
    except OSError as error:
        raise RunError(where, f"cannot be read: {error.strerror or error}") from error
    except _TwiceError as error:
        raise RunError(where, f"is damaged (the key {error.args[0]!r} appears twice in one place)", _REMEDY) from error
    except (ValueError, RecursionError) as error:
        raise RunError(where, "is damaged (not valid JSON)", _REMEDY) from error
    version = document.get("schema_version") if isinstance(document, dict) else None
    if version is not None and (type(version) is not int or version != SCHEMA_VERSION):
        raise RunError(where, f"is not of schema version {SCHEMA_VERSION}", "read it with the robaudit that wrote it")
    try:
        found = Accepted.model_validate_json(json.dumps(document))  # as JSON: a whole number is a float, too
    except (ValidationError, ValueError) as error:
        what = "not a list of findings"
        if isinstance(error, ValidationError):
            first = error.errors(include_url=False, include_input=False)[0]
            what = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
        raise RunError(where, f"is damaged ({what})", _REMEDY) from error
    if len(found.by_key()) < len(found.findings):
        raise RunError(where, "is damaged (a finding appears twice in it)", _REMEDY)
    if len(found.below()) < len(found.thresholds):
        raise RunError(where, "is damaged (one result has two thresholds)", _REMEDY)
    return found


class _TwiceError(ValueError):
    """A key that appears twice in an object."""


def _once(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """The object of its keys and values, each key once."""
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise _TwiceError(printable(key))
        found[key] = value
    return found


def write_accepted(
    path: Path, header: Mapping[str, Any], thresholds: Mapping[tuple[str, float], float], found: Iterable[AcceptedFinding]
) -> None:
    """Write the file by an atomic rename: sorted, so that the same findings give the same bytes. Of a link, the file that it leads to
    is written; one that is there keeps its permissions.

    Raises:
        RunError: it is write-protected, or the disk refuses; an old file is untouched.
    """
    document = {
        "schema_version": SCHEMA_VERSION,
        **header,
        "thresholds": [{"estimator": name, "sigma": sigma, "below": below} for (name, sigma), below in sorted(thresholds.items())],
        "findings": [
            {key: value for key, value in one.model_dump().items() if key != "reason" or value is not None}
            for one in sorted(found, key=lambda one: one.key)
            if math.isfinite(one.value)
        ],
    }
    target = path.resolve() if path.is_symlink() else path
    mode = stat.S_IMODE(target.stat().st_mode) if target.exists() else None
    if mode is not None and not os.access(target, os.W_OK):
        raise RunError(str(path), "is write-protected", "name another file")
    write_atomically(target, (json.dumps(document, indent=2, allow_nan=False) + "\n").encode())
    if mode is not None:
        target.chmod(mode)
