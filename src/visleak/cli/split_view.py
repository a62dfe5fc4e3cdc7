"""A split on the terminal."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rich import box
from rich.table import Table
from rich.text import Text

from visleak.cli.edges import plain

if TYPE_CHECKING:
    from rich.console import RenderableType

#: Classes that are shown, those furthest off first; the rest are counted.
CLASSES: Final = 12

#: Width of the names of the lines under the tables.
NAMES: Final = 13


def shown(content: Mapping[str, Any], out: Path) -> Iterator[RenderableType]:
    """Yield what the terminal shows of a split.

    Args:
        content: of ``split.json``.
        out: the output folder.
    """
    yield Text(plain(_headline(content)), "bold")
    yield Text()
    yield _sizes(content)
    classes = _class_rows(content)
    if classes:
        yield Text()
        yield _classes(content, classes[:CLASSES])
        if len(classes) > CLASSES:
            yield Text(f"and {len(classes) - CLASSES:,} further classes (--json has all)", "dim")
    yield Text()
    yield from _facts(content)
    yield Text()
    yield from _outcome(content, out)


def _headline(content: Mapping[str, Any]) -> str:
    parts = content["parts"]
    done = content["written"] is not None
    if content["kind"] == "fix":
        moves = content["moves"]
        if not moves["images"]:
            return f"nothing has to move: no component is in two of {', '.join(parts)}"
        back = moves["keeping_sizes"]
        extra = f", and {back:,} more to keep sizes" if back else ""
        if moves["uniting"] > moves["fewest"]:
            extra += f" ({moves['fewest']:,} would do, were sizes not kept)"
        return (
            f"{_counted(moves['uniting'], 'image')} {'were moved' if done else 'would move'} to"
            f" unite {_counted(moves['components'], 'component')}{extra}"
        )
    sizes = ", ".join(f"{name} {about['images']:,}" for name, about in parts.items())
    return f"{content['images']:,} images {'were split' if done else 'would be split'}: {sizes}"


def _sizes(content: Mapping[str, Any]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="dim")
    table.add_column("part", overflow="fold")
    before = content.get("before")
    for name in ("before", "after") if before else ("images", "share", "asked"):
        table.add_column(name, justify="right", no_wrap=True)
    for name, about in content["parts"].items():
        cells = (
            (f"{before[name]['images']:,}", f"{about['images']:,}")
            if before
            else (
                f"{about['images']:,}",
                f"{100 * about['share']:.2f} %",
                f"{100 * about['asked']:.2f} %",
            )
        )
        table.add_row(plain(name), *cells)
    return table


def _class_rows(content: Mapping[str, Any]) -> list[tuple[str, list[str]]]:
    """Return the classes with their shares of all and of every part, furthest off first."""
    parts = content["parts"]
    first = next(iter(parts.values())).get("classes")
    if not first:
        return []
    before = content.get("before")
    rows = []
    for name in first:
        found = [about["classes"][name] for about in parts.values()]
        if before:
            old = [before[part]["classes"][name] for part in parts]
            apart = max(abs(o["images"] - f["images"]) for o, f in zip(old, found, strict=True))
            cells = [f"{o['images']:,} > {f['images']:,}" for o, f in zip(old, found, strict=True)]
        else:
            apart = max(abs(each["share"] - each["of_all"]) for each in found)
            cells = [f"{100 * found[0]['of_all']:.2f} %"]
            cells += [f"{100 * each['share']:.2f} %" for each in found]
        if apart or not before:
            rows.append((apart, name, cells))
    return [(name, cells) for _, name, cells in sorted(rows, key=lambda row: (-row[0], row[1]))]


def _classes(content: Mapping[str, Any], rows: list[tuple[str, list[str]]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="dim")
    table.add_column("class", overflow="fold")
    heads = list(content["parts"])
    for name in heads if content.get("before") else ["all", *heads]:
        table.add_column(plain(name), justify="right", no_wrap=True)
    for name, cells in rows:
        table.add_row(plain(name), *cells)
    return table


def _facts(content: Mapping[str, Any]) -> Iterator[Text]:
    components = content["components"]
    largest = components["largest"]
    yield _fact(
        "components",
        f"{components['count']:,}, {components['single']:,} of one image"
        + (f"; the largest of {largest:,} ({plain(components['largest_is'])})" * (largest > 1)),
    )
    disputed = content["disputed"]
    told = f"; {disputed:,} of them disputed by reviewers, kept together" if disputed else ""
    groups = f", {_counted(content['groups'], 'group')}" if content["groups"] else ""
    yield _fact(
        "tied by",
        f"{_counted(content['pairs'], 'pair')} of grade {content['grade']} or stronger{told}, equal"
        f" bytes{groups}",
    )
    if content["groups"] and content["grouped"] < content["images"]:
        left = content["images"] - content["grouped"]
        yield _fact("groups", f"{_counted(left, 'image')} in no group", "yellow")
    if content["unreadable"]:
        yield _fact(
            "unreadable", f"{_counted(content['unreadable'], 'image')} in no part", "yellow"
        )
    if content["kind"] == "fix":
        yield _fact("why so many", plain(content["moves"]["why"]))
        for name, about in content["parts"].items():
            if not about["images"]:
                words = f"nothing would be left of {plain(name)}: try --keep-sizes, or split anew"
                yield _fact("empty", words, "yellow")
        return
    gap = content["largest_deviation"]
    yield _fact("largest gap", plain(gap["words"]) if gap["points"] else "none, all is as asked")
    limit = f"{100 * content['tolerance']:.4g} %"
    if not content["misses"]:
        yield _fact("tolerance", f"{limit} is kept", "green")
    for number, line in enumerate(content["why"]):
        words = line if number else f"{limit} is missed: {line}"
        yield _fact("" if number else "tolerance", plain(words), "yellow")


def _outcome(content: Mapping[str, Any], out: Path) -> Iterator[Text]:
    written = content["written"]
    if written is None:
        yield Text("no pair that is known lies between the parts; they were not audited yet")
        yield Text(plain(f"only the plan was written: {out / 'assignment.csv'}"))
        yield Text(plain(f"add -o {shlex.quote(str(out))} --format manifest|link|copy --apply"))
        return
    rounds = content["rounds"]
    if content["pairs_added"]:
        yield _fact(
            "rounds",
            f"{rounds}: audits of the parts found {_counted(content['pairs_added'], 'pair')} that"
            " the first audit had not listed; they were taken in",
        )
    proof = content["proof"]
    if proof["headline"] is None:
        yield _fact("proof", "an audit of the parts, before they were written, found no pair")
    else:
        yield _fact("proof", plain(proof["headline"]), "green")
        yield _fact("", plain(proof["folder"]))
    for name, source in written["sources"].items():
        yield _fact(plain(name), plain(source), "bold")
    yield _fact("all", plain(written["folder"]))


def _fact(name: str, words: str, style: str = "") -> Text:
    return Text.assemble((f"{name:<{NAMES}}", "dim"), (words, style))


def _counted(count: int, what: str) -> str:
    """Return a count with its noun.

    >>> _counted(1, "pair"), _counted(2_000, "image")
    ('1 pair', '2,000 images')
    """
    return f"{count:,} {what}{'' if count == 1 else 's'}"
