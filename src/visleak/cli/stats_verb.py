"""``visleak stats``: duplicates per type and per class, before and after review."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from visleak.cli import edges, options

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from visleak.counts import Counts, SetCounts


def stats(
    folder: options.AuditFolder,
    grade: Annotated[
        str,
        typer.Option(
            "--grade",
            metavar="exact|near|similar",
            help="The weakest grade that counts as a duplicate; that of Barz & Denzler (2020) is"
            " similar.",
        ),
    ] = "near",
    judged: Annotated[
        bool, typer.Option("--judged", help="Count only the pairs that people judged.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="DIR",
            help="Also write counts.json, tables, drawings and example pairs to this folder.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the counts as JSON.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Replace counts that are in DIR already.")
    ] = False,
) -> None:
    """Count the duplicates per type and class, with what people judged and without it."""
    from visleak.auditing import Audit
    from visleak.cli.pictures import shown_pictures
    from visleak.cli.terminal import rendered
    from visleak.counts import COUNTS, count, write_counts
    from visleak.storage import claimed, free_folder, refuse_sets

    audit = Audit(folder)
    if out is not None:
        refuse_sets(audit.summary, out)
        free_folder(out, COUNTS, force=force)
    counts = count(folder, grade=grade, judged=judged)
    written: tuple[Path, ...] = ()
    if out is not None:
        with claimed(out):
            written = write_counts(counts, out, shown_pictures(audit))
    if as_json:
        edges.say(json.dumps(counts.as_dict(), indent=1, ensure_ascii=False) + "\n")
        return
    edges.say(rendered(_shown(counts)))
    for path in written:
        edges.say(f"{edges.plain(str(path))}\n")


def _shown(counts: Counts) -> Iterator[RenderableType]:
    from rich.text import Text

    from visleak.cli.verdicts_verb import spoken

    for own in counts.sets:
        yield Text(_headline(counts, own), "bold")
        yield Text()
        yield _types(counts, own)
        if own.blank:
            yield Text(f"pairs of blank pictures, counted nowhere: {own.blank:,}", "dim")
        yield Text()
        if own.classes:
            yield _classes(counts, own)
            yield Text()
        if own.examples:
            yield _examples(own)
            yield Text()
    if counts.review is None:
        yield Text("nobody has judged a pair yet; these are the machine's grades", "dim")
        return
    yield from spoken(counts.review)
    yield Text(
        f"{counts.changed:,} listed pairs have another grade than the machine's,"
        f" {counts.added:,} were found by people only"
    )


def _headline(counts: Counts, own: SetCounts) -> str:
    words = counts.grades[0]
    if len(counts.grades) > 1:
        words = f"{', '.join(counts.grades[:-1])} or {counts.grades[-1]}"
    rate = own.share
    name = edges.plain(own.query_set)
    text = str(rate).replace(f"of {rate.total:,}", f"of {rate.total:,} {name} images", 1)
    after = "" if counts.review is None else ", after review"
    return f"{text} have a duplicate ({words}), in {own.after.pairs:,} pairs{after}"


def _types(counts: Counts, own: SetCounts) -> Table:
    from visleak.cli.terminal import plain_table

    reviewed = counts.review is not None
    names = ["pairs", "images", *(["pairs before", "images before"] if reviewed else [])]
    table = plain_table("duplicates", "type", *names, numbers=len(names))
    for kind, after in own.after.kinds.items():
        before = own.before.kinds[kind]
        for grade in counts.grades:
            numbers = [after.pairs[grade], after.images[grade]]
            numbers += [before.pairs[grade], before.images[grade]] if reviewed else []
            first = kind if grade == counts.grades[0] else ""
            table.add_row(first, grade, *(f"{number:,}" for number in numbers))
        numbers = [after.all_pairs, after.all_images]
        numbers += [before.all_pairs, before.all_images] if reviewed else []
        table.add_row("", "all", *(f"{number:,}" for number in numbers), style="bold")
        table.add_section()
    numbers = [own.after.pairs, own.after.images]
    numbers += [own.before.pairs, own.before.images] if reviewed else []
    table.add_row("together", "", *(f"{number:,}" for number in numbers), style="bold")
    return table


def _classes(counts: Counts, own: SetCounts) -> Table:
    from visleak.cli.terminal import plain_table

    reviewed = counts.review is not None
    names = ["images", *(["before"] if reviewed else []), "of"]
    table = plain_table("class", *names, numbers=len(names))
    rows: list[tuple[str, int, int, int]] = [
        (edges.plain(c.name or "(no label)"), c.images, c.before, c.size) for c in own.classes
    ]
    totals = (own.after.images, own.before.images, sum(c.size for c in own.classes))
    for name, *numbers in [*rows, ("together", *totals)]:
        shown: list[Any] = [numbers[0], *([numbers[1]] if reviewed else []), numbers[2]]
        style = "bold" if name == "together" else "" if numbers[0] else "dim"
        table.add_row(name, *(f"{number:,}" for number in shown), style=style)
    return table


def _examples(own: SetCounts) -> Table:
    from visleak.cli.terminal import plain_table

    table = plain_table("example", "of distance", "query", "reference", "distance", numbers=1)
    for each in own.examples:
        sides = (
            f"{edges.plain(each.pair[f'{side}_set'])}: {edges.plain(each.pair[side])}"
            for side in ("query", "reference")
        )
        table.add_row(each.grade, each.place, *sides, f"{each.distance:.3f}")
    return table
