"""A figure as SVG inside a page: real text, the page's typeface, and colours that follow its theme.

matplotlib writes style attributes, which a strict content policy forbids, fixed colours, which a
dark page would swallow, and names that two figures on one page would share. All three are changed
here; nothing about the drawing itself is.
"""

import re
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from anedl.report import canvas
from anedl.report.letters import saved

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LINK = "{http://www.w3.org/1999/xlink}href"

# Colours that the page names, so that it can turn them for a dark background.
THEME = {
    "#000000": "ink",
    canvas.INK: "ink",
    canvas.FAINT: "faint",
    canvas.PALE: "pale",
    canvas.GRID: "grid",
    canvas.BAND: "band",
    canvas.INLIER: "inlier",
    canvas.OUTLIER: "outlier",
    canvas.FIRST: "first",
    canvas.SECOND: "second",
    "#ffffff": "paper",
}
NAMED = {colour.lower(): f"var(--{name})" for colour, name in THEME.items()}
PIXELS_PER_POINT = 1.5  # on the page: 10 points are then 15 pixels, as the text beside them
FONT_SIZE = re.compile(r"([\d.]+)px")


def to_svg(figure: "Figure", name: str, alt: str) -> str:
    """The figure as an `<svg>` element; `name` keeps its inner names apart from other figures'."""
    import matplotlib as mpl

    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
        # Letters that are missing here the reader's browser may well have.
        content, _ = saved(
            figure, format="svg", bbox_inches="tight", pad_inches=0.04, transparent=True,
            metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")),
        )  # fmt: skip
    root = ElementTree.fromstring(content)
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag.rpartition("}")[2] in ("metadata", "style"):
                parent.remove(child)
    used = {
        match
        for element in root.iter()
        for value in element.attrib.values()
        for match in re.findall(r"#([\w-]+)\)?$", value)
    }
    for element in root.iter():
        _restyle(element, used, name)
    width, height = (
        float(root.attrib.pop(side).removesuffix("pt")) for side in ("width", "height")
    )
    root.attrib |= {
        "class": "chart", "role": "img", "aria-label": alt, "stroke-linejoin": "round",
        "width": f"{width * PIXELS_PER_POINT:.0f}", "height": f"{height * PIXELS_PER_POINT:.0f}",
    }  # fmt: skip
    root.attrib.pop("version", None)
    return ElementTree.tostring(root, encoding="unicode")


def _restyle(element: ElementTree.Element, used: set[str], name: str) -> None:
    """Attributes instead of a style, the page's colours, and inner names of its own."""
    attributes = element.attrib
    element.tag = element.tag.rpartition("}")[2]  # inside a page SVG needs no name space
    if LINK in attributes:
        attributes["href"] = attributes.pop(LINK)
    for part in attributes.pop("style", "").split(";"):
        key, _, value = (text.strip() for text in part.partition(":"))
        if key == "font" and (size := FONT_SIZE.search(value)):
            attributes["font-size"] = size[1]
        elif key and key not in ("font", "font-family"):
            attributes[key] = value
    for key in ("fill", "stroke"):
        if key in attributes:
            attributes[key] = NAMED.get(attributes[key].lower(), attributes[key])
    if element.tag == "text":
        attributes.setdefault("fill", "var(--ink)")
    identity = attributes.pop("id", None)
    if identity in used:
        attributes["id"] = f"{name}-{identity}"
    for key, value in list(attributes.items()):
        if value.startswith("#") and value[1:] in used:
            attributes[key] = f"#{name}-{value[1:]}"
        elif value.startswith("url(#"):
            attributes[key] = f"url(#{name}-{value[5:]}"
