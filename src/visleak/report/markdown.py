"""A small, safe part of Markdown: everything is escaped first, then a few marks become tags.

Headings, paragraphs, lists, bold, emphasis, code and links to ``https:`` addresses. Raw HTML,
images and other addresses stay visible as the text they are. A backslash takes a sign's meaning.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby

from markupsafe import Markup, escape

_HEADING = re.compile(r"(#{1,4})\s+(.+?)\s*#*\s*$")
_ITEM = re.compile(r"\s*(?:([-*+])|\d{1,6}[.)])\s+(.*)$")
_FENCE = re.compile(r"\s*```")
_INLINE = re.compile(
    r"\\(?P<literal>[\\`*_\[\]<>|$~#&])"
    r"|`(?P<code>[^`\n]+)`"
    r"|\*\*(?P<bold>[^*\n]+)\*\*"
    r"|(?<![*\w])\*(?P<emphasis>[^*\s][^*\n]*)\*(?!\w)"
    r"|\[(?P<text>[^\[\]\n]+)\]\((?P<link>https://[^\s()<>\"']+)\)"
)


def render(text: str) -> Markup:
    r"""Render a text; headings start at the third level, beneath the section's own.

    >>> print(render("# Cost\nIt is **2 %** of `a<b`."))
    <h3>Cost</h3>
    <p>It is <strong>2 %</strong> of <code>a&lt;b</code>.</p>
    >>> print(render("[x](javascript:alert(1)) <b>"))
    <p>[x](javascript:alert(1)) &lt;b&gt;</p>
    >>> print(render(r"\[x\](https://a.b) \*\*2\*\*"))
    <p>[x](https://a.b) **2**</p>
    """
    return Markup("\n").join(_blocks(text.replace("\r\n", "\n").split("\n")))


def _blocks(lines: list[str]) -> Iterator[Markup]:
    fence: list[str] | None = None
    plain: list[str] = []
    for line in lines:
        if _FENCE.match(line):
            yield from _plain(plain)
            plain = []
            if fence is not None:
                yield _code(fence)
            fence = [] if fence is None else None
        elif fence is not None:
            fence.append(line)
        else:
            plain.append(line)
    if fence is not None:
        yield _code(fence)
    yield from _plain(plain)


def _code(lines: list[str]) -> Markup:
    return Markup("<pre><code>{}</code></pre>").format("\n".join(lines))


def _plain(lines: list[str]) -> Iterator[Markup]:
    """Group neighbouring lines of a kind: a list, a paragraph; a heading stands alone."""
    for kind, group in groupby(lines, key=_kind):
        block = list(group)
        if kind in ("ul", "ol"):
            yield _list(kind, block)
        elif kind == "heading":
            yield from (_heading(line) for line in block)
        elif kind == "text":
            yield Markup("<p>{}</p>").format(_inline(" ".join(line.strip() for line in block)))


def _kind(line: str) -> str:
    if not line.strip():
        return "blank"
    if _HEADING.match(line):
        return "heading"
    item = _ITEM.match(line)
    if item:
        return "ul" if item[1] else "ol"
    return "text"


def _list(kind: str, lines: list[str]) -> Markup:
    found = [item[2] for item in map(_ITEM.match, lines) if item]
    items = Markup("").join(Markup("<li>{}</li>").format(_inline(text)) for text in found)
    return Markup("<{0}>{1}</{0}>").format(kind, items)


def _heading(line: str) -> Markup:
    found = _HEADING.match(line)
    marks, text = (found[1], found[2]) if found else ("#", line)
    level = min(6, 2 + len(marks))
    return Markup("<h{0}>{1}</h{0}>").format(level, _inline(text))


def _inline(text: str) -> Markup:
    parts, at = [], 0
    for found in _INLINE.finditer(text):
        parts.append(escape(text[at : found.start()]))
        parts.append(_mark(found))
        at = found.end()
    parts.append(escape(text[at:]))
    return Markup("").join(parts)


def _mark(found: re.Match[str]) -> Markup:
    if found["literal"]:
        return escape(found["literal"])
    if found["code"]:
        return Markup("<code>{}</code>").format(found["code"])
    if found["bold"]:
        return Markup("<strong>{}</strong>").format(found["bold"])
    if found["emphasis"]:
        return Markup("<em>{}</em>").format(found["emphasis"])
    return Markup('<a href="{}" rel="noopener noreferrer">{}</a>').format(
        found["link"], found["text"]
    )
