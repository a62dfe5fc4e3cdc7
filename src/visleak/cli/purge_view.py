"""The plan of a purge on the terminal."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rich import box
from rich.table import Table
from rich.text import Text

from visleak.cli.edges import plain
from visleak.storage import AuditSummary

if TYPE_CHECKING:
    from rich.console import RenderableType

    from visleak.remedy.purge_plan import Purge, SetPlan, Share, Wish

#: Classes of a set that are shown; the rest are counted.
CLASSES: Final = 25

#: Width of the names of the lines under the table.
NAMES: Final = 13


def shown(purge: Purge, summary: AuditSummary, out: Path | None) -> Iterator[RenderableType]:
    """Yield what the terminal shows of a plan and of what came of it.

    Args:
        purge: the plan.
        summary: content of ``audit.json``.
        out: folder that was asked for.
    """
    for each in purge.sets:
        yield from _set(each, purge)
    yield Text()
    yield from _facts(purge)
    yield Text()
    if purge.written is None:
        where = f"-o {shlex.quote(str(out))}" if out is not None else "-o DIR"
        yield Text(plain(f"nothing was written; add {where} --as manifest|link|copy --apply"))
    else:
        yield from _written(purge, summary)


def _set(each: SetPlan, purge: Purge) -> Iterator[RenderableType]:
    go = "went" if purge.written is not None else "would go"
    *weaker, strongest = reversed(purge.wish.words)
    words = " and ".join(filter(None, (", ".join(weaker), strongest)))
    yield Text(
        plain(
            f"{len(each.removed):,} of {each.total:,} images of {each.name} {go} ({words} pairs);"
            f" {each.stays:,} stay"
        ),
        "bold",
    )
    if not each.removed:
        return
    yield Text()
    yield _table(each)
    hidden = len(each.counts_by_class()) - CLASSES
    if hidden > 0:
        yield Text(f"and {hidden:,} further classes (--json has all)", "dim")


def _table(each: SetPlan) -> Table:
    """Return why images go, class by class, the most affected first."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="dim")
    table.add_column("class", overflow="fold")
    counts = each.counts()
    shares = {share.label: share for share in each.classes}
    for name in (*counts, "all", "before", "after"):
        table.add_column(plain(name), justify="right", no_wrap=True)
    rows = each.counts_by_class()
    for label, total in rows.most_common(CLASSES):
        table.add_row(
            plain(label) or "(no label)",
            *(f"{count[label]:,}" if count[label] else "" for count in counts.values()),
            f"{total:,}",
            *_shares(shares.get(label), each),
        )
    if len(rows) > 1:
        table.add_section()
        table.add_row(
            "all", *(f"{count.total():,}" for count in counts.values()), f"{rows.total():,}", "", ""
        )
    return table


def _shares(share: Share | None, each: SetPlan) -> tuple[str, str]:
    """Return the share of a class in its set, before and after."""
    if share is None:
        return "", ""
    before = sum(s.before for s in each.classes)
    after = sum(s.after for s in each.classes)
    return (
        f"{100 * share.before / before:.2f} %",
        f"{100 * share.after / after:.2f} %" if after else "",
    )


def _facts(purge: Purge) -> Iterator[Text]:
    for each in purge.sets:
        if each.classes and each.removed:
            yield _fact(
                "balance",
                f"class shares of {each.name} move by {100 * each.moved:.2f} % (total variation"
                " distance)",
            )
    if purge.wish.side == "test":
        yield _fact("repeats", _within(purge.wish))
    if purge.disputed:
        counted = "counted by the machine's grade" if purge.wish.disputed else "left out"
        hint = "" if purge.wish.disputed else "; --include-disputed counts them"
        yield _fact("disputed", f"{_counted(purge.disputed, 'pair')} {counted}{hint}")
    if purge.flat:
        yield _fact("blank", f"kept: {_counted(purge.flat, 'image')} without content")
    unreadable = sum(each.unreadable for each in purge.sets)
    if unreadable:
        yield _fact(
            "unreadable", f"kept: {_counted(unreadable, 'image')} that could not be looked at"
        )
    for caveat in purge.caveats:
        yield _fact("not seen", caveat, "yellow")
    yield _fact("recommended", f"--from {purge.advice.side}: {purge.advice.why}")


def _within(wish: Wish) -> str:
    if wish.within == "drop":
        return "of test images that repeat each other, the first of each group stays"
    return "test images that repeat each other stay; --within drop keeps one of each group"


def _written(purge: Purge, summary: AuditSummary) -> Iterator[Text]:
    from visleak.remedy.staging import sized

    written = purge.written
    assert written is not None
    what = sized(written.bytes) + (", verified" if written.sources else "")
    if written.reused:
        what = "was there already, unchanged"
    yield _fact("written", f"{written.folder} ({written.files:,} files, {what})", "bold")
    if written.unreadable:
        yield _fact(
            "left out",
            f"{_counted(len(written.unreadable), 'image')} that cannot be read",
            "yellow",
        )
    for name, source in written.sources.items():
        yield _fact("source", f"{name}={source}")
    if command := _command(written.sources, purge.wish.side, summary):
        yield _fact("check it", command)
    elif not written.sources:
        lists = "kept.csv and removed.csv name every image"
        if not written.counts:
            lists = "removed.csv names the images that go"
        yield _fact("lists", f"{written.folder}: {lists}")


def _command(sources: Mapping[str, str], side: str, summary: AuditSummary) -> str:
    """Return the command that audits the result; empty where it cannot be opened."""
    if not sources:
        return ""
    tests = {total.query_set for total in summary.totals}
    trained = any(each.name not in tests for each in summary.sets)
    words = ["visleak audit"]
    for each in summary.sets:
        own = "test" if each.name in tests else "train"
        source = sources.get(each.name) or _seen_from_here(each.source, summary)
        if own == side and each.name not in sources:
            continue
        words.append(f"--{own if trained else 'set'} {shlex.quote(each.name + '=' + source)}")
    return " ".join([*words, "-o AUDIT"])


def _seen_from_here(source: str, summary: AuditSummary) -> str:
    """Return a SOURCE of the audit for a command that is run in this folder."""
    from visleak.images.sources import resolved

    opened_in = Path(summary.opened_in)
    return source if opened_in == Path.cwd() else resolved(source, opened_in)


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _fact(name: str, words: str, style: str = "") -> Text:
    return Text.assemble((f"{name:<{NAMES}}", "dim"), (plain(words), style))
