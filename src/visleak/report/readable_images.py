"""The report of an audit with those of its images that can still be read."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from visleak.auditing import Audit
from visleak.errors import VisleakError
from visleak.report.page import is_private, write_report
from visleak.storage import REPORT, SECTIONS, write_json
from visleak.verdicts import read_verdicts

if TYPE_CHECKING:
    from visleak.progress import Progress
    from visleak.records import Bytes8

logger: Final = logging.getLogger("visleak.report")

#: Long side of the images handed to a page, pixels: as many as a fine comparison can use.
SIDE: Final = 1024


def reader_for_page(audit: Audit) -> Callable[[str, list[str]], dict[str, Bytes8]] | None:
    """Return the function that reads images for the report; ``None`` if no set has any.

    Where a source is gone the report is still worth having; what is missing is logged.
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
            logger.warning("no images of %s are shown: %s", name, error)
            return {}
        absent = [id_ for id_ in ids if id_ not in found]
        if absent:
            logger.warning(
                "%s images of %s are not shown, such as %r: they cannot be read or have changed"
                " since the audit",
                *(f"{len(absent):,}", name, absent[0]),
            )
        return found

    return read


def save_report(
    audit: Audit, out: str | os.PathLike[str] | None = None, *, private: bool = False
) -> Path:
    """Write the report of an audit.

    Args:
        audit: a finished audit.
        out: the file; by default ``report.html`` of the audit.
        private: put no images into it.

    Returns:
        Where it is.

    Raises:
        VisleakError: a file of the audit is missing, damaged or of a newer visleak.
    """
    images = None if private else reader_for_page(audit)
    path = None if out is None else Path(out)
    return write_report(audit.folder, path, loader=images, private=private)


def renew_report(audit: Audit, *, private: bool, progress: Progress) -> None:
    """Write the report of an audit that was run or reused, unless it is there.

    Without images it is always written: the existing one may have some. So it is if there are
    verdicts: there may be more since.
    """
    there = audit.reused and not private and (audit.folder / REPORT).is_file()
    if there and not read_verdicts(audit.folder):
        return
    progress("writing the report", 0, 0)
    save_report(audit, private=private)
    progress("writing the report", 1, 1)


def show_in_report(
    audit: Audit, name: str, content: Mapping[str, object], *, private: bool
) -> None:
    """Write a section, and the report with it; a report without images stays so.

    An audit that may only be read is another's: the result is complete without its report.
    """
    try:
        write_json(audit.folder / SECTIONS / name, content)
        save_report(audit, private=private or is_private(audit.folder))
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EROFS):
            raise
        logger.warning("the report of %s does not show it: %s", audit.folder, error.strerror)
