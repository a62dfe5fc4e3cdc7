"""Options of ``visleak memorization extract``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from visleak.cli.memorization_options import FORMATS, MODEL, OUT

IMAGES: Final = "How images are made"
CLUSTERS: Final = "What counts as a cluster"

ModelOrNone = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="M",
        rich_help_panel=MODEL,
        show_default=False,
        help="A pipeline of diffusers: a folder, or hub:OWNER/NAME, which is fetched once.",
    ),
]
PromptFile = Annotated[
    Path | None,
    typer.Option(
        "--prompts",
        metavar="FILE",
        show_default=False,
        help=f"The prompts: {FORMATS}, such as prompts.parquet of search or scores.parquet of"
        " detect.",
    ),
]
Column = Annotated[
    str | None,
    typer.Option(
        "--column",
        metavar="C",
        show_default=False,
        help="Column of the prompts in FILE.  \\[default: prompt, caption or text]",
    ),
]
Top = Annotated[
    int | None,
    typer.Option(
        "--top",
        metavar="N",
        min=1,
        show_default=False,
        help="Only the N prompts of the highest D, of a list that has it: what search, augment or"
        " detect wrote.  \\[default: all]",
    ),
]
Reached = Annotated[
    bool,
    typer.Option(
        "--reached",
        help="Only prompts that reached kappa (search, augment) or the threshold (detect).",
    ),
]
Images = Annotated[
    int | None,
    typer.Option(
        "--images",
        metavar="N",
        rich_help_panel=IMAGES,
        show_default=False,
        help="Images a prompt.  \\[default: 100]",
    ),
]
Steps = Annotated[
    int, typer.Option("--steps", metavar="N", rich_help_panel=IMAGES, help="Steps of the sampler.")
]
Guidance = Annotated[
    float,
    typer.Option(
        "--guidance",
        metavar="G",
        rich_help_panel=IMAGES,
        help="Scale of classifier-free guidance; 1 is none and costs half.",
    ),
]
BatchOfImages = Annotated[
    int,
    typer.Option("--batch", metavar="N", rich_help_panel=IMAGES, help="Images made at a time."),
]
SeedOfImages = Annotated[
    int,
    typer.Option(
        "--seed",
        metavar="N",
        min=0,
        rich_help_panel=IMAGES,
        help="Of the noises images start from.",
    ),
]
OwnNoises = Annotated[
    bool,
    typer.Option(
        "--own-noises",
        rich_help_panel=IMAGES,
        help="Other noises for each prompt; by default all start from the same.",
    ),
]
Similarity = Annotated[
    str,
    typer.Option(
        "--similarity",
        metavar="S",
        rich_help_panel=CLUSTERS,
        help="builtin (fingerprint, confirmed by verification), sscd:FILE (MemBench; squeezed as"
        " by its code: sscd:FILE?resize=288x288), pixels (correlation at 32 x 32), or another"
        " encoder.",
    ),
]
Eps = Annotated[
    float | None,
    typer.Option(
        "--eps",
        metavar="E",
        rich_help_panel=CLUSTERS,
        show_default=False,
        help="DBSCAN: distance (1 - similarity) of neighbours.  \\[default: 0.5; pixels: 0.1; other"
        " encoders but SSCD: that of their soft threshold]",
    ),
]
MinSamples = Annotated[
    int,
    typer.Option(
        "--min-samples",
        metavar="N",
        rich_help_panel=CLUSTERS,
        help="DBSCAN: neighbours, itself counted, that make an image a core.",
    ),
]
MinCluster = Annotated[
    int | None,
    typer.Option(
        "--min-cluster",
        metavar="N",
        rich_help_panel=CLUSTERS,
        show_default=False,
        help="Least images of a cluster.  \\[default: 20]",
    ),
]
Rule = Annotated[
    str,
    typer.Option(
        "--rule",
        metavar="R",
        rich_help_panel=CLUSTERS,
        help="Defaults of --images and --min-cluster: paper (100, 20) or code (50, and every"
        " cluster is kept, as MemBench's code does).",
    ),
]
Recluster = Annotated[
    bool,
    typer.Option(
        "--recluster",
        rich_help_panel=CLUSTERS,
        help="Only cluster the images in DIR anew: no model, no new image.",
    ),
]
NoPictures = Annotated[
    bool,
    typer.Option("--no-pictures", rich_help_panel=OUT, help="Draw no contact sheets of clusters."),
]
