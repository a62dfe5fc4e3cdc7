"""The study as one page that opens offline, with links to the reports of its audits."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from functools import cache
from typing import Any
from urllib.parse import quote

from visleak.gallery import data_uri
from visleak.storage import REPORT
from visleak.study.results import Result
from visleak.study.tables import left_out, lists
from visleak.templates import environment


def page(result: Result, figures: Mapping[str, bytes], words: Mapping[str, str]) -> str:
    """Return the page.

    Args:
        result: what was found.
        figures: SVG by name, in the order of the page.
        words: what each figure shows, by name.
    """
    text = (
        environment("visleak.study")
        .get_template("study.html.j2")
        .render(
            result=result,
            figures=[
                {"source": data_uri(data, "image/svg+xml"), "told": words[name]}
                for name, data in figures.items()
            ],
            grids=lists(result),
            left_out=left_out(result),
            audits=_audits(result),
            policy=_policy(),
            style=_style(),
        )
    )
    # a name that is no UTF-8 holds lone surrogates
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _audits(result: Result) -> list[dict[str, Any]]:
    """Return the audits: reference, queries, and the path of the report if there is one."""
    found: dict[str, dict[str, Any]] = {}
    for cell in result.cells:
        entry = found.setdefault(
            cell.audit, {"reference": cell.comparison.reference, "queries": [], "link": ""}
        )
        entry["queries"].append(cell.comparison.query)
        # the verb writes reports, visleak.study does not
        if (result.run.audits[cell.comparison].folder / REPORT).is_file():
            entry["link"] = f"{quote(cell.audit)}/{REPORT}"
    return list(found.values())


@cache
def _style() -> Any:
    """Return the style sheet, which is part of the package and safe as it is."""
    from importlib import resources

    from markupsafe import Markup

    file = resources.files("visleak.study") / "templates" / "study.css"
    return Markup(re.sub(r"\s*\n\s*", "\n", file.read_text(encoding="utf-8")))


def _policy() -> str:
    """Return a policy that allows this style sheet, pictures in the page, and nothing else."""
    digest = base64.b64encode(hashlib.sha256(str(_style()).encode()).digest()).decode("ascii")
    return (
        "default-src 'none'; img-src data:; base-uri 'none'; form-action 'none';"
        f" style-src 'sha256-{digest}'"
    )
