"""``visleak export``: what an audit found as a file for other tools."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from visleak.cli import edges, options


def export(
    folder: options.AuditFolder,
    as_: Annotated[
        str,
        typer.Option(
            "--as",
            metavar="cifair|ids|csv|accepted",
            show_default=False,
            help="cifair: TestID,TrainID,Distance,Judgment, with the repeats within the test set"
            " in a second file; ids: the leaking test images, one a line; csv: all pairs with all"
            " columns; accepted: leaking pairs by content, for audit --baseline.",
        ),
    ],
    out: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="FILE", show_default=False, help="The file."),
    ],
    grade: Annotated[
        str | None,
        typer.Option(
            "--grade",
            metavar="exact|near|similar|different",
            help="Weakest grade to write; by default near, any for csv. The lists of Barz & Denzler"
            " (2020) hold similar ones too.",
        ),
    ] = None,
    set_name: Annotated[
        str | None,
        typer.Option("--set", metavar="NAME", help="The test set, where there are several."),
    ] = None,
    force: options.ForceFile = False,
) -> None:
    """Write the pairs or the leaking images of an audit for other tools."""
    from visleak.export import export as write
    from visleak.storage import read_summary, refuse_sets

    refuse_sets(read_summary(folder), out)
    for path in write(folder, as_, out, grade=grade, query_set=set_name, force=force):
        edges.say(f"{edges.plain(str(path))}\n")
