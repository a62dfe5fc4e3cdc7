"""``visleak check``: whether the files of an audit folder belong together."""

from __future__ import annotations

import json as js
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from visleak.cli import edges, options

if TYPE_CHECKING:
    from visleak.integrity import Integrity


def check(
    folder: options.AuditFolder,
    images: Annotated[
        bool,
        typer.Option("--images", help="Read all images again and compare their content too."),
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print all of it as JSON.")] = False,
) -> None:
    """Check that tables, counts, digests and verdicts of an audit belong together.

    Exits with 1 if something is wrong. Nothing is written.
    """
    from visleak.cli.progress import bars
    from visleak.integrity import check_audit

    with bars() as progress:
        found = check_audit(folder, images=images, progress=progress)
    if json:
        edges.say(js.dumps(found.as_dict(), indent=1) + "\n")
    else:
        edges.say("".join(f"{edges.plain(line)}\n" for line in _lines(found)))
    if found.findings:
        raise typer.Exit(1)


def _lines(found: Integrity) -> Iterator[str]:
    if found.findings:
        count = len(found.findings)
        yield f"{found.folder} is damaged: {count} {'finding' if count == 1 else 'findings'}"
    else:
        yield f"{found.folder} is whole"
    for finding in found.findings:
        yield f"  {finding.where}: {finding.what}; {finding.remedy}"
    compared = f", {found.compared:,} of them read again" if found.compared else ""
    yield (
        f"checked: {found.pairs:,} pairs, {found.images:,} images{compared},"
        f" {found.verdicts:,} verdicts"
    )
    for note in found.notes:
        yield f"note: {note}"
