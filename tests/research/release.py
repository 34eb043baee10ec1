"""`python -m tests.research.release` builds sdist and wheel, installs the wheel into a fresh
environment outside the source tree, and tries it as a user would: demo, audit, gate, report,
measured noise. `make smoke` does it."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
EXTRAS = {
    "report": "jinja2",
    "plot": "matplotlib",
    "timm": "timm",
    "hf": "transformers",
    "onnx": "onnxruntime",
    "parquet": "pyarrow",
    "ray": "ray",
}
"""The extras that users install, each with a library that it brings."""
_SPEC = """
model: {path: net.safetensors, architecture: "robaudit:digits_cnn"}
dataset: {kind: digits, limit: 20}
noise: {sigma: [0.1]}
estimators: [{mc: {draws: 20}}]
gates: ["mean >= 0.5"]
"""
_MODEL = """
import robaudit.demo, shutil
shutil.copy(robaudit.demo.__path__[0] + "/digits_cnn.safetensors", "net.safetensors")
"""
_SHOTS = """
import numpy as np
random = np.random.default_rng(0)
scene = np.linspace(0.2, 0.8, 64 * 64).reshape(64, 64)
np.save("shots.npy", scene + 0.02 * random.standard_normal((4, 64, 64)))
"""


def build(folder: Path, python: str = sys.executable) -> Path:
    """The wheel of the source tree, built through the sdist as a release is.

    Args:
        folder: for sdist and wheel.
        python: has the package `build`.
    """
    # A copy: setuptools writes into the tree that it builds.
    tree = folder / "tree"
    tree.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree)
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "robaudit", tree / "robaudit", ignore=ignored)
    command = [python, "-m", "build", "--outdir", str(folder), str(tree)]
    if not _has("build"):
        # Without it: the wheel alone, with the setuptools that is installed.
        command = [python, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
        command += ["--wheel-dir", str(folder), str(tree)]
    _run(command, cwd=folder)
    (wheel,) = folder.glob("*.whl")
    return wheel


def _has(package: str) -> bool:
    from importlib.util import find_spec

    return find_spec(package) is not None


def install(
    wheel: Path, folder: Path, python: str, *, extras: Sequence[str], oldest: bool, shared: bool
) -> Path:
    """A fresh environment with the wheel; its folder of programs.

    Args:
        wheel: to install.
        folder: of the environment.
        python: that it is made with.
        extras: of robaudit.
        oldest: install the oldest dependencies that pyproject.toml allows.
        shared: use the packages that this Python has, and install the wheel alone.
    """
    _run([python, "-m", "venv", str(folder)])
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet"]
    if shared:
        _share([path for path in sys.path if path.endswith("site-packages")], folder)
        # In the environment itself, before the shared packages.
        _run([*pip, "--no-deps", "--force-reinstall", str(wheel)])
        return folder / "bin"
    wanted = f"{wheel}[{','.join(extras)}]" if extras else str(wheel)
    pins = _oldest(folder) if oldest else []
    _run([*pip, wanted, *pins])
    return folder / "bin"


def _share(packages: Sequence[str], folder: Path) -> None:
    """Let an environment use the packages of others, after its own."""
    (own,) = (folder / "lib").glob("python3*/site-packages")
    (own / "shared.pth").write_text("\n".join(packages))


def each_extra(wheel: Path, folder: Path, python: str) -> None:
    """Try every extra alone, beside the plain dependencies, which are installed once.

    Raises:
        RuntimeError: something fails with one of them.
    """
    base = folder / "base"
    install(wheel, base, python, extras=(), oldest=False, shared=False)
    (plain,) = (base / "lib").glob("python3*/site-packages")
    for extra, library in EXTRAS.items():
        environment = folder / extra
        _run([python, "-m", "venv", str(environment)])
        _share([str(plain)], environment)
        own = str(environment / "bin" / "python")
        _run([own, "-m", "pip", "install", "--quiet", f"{wheel}[{extra}]"])
        # The program of the base has no extra.
        _run([own, "-m", "pip", "install", "--quiet", "--no-deps", "--force-reinstall", str(wheel)])
        _run([own, "-c", f"import {library}"])
        work = folder / f"work-{extra}"
        work.mkdir()
        try_out(environment / "bin", work, with_report=extra == "report")
        print(f"{extra} alone works", flush=True)


def _oldest(folder: Path) -> list[str]:
    """A constraint for the lower end of each range in pyproject.toml."""
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    pins = [
        entry.partition(",")[0].replace(">=", "==") + ".*"
        for entry in project["dependencies"]
        if ">=" in entry
    ]
    file = folder / "oldest.txt"
    file.write_text("\n".join(pins))
    return ["--constraint", str(file)]


def try_out(programs: Path, folder: Path, *, with_report: bool) -> None:
    """Use the installed program in an empty folder; raise where something fails.

    Args:
        programs: of the environment.
        folder: to work in, outside the source tree.
        with_report: whether matplotlib and Jinja are installed.
    """
    robaudit = str(programs / "robaudit")
    python = str(programs / "python")
    said = _run([robaudit, "--version"], cwd=folder)
    print(said.strip())
    where = _run([python, "-c", "import robaudit; print(robaudit.__file__)"], cwd=folder)
    assert str(ROOT) not in where, f"the source tree is used: {where}"
    assert "noise_trained" in _run([robaudit, "demo", "--out", "demo"], cwd=folder)
    _run([python, "-c", _MODEL], cwd=folder)
    (folder / "audit.yaml").write_text(_SPEC, encoding="utf-8")
    _run([robaudit, "estimate", "audit.yaml", "--out", "run"], cwd=folder)
    assert "pass" in _run([robaudit, "gate", "run"], cwd=folder)
    _run([robaudit, "show", "run", "classes", "--format", "csv"], cwd=folder)
    _run([python, "-c", _SHOTS], cwd=folder)
    assert "gaussian" in _run([robaudit, "measure-noise", "shots.npy"], cwd=folder)
    _run([robaudit, "list", "estimators"], cwd=folder)
    if with_report:
        _run([robaudit, "report", "run", "-o", "page.html"], cwd=folder)
        assert "</html>" in (folder / "page.html").read_text(encoding="utf-8")


def _run(command: Sequence[str], cwd: Path | None = None) -> str:
    """The output of a command, outside the source tree and its environment.

    Raises:
        RuntimeError: it fails; with what it said.
    """
    dropped = ("PYTHONPATH", "VIRTUAL_ENV", "PYTHONHOME")
    environment = {key: value for key, value in os.environ.items() if key not in dropped}
    done = subprocess.run(
        list(command), cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: exit code {done.returncode}\n{done.stderr}")
    return done.stdout


def main(arguments: Sequence[str] | None = None) -> None:
    """Build, install and try out."""
    parser = argparse.ArgumentParser(prog="python -m tests.research.release", description=__doc__)
    parser.add_argument("--python", default=sys.executable, help="that the environment is made of")
    parser.add_argument("--extra", action="append", default=[], choices=EXTRAS)
    parser.add_argument("--each-extra", action="store_true", help="every extra alone")
    parser.add_argument("--oldest", action="store_true", help="the oldest allowed dependencies")
    parser.add_argument("--shared", action="store_true", help="use this Python's packages")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="robaudit-smoke-") as temporary:
        folder = Path(temporary)
        (folder / "dist").mkdir()
        (folder / "work").mkdir()
        wheel = build(folder / "dist")
        if given.each_extra:
            each_extra(wheel, folder, given.python)
            return
        programs = install(
            wheel,
            folder / "environment",
            given.python,
            extras=given.extra,
            oldest=given.oldest,
            shared=given.shared,
        )
        try_out(programs, folder / "work", with_report=given.shared or "report" in given.extra)
    print("works")


if __name__ == "__main__":
    main()
