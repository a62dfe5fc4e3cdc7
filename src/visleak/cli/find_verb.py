"""``visleak find``: look for pictures in a set."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from visleak.cli import edges, options
from visleak.cli.audit_verb import cache_folder

if TYPE_CHECKING:
    from rich.console import RenderableType

    from visleak.embedding import Found, Match


def find(
    images: Annotated[
        list[str],
        typer.Argument(metavar="IMAGE..", show_default=False, help="Picture files."),
    ],
    place: Annotated[
        str,
        typer.Option(
            "--against",
            metavar="DIR|S|A",
            show_default=False,
            help="Where to look: embeddings that visleak encode wrote, a set of pictures as for"
            " audit, or an audit folder, whose sets are looked through.",
        ),
    ],
    k: Annotated[
        int, typer.Option("-k", metavar="N", min=1, max=20, help="Most matches of a picture.")
    ] = 5,
    encoder: Annotated[
        str | None,
        typer.Option(
            "--encoder",
            metavar="NAME",
            help="Fingerprint; by default that of the embeddings or of the audit, or builtin.",
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the matches as json.")] = False,
    workers: options.Workers = None,
    cache: options.CacheFolder = None,
) -> None:
    """Say whether pictures are in a set, and which images of it are most like them."""
    from visleak.cli.progress import bars
    from visleak.cli.terminal import rendered
    from visleak.embedding import find as looked_for

    with bars() as progress:
        found = looked_for(
            images,
            place,
            encoder=encoder or "",
            k=k,
            workers=workers,
            cache=cache_folder(cache),
            progress=progress,
        )
    if json:
        import json as text

        edges.say(text.dumps({"images": [each.as_dict() for each in found]}, indent=1) + "\n")
    else:
        edges.say(rendered(_lines(found)))
    lost = max(each.lost for each in found)
    if lost:
        edges.complain(
            f"{lost:,} images in {place} could be read at first, and not again; run"
            " the command again when the source is whole"
        )
        raise typer.Exit(1)


def _lines(found: Sequence[Found]) -> Iterator[RenderableType]:
    from rich.text import Text

    for each in found:
        yield Text(f"{edges.plain(each.image)}: {_verdict(each)}", "bold")
        if each.matches:
            yield _table(each.matches)
    if found and found[0].unseen:
        yield Text(f"unreadable, and not compared: {_reasons(found[0])}", "yellow")


def _verdict(each: Found) -> str:
    """Say in a line whether a picture is there."""
    if each.unreadable is not None:
        return f"cannot be read ({each.unreadable})"
    if not each.matches:
        return f"{_absent(each)}, and nothing is like it"
    same = next((match for match in each.matches if match.same), None)
    closest = f"the most alike has similarity {each.matches[0].similarity:.3f}"
    if same is None and not each.told:
        return f"{closest}; no thresholds are known for this encoder, so that says nothing yet"
    if same is None:
        return f"{_absent(each)}; {closest}"
    # without a look at pictures a degree is all that can be said
    sure = "found" if same.grade is not None else "something as alike as a copy is there"
    which = f"{edges.plain(same.id)} of {edges.plain(same.set)}"
    return f"{sure}: {which} ({same.grade or same.degree})"


def _absent(each: Found) -> str:
    """Say that a picture was not found, as far as images could be read."""
    if not each.unseen:
        return "not found"
    return "not found among the images that could be read"


def _reasons(each: Found) -> str:
    return ", ".join(f"{count:,} {reason}" for reason, count in each.unseen.items())


def _table(matches: Sequence[Match]) -> RenderableType:
    from rich import box
    from rich.table import Table

    from visleak.stats import chance

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="dim")
    table.add_column("grade", no_wrap=True)
    for name in ("sim.", "prob."):
        table.add_column(name, justify="right", no_wrap=True)
    for name in ("set", "image", "reason"):
        table.add_column(name, overflow="fold")
    for match in matches:
        table.add_row(
            match.grade or match.degree or "-",
            f"{match.similarity:.3f}",
            "-" if match.probability is None else chance(match.probability),
            edges.plain(match.set),
            edges.plain(match.id),
            edges.plain(match.reason or ""),
            style="" if match.same else "dim",
        )
    return table
