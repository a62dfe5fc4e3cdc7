"""Pages from the templates of a room: all that is put into them is escaped."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Environment


@cache
def environment(package: str, finalize: Callable[[Any], Any] | None = None) -> Environment:
    """Return the templates in the folder ``templates`` of a package.

    Args:
        package: dotted name.
        finalize: is put between every value and the page.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined

    return Environment(
        loader=PackageLoader(package),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=finalize,
        trim_blocks=True,
        lstrip_blocks=True,
    )
