"""A picture as part of an HTML page: in its fonts and colours, without clashing ids, and
harmless."""

from __future__ import annotations

import re
from xml.etree import ElementTree as Xml

from robaudit.report.pictures import can_draw
from robaudit.report.pictures.kinds import picture
from robaudit.report.pictures.page import Drawing, PictureSize
from robaudit.report.pictures.style import CARD, FAINT, GRID, INK
from robaudit.text import printable

_SIZE = PictureSize(width=9.6, points=10.0, title=True, caption=False)
_VARIABLES = {
    colour: f"var(--{name}, {colour})"
    for name, colour in (("card", CARD), ("ink", INK), ("faint", FAINT), ("grid", GRID))
}
_FONT = re.compile(r"font: (?:(bold|\d+) )?([\d.]+)px [^;]*")
_FAMILY = re.compile(r"font-family: [^;]*")
_LONG = re.compile(r"-?\d+\.\d{3,}(?![\d.])")
_NUMBERED = re.compile(r"_\d+$")


def inline(kind: str, drawing: Drawing) -> str:
    """The ``<svg>`` element of a picture, without its caption.

    It has a viewBox and no size, a title for screen readers, no metadata, and only inline styles.
    Card, ink, faint and grid colours are the variables --card, --ink, --faint and --grid of the
    page, where it has them. Its ids are salted with its kind and caption, so that different
    pictures on a page share none.

    Args:
        kind: the kind of picture, for the ids.
        drawing: the picture.

    Raises:
        RobauditError: matplotlib is not installed, or images cannot be read.
    """
    can_draw(required=True, where=f"the picture {kind}")
    root = Xml.fromstring(picture(drawing, "svg", _SIZE, salt=ascii(f"{kind} {drawing.caption}")))  # noqa: S314  our own drawing, without a document type
    # metadata would say when and by what the picture was drawn, and a style would hold for the page
    for parent in list(root.iter()):
        for child in list(parent):
            if _name(child.tag) in ("metadata", "style"):
                parent.remove(child)
    for element in root.iter():
        element.tag = _name(element.tag)
        attributes = [(_name(key), value) for key, value in element.attrib.items()]
        element.attrib.clear()
        for name, value in attributes:
            if _is_needed(name, value):
                element.attrib[name] = _value(name, value)
    box = root.attrib["viewBox"]
    root.attrib.clear()
    root.attrib.update(
        {
            "xmlns": "http://www.w3.org/2000/svg",
            "viewBox": box,
            "role": "img",
            "aria-labelledby": f"{kind}-title",
        }
    )
    named = Xml.Element("title", {"id": f"{kind}-title"})
    named.text = printable(drawing.title)
    root.insert(0, named)
    return re.sub(r">\s+<", "><", Xml.tostring(root, encoding="unicode"))


def _name(tag: str) -> str:
    """A name without its namespace, which HTML does not need."""
    return tag.rpartition("}")[2]


def _is_needed(name: str, value: str) -> bool:
    """Whether an attribute does anything on a page: ids that only number the parts of a picture do
    not. Links are refused, but to parts of the picture and to pixels inside it."""
    if name == "id":
        return _NUMBERED.search(value) is None
    return name != "href" or value.startswith(("#", "data:image/png;base64,"))


def _value(name: str, value: str) -> str:
    """The value of an attribute, shorter and in the page's style."""
    if name in ("id", "href"):
        return value.replace("\n", "")
    return _style(value) if name == "style" else _LONG.sub(_shorter, value)


def _shorter(number: re.Match[str]) -> str:
    """Two decimals: a hundredth of a point."""
    return f"{float(number[0]):.2f}".rstrip("0").rstrip(".")


def _style(text: str) -> str:
    """Declarations with the page's font, and its colours where they are ours."""

    def of_page(font: re.Match[str]) -> str:
        weight = f"; font-weight: {font[1]}" if font[1] else ""
        return f"font-size: {font[2]}px; font-family: inherit{weight}"

    text = _FONT.sub(of_page, text)
    text = _FAMILY.sub("font-family: inherit", text)
    for colour, variable in _VARIABLES.items():
        text = text.replace(colour, variable)
    return text
