"""Options of ``visleak memorization trace``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from visleak.cli.memorization_options import OUT

SOURCES: Final = "Who is asked"
COUNTS: Final = "What counts"

Target = Annotated[
    str,
    typer.Argument(
        metavar="EXTRACT|S",
        show_default=False,
        help="Folder of visleak memorization extract, or any SOURCE of generated images.",
    ),
]
Sources = Annotated[
    list[str] | None,
    typer.Option(
        "--source",
        metavar="[NAME=]S",
        rich_help_panel=SOURCES,
        show_default=False,
        help="Training images: any SOURCE, or published fingerprints (emb:DIR), which verify"
        " nothing. May be repeated.",
    ),
]
Services = Annotated[
    list[str] | None,
    typer.Option(
        "--service",
        metavar="M:O",
        rich_help_panel=SOURCES,
        show_default=False,
        help="Reverse image search: a Python object package.module:object with name, sends and"
        " find. It is sent the images that no source verified, and what it finds verifies"
        " nothing. May be repeated.",
    ),
]
Unverified = Annotated[
    bool,
    typer.Option(
        "--unverified",
        rich_help_panel=SOURCES,
        help="There is no training set to ask: list the images as candidates, unverified.",
    ),
]
Every = Annotated[
    bool,
    typer.Option(
        "--all",
        rich_help_panel=SOURCES,
        help="Trace all images of the extraction, not one a cluster, and say which prompts"
        " replicate (D_mem).",
    ),
]
Tau = Annotated[
    float,
    typer.Option(
        "--tau",
        metavar="X",
        rich_help_panel=COUNTS,
        help="M_tau = 1 where the similarity to some training image is above X (definition 1).",
    ),
]
KappaShare = Annotated[
    str,
    typer.Option(
        "--kappa-share",
        metavar="RATE",
        rich_help_panel=COUNTS,
        help="A prompt is in D_mem if more than RATE (0.5 or 50%) of its images have M_tau ="
        " 1; with --all.",
    ),
]
Similarity = Annotated[
    str | None,
    typer.Option(
        "--similarity",
        metavar="E",
        rich_help_panel=COUNTS,
        help="Encoder whose cosine tau belongs to: sscd:FILE (MemBench), or any other of"
        " --encoder. By default that of published fingerprints, else builtin.",
    ),
]
Views = Annotated[
    str,
    typer.Option(
        "--views",
        metavar="V",
        rich_help_panel=COUNTS,
        help="Views of the generated images that are compared: none (definition 1), mirror"
        " (for models trained with random flips) or all.",
    ),
]
NoLayouts = Annotated[
    bool,
    typer.Option(
        "--no-layouts",
        rich_help_panel=COUNTS,
        help="Do not look for copies in other colours, which takes one more pass over the sources.",
    ),
]
Categories = Annotated[
    Path | None,
    typer.Option(
        "--categories",
        metavar="FILE.csv",
        rich_help_panel=COUNTS,
        show_default=False,
        help="What memorized images show: columns category (commercial product, human, artwork,"
        " other) and reference, image or prompt.",
    ),
]
FailOn = Annotated[
    list[str] | None,
    typer.Option(
        "--fail-on",
        metavar="memorized[=RATE]",
        rich_help_panel=OUT,
        help="Exit with 3 if more than RATE (0.01 or 1%, default 0) of the traced images count"
        " as memorized.",
    ),
]
