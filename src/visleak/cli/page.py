"""An audit's page, and the images in it that can still be read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from visleak.cli.edges import note
from visleak.errors import VisleakError

if TYPE_CHECKING:
    from visleak.auditing import Audit
    from visleak.pipeline.context import Progress
    from visleak.records import Bytes8

#: Long side of the images handed to a page, pixels: as many as a fine comparison can use.
SIDE: Final = 1024


def reader_for_page(audit: Audit) -> Callable[[str, list[str]], dict[str, Bytes8]] | None:
    """Return the function that reads images for the report; ``None`` if no set has any.

    Where a source is gone the report is still worth having; what is missing is said on stderr.
    """

    without = {each.name for each in audit.summary.sets if not each.has_pixels}
    if len(without) == len(audit.summary.sets):
        return None

    def read(name: str, ids: list[str]) -> dict[str, Bytes8]:
        if name in without:
            return {}
        try:
            found = audit.decoded_images(name, ids, side=SIDE)
        except VisleakError as error:
            note(f"no images of {name} are shown: {error}")
            return {}
        absent = [id_ for id_ in ids if id_ not in found]
        if absent:
            note(
                f"{len(absent):,} images of {name} are not shown, such as {absent[0]!r}: they"
                " cannot be read or have changed since the audit"
            )
        return found

    return read


def write_page(result: Audit, *, private: bool, progress: Progress) -> None:
    """Write an audit's page, unless that of the same audit is there.

    Without images it is always written: the existing one may have some. So it is if there are
    verdicts: there may be more since.
    """
    from visleak.report import write_report
    from visleak.storage import REPORT
    from visleak.verdicts import read_verdicts

    there = result.reused and not private and (result.folder / REPORT).is_file()
    if there and not read_verdicts(result.folder):
        return
    progress("writing the report", 0, 0)
    images = None if private else reader_for_page(result)
    write_report(result.folder, loader=images, private=private)
    progress("writing the report", 1, 1)


def show_in_report(
    audit: Audit, name: str, content: Mapping[str, object], *, private: bool
) -> None:
    """Write a section, and the audit's page with it; a page without images stays so."""
    from visleak.report import is_private, write_report
    from visleak.storage import SECTIONS, write_json

    write_json(audit.folder / SECTIONS / name, content)
    private = private or is_private(audit.folder)
    images = None if private else reader_for_page(audit)
    write_report(audit.folder, loader=images, private=private)
