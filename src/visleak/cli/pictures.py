"""Pictures of an audit's sets for display, as far as they are still to be had."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from visleak.cli.edges import note
from visleak.errors import VisleakError

if TYPE_CHECKING:
    from visleak.auditing import Audit
    from visleak.records import Bytes8


def shown_pictures(audit: Audit) -> Callable[[str, list[str]], dict[str, Bytes8]]:
    """Return the function that hands pictures to the report.

    Where a source is gone the report is still worth having; what is missing is said on stderr.
    """

    def pictures(name: str, ids: list[str]) -> dict[str, Bytes8]:
        try:
            return audit.pictures(name, ids)
        except VisleakError as error:
            note(f"no pictures of {name} in the report: {error}")
            return {}

    return pictures
