"""``visleak report``: write the page of an audit folder again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from visleak.cli import edges, options


def report(
    folder: options.AuditFolder,
    out: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="The file; by default report.html of A."
        ),
    ] = None,
    no_pictures: Annotated[
        bool, typer.Option("--no-pictures", help="Put no pictures in the report.")
    ] = False,
    force: options.ForceFile = False,
) -> None:
    """Write the report of an audit again, with what has been added to the folder since."""
    from visleak.auditing import Audit
    from visleak.cli.pictures import shown_pictures
    from visleak.report import write_report
    from visleak.storage import REPORT, free_file, refuse_sets

    audit = Audit(folder)
    # the page of the audit itself is what this verb is for
    if out is not None and out.absolute() != (folder / REPORT).absolute():
        free_file(out, force=force, audit=folder)
        refuse_sets(audit.summary, out)
    pictures = None if no_pictures else shown_pictures(audit)
    path = write_report(audit.folder, out, pictures=pictures, private=no_pictures)
    edges.say(f"{edges.plain(str(path))}\n")
