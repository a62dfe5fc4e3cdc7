"""The options of ``visleak dlede``, with the words that ``--help`` says about them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from visleak.cli import options

SPLIT: Final = "The split that is judged"
TRAINING: Final = "What is trained"
VERDICT: Final = "How it is judged"
BESIDE: Final = "What is done besides"

Directory = Annotated[
    str | None,
    typer.Argument(
        metavar="DIR",
        show_default=False,
        help="A data set with train and test (or val) in it: folders, Parquet files, a table with a"
        " split column, or a YOLO data.yaml.",
    ),
]
Test = Annotated[
    str | None,
    typer.Option(
        "--test",
        metavar="[NAME=]SOURCE",
        rich_help_panel=SPLIT,
        help="Test images, as for audit; with their annotations as coco:FILE, yolo:FILE#val or"
        " kitti:FOLDER.",
    ),
]
Train = Annotated[
    str | None,
    typer.Option(
        "--train", metavar="[NAME=]SOURCE", rich_help_panel=SPLIT, help="Training images."
    ),
]
Whole = Annotated[
    str | None,
    typer.Option(
        "--set", metavar="[NAME=]SOURCE", rich_help_panel=SPLIT, help="One set, parted by --split."
    ),
]
Recipe = Annotated[
    str | None,
    typer.Option(
        "--split",
        metavar="RECIPE",
        rich_help_panel=SPLIT,
        help="kitti, cirrus, first:N, first-groups:N, random:SHARE[:SEED] or groups:SHARE[:SEED]:"
        " which images train and which test.",
    ),
]
Id = Annotated[
    str | None,
    typer.Option("--id", metavar="COLUMN", rich_help_panel=SPLIT, help="Column with the ids."),
]
Label = Annotated[
    str | None,
    typer.Option(
        "--label", metavar="COLUMN", rich_help_panel=SPLIT, help="Column with the labels."
    ),
]
Group = Annotated[
    str | None,
    typer.Option(
        "--group",
        metavar="COLUMN|/REGEX/",
        rich_help_panel=SPLIT,
        help="Column with the groups (a recording, a patient), or a pattern whose first group is"
        " searched in the id; --calibrate needs them.",
    ),
]
TrainerName = Annotated[
    str | None,
    typer.Option(
        "--trainer",
        metavar="T",
        rich_help_panel=TRAINING,
        help="command:'CMD {train} {test} {out} {seed}' (any program; see docs/dlede.md),"
        " ultralytics:MODEL, torch:detector, torch:classifier, or lookup[:ENCODER], which learns by"
        " heart.",
    ),
]
Scores = Annotated[
    Path | None,
    typer.Option(
        "--scores",
        metavar="FILE",
        rich_help_panel=TRAINING,
        help="Train nothing: judge the scores of trainings made elsewhere, a .csv with the columns"
        " step, repetition and the metrics.",
    ),
]
Repetitions = Annotated[
    int,
    typer.Option(
        "--repetitions",
        metavar="N",
        rich_help_panel=TRAINING,
        help="How often each step is trained, with other draws.",
    ),
]
Steps = Annotated[
    str | None,
    typer.Option(
        "--steps",
        metavar="P,..",
        rich_help_panel=TRAINING,
        show_default="10,20",
        help="Percent of the test images that leak into training; 0 comes first in any case.",
    ),
]
Full = Annotated[
    bool,
    typer.Option(
        "--full", rich_help_panel=TRAINING, help="The whole curve: 0 to 100 % in steps of 10."
    ),
]
Independent = Annotated[
    bool,
    typer.Option(
        "--independent",
        rich_help_panel=TRAINING,
        help="Each step draws anew; by default it keeps what leaked before and adds to it.",
    ),
]
Stratify = Annotated[
    bool,
    typer.Option(
        "--stratify",
        rich_help_panel=TRAINING,
        help="Draws keep the shares of the classes.",
    ),
]
Seed = Annotated[
    int,
    typer.Option("--seed", metavar="N", rich_help_panel=TRAINING, help="Seed of the draws."),
]
Epochs = Annotated[
    int | None,
    typer.Option(
        "--epochs",
        metavar="N",
        rich_help_panel=TRAINING,
        show_default=False,
        help="Epochs of each training; by default the trainer's own.",
    ),
]
RuleName = Annotated[
    str,
    typer.Option(
        "--rule",
        metavar="RULE",
        rich_help_panel=VERDICT,
        help="A split leaks where no deciding step brings more than the threshold (both-steps),"
        " where one of them does not (any-step), or all together do not (cumulative).",
    ),
]
Threshold = Annotated[
    str | None,
    typer.Option(
        "--threshold",
        metavar="RATE",
        rich_help_panel=VERDICT,
        show_default="the calibrated one, else 5%",
        help="Relative increase that a split without leaks exceeds, such as 5% or 0.05.",
    ),
]
Certainty = Annotated[
    str,
    typer.Option(
        "--certainty",
        metavar="RATE",
        rich_help_panel=VERDICT,
        help="Certainty that a verdict needs; below it the split is undecided.",
    ),
]
Metric = Annotated[
    list[str] | None,
    typer.Option(
        "--metric",
        metavar="M",
        rich_help_panel=VERDICT,
        show_default=False,
        help="Metric that decides; by default mAP@0.5 and F1, or what the trainer says. May be"
        " repeated.",
    ),
]
Lower = Annotated[
    list[str] | None,
    typer.Option(
        "--lower",
        metavar="M",
        rich_help_panel=VERDICT,
        help="Metric of which less is better, such as loss. May be repeated.",
    ),
]
Chance = Annotated[
    list[str] | None,
    typer.Option(
        "--chance",
        metavar="M=RATE",
        rich_help_panel=VERDICT,
        show_default="the largest class of the test set, 0 for objects",
        help="What guessing scores by a metric, such as accuracy=25%; a model that scores hardly"
        " more is undecided. May be repeated.",
    ),
]
Calibrate = Annotated[
    int,
    typer.Option(
        "--calibrate",
        metavar="K",
        min=0,
        rich_help_panel=BESIDE,
        show_default=False,
        help="Train on K clean splits of the same images too, 3 or more, by whole groups, and take"
        " the threshold from them.",
    ),
]
Alpha = Annotated[
    str,
    typer.Option(
        "--alpha",
        metavar="RATE",
        rich_help_panel=BESIDE,
        help="Share of clean splits that lie below the calibrated threshold.",
    ),
]
Convergence = Annotated[
    int,
    typer.Option(
        "--check-convergence",
        metavar="FACTOR",
        min=0,
        rich_help_panel=BESIDE,
        show_default=False,
        help="Train FACTOR times as long once more, and say whether that changes the scores.",
    ),
]
AuditOf = Annotated[
    str | None,
    typer.Option(
        "--audit",
        metavar="A|off",
        rich_help_panel=BESIDE,
        show_default="made in the output folder",
        help="An audit of the same split that is there already, or none.",
    ),
]
AllowProved = Annotated[
    bool,
    typer.Option(
        "--allow-proved-leak",
        rich_help_panel=BESIDE,
        help="Train even where the audit proves a leak: near or exact copies of 5 % of the test"
        " images or more.",
    ),
]
NoHashes = Annotated[
    bool,
    typer.Option(
        "--no-phash", rich_help_panel=BESIDE, help="Do not compare perceptual hashes of all pairs."
    ),
]
Out = Annotated[
    Path,
    typer.Option(
        "--output", "-o", metavar="DIR", rich_help_panel=options.OUT, help="Folder of the result."
    ),
]
ForecastOnly = Annotated[
    bool,
    typer.Option(
        "--forecast",
        rich_help_panel=options.OUT,
        help="Say how many trainings there would be and how long they would take, and stop.",
    ),
]
Json = Annotated[
    bool,
    typer.Option(
        "--json", rich_help_panel=options.OUT, help="Print dlede.json instead of the summary."
    ),
]
Force = Annotated[
    bool,
    typer.Option(
        "--force",
        rich_help_panel=options.OUT,
        help="Replace what is in the folder where it is of another split or trainer.",
    ),
]
Jobs = Annotated[
    int,
    typer.Option(
        "--jobs",
        metavar="N",
        min=1,
        rich_help_panel=options.SPEED,
        help="Trainings at a time.",
    ),
]
Threads = Annotated[
    int | None,
    typer.Option(
        "--threads",
        metavar="N",
        min=1,
        rich_help_panel=TRAINING,
        show_default="1",
        help="Threads of one training with torch. Other numbers round otherwise, so they change"
        " scores a little; --jobs makes better use of cores.",
    ),
]
Device = Annotated[
    str,
    typer.Option(
        "--device",
        metavar="auto|cpu|cuda|..",
        rich_help_panel=TRAINING,
        help="Where torch trains; auto takes a GPU if there is one.",
    ),
]
TimeLimit = Annotated[
    float | None,
    typer.Option(
        "--time-limit",
        metavar="SECONDS",
        rich_help_panel=TRAINING,
        show_default=False,
        help="A training that takes longer has failed.",
    ),
]
