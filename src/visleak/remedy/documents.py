"""What purge, split and replace plan and write, for people."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from visleak.formats.sources import resolved
from visleak.markup import Grid
from visleak.quantities import counted
from visleak.remedy.purge_plan import Purge, SetPlan, Share, Wish
from visleak.remedy.replacing import ReplacePlan
from visleak.remedy.staging import sized
from visleak.remedy.undoing import Undo
from visleak.reporting import Document, Fact
from visleak.storage import AuditSummary

#: Classes of a table that are shown; ``--json`` has all.
CLASSES: Final = 25

#: Duplicates without a replacement that are named one by one.
NAMED: Final = 5


def purge_document(purge: Purge, summary: AuditSummary, out: Path | None) -> Document:
    """Return the plan of a purge and what came of it.

    Args:
        purge: the plan.
        summary: content of ``audit.json``.
        out: folder that was asked for.
    """
    first, *others = [_set_line(each, purge) for each in purge.sets]
    facts = list(_purge_facts(purge))
    if purge.written is None:
        where = f"-o {shlex.quote(str(out))}" if out is not None else "-o DIR"
        facts.append(
            Fact("dry run", f"nothing was written; add {where} --format manifest|link|copy --apply")
        )
    else:
        facts += _purge_written(purge, summary)
    tables = tuple(_purge_table(each) for each in purge.sets if each.removed)
    return Document("Purge", first, tuple(others), tables, facts=tuple(facts))


def _set_line(each: SetPlan, purge: Purge) -> str:
    went = "were removed" if purge.written is not None else "would be removed"
    *weaker, strongest = reversed(purge.wish.words)
    words = " and ".join(filter(None, (", ".join(weaker), strongest)))
    return (
        f"{len(each.removed):,} of {each.total:,} images of {each.name} {went} ({words} pairs);"
        f" {each.stays:,} stay"
    )


def _purge_table(each: SetPlan) -> Grid:
    """Return why images are removed, class by class, the most affected first."""
    counts, rows = each.counts(), each.counts_by_class()
    shares = {share.label: share for share in each.classes}
    body = [
        [
            label or "(no label)",
            *(f"{count[label]:,}" if count[label] else "" for count in counts.values()),
            f"{total:,}",
            *_shares(shares.get(label), each),
        ]
        for label, total in rows.most_common(CLASSES)
    ]
    if len(rows) > 1:
        totals = (f"{count.total():,}" for count in counts.values())
        body.append(["all", *totals, f"{rows.total():,}", "", ""])
    hidden = len(rows) - CLASSES
    title = f"{each.name}, {CLASSES} of {len(rows):,} classes" if hidden > 0 else each.name
    return Grid(title, ["class", *counts, "all", "before", "after"], body)


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


def _purge_facts(purge: Purge) -> Iterator[Fact]:
    for each in purge.sets:
        if each.classes and each.removed:
            yield Fact(
                "balance",
                f"class shares of {each.name} move by {100 * each.moved:.2f} % (total variation"
                " distance)",
            )
    if purge.wish.side == "test":
        yield Fact("repeats", _test_duplicates(purge.wish))
    if purge.disputed:
        how = "counted by their automatic grade" if purge.wish.disputed else "left out"
        hint = "" if purge.wish.disputed else "; --include-disputed counts them"
        yield Fact("disputed", f"{counted(purge.disputed, 'pair')} {how}{hint}")
    if purge.flat:
        yield Fact("blank", f"kept: {counted(purge.flat, 'image')} without content")
    unreadable = sum(each.unreadable for each in purge.sets)
    if unreadable:
        yield Fact("unreadable", f"kept: {counted(unreadable, 'image')} that could not be read")
    for caveat in purge.caveats:
        yield Fact("not seen", caveat, "caution")
    yield Fact("recommended", f"--remove-from {purge.advice.side}: {purge.advice.why}")


def _test_duplicates(wish: Wish) -> str:
    if wish.within == "drop":
        return "of duplicates among test images the first of each group stays"
    return "duplicates among test images stay; --test-duplicates drop keeps one of each group"


def _purge_written(purge: Purge, summary: AuditSummary) -> Iterator[Fact]:
    written = purge.written
    assert written is not None
    what = sized(written.bytes) + (", verified" if written.sources else "")
    if written.reused:
        what = "was there already, unchanged"
    yield Fact("written", f"{written.folder} ({written.files:,} files, {what})", "strong")
    if written.unreadable:
        yield Fact(
            "left out",
            f"{counted(len(written.unreadable), 'image')} that cannot be read",
            "caution",
        )
    for name, source in written.sources.items():
        yield Fact("source", f"{name}={source}")
    if command := _command(written.sources, purge.wish.side, summary):
        yield Fact("check it", command)
    elif not written.sources:
        lists = "kept.csv and removed.csv name every image"
        if not written.counts:
            lists = "removed.csv names the images that go"
        yield Fact("lists", f"{written.folder}: {lists}")


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
    opened_in = Path(summary.opened_in)
    return source if opened_in == Path.cwd() else resolved(source, opened_in)


def undo_document(result: Undo) -> Document:
    """Return what undoing removes and what it keeps."""
    done = "removed" if result.applied else "would be removed"
    lines = [f"  kept: {name}: {what}" for name, what in result.kept]
    lines += [f"  kept: {name}: not written by visleak" for name in result.others]
    if not result.applied:
        lines.append("dry run: nothing was removed; add --apply")
    return Document(
        "Undo",
        f"{len(result.removed):,} files of {result.folder} {done} ({sized(result.bytes)})",
        tuple(lines),
    )


def split_document(content: Mapping[str, Any], out: Path) -> Document:
    """Return a split.

    Args:
        content: of ``split.json``.
        out: the output folder.
    """
    classes = _class_grid(content)
    return Document(
        "Split",
        _split_headline(content),
        tables=(_sizes(content), *([classes] if classes else [])),
        facts=(*_split_facts(content), *_split_outcome(content, out)),
    )


def _split_headline(content: Mapping[str, Any]) -> str:
    parts = content["parts"]
    done = content["written"] is not None
    if content["kind"] == "fix":
        moves = content["moves"]
        if not moves["images"]:
            return f"no image has to move: no component is in two of {', '.join(parts)}"
        back = moves["keeping_sizes"]
        extra = f", and {back:,} more to keep sizes" if back else ""
        if moves["uniting"] > moves["fewest"]:
            extra += f" ({moves['fewest']:,} would do, were sizes not kept)"
        return (
            f"{counted(moves['uniting'], 'image')} {'were moved' if done else 'would move'} to"
            f" unite {counted(moves['components'], 'component')}{extra}"
        )
    sizes = ", ".join(f"{name} {about['images']:,}" for name, about in parts.items())
    return f"{content['images']:,} images {'were split' if done else 'would be split'}: {sizes}"


def _sizes(content: Mapping[str, Any]) -> Grid:
    before = content.get("before")
    rows = [
        [name, f"{before[name]['images']:,}", f"{about['images']:,}"]
        if before
        else [
            name,
            f"{about['images']:,}",
            f"{100 * about['share']:.2f} %",
            f"{100 * about['asked']:.2f} %",
        ]
        for name, about in content["parts"].items()
    ]
    heads = ("before", "after") if before else ("images", "share", "target")
    return Grid("sizes", ["part", *heads], rows)


def _class_grid(content: Mapping[str, Any]) -> Grid | None:
    rows = _class_rows(content)
    if not rows:
        return None
    heads = list(content["parts"])
    heads = heads if content.get("before") else ["all", *heads]
    title = "classes, largest deviation first"
    if len(rows) > CLASSES:
        title += f" ({CLASSES} of {len(rows):,})"
    return Grid(title, ["class", *heads], [[name, *cells] for name, cells in rows[:CLASSES]])


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


def _split_facts(content: Mapping[str, Any]) -> Iterator[Fact]:
    components = content["components"]
    largest = components["largest"]
    yield Fact(
        "components",
        f"{components['count']:,}, {components['single']:,} of one image"
        + (f"; the largest of {largest:,} ({components['largest_is']})" * (largest > 1)),
    )
    disputed = content["disputed"]
    told = f"; {disputed:,} of them disputed by reviewers, kept together" if disputed else ""
    groups = f", {counted(content['groups'], 'group')}" if content["groups"] else ""
    yield Fact(
        "connected",
        f"{counted(content['pairs'], 'pair')} of grade {content['grade']} or stronger{told}, equal"
        f" bytes{groups}",
    )
    if content["groups"] and content["grouped"] < content["images"]:
        left = content["images"] - content["grouped"]
        yield Fact("groups", f"{counted(left, 'image')} in no group", "caution")
    if content["unreadable"]:
        yield Fact("unreadable", f"{counted(content['unreadable'], 'image')} in no part", "caution")
    if content["kind"] == "fix":
        yield Fact("moves", content["moves"]["why"])
        for name, about in content["parts"].items():
            if not about["images"]:
                words = f"nothing would be left of {name}: try --keep-sizes, or make a new split"
                yield Fact("empty", words, "caution")
        return
    gap = content["largest_deviation"]
    yield Fact("deviation", gap["words"] if gap["points"] else "none")
    limit = f"{100 * content['tolerance']:.4g} %"
    if not content["misses"]:
        yield Fact("tolerance", f"{limit} is kept", "good")
    for number, line in enumerate(content["why"]):
        words = line if number else f"{limit} is missed: {line}"
        yield Fact("" if number else "tolerance", words, "caution")


def _split_outcome(content: Mapping[str, Any], out: Path) -> Iterator[Fact]:
    written = content["written"]
    if written is None:
        yield Fact("dry run", f"only the plan was written: {out / 'assignment.csv'}")
        yield Fact("", "no known duplicate crosses the split; --apply audits it again")
        yield Fact("", f"add -o {shlex.quote(str(out))} --format manifest|link|copy --apply")
        return
    rounds = content["rounds"]
    if content["pairs_added"]:
        yield Fact(
            "rounds",
            f"{rounds}: audits of the parts found {counted(content['pairs_added'], 'pair')} that"
            " the first audit had not listed; they were taken in",
        )
    proof = content["proof"]
    if proof["headline"] is None:
        yield Fact("proof", "an audit of the parts found no pair before they were written")
    else:
        yield Fact("proof", proof["headline"], "good")
        yield Fact("", proof["folder"])
    for name, source in written["sources"].items():
        yield Fact(name, source, "strong")
    yield Fact("all", written["folder"])


def replace_document(plan: ReplacePlan, out: Path | None) -> Document:
    """Return the plan of a fair test set and what came of it."""
    meant = "exact" if plan.grade == "exact" else f"{plan.grade} or closer"
    headline = (
        f"{plan.duplicates:,} of {plan.size:,} images of {plan.test_set} are duplicates ({meant}):"
        f" {plan.leaks:,} of a training image, {plan.within:,} of another test image"
    )
    rows = [
        [
            each.label or "(no label)",
            f"{each.duplicates:,}",
            f"{each.replaced:,}",
            f"{each.duplicates - each.replaced:,}",
            f"{each.left:,}",
        ]
        for each in plan.classes
    ]
    if len(rows) > 1:
        left = f"{sum(each.left for each in plan.classes):,}" if plan.by_class else ""
        numbers = (plan.duplicates, len(plan.replaced), len(plan.missing))
        rows.append(["all", *(f"{number:,}" for number in numbers), left])
    header = ["class", "duplicates", "replaced", "without", "candidates left"]
    facts = [Fact("", line) for line in _replace_lines(plan)]
    return Document(
        "Fair test set",
        headline,
        tuple(_left_out(plan)),
        (Grid("replacements", header, rows),),
        facts=(*facts, Fact("", _outcome(plan, out))),
    )


def _replace_lines(plan: ReplacePlan) -> Iterator[str]:
    if plan.by_machine:
        yield (
            f"{plan.by_machine:,} of {len(plan.replaced):,} replacements were selected"
            f" automatically (seed {plan.seed}); no person has checked them"
        )
    for id_, why in plan.missing[:NAMED]:
        yield f"no replacement: {id_} ({why})"
    if len(plan.missing) > NAMED:
        yield f"and {len(plan.missing) - NAMED:,} more without a replacement"


def _left_out(plan: ReplacePlan) -> Iterator[str]:
    """Yield what is not a duplicate after all, and what of the pool is not a candidate."""
    if plan.blank:
        yield f"left out, blank: {_test_images(plan.blank)}"
    if plan.disputed:
        yield f"left out, reviewers disagree: {_test_images(plan.disputed)} (--include-disputed)"
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


def _test_images(count: int) -> str:
    return counted(count, "test image")


def _outcome(plan: ReplacePlan, out: Path | None) -> str:
    """Return what was written, or what to do to write it."""
    if plan.written is not None:
        verb = "reused" if plan.written.reused else "written"
        source = plan.written.sources.get(plan.test_set)
        opens = f"; it opens as {source}" if source else ""
        return f"{verb}: {plan.written.folder!s}{opens}"
    if not plan.duplicates:
        return "nothing to replace"
    where = f"to {out!s}" if out is not None else "to the folder of -o DIR"
    return f"dry run: nothing was written; --apply writes the test set {where}"
