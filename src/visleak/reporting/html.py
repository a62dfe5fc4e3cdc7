"""A document as one HTML page that opens offline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import resources

from markupsafe import Markup

import visleak
from visleak.gallery import data_uri
from visleak.reporting.document import Document
from visleak.templates import environment, policy, visible

_MEDIA = {"svg": "image/svg+xml", "png": "image/png", "webp": "image/webp", "jpg": "image/jpeg"}


def page(
    document: Document,
    images: Mapping[str, bytes] | None = None,
    links: Sequence[tuple[str, str]] = (),
) -> str:
    """Return a document as a page; all of it is escaped, figures are images in it."""
    known = images or {}
    style = (resources.files("visleak.reporting") / "templates" / "document.css").read_text("utf-8")
    shown = [
        (each.title, data_uri(each.files["svg"], _MEDIA["svg"]))
        for each in document.figures
        if "svg" in each.files
    ]
    shown += [
        (title, data_uri(known[name], _MEDIA[name.rpartition(".")[2]]))
        for title, name in document.images
        if known.get(name)
    ]
    text = (
        environment("visleak.reporting", visible)
        .get_template("document.html.j2")
        .render(
            document=document,
            headline=f"{document.headline[:1].upper()}{document.headline[1:]}.",
            images=shown,
            links=links,
            grids=document.grids(),
            notes=[
                ("What was measured", document.notes),
                ("How to read this", document.reading),
            ],
            policy=policy(style),
            style=Markup(style),
            version=visleak.__version__,
        )
    )
    # a name that is not UTF-8 holds lone surrogates
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
