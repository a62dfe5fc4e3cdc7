"""``visleak impact``: what leaked images do to the scores of models."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from visleak.cli import edges, options

if TYPE_CHECKING:
    from visleak.impact import Impact

FILES: Final = "What models answered"
PARTS: Final = "What counts as a leak"
BOARD: Final = "Leaderboard"


def impact(
    folder: options.AuditFolder,
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
            "--fair",
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
            "--lower",
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
        typer.Option(
            "--judged", rich_help_panel=PARTS, help="Count only the pairs that people judged."
        ),
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
            "--add-to",
            metavar="FILE.json",
            rich_help_panel=BOARD,
            show_default=False,
            help="Put the model's fair error on this leaderboard; needs --fair, --framework, --code"
            " and --weights.",
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
    from visleak.auditing import Audit
    from visleak.cli.named_files import fair_files, named_files
    from visleak.cli.pictures import show_in_report
    from visleak.cli.places import refuse_inputs
    from visleak.cli.progress import bars
    from visleak.impact import impact as measured
    from visleak.impact.leaderboard import add_to as added
    from visleak.impact.output import write
    from visleak.impact.section import NAME, section
    from visleak.impact.stored import RESULT
    from visleak.pipeline.folder import claimed
    from visleak.store import free_folder

    audit = Audit(folder)
    files = named_files("--predictions", predictions or ())
    on_fair = fair_files(fair or (), files)
    lists = named_files("--subset", subset or (), what="subset", needs_name=True)
    _refuse(files, on_fair, add_to, (framework, code, weights))
    if check:
        _check(folder, files, on_fair, set_name, metric, lower, partial=allow_partial, json=json)
        return
    refuse_inputs(audit.summary, out)
    free_folder(out, RESULT, force=force)
    with bars() as progress:
        result = measured(
            folder,
            files,
            fair=on_fair,
            test_set=set_name,
            references=reference or (),
            subsets=lists,
            metrics=metric or (),
            lower=lower or (),
            judged_only=judged,
            by_label=by_label,
            difficulty=difficulty,
            draws=draws,
            size=size,
            mid=not exact_p,
            seed=seed,
            allow_partial=allow_partial,
            progress=progress,
        )
        progress("writing the result", 0, 0)
        with claimed(out):
            write(result, out)
        show_in_report(audit, NAME, section(result), private=no_pictures)
        progress("writing the result", 1, 1)
    if add_to is not None:
        added(add_to, result, framework=framework, code=code, weights=weights)
    _say(result, out, add_to, json=json)


def _check(
    folder: Path,
    files: Mapping[str, Path],
    on_fair: Mapping[str, Path],
    test_set: str | None,
    metrics: list[str] | None,
    lower: list[str] | None,
    *,
    partial: bool,
    json: bool,
) -> None:
    """Print whether the files fit the audit, and end with 1 where one is in doubt."""
    from visleak.cli.impact_view import checked_content, checked_lines
    from visleak.cli.progress import bars
    from visleak.impact import check

    with bars() as progress:
        found = check(
            folder,
            files,
            fair=on_fair,
            test_set=test_set,
            metrics=metrics or (),
            lower=lower or (),
            allow_partial=partial,
            progress=progress,
        )
    edges.say(checked_content(found) if json else "".join(checked_lines(found)))
    if found.doubts:
        raise typer.Exit(1)


def _refuse(
    files: Mapping[str, Path],
    on_fair: Mapping[str, Path],
    add_to: Path | None,
    entry: tuple[str, str, str],
) -> None:
    """Refuse what cannot end well before anything is read.

    Raises:
        UsageError: see its message.
    """
    from visleak.errors import UsageError
    from visleak.impact.leaderboard import check, read_leaderboard

    if not files:
        raise UsageError("nothing to measure: give --predictions [NAME=]FILE, a model's answers")
    if add_to is None:
        if any(entry):
            raise UsageError("--framework, --code and --weights go with --add-to FILE.json")
        return
    if len(on_fair) != 1:
        raise UsageError(
            "--add-to puts one model on the leaderboard: give --fair FILE of one model, what it"
            f" answered on the fair test set; got {len(on_fair)}"
        )
    check(*entry)
    if add_to.is_dir():
        raise UsageError(f"--add-to: {add_to} is a folder; give a file, such as leaderboard.json")
    if add_to.exists():
        # a file that is no leaderboard is found before the work, not after it
        read_leaderboard(add_to)


def _say(result: Impact, out: Path, board: Path | None, *, json: bool) -> None:
    from visleak.cli.impact_view import shown
    from visleak.cli.terminal import rendered
    from visleak.impact.stored import RESULT

    if json:
        edges.say_bytes((out / RESULT).read_bytes())
        return
    edges.say(rendered(shown(result)))
    for path in (out, *([board] if board is not None else [])):
        edges.say(f"{edges.plain(str(path))}\n")
