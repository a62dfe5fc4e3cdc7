"""``visleak review``: judge the pairs of an audit in a browser."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from visleak.cli import edges, options


def review(
    folder: options.AuditFolder,
    reviewer: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Whose verdicts these are; by default the system's user."
        ),
    ] = None,
    candidates: Annotated[
        str,
        typer.Option(
            metavar="listed|nearest",
            help="Every pair of the audit, or each test image's one nearest without a threshold"
            " (the list of Barz & Denzler 2020).",
        ),
    ] = "listed",
    grade: Annotated[
        str | None,
        typer.Option(
            metavar="GRADE",
            help="Begin with pairs of this machine grade or stronger; with --pool also the weakest"
            " grade that makes a duplicate (default near; that of Barz & Denzler 2020 is similar).",
        ),
    ] = None,
    port: Annotated[
        int, typer.Option(metavar="N", help="Port of 127.0.0.1; 0 takes one that is free.")
    ] = 0,
    pool: Annotated[
        str | None,
        typer.Option(
            metavar="SOURCE",
            help="Choose replacements for duplicates from these images, on a page of its own.",
        ),
    ] = None,
    label: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Column of the pool with the labels."),
    ] = None,
    instructions: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="What an image of each class must be like, shown beside a replacement: a JSON"
            " object, or a text with a line ## CLASS above each.",
        ),
    ] = None,
    no_browser: Annotated[
        bool, typer.Option("--no-browser", help="Print the address and open no browser.")
    ] = False,
) -> None:
    """Judge the pairs of an audit in a browser; Ctrl-C ends it."""
    from visleak.cli.progress import bars
    from visleak.replacements import SelectionSettings
    from visleak.replacements.duplicates import GRADE
    from visleak.review import review as serve
    from visleak.verdicts.ledger import PLAIN

    agreed = serve(
        folder,
        reviewer=reviewer,
        candidates=candidates,
        grade=grade,
        port=port,
        browser=not no_browser,
        pool=None if pool is None else SelectionSettings(pool, label=label, grade=grade or GRADE),
        instructions=instructions,
        told=lambda line: edges.say(f"{edges.plain(line)}\n"),
        bars=bars,
    )
    count = f"{agreed.judged:,} {'pair' if agreed.judged == 1 else 'pairs'} judged"
    if agreed.disputed:
        count += f", {agreed.disputed:,} of them disputed"
    where = f"; verdicts are in {folder / PLAIN}" if agreed.judged else ""
    edges.say(edges.plain(f"{count}{where}") + "\n")
