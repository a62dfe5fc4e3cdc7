"""The options of ``visleak memorization benchmark``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from visleak.cli.memorization_options import FORMATS, MODEL, OUT

LISTS: Final = "The prompts"
METHODS: Final = "The methods"
IMAGES: Final = "How images are made"
JUDGES: Final = "What images are judged by"

ModelOrNone = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="M",
        rich_help_panel=MODEL,
        show_default=False,
        help="A pipeline of diffusers: a folder, or hub:OWNER/NAME, which is fetched once. Without"
        " it, the finished benchmark in DIR is shown.",
    ),
]
Triggers = Annotated[
    Path | None,
    typer.Option(
        "--triggers",
        metavar="FILE",
        rich_help_panel=LISTS,
        show_default=False,
        help=f"Prompts that replay training images, with their sources: {FORMATS}, such as"
        " MemBench's SD1_final.csv.",
    ),
]
Column = Annotated[
    str | None,
    typer.Option(
        "--column",
        metavar="C",
        rich_help_panel=LISTS,
        show_default=False,
        help="Column of the prompts in FILE.  \\[default: prompt, caption or text]",
    ),
]
ReferenceFolder = Annotated[
    Path | None,
    typer.Option(
        "--references",
        metavar="DIR",
        rich_help_panel=LISTS,
        show_default=False,
        help="The memorized images: files named like a prompt's sources (name, name without ending,"
        " or the last part of an address). Nothing is fetched. Without it, sources that are paths"
        " beside the list of triggers are taken.",
    ),
]
ReferenceMap = Annotated[
    Path | None,
    typer.Option(
        "--reference-map",
        metavar="CSV",
        rich_help_panel=LISTS,
        show_default=False,
        help="The same by a table with the columns file and source (or prompt).",
    ),
]
General = Annotated[
    Path | None,
    typer.Option(
        "--general",
        metavar="FILE",
        rich_help_panel=LISTS,
        show_default=False,
        help="Ordinary prompts, such as COCO's captions_val2017.json: what a method costs those who"
        " ask for nothing memorized.",
    ),
]
GeneralColumn = Annotated[
    str | None,
    typer.Option(
        "--general-column",
        metavar="C",
        rich_help_panel=LISTS,
        show_default=False,
        help="The same in the file of --general.",
    ),
]
TriggerSample = Annotated[
    int | None,
    typer.Option(
        "--trigger-sample",
        metavar="N",
        rich_help_panel=LISTS,
        show_default=False,
        help="Only so many trigger prompts, drawn by --seed.  \\[default: all]",
    ),
]
GeneralSample = Annotated[
    int | None,
    typer.Option(
        "--general-sample",
        metavar="N",
        rich_help_panel=LISTS,
        show_default=False,
        help="Only so many general prompts.  \\[default: all]",
    ),
]
Methods = Annotated[
    list[str] | None,
    typer.Option(
        "--method",
        metavar="M",
        rich_help_panel=METHODS,
        show_default=False,
        help="rna:N, rta:N, wen:L or ren:C, options after a comma (wen:3,scope=batch). May be"
        " repeated; paper stands for all of table 3 (Stable Diffusion 1) or 5 (2). None is always"
        " there.  \\[default: paper; for other models none and rna, rta, ren of table 3, as far as"
        " the model can have them]",
    ),
]
Images = Annotated[
    int,
    typer.Option("--images", metavar="N", rich_help_panel=IMAGES, help="Images a trigger prompt."),
]
GeneralImages = Annotated[
    int,
    typer.Option(
        "--general-images", metavar="N", rich_help_panel=IMAGES, help="Images a general prompt."
    ),
]
Steps = Annotated[
    int, typer.Option("--steps", metavar="N", rich_help_panel=IMAGES, help="Of the sampler.")
]
Guidance = Annotated[
    float, typer.Option("--guidance", metavar="G", rich_help_panel=IMAGES, help="1 is none.")
]
Batch = Annotated[
    int,
    typer.Option("--batch", metavar="N", rich_help_panel=IMAGES, help="Images made at a time."),
]
Seed = Annotated[
    int,
    typer.Option(
        "--seed",
        metavar="N",
        min=0,
        rich_help_panel=IMAGES,
        help="Of the noises, which all prompts and methods share.",
    ),
]
Similarity = Annotated[
    str,
    typer.Option(
        "--similarity",
        metavar="S",
        rich_help_panel=JUDGES,
        help="To the memorized images: sscd:FILE (MemBench), builtin (fingerprint, confirmed by"
        " verification), pixels, or another encoder.",
    ),
]
Clip = Annotated[
    str | None,
    typer.Option(
        "--clip",
        metavar="CLIP",
        rich_help_panel=JUDGES,
        show_default=False,
        help="CLIP score: a folder, OWNER/NAME on the hub, or open_clip:MODEL/WEIGHTS (MemBench:"
        " open_clip:ViT-g-14/laion2b_s12b_b42k).",
    ),
]
ClipText = Annotated[
    str,
    typer.Option(
        "--clip-text",
        metavar="T",
        rich_help_panel=JUDGES,
        help="CLIP score against original, the prompt as given; or augmented, with what RNA and RTA"
        " put in (MemBench's code).",
    ),
]
AestheticHead = Annotated[
    Path | None,
    typer.Option(
        "--aesthetic",
        metavar="FILE",
        rich_help_panel=JUDGES,
        show_default=False,
        help="Aesthetic score: weights of the linear head (sac+logos+ava1-l14-linearMSE.pth).",
    ),
]
AestheticClip = Annotated[
    str | None,
    typer.Option(
        "--aesthetic-clip",
        metavar="CLIP",
        rich_help_panel=JUDGES,
        show_default=False,
        help="The CLIP that the head reads.  \\[default: openai/clip-vit-large-patch14]",
    ),
]
Deviation = Annotated[
    str,
    typer.Option(
        "--std",
        metavar="D",
        rich_help_panel=JUDGES,
        help="Deviation of the aesthetic score in the tables: of images, of the means of prompts,"
        " or within a prompt; files have all.",
    ),
]
FidReference = Annotated[
    str | None,
    typer.Option(
        "--fid-reference",
        metavar="SOURCE",
        rich_help_panel=JUDGES,
        show_default=False,
        help="Real images, which those of the trigger prompts are compared with as a set (FID and"
        " kernel distance).",
    ),
]
FidFeatures = Annotated[
    str | None,
    typer.Option(
        "--fid-features",
        metavar="F",
        rich_help_panel=JUDGES,
        show_default=False,
        help="By whose features: inception:FILE (TorchScript), or an encoder such as dinov2.",
    ),
]
ReferenceSource = Annotated[
    str | None,
    typer.Option(
        "--reference-source",
        metavar="SOURCE",
        rich_help_panel=JUDGES,
        show_default=False,
        help="Pictures to search for the trigger prompts: the reference performance, which a method"
        " should come down to. Needs --clip.",
    ),
]
ReferenceCount = Annotated[
    int,
    typer.Option(
        "--reference-count",
        metavar="N",
        rich_help_panel=JUDGES,
        help="Pictures of SOURCE a prompt, of which the one with the best CLIP score counts.",
    ),
]
NoPictures = Annotated[
    bool,
    typer.Option("--no-pictures", rich_help_panel=OUT, help="No sheet of the worst images."),
]
Leaderboard = Annotated[
    Path | None,
    typer.Option(
        "--leaderboard",
        metavar="FILE",
        rich_help_panel=OUT,
        show_default=False,
        help="Put the rows on a leaderboard, a JSON file that is made if need be.",
    ),
]
AuditFolder = Annotated[
    Path | None,
    typer.Option(
        "--audit",
        metavar="A",
        rich_help_panel=OUT,
        show_default=False,
        help="An audit, such as traced/audit, whose report is to show the result.",
    ),
]
