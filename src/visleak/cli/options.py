"""Options of commands that are not derived from settings yet."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Annotated, Final

import typer

from visleak.cli import edges

SETS: Final = "What is compared"
HOW: Final = "How"
OUT: Final = "What comes out"
SPEED: Final = "Speed (never changes the answer)"

Id = Annotated[
    str | None,
    typer.Option("--id", metavar="COLUMN", rich_help_panel=SETS, help="Column with the ids."),
]
Label = Annotated[
    str | None,
    typer.Option("--label", metavar="COLUMN", rich_help_panel=SETS, help="Column with the labels."),
]
NoPictures = Annotated[
    bool,
    typer.Option("--no-images", rich_help_panel=OUT, help="Put no pictures in the report."),
]
Json = Annotated[
    bool,
    typer.Option("--json", rich_help_panel=OUT, help="Print audit.json instead of the summary."),
]
Force = Annotated[
    bool,
    typer.Option("--force", rich_help_panel=OUT, help="Replace an audit that is there already."),
]
Collection = Annotated[
    str,
    typer.Argument(
        metavar="[NAME=]S",
        show_default=False,
        help="A set of pictures, as for audit: a folder, list, archive, table, cifar:..., coco:...",
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(
        "--workers",
        metavar="N",
        min=1,
        rich_help_panel=SPEED,
        help="Processes; by default one for each core.",
    ),
]
EngineName = Annotated[
    str,
    typer.Option(
        "--engine",
        metavar="local|ray",
        rich_help_panel=SPEED,
        help="Who works: processes of this machine, or a Ray cluster.",
    ),
]
RayAddress = Annotated[
    str | None,
    typer.Option(
        "--ray-address",
        metavar="auto|HOST:PORT",
        rich_help_panel=SPEED,
        help="Cluster to join, from one of its nodes; by default $RAY_ADDRESS, else one is started"
        " here for this run. Implies --engine ray.",
    ),
]
Device = Annotated[
    str | None,
    typer.Option(
        "--device",
        metavar="auto|cpu|cuda|..",
        rich_help_panel=SPEED,
        help="Where a network runs (by default on a GPU if there is one), and where embeddings are"
        " compared (by default on the processor).",
    ),
]
Batch = Annotated[
    int | None,
    typer.Option(
        "--batch",
        metavar="N",
        min=1,
        rich_help_panel=SPEED,
        help="Pictures that a network takes at a time; fewer need less memory.",
    ),
]
Precision = Annotated[
    str | None,
    typer.Option(
        "--precision",
        metavar="fp32|fp16|bf16",
        rich_help_panel=HOW,
        help="Arithmetic of a network. The halves are faster on a GPU and change similarities in"
        " about the third decimal.",
    ),
]
CacheFolder = Annotated[
    str | None,
    typer.Option(
        "--cache",
        metavar="DIR|off",
        rich_help_panel=SPEED,
        help="Where fingerprints and evidence are kept between runs; by default in the user's"
        " cache folder or $VISLEAK_CACHE.",
    ),
]


def told(folder: Path | None) -> Path | None:
    """Say where an audit is unfinished, for its numbers are those of fewer images."""
    if folder is None:
        return None
    from visleak.errors import VisleakError
    from visleak.storage import read_summary

    # a verb says itself what is wrong with its folder
    with suppress(VisleakError, OSError):
        if lost := read_summary(folder).unfinished:
            edges.complain(
                f"the audit {folder} is unfinished: {lost:,} images could not be read again and are"
                " in no rate; run the audit again"
            )
    return folder


AuditFolder = Annotated[
    Path,
    typer.Argument(metavar="A", show_default=False, callback=told, help="An audit folder."),
]
