"""Drawings from other steps, let into the page only after everything unknown is taken out.

What remains is what is listed here: shapes, texts, gradients and clips, with plain attributes.
No script, no handler, no link out of the drawing, no style sheet, no embedded picture.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final
from xml.etree import ElementTree as Xml

from markupsafe import Markup

NAMESPACE: Final = "http://www.w3.org/2000/svg"
#: A drawing of more characters than this is refused: the page has to stay light.
LONGEST: Final = 2_000_000
#: Deeper drawings are refused: nobody draws them by hand or by library.
DEEPEST: Final = 60


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


ELEMENTS: Final = _words(
    "svg g path rect circle ellipse line polyline polygon text tspan title desc defs use clipPath"
    " linearGradient radialGradient stop marker symbol"
)
PAINT: Final = _words(
    "fill fill-opacity fill-rule stroke stroke-width stroke-opacity stroke-linecap stroke-linejoin"
    " stroke-dasharray stroke-dashoffset stroke-miterlimit opacity color font-family font-size"
    " font-weight font-style text-anchor dominant-baseline stop-color stop-opacity visibility"
    " letter-spacing"
)
ATTRIBUTES: Final = PAINT | _words(
    "id x y x1 y1 x2 y2 cx cy r rx ry d points width height viewBox transform version dx dy rotate"
    " offset gradientUnits gradientTransform clipPathUnits clip-path clip-rule markerWidth"
    " markerHeight markerUnits refX refY orient marker-start marker-mid marker-end role aria-label"
    " preserveAspectRatio textLength"
)
_LOCAL = re.compile(r"url\(\s*['\"]?#([\w.:-]+)['\"]?\s*\)")
_UNSAFE = re.compile(r"url\s*\(|javascript:|data:|expression|@import|\\", re.IGNORECASE)


def sanitised(text: str, prefix: str) -> Markup:
    """Return the drawing with nothing in it but what is listed above.

    Args:
        text: one SVG document.
        prefix: put before every id, so that two drawings of a page cannot be mixed up.

    Raises:
        ValueError: it is no SVG, or too long, or declares entities; the text says which.

    >>> print(sanitised('<svg xmlns="http://www.w3.org/2000/svg" onload="alert(1)"/>', "a"))
    <svg xmlns="http://www.w3.org/2000/svg" />
    """
    if len(text) > LONGEST:
        raise ValueError(f"the drawing has {len(text):,} characters, {LONGEST:,} are allowed")
    # A document type of our own plotting library is harmless and dropped; entities are a bomb.
    if "<!ENTITY" in text:
        raise ValueError("the drawing declares entities")
    try:
        root = Xml.fromstring(re.sub(r"<!DOCTYPE[^>\[]*>", "", text, count=1))
    except Xml.ParseError as error:
        raise ValueError(f"the drawing is not well-formed ({error})") from error
    if _name(root.tag) != "svg":
        raise ValueError(f"the drawing begins with <{_name(root.tag)}>, not <svg>")
    clean = _copy(root, prefix)
    clean.set("xmlns", NAMESPACE)
    return Markup(Xml.tostring(clean, encoding="unicode"))


def _name(tag: object) -> str:
    """Return an element's name if it is SVG's, else nothing; comments have no text tag."""
    if not isinstance(tag, str):
        return ""
    if tag.startswith("{"):
        space, _, local = tag[1:].partition("}")
        return local if space == NAMESPACE else ""
    return tag


def _copy(element: Xml.Element, prefix: str, depth: int = 0) -> Xml.Element:
    if depth > DEEPEST:
        raise ValueError(f"the drawing is nested more than {DEEPEST} deep")
    copied = Xml.Element(_name(element.tag), dict(_attributes(element, prefix)))
    copied.text = element.text
    for child in element:
        if _name(child.tag) in ELEMENTS:
            kept = _copy(child, prefix, depth + 1)
            kept.tail = child.tail
            copied.append(kept)
    return copied


def _attributes(element: Xml.Element, prefix: str) -> Iterator[tuple[str, str]]:
    for raw, value in element.attrib.items():
        name = raw.rpartition("}")[2]
        if name == "style":
            # The page's policy forbids style attributes; what they say is kept as attributes.
            for part in value.split(";"):
                key, _, setting = part.partition(":")
                yield from _kept(key.strip().lower(), setting.strip(), prefix, PAINT)
        elif name == "href":
            if re.fullmatch(r"#[\w.:-]+", value):
                yield "href", f"#{prefix}-{value[1:]}"
        elif not raw.startswith("{"):
            yield from _kept(name, value, prefix, ATTRIBUTES)


def _kept(name: str, value: str, prefix: str, allowed: frozenset[str]) -> Iterator[tuple[str, str]]:
    if name not in allowed:
        return
    if name == "id":
        yield "id", f"{prefix}-{value}"
        return
    local = _LOCAL.sub(lambda found: f"\0{prefix}-{found[1]}\1", value)
    if not _UNSAFE.search(local):
        yield name, local.replace("\0", "url(#").replace("\1", ")")
