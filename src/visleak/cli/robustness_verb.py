"""``visleak robustness``: change pictures in many ways and look for them in their set."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from visleak.cli import edges, options
from visleak.cli.audit_verb import cache_folder

RESULT: Final = "robustness.json"


def robustness(
    source: options.Collection,
    encoders: Annotated[
        list[str] | None,
        typer.Option(
            "--encoder",
            metavar="NAME",
            rich_help_panel=options.HOW,
            help="Fingerprint; may be repeated. By default builtin.",
        ),
    ] = None,
    conditions: options.Conditions = "all",
    queries: options.Queries = 200,
    seed: options.Seed = 0,
    no_verify: options.Repeats = False,
    at: Annotated[
        list[float] | None,
        typer.Option(
            "--at",
            metavar="X",
            rich_help_panel=options.HOW,
            help="Similarity at which true- and false-positive rates are read, beside the"
            " encoder's own thresholds. May be repeated.",
        ),
    ] = None,
    out: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            metavar="DIR",
            rich_help_panel=options.OUT,
            help="Folder of the result.",
        ),
    ] = Path("visleak-robustness"),
    json: Annotated[
        bool,
        typer.Option(
            "--json",
            rich_help_panel=options.OUT,
            help="Print robustness.json instead of the summary.",
        ),
    ] = False,
    force: Annotated[
        bool,
        typer.Option(
            "--force", rich_help_panel=options.OUT, help="Replace a result that is there already."
        ),
    ] = False,
    workers: options.Workers = None,
    cache: options.CacheFolder = None,
) -> None:
    """Measure how surely changed copies are found among all pictures of a set.

    Writes figures, plots, a contact sheet of the changes and report.html to a folder.
    """
    from visleak.cli import sets
    from visleak.cli.progress import bars
    from visleak.cli.terminal import rendered
    from visleak.reporting import terminal
    from visleak.robustness import robustness as measured
    from visleak.robustness.document import PAGE, document, write
    from visleak.storage import claimed, free_folder, refuse_inputs

    free_folder(out, RESULT, force=force)
    images = sets.one(source)
    refuse_inputs(out, [(images.name, images.source)], Path())
    with bars() as progress:
        result = measured(
            images,
            encoders or ["builtin"],
            conditions=[name for name in conditions.split(",") if name],
            queries=queries,
            seed=seed,
            verify=not no_verify,
            thresholds=at or (),
            workers=workers,
            cache=cache_folder(cache),
            progress=progress,
        )
        progress("writing the result", 0, 0)
        with claimed(out):
            write(result, out)
        progress("writing the result", 1, 1)
    if json:
        edges.say_bytes((out / RESULT).read_bytes())
        return
    edges.say(rendered(terminal(document(result), tables=len(result.encoders), rows=100)))
    edges.say(f"{edges.plain(str(out / PAGE))}\n")
