"""``visleak replace``: a fair test set, planned first and written with --apply."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from visleak.cli import edges, options
from visleak.cli.audit_verb import cache_folder

if TYPE_CHECKING:
    from rich.console import RenderableType

    from visleak.remedy.replacing import ReplacePlan

#: Duplicates without a replacement that are named one by one.
NAMED = 5


def replace(
    folder: options.AuditFolder,
    pool: Annotated[
        str,
        typer.Option(
            "--pool",
            metavar="SOURCE",
            show_default=False,
            help="Where replacements come from: images of the same kind that are in no set of the"
            " audit, as a folder, Parquet or any other source of audit.",
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="DIR", show_default=False, help="Folder for the test set."
        ),
    ] = None,
    grade: Annotated[
        str,
        typer.Option(
            "--grade",
            metavar="exact|near|similar",
            help="Weakest grade of a pair that makes a duplicate; that of Barz & Denzler (2020) is"
            " similar.",
        ),
    ] = "near",
    choose: Annotated[
        str,
        typer.Option(
            "--choose",
            metavar="approved|auto",
            help="approved: what people approved in visleak review A --pool SOURCE; auto: where"
            " nobody did, the first candidate of the class that is no copy of its nearest"
            " neighbours. No person looks at those.",
        ),
    ] = "approved",
    seed: Annotated[
        int, typer.Option("--seed", metavar="N", help="Of the order in which candidates are tried.")
    ] = 0,
    include_disputed: options.IncludeDisputed = False,
    set_name: Annotated[
        str | None,
        typer.Option("--set", metavar="NAME", help="The test set, where there are several."),
    ] = None,
    id_: Annotated[
        str | None, typer.Option("--id", metavar="COLUMN", help="Column of the pool with the ids.")
    ] = None,
    label: Annotated[
        str | None,
        typer.Option("--label", metavar="COLUMN", help="Column of the pool with the labels."),
    ] = None,
    apply: Annotated[
        bool, typer.Option("--apply", help="Write the test set; else this is a plan only.")
    ] = False,
    allow_missing: Annotated[
        bool,
        typer.Option(
            "--allow-missing",
            help="Write although some duplicates have no replacement; they stay and are listed.",
        ),
    ] = False,
    as_: Annotated[
        str,
        typer.Option(
            "--as",
            metavar="copy|link|manifest",
            help="What is written: files in the layout of the test set, links to them, or lists"
            " alone.",
        ),
    ] = "copy",
    json: Annotated[bool, typer.Option("--json", help="Print the plan as json.")] = False,
    workers: options.Workers = None,
    cache: options.CacheFolder = None,
) -> None:
    """Replace the duplicates of a test set by new images of the same class.

    Without --apply nothing is written: it says how many duplicates there are, and how many have
    a replacement. The other test images, their order and their ids stay as they are.
    """
    from visleak.cli.progress import bars
    from visleak.remedy.replacing import replace as replaced
    from visleak.replacements import SelectionSettings

    asked = SelectionSettings(pool, id_, label, set_name, grade, include_disputed, seed)
    with bars() as progress:
        plan = replaced(
            folder,
            asked,
            out,
            choose=choose,
            apply=apply,
            allow_missing=allow_missing,
            as_=as_,
            workers=workers,
            cache=cache_folder(cache),
            progress=progress,
        )
    if json:
        import json as text

        edges.say(text.dumps(plan.as_dict(), indent=1) + "\n")
        return
    from visleak.cli.terminal import rendered

    edges.say(rendered(_lines(plan, out)))


def _lines(plan: ReplacePlan, out: Path | None) -> Iterator[RenderableType]:
    from rich.text import Text

    name = edges.plain(plan.test_set)
    meant = "exact" if plan.grade == "exact" else f"{plan.grade} or closer"
    yield Text(
        f"{plan.duplicates:,} of {plan.size:,} images of {name} are duplicates ({meant}):"
        f" {plan.leaks:,} repeat a training image, {plan.within:,} another test image",
        "bold",
    )
    for line in _left_out(plan):
        yield Text(line)
    yield Text("")
    yield _table(plan)
    yield Text("")
    if plan.by_machine:
        yield Text(
            f"{plan.by_machine:,} of {len(plan.replaced):,} replacements were chosen by the machine"
            f" (seed {plan.seed}); no person has looked at them"
        )
    for id_, why in plan.missing[:NAMED]:
        yield Text(f"no replacement: {edges.plain(id_)} ({edges.plain(why)})")
    if len(plan.missing) > NAMED:
        yield Text(f"and {len(plan.missing) - NAMED:,} more without a replacement")
    yield Text(_outcome(plan, out))


def _left_out(plan: ReplacePlan) -> Iterator[str]:
    """Say who is no duplicate after all, and who of the pool is no candidate."""
    if plan.blank:
        yield f"left out, blank: {_images(plan.blank)}"
    if plan.disputed:
        yield f"left out, reviewers disagree: {_images(plan.disputed)} (--include-disputed)"
    pool = plan.pool
    reasons = {
        "in_the_audit": "in the audit already",
        "repeated": "repeating another one",
        "blank": "blank",
        "unreadable": "unreadable",
    }
    gone = [f"{pool[key]:,} {what}" for key, what in reasons.items() if pool[key]]
    said = f"; not {', '.join(gone)}" if gone else ""
    yield f"pool: {pool['usable']:,} of {pool['images']:,} images can be used{said}"
    if not plan.by_class:
        yield "classes: the test set or the pool has no labels, so any image may replace any other"


def _images(count: int) -> str:
    return f"{count:,} test {'image' if count == 1 else 'images'}"


def _table(plan: ReplacePlan) -> RenderableType:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="dim")
    table.add_column("class", overflow="fold")
    for name in ("duplicates", "replaced", "without", "candidates left"):
        table.add_column(name, justify="right", no_wrap=True)
    rows = [(each.label or "(no label)", each) for each in plan.classes]
    for label, each in rows:
        without = each.duplicates - each.replaced
        table.add_row(
            edges.plain(label),
            *(f"{count:,}" for count in (each.duplicates, each.replaced, without, each.left)),
        )
    if len(rows) > 1:
        table.add_row(
            "all",
            f"{plan.duplicates:,}",
            f"{len(plan.replaced):,}",
            f"{len(plan.missing):,}",
            f"{sum(each.left for each in plan.classes):,}" if plan.by_class else "",
            style="bold",
        )
    return table


def _outcome(plan: ReplacePlan, out: Path | None) -> str:
    """Say what was written, or what to do to write it."""
    if plan.written is not None:
        verb = "there already" if plan.written.reused else "written"
        source = plan.written.sources.get(plan.test_set)
        opens = f"; it opens as {edges.plain(source)}" if source else ""
        return f"{verb}: {edges.plain(str(plan.written.folder))}{opens}"
    if not plan.duplicates:
        return "nothing to replace"
    where = f"to {edges.plain(str(out))}" if out is not None else "to the folder of -o DIR"
    return f"this is a plan, nothing was written; --apply writes the test set {where}"
