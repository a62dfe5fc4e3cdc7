"""The options that the verbs of ``visleak evaluate`` share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

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
