"""How is the standing of an audit drawn on a terminal?"""

from __future__ import annotations

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn
from rich.progress_bar import ProgressBar
from rich.table import Column
from rich.text import Text

from robaudit.remaining import Standing

_FRAMES = 5  # a second
_TITLE = "auditing"
_NARROWEST, _WIDEST = 4, 40


def words(standing: Standing, width: int) -> str:
    """What stands beside the bar, with as much of it as there is room for: samples, rate and time left."""
    left = standing.left() or ("... left" if standing.done < standing.total else "")
    samples = f"{standing.done}/{standing.total}"
    choices = (f"{samples} samples", standing.rate(), left), (f"{samples} samples", left), (samples, left), (left,)
    texts = [" ".join(part for part in choice if part) for choice in choices]
    return next((text for text in texts if len(text) <= width), left)


class _Words(ProgressColumn):
    """The words of the moment they are drawn in."""

    def __init__(self, console: Console, standing: Standing) -> None:
        super().__init__(Column(no_wrap=True))
        self._console, self._standing = console, standing

    def render(self, task: Task) -> Text:
        """The words."""
        return Text(words(self._standing, self._console.width - len(_TITLE) - 1 - _NARROWEST - 1))


class _Filled(BarColumn):
    """A bar as wide as there is room for, as full as the audit is in the moment it is drawn."""

    def __init__(self, standing: Standing) -> None:
        super().__init__(bar_width=None, table_column=Column(max_width=_WIDEST, min_width=_NARROWEST))
        self._standing = standing

    def render(self, task: Task) -> ProgressBar:
        """The bar."""
        task.completed = self._standing.filled
        return super().render(task)


class Bar:
    """A line with a bar, drawn anew several times a second by a thread: it moves while a long part is computed.

    Args:
        console: of the terminal.
        standing: what it shows.
    """

    def __init__(self, console: Console, standing: Standing) -> None:
        columns = TextColumn(_TITLE), _Filled(standing), _Words(console, standing)
        self._progress = Progress(*columns, console=console, refresh_per_second=_FRAMES, transient=True)
        self._progress.add_task("", total=1.0)
        self._progress.start()

    def stop(self) -> None:
        """Take it down."""
        self._progress.stop()
