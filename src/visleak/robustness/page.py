"""The experiment as one page that opens offline."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from visleak.gallery import data_uri
from visleak.robustness.results import Robustness
from visleak.robustness.tables import facts, shown


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
    text: str = _template().render(
        result=result,
        facts=facts(result),
        tables=tables,
        plots={name: data_uri(data, "image/svg+xml") for name, data in svg.items()},
        sheet=data_uri(sheet) if sheet is not None else None,
    )
    return text


@cache
def _template() -> Any:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("visleak.robustness"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("page.html.j2")
