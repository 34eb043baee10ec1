"""docs/audit.ipynb runs, and shows what it showed when it was written; progress in a notebook."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from robaudit.api import listening
from robaudit.api.listening import PythonListener
from tests import notebook
from tests.clock import Clock


def code_cells(made: Any) -> list[Any]:
    return [cell for cell in made.cells if cell.cell_type == "code"]


def kinds(made: Any) -> list[list[str]]:
    """For each cell of code, the forms of its outputs."""
    forms: list[list[str]] = []
    for cell in code_cells(made):
        forms.append([])
        for output in cell.outputs:
            forms[-1] += sorted(output.get("data", {"error": 0}))
    return forms


def words(made: Any) -> list[str]:
    """The lines of all outputs in plain text that hold no number: headings and notes, not
    results."""
    texts: list[str] = []
    for cell in code_cells(made):
        texts += [output.data.get("text/plain", "") for output in cell.outputs]
    return [line for line in "\n".join(texts).splitlines() if not re.search(r"\d", line)]


@pytest.mark.slow
@pytest.mark.filterwarnings(
    "ignore:.*(Proactor|zmq|event loop|datetime.utcnow|without encryption).*"
)
def test_the_notebook_of_the_documentation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed")
    pytest.importorskip("nbclient", reason="nbclient is not installed")
    kernels = pytest.importorskip(
        "jupyter_client.kernelspec", reason="jupyter_client is not installed"
    )
    if "python3" not in kernels.KernelSpecManager().find_kernel_specs():
        pytest.skip("Jupyter has no kernel python3 here")
    monkeypatch.setenv("PYTHONPATH", str(notebook.PATH.parents[1]))
    for name in (
        "IPYTHONDIR",
        "JUPYTER_RUNTIME_DIR",
        "JUPYTER_DATA_DIR",
        "JUPYTER_CONFIG_DIR",
        "MPLCONFIGDIR",
        "COLUMNS",
    ):
        monkeypatch.setenv(name, "")  # set for the kernel, and restored
    try:
        made = notebook.executed(tmp_path)
    except (OSError, RuntimeError) as error:
        if type(error).__name__ == "DeadKernelError":  # it was started, and died
            raise
        pytest.skip(f"no kernel can be started: {error}")
    stored = nbformat.read(notebook.PATH, as_version=4)
    assert kinds(made) == kinds(stored), "python -m tests.notebook writes its outputs"
    assert words(made) == words(stored), "python -m tests.notebook writes its outputs"
    assert len(words(made)) > 5
    assert not list(tmp_path.glob("robaudit-*"))


class Shown:
    """Stands for IPython's display, and remembers what it shows."""

    def __init__(self) -> None:
        self.html: list[str] = []

    def __call__(self, data: dict[str, str], *, raw: bool, display_id: bool) -> Shown:
        assert (raw, display_id) == (True, True)
        self.html.append(data["text/html"])
        return self

    def update(self, data: dict[str, str], *, raw: bool) -> None:
        self.html.append(data["text/html"])


def test_progress_in_a_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = Shown()
    clock = Clock()
    monkeypatch.setattr(listening, "_notebook", lambda: shown)
    heard = PythonListener(clock=clock)
    heard.begin(200, 0)
    for share in (0.1, 0.2, 0.3):
        clock.now += 1.0
        heard.working(share)
    heard.working(0.31)
    heard.advance(60)
    assert len(shown.html) == 4, "at most twice a second"
    clock.now += 1.0
    heard.advance(0)
    assert re.search(r'<progress value="0.3\d*"></progress> 60 of 200 samples', shown.html[-1])
    heard.advance(140)
    heard.end()
    assert re.search(r"<pre>200 of 200 samples, [\d.,]+/s</pre>", shown.html[-1])


def test_no_progress_without_a_terminal_or_when_it_is_switched_off(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = Shown()
    for wanted, display in ((None, None), (False, shown)):
        monkeypatch.setattr(listening, "_notebook", lambda display=display: display)
        heard = PythonListener(wanted)
        heard.begin(10, 0)
        heard.working(0.5)
        heard.advance(10)
        heard.end()
    assert shown.html == []
    assert capsys.readouterr() == ("", "")
