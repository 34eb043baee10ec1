"""A picture as part of an HTML page: in its fonts and colours, without clashing ids, and harmless."""

from __future__ import annotations

import hashlib
import re
from xml.etree import ElementTree as Xml

from robaudit.report.pictures.style import CARD, FAINT, GRID, INK
from robaudit.text import printable

_VARIABLES = {colour: f"var(--{name}, {colour})" for name, colour in (("card", CARD), ("ink", INK), ("faint", FAINT), ("grid", GRID))}
_FONT = re.compile(r"font: (?:(bold|\d+) )?([\d.]+)px [^;]*")
_FAMILY = re.compile(r"font-family: [^;]*")
_LONG = re.compile(r"-?\d+\.\d{3,}(?![\d.])")
_REFERENCE = re.compile(r"url\(#([^)]*)\)")
_KEPT = re.compile(r"data:image/png;base64,[A-Za-z0-9+/=\s]*")


def inline(svg: bytes, kind: str, title: str, salt: str = "") -> str:
    """The ``<svg>`` element of a picture that :func:`robaudit.report.pictures.style.saved` made with ``text=True``.

    It has a viewBox and no size, a title for screen readers, no metadata, and only inline styles.
    Card, ink, faint and grid colours are the variables --card, --ink, --faint and --grid of the page, where it has them.
    Ids start with the kind and a digest of the picture, so that different pictures on a page share none.

    Args:
        svg: the file.
        kind: the kind of picture, for the ids.
        title: what it shows.
        salt: mixed into the ids.
    """
    root = Xml.fromstring(svg)  # noqa: S314  our own drawing, without a document type
    prefix = f"{kind}-{hashlib.sha256(svg + salt.encode()).hexdigest()[:12]}"
    for parent in list(root.iter()):
        for child in list(parent):
            if _name(child.tag) in ("metadata", "style"):
                parent.remove(child)
    names = {name: f"{prefix}-{i}" for i, name in enumerate(_used(root))}
    for element in root.iter():
        element.tag = _name(element.tag)
        _attributes(element, names)
    box = root.attrib["viewBox"]
    root.attrib.clear()
    root.attrib.update({"xmlns": "http://www.w3.org/2000/svg", "viewBox": box, "role": "img", "aria-labelledby": f"{prefix}-title"})
    named = Xml.Element("title", {"id": f"{prefix}-title"})
    named.text = printable(title)
    root.insert(0, named)
    return re.sub(r">\s+<", "><", Xml.tostring(root, encoding="unicode"))


def _name(tag: str) -> str:
    return tag.rpartition("}")[2]


def _used(root: Xml.Element) -> list[str]:
    """The ids that are referred to, without repeats."""
    values = [(_name(key), value) for element in root.iter() for key, value in element.attrib.items()]
    ids = ([value[1:]] if key == "href" and value.startswith("#") else _REFERENCE.findall(value) for key, value in values)
    return list(dict.fromkeys(name for names in ids for name in names))


def _attributes(element: Xml.Element, names: dict[str, str]) -> None:
    old = dict(element.attrib)
    element.attrib.clear()
    for key, written in old.items():
        name, value = _name(key), written
        if name == "id":
            if value in names:
                element.attrib["id"] = names[value]
        elif name == "href":
            if value.startswith("#"):
                element.attrib["href"] = "#" + names[value[1:]]
            elif _KEPT.fullmatch(value):
                element.attrib["href"] = value.replace("\n", "")
        elif not (name == "transform" and value.startswith("rotate(-0 ")):
            value = _REFERENCE.sub(lambda match: f"url(#{names[match[1]]})", value)
            element.attrib[name] = _style(value) if name == "style" else _LONG.sub(_shorter, value)


def _shorter(number: re.Match[str]) -> str:
    """Two decimals: a hundredth of a point."""
    return f"{float(number[0]):.2f}".rstrip("0").rstrip(".")


def _style(text: str) -> str:
    """Declarations with the page's font, and its colours where they are ours."""
    text = _FONT.sub(
        lambda match: f"font-size: {match[2]}px; font-family: inherit" + (f"; font-weight: {match[1]}" if match[1] else ""), text
    )
    text = _FAMILY.sub("font-family: inherit", text)
    for colour, variable in _VARIABLES.items():
        text = text.replace(colour, variable)
    return text
