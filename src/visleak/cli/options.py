"""The options of the verbs, with the words that ``--help`` says about them."""

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

Directory = Annotated[
    str | None,
    typer.Argument(
        metavar="DIR",
        show_default=False,
        help="A data set with train, val and test in it: folders, Parquet files, a table with a"
        " split column, or a YOLO data.yaml. Test and val are compared with train.",
    ),
]
Test = Annotated[
    list[str] | None,
    typer.Option(
        "--test",
        metavar="[[DATASET:]NAME=]SOURCE",
        rich_help_panel=SETS,
        help="Test images: a folder, list, glob, .csv or .parquet, .zip, .tar, shards such as"
        " a-{000..146}.tar, any of these at https://, s3:// or gs://, hf:NAME#test,"
        " cifar:FOLDER#test, kitti:FOLDER, coco:FILE, yolo:FILE#val or emb:FOLDER (embeddings)."
        " May be repeated.",
    ),
]
Train = Annotated[
    list[str] | None,
    typer.Option(
        "--train",
        metavar="[[DATASET:]NAME=]SOURCE",
        rich_help_panel=SETS,
        help="Training images to compare them with. May be repeated.",
    ),
]
Sets = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="[[DATASET:]NAME=]SOURCE",
        rich_help_panel=SETS,
        help="A set to compare with itself; several are also compared with each other.",
    ),
]
Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        rich_help_panel=SETS,
        help="A TOML file of named sets: every pair of them that makes sense is compared, and the"
        " result is a study with matrices (docs/study.md).",
    ),
]
Plan = Annotated[
    bool,
    typer.Option(
        "--dry-run",
        rich_help_panel=SETS,
        help="With --config: print what would be compared, and stop.",
    ),
]
Id = Annotated[
    str | None,
    typer.Option("--id", metavar="COLUMN", rich_help_panel=SETS, help="Column with the ids."),
]
Label = Annotated[
    str | None,
    typer.Option("--label", metavar="COLUMN", rich_help_panel=SETS, help="Column with the labels."),
]
Group = Annotated[
    str | None,
    typer.Option(
        "--group",
        metavar="COLUMN|/REGEX/",
        rich_help_panel=SETS,
        help="Column with the groups (a video, a patient), or a pattern whose first group is"
        " searched in the id.",
    ),
]
Frame = Annotated[
    str | None,
    typer.Option(
        "--frame",
        metavar="COLUMN|/REGEX/",
        rich_help_panel=SETS,
        help="Column with the frame numbers of recordings, or with times (seconds, ISO dates, whole"
        " milli-, micro- or nanoseconds since 1970); or a pattern whose first group is searched in"
        " the id. With --group, test frames next to training frames of their recording are found by"
        " time.",
    ),
]
WithinFrames = Annotated[
    int,
    typer.Option(
        "--max-frame-gap",
        metavar="N",
        min=0,
        rich_help_panel=HOW,
        help="A recording leaks where a test frame lies this many frames or fewer from a training"
        " frame.",
    ),
]
WithinSeconds = Annotated[
    float,
    typer.Option(
        "--max-time-gap",
        metavar="S",
        min=0.0,
        rich_help_panel=HOW,
        help="The same for frames that are known by time.",
    ),
]
Sample = Annotated[
    int,
    typer.Option(
        "--sample",
        metavar="N",
        min=0,
        rich_help_panel=SETS,
        show_default=False,
        help="Compare this many test images a set, drawn with a fixed seed.",
    ),
]
EncoderName = Annotated[
    str | None,
    typer.Option(
        "--encoder",
        metavar="NAME",
        rich_help_panel=HOW,
        help="What makes vectors of pictures: builtin, clip, dinov2, sscd:FILE and others, see"
        " docs/encoders.md; by default that of the embeddings, or builtin.",
    ),
]
SearchName = Annotated[
    str,
    typer.Option(
        "--search",
        metavar="exact|faiss",
        rich_help_panel=HOW,
        help="Search engine. An index of faiss may miss pairs; how many is measured and written"
        " into the audit.",
    ),
]
Hard = Annotated[
    float | None,
    typer.Option(
        "--hard",
        metavar="X",
        rich_help_panel=HOW,
        help="Similarity from which a leak is hard; by default the encoder's own.",
    ),
]
Soft = Annotated[
    float | None,
    typer.Option(
        "--soft",
        metavar="X",
        rich_help_panel=HOW,
        help="Similarity from which a leak is soft; by default the encoder's own.",
    ),
]
ThresholdsFile = Annotated[
    Path | None,
    typer.Option(
        "--thresholds",
        metavar="FILE",
        rich_help_panel=HOW,
        help="Thresholds that visleak calibrate wrote for this encoder; --hard and --soft come"
        " before it.",
    ),
]
Views = Annotated[
    str,
    typer.Option(
        "--views",
        metavar="none|mirror|all",
        rich_help_panel=HOW,
        help="Mirrored, turned and inverted views that are compared too.",
    ),
]
Candidates = Annotated[
    str,
    typer.Option(
        "--candidates",
        metavar="auto|best|nearest",
        rich_help_panel=HOW,
        help="Pairs that are looked at: by thresholds and the best twenty of each image (auto: of"
        " training embeddings by thresholds alone), or the nearest alone.",
    ),
]
NoWithin = Annotated[
    bool,
    typer.Option(
        "--skip-within", rich_help_panel=HOW, help="Do not look for repeats inside the test sets."
    ),
]
NoVerify = Annotated[
    bool,
    typer.Option(
        "--no-verify",
        rich_help_panel=HOW,
        help="Do not verify the pixels of a pair: degrees, but no grades. Where the thresholds of"
        " degrees do not suit the images (the summary then says so), find others with visleak"
        " calibrate.",
    ),
]
NearAt = Annotated[
    float,
    typer.Option(
        "--near-at",
        metavar="P",
        rich_help_panel=HOW,
        help="Probability from which a verified pair is near, above 0 and below 1.",
    ),
]
Annotations = Annotated[
    str,
    typer.Option(
        "--annotations",
        metavar="auto|used|unused",
        rich_help_panel=HOW,
        help="Whether training saw the annotations; by default as the sets tell.",
    ),
]
OutFolder = Annotated[
    Path,
    typer.Option("--output", "-o", metavar="DIR", rich_help_panel=OUT, help="Folder of the audit."),
]
FailOn = Annotated[
    list[str] | None,
    typer.Option(
        "--fail-on",
        metavar="G[=RATE]",
        rich_help_panel=OUT,
        help="Exit with 3 if more than RATE (0.01 or 1%, default 0) of a test set is exact, near,"
        " similar, hard or soft, or stronger, or of a group that is on both sides, or a recording's"
        " frame next to a training frame; or of any set unreadable (default 5% where another gate"
        " is given). May be repeated.",
    ),
]
BaselineOf = Annotated[
    list[Path] | None,
    typer.Option(
        "--baseline",
        metavar="A|FILE",
        rich_help_panel=OUT,
        help="An audit folder, or a file of accepted pairs (visleak export --format accepted):"
        " leaks known there do not count for --fail-on. May be repeated.",
    ),
]
IncludeDisputed = Annotated[
    bool,
    typer.Option(
        "--include-disputed",
        help="Count pairs on which reviewers disagree, by the machine's grade.",
    ),
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
ForceFile = Annotated[
    bool, typer.Option("--force", rich_help_panel=OUT, help="Replace a file that is there already.")
]
Collection = Annotated[
    str,
    typer.Argument(
        metavar="[NAME=]S",
        show_default=False,
        help="A set of pictures, as for audit: a folder, list, archive, table, cifar:..., coco:...",
    ),
]
Conditions = Annotated[
    str,
    typer.Option(
        "--conditions",
        metavar="NAME,..",
        rich_help_panel=HOW,
        help="What is done to pictures: paper (the 19 of Ramos et al.), beyond, all, or names such"
        " as crop-50,jpeg-30.",
    ),
]
Queries = Annotated[
    int,
    typer.Option(
        "--queries",
        metavar="N",
        min=0,
        rich_help_panel=HOW,
        help="Pictures that are changed, drawn with the seed; 0 takes all.",
    ),
]
Seed = Annotated[
    int,
    typer.Option("--seed", metavar="K", min=0, rich_help_panel=HOW, help="Seed of that draw."),
]
Repeats = Annotated[
    bool,
    typer.Option(
        "--no-verify",
        rich_help_panel=HOW,
        help="Look at no pictures: repeats within the set are then known by equal bytes only, and"
        " count as errors else; robustness leaves out the whole pipeline's row.",
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
CostOnly = Annotated[
    bool,
    typer.Option(
        "--dry-run",
        rich_help_panel=OUT,
        help="Say what the audit would cost (images, bytes, time, disk), and stop.",
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
