"""``visleak impact``: what leaked images do to the scores of models."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from visleak.cli import options

FILES: Final = "What models answered"
PARTS: Final = "What counts as a leak"
BOARD: Final = "Leaderboard"


def impact(
    folder: Annotated[
        Path | None,
        typer.Argument(
            metavar="[A]", show_default=False, callback=options.told, help="An audit folder."
        ),
    ] = None,
    audit: Annotated[
        list[str] | None,
        typer.Option(
            "--audit",
            metavar="NAME=FOLDER",
            rich_help_panel=FILES,
            help="Several audits in one table instead of A, such as c10=A10; then predictions are"
            " [AUDIT:][NAME=]FILE, such as c10:resnet=resnet.csv. May be repeated.",
        ),
    ] = None,
    predictions: Annotated[
        list[str] | None,
        typer.Option(
            "--predictions",
            metavar="[NAME=]FILE",
            rich_help_panel=FILES,
            help="A model's answers by image id (.csv, .parquet, .npz): correct, prediction, class"
            " scores, or any metric an image. NAME is the model, by default the file's stem. May"
            " be repeated.",
        ),
    ] = None,
    fair: Annotated[
        list[str] | None,
        typer.Option(
            "--fair-predictions",
            metavar="[NAME=]FILE",
            rich_help_panel=FILES,
            help="Its answers on the fair test set that visleak replace wrote. May be repeated.",
        ),
    ] = None,
    metric: Annotated[
        list[str] | None,
        typer.Option(
            "--metric",
            metavar="M",
            rich_help_panel=FILES,
            help="Metric to look at, by default all that the files have. May be repeated.",
        ),
    ] = None,
    lower: Annotated[
        list[str] | None,
        typer.Option(
            "--lower-is-better",
            metavar="M",
            rich_help_panel=FILES,
            help="Metric of which less is better, such as loss. May be repeated.",
        ),
    ] = None,
    allow_partial: Annotated[
        bool,
        typer.Option(
            "--allow-partial",
            rich_help_panel=FILES,
            help="Take answers to less than 95 % of the images.",
        ),
    ] = False,
    check: Annotated[
        bool,
        typer.Option(
            "--check",
            rich_help_panel=FILES,
            help="Only tell whether the files fit the audit: ids off by one, shuffled rows,"
            " permuted class names, swapped files. Writes nothing; exit code 1 where one is in"
            " doubt.",
        ),
    ] = False,
    set_name: Annotated[
        str | None,
        typer.Option(
            "--set",
            metavar="NAME",
            rich_help_panel=PARTS,
            help="The test set, where the audit has several.",
        ),
    ] = None,
    reference: Annotated[
        list[str] | None,
        typer.Option(
            "--reference",
            metavar="NAME",
            rich_help_panel=PARTS,
            help="Training set whose leaks count, by default all. May be repeated.",
        ),
    ] = None,
    subset: Annotated[
        list[str] | None,
        typer.Option(
            "--subset",
            metavar="NAME=IDS.txt",
            rich_help_panel=PARTS,
            help="Leaked images of your own, an id a line. May be repeated.",
        ),
    ] = None,
    judged: Annotated[
        bool,
        typer.Option("--reviewed-only", rich_help_panel=PARTS, help="Count reviewed pairs only."),
    ] = False,
    by_label: Annotated[
        bool | None,
        typer.Option(
            "--by-label/--no-by-label",
            rich_help_panel=PARTS,
            show_default=False,
            help="Tell leaked images whose copy has the same label from the others; by default"
            " where labels are known.",
        ),
    ] = None,
    difficulty: Annotated[
        str | None,
        typer.Option(
            "--difficulty",
            metavar="probe|FILE[#COLUMN]",
            rich_help_panel=PARTS,
            show_default=False,
            help="Compare leaked images with others of their class that are as difficult, by a"
            " number per image that saw no copy (larger is harder), or by a probe on built-in"
            " fingerprints of the test images.",
        ),
    ] = None,
    draws: Annotated[
        int,
        typer.Option(
            "--draws",
            metavar="N",
            min=2,
            rich_help_panel=options.HOW,
            help="How often random and class-matched images are drawn.",
        ),
    ] = 1000,
    size: Annotated[
        int | None,
        typer.Option(
            "--size",
            metavar="N",
            min=1,
            rich_help_panel=options.HOW,
            help="Draw N images of every part (Ramos et al., table 4: --size 200 --draws 10).",
        ),
    ] = None,
    exact_p: Annotated[
        bool,
        typer.Option(
            "--exact-p",
            rich_help_panel=options.HOW,
            help="Permutation tests give plain p-values, which are conservative, not mid-p.",
        ),
    ] = False,
    seed: Annotated[
        int,
        typer.Option(
            "--seed", metavar="N", min=0, rich_help_panel=options.HOW, help="Seed of all draws."
        ),
    ] = 0,
    out: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            metavar="DIR",
            rich_help_panel=options.OUT,
            help="Folder of the result.",
        ),
    ] = Path("visleak-impact"),
    json: Annotated[
        bool,
        typer.Option(
            "--json",
            rich_help_panel=options.OUT,
            help="Print impact.json instead of the summary.",
        ),
    ] = False,
    force: Annotated[
        bool,
        typer.Option(
            "--force", rich_help_panel=options.OUT, help="Replace a result that is there already."
        ),
    ] = False,
    no_pictures: options.NoPictures = False,
    add_to: Annotated[
        Path | None,
        typer.Option(
            "--leaderboard",
            metavar="FILE.json",
            rich_help_panel=BOARD,
            show_default=False,
            help="Add the model's error on the fair test set to this leaderboard; needs"
            " --fair-predictions, --framework, --code and --weights.",
        ),
    ] = None,
    framework: Annotated[
        str,
        typer.Option(
            "--framework",
            metavar="NAME",
            rich_help_panel=BOARD,
            show_default=False,
            help="What the model was trained with.",
        ),
    ] = "",
    code: Annotated[
        str,
        typer.Option(
            "--code",
            metavar="URL",
            rich_help_panel=BOARD,
            show_default=False,
            help="Where its code is.",
        ),
    ] = "",
    weights: Annotated[
        str,
        typer.Option(
            "--weights",
            metavar="URL",
            rich_help_panel=BOARD,
            show_default=False,
            help="Where its weights are.",
        ),
    ] = "",
) -> None:
    """Measure what leaked images do to the scores of models, and whether it is chance.

    Writes tables, figures and impact.json to a folder, and a section into the audit's report.
    """
    from visleak.cli.impact_runs import Board, Place, run
    from visleak.impact import ImpactSettings

    settings = ImpactSettings(
        test_set=set_name,
        references=tuple(reference or ()),
        metrics=tuple(metric or ()),
        lower_is_better=tuple(lower or ()),
        allow_partial=allow_partial,
        reviewed_only=judged,
        by_label=by_label,
        difficulty=difficulty,
        draws=draws,
        size=size,
        exact_p=exact_p,
        seed=seed,
    )
    place = Place(out, force=force, private=no_pictures, json=json)
    board = Board(add_to, framework, code, weights)
    run(
        folder,
        audit or (),
        predictions or (),
        fair or (),
        subset or (),
        settings,
        place,
        board,
        check=check,
    )
