"""The forms of a network: ways to run the same function."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from robaudit.text import count


class FormName(StrEnum):
    """How a network is run.

    Attributes:
        AS_LOADED: as the file or the caller gave it; TorchScript is frozen, its batch norms folded
            into the convolutions.
        OPTIMISED: frozen and rearranged by ``torch.jit.optimize_for_inference``, whose convolutions
            keep oneDNN's own layout between them; networks of Python code are traced before it.
        COMPILED: by ``torch.compile`` for a single batch size, with its weights as constants.
    """

    AS_LOADED = "as_loaded"
    OPTIMISED = "optimised"
    COMPILED = "compiled"


class Layout(StrEnum):
    """The order of a batch's values in memory."""

    CONTIGUOUS = "contiguous"
    CHANNELS_LAST = "channels_last"


@dataclass(frozen=True, slots=True)
class Form:
    """A form of a network.

    Attributes:
        name: how it is run.
        layout: of its weights and its input.
        rows: images in a pass.
    """

    name: FormName
    layout: Layout
    rows: int

    @property
    def text(self) -> str:
        """The text ``compiled, channels last, 8 images a pass``."""
        words = {
            FormName.AS_LOADED: "as loaded",
            FormName.OPTIMISED: "optimised",
            FormName.COMPILED: "compiled",
        }
        layout = self.layout.replace("_", " ")
        return f"{words[self.name]}, {layout}, {count(self.rows, 'image')} a pass"
