"""The experiment as one page that opens offline."""

from __future__ import annotations

from collections.abc import Mapping

from visleak.gallery import data_uri
from visleak.robustness.results import Robustness
from visleak.robustness.tables import facts, shown
from visleak.templates import environment


def page(result: Robustness, svg: Mapping[str, bytes], sheet: bytes | None) -> str:
    """Return the page.

    Args:
        result: what was found.
        svg: plots by name, ``r1`` and ``roc``; a missing one is left out.
        sheet: the contact sheet as WebP.
    """
    tables = []
    for tested in result.encoders:
        header, rows = shown(tested)
        tables.append({"encoder": tested, "header": header, "rows": rows})
    return (
        environment("visleak.robustness")
        .get_template("page.html.j2")
        .render(
            result=result,
            facts=facts(result),
            tables=tables,
            plots={name: data_uri(data, "image/svg+xml") for name, data in svg.items()},
            sheet=data_uri(sheet) if sheet is not None else None,
        )
    )
