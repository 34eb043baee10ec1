"""Settings of the process: how long OpenMP's threads spin, and how many there are; the user's own
settings win."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

SETTINGS = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "OMP_NUM_THREADS")


def told(**given: str) -> dict[str, str]:
    """What OpenMP's runtime says it was told by the time torch has loaded it, in a process of its
    own."""
    code = (
        "import sys; sys.argv[1:] = ['list', 'estimators']; from robaudit.cli import main; main()"
    )
    environment = (
        {key: value for key, value in os.environ.items() if key not in SETTINGS}
        | given
        | {"OMP_DISPLAY_ENV": "VERBOSE"}
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    found = dict(re.findall(r"^\s*(?:\[host\] )?(\w+) = '(.*)'$", done.stderr, re.MULTILINE))
    if "GOMP_SPINCOUNT" not in found:
        pytest.skip("torch has another OpenMP runtime than GNU's here")
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("given", "spins"),
    [
        ({}, "2000"),
        ({"GOMP_SPINCOUNT": "77"}, "77"),
        ({"OMP_WAIT_POLICY": "active"}, "30000000000"),
        ({"OMP_WAIT_POLICY": "passive"}, "0"),
    ],
)
def test_threads_that_wait_sleep_soon_unless_the_user_has_set_it(
    given: dict[str, str], spins: str
) -> None:
    found = told(**given, OMP_NUM_THREADS="3")
    assert (found["GOMP_SPINCOUNT"], found["OMP_NUM_THREADS"]) == (spins, "3")
