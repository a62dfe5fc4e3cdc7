"""``visleak diff``: what changed between two audits."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from visleak.cli import edges, options

#: Changes that are shown; there are a few per set and setting.
ROWS = 1000


def diff(
    before: Annotated[
        Path,
        typer.Argument(
            metavar="A",
            show_default=False,
            callback=options.told,
            help="The audit folder before.",
        ),
    ],
    after: Annotated[
        Path,
        typer.Argument(
            metavar="B", show_default=False, callback=options.told, help="The audit folder after."
        ),
    ],
    grade: Annotated[
        str | None,
        typer.Option(
            "--grade",
            metavar="exact|near|similar|hard|soft",
            help="The weakest that counts; by default near, without grades soft.",
        ),
    ] = None,
    maps: Annotated[
        list[str] | None,
        typer.Option(
            "--map",
            metavar="OLD=NEW",
            help="A set of A and what it is called in B, where it is not clear. May be repeated.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE.csv", help="Write every changed pair."),
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print all numbers as json instead of the summary.")
    ] = False,
    force: options.ForceFile = False,
) -> None:
    """Say what a clean-up, a new encoder or new data changed: images, pairs, rates, settings."""
    from visleak.cli.terminal import rendered
    from visleak.diff import diff as compared
    from visleak.diff import document, headlines, write_changes
    from visleak.diff.matching import parse_map
    from visleak.reporting import terminal
    from visleak.storage import free_file, read_summary, refuse_sets

    if out is not None:
        for folder in (before, after):
            free_file(out, force=force, audit=folder)
            refuse_sets(read_summary(folder), out)
    found = compared(before, after, grade, parse_map(maps or ()))
    if out is not None:
        write_changes(found, out)
    if json:
        from json import dumps

        content = {"headline": "; ".join(headlines(found))} | found.as_dict()
        edges.say(dumps(content, indent=1, ensure_ascii=False) + "\n")
        return
    edges.say(rendered(terminal(document(found), rows=ROWS)))
    if out is not None:
        edges.say(f"{edges.plain(str(out))}\n")
