"""The options that the verbs of ``visleak evaluate`` share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from visleak.cli import options

Predictions = Annotated[
    Path,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        rich_help_panel=options.OUT,
        help="File of the predictions, .parquet or .csv.",
    ),
]
Json = Annotated[
    bool,
    typer.Option("--json", rich_help_panel=options.OUT, help="Print the summary as JSON."),
]
Force = Annotated[
    bool,
    typer.Option("--force", rich_help_panel=options.OUT, help="Replace a file that is there."),
]

#: The model that is asked where nobody names one.
CLIP: Final = "clip"

Clip = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="CLIP",
        show_default=CLIP,
        rich_help_panel=options.HOW,
        help="A CLIP: clip (OpenAI's ViT-B/32), clip:FOLDER, clip:OWNER/NAME, or"
        " clip:MODEL/WEIGHTS?backend=open_clip such as"
        " clip:ViT-B-32/laion2b_s34b_b79k?backend=open_clip.",
    ),
]


def running(device: str | None, precision: str | None, batch: int | None) -> dict[str, str | int]:
    """Return those options of a network that were given, by name."""
    told = {"device": device, "precision": precision, "batch": batch}
    return {name: value for name, value in told.items() if value is not None}
