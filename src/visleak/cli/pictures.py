"""An audit's page, and the pictures in it as far as they are still to be had."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from visleak.cli.edges import note
from visleak.errors import VisleakError

if TYPE_CHECKING:
    from visleak.auditing import Audit
    from visleak.pipeline.workplace import Progress
    from visleak.records import Bytes8


def shown_pictures(audit: Audit) -> Callable[[str, list[str]], dict[str, Bytes8]] | None:
    """Return the function that hands pictures to the report; ``None`` if no set has any.

    Where a source is gone the report is still worth having; what is missing is said on stderr.
    """

    without = {each["name"] for each in audit.summary["sets"] if not each.get("pictures", True)}
    if len(without) == len(audit.summary["sets"]):
        return None

    def pictures(name: str, ids: list[str]) -> dict[str, Bytes8]:
        if name in without:
            return {}
        try:
            return audit.pictures(name, ids)
        except VisleakError as error:
            note(f"no pictures of {name} in the report: {error}")
            return {}

    return pictures


def write_page(result: Audit, *, private: bool, progress: Progress) -> None:
    """Write an audit's page, unless that of the same audit is there.

    Without pictures it is always written: one with pictures may lie there. So it is where people
    judged: they may have gone on since.
    """
    from visleak.report import write_report
    from visleak.store import REPORT
    from visleak.verdicts import read_verdicts

    there = result.reused and not private and (result.folder / REPORT).is_file()
    if there and not read_verdicts(result.folder):
        return
    progress("writing the report", 0, 0)
    pictures = None if private else shown_pictures(result)
    write_report(result.folder, pictures=pictures, private=private)
    progress("writing the report", 1, 1)
