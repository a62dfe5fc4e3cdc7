"""Documents of purge, split, replace and undo."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from visleak.formats.sources import resolved
from visleak.grouping.document import decay_figures, span
from visleak.options import AUTO
from visleak.quantities import counted, listed, size
from visleak.remedy.manifest import Undo
from visleak.remedy.removal import Purge, SetPlan, gaps_of
from visleak.remedy.substitution import ReplacePlan
from visleak.reporting import Document, Fact, Table
from visleak.reporting.markup import Grid
from visleak.storage import AuditSummary
from visleak.verdicts.overlay import Level

CLASSES: Final = 25  # rows of a table of classes; ``--json`` has all
NAMED: Final = 5  # duplicates without a replacement that are listed


def purge_document(purge: Purge, summary: AuditSummary, out: Path | None) -> Document:
    """Return the document of a planned or written purge."""
    removed = "were removed" if purge.written is not None else "would be removed"
    grades = listed(reversed(Level(purge.settings.level).names))
    first, *others = (
        f"{len(each.removed):,} of {each.total:,} images of {each.name} {removed} ({grades} pairs);"
        f" {each.stays:,} stay"
        for each in purge.sets
    )
    facts = (*_gap_facts(purge, summary), *_purge_facts(purge), *_written(purge, summary, out))
    tables = tuple(_purge_table(each) for each in purge.sets if each.removed)
    figures = decay_figures(summary.grouping) if purge.settings.max_frame_gap == AUTO else ()
    return Document("Purge", first, tuple(others), tables, figures=tuple(figures), facts=facts)


def _purge_table(each: SetPlan) -> Grid:
    """Return the reasons by class, the classes with the most removed images first."""
    counts, rows = each.counts(), Counter(removed.label for removed in each.removed)
    changes = {change.label: (change.before, change.after) for change in each.classes}
    totals = [sum(column) for column in zip(*changes.values(), strict=True)]
    body = []
    for label, total in rows.most_common(CLASSES):
        why = [f"{count[label]:,}" if count[label] else "" for count in counts.values()]
        shares = ["", ""]
        if label in changes:
            parts = zip(changes[label], totals, strict=True)
            shares = [_percent(part / whole) if whole else "" for part, whole in parts]
        body.append([label or "(no label)", *why, f"{total:,}", *shares])
    if len(rows) > 1:
        sums = (f"{count.total():,}" for count in counts.values())
        body.append(["all", *sums, f"{rows.total():,}", "", ""])
    hidden = len(rows) - CLASSES
    title = f"{each.name}, {CLASSES} of {len(rows):,} classes" if hidden > 0 else each.name
    return Grid(title, ["class", *counts, "all", "before", "after"], body)


def _gap_facts(purge: Purge, summary: AuditSummary) -> Iterator[Fact]:
    """Yield the maximum distance of removed frames of each recording, with its reason."""
    for number, gap in gaps_of(summary, purge.settings).items():
        assert summary.grouping is not None
        each = summary.grouping.hypotheses[int(number) - 1]
        text = f"{each.words}: images at most {span(gap, each.unit)} from one of the other side"
        if purge.settings.max_frame_gap == AUTO:
            text += "; there half of the similarity of neighbouring frames is left"
            text += " (figure in the report of the audit)"
        yield Fact("frame gap", text)


def _purge_facts(purge: Purge) -> Iterator[Fact]:
    for each in purge.sets:
        if each.classes and each.removed:
            moved = f"class shares of {each.name} move by {_percent(each.shift)}"
            yield Fact("balance", f"{moved} (total variation distance)")
    settings = purge.settings
    if settings.remove_from == "test":
        what = "duplicates among test images stay; --test-duplicates drop keeps one of each group"
        if settings.test_duplicates == "drop":
            what = "of duplicates among test images the first of each group stays"
        yield Fact("repeats", what)
    if purge.disputed:
        how = "left out; --include-disputed counts them"
        if settings.include_disputed:
            how = "counted by their automatic grade"
        yield Fact("disputed", f"{counted(purge.disputed, 'pair')} {how}")
    if purge.blank:
        yield Fact("blank", f"kept: {counted(purge.blank, 'image')} without content")
    if unreadable := sum(each.unreadable for each in purge.sets):
        yield Fact("unreadable", f"kept: {counted(unreadable, 'image')} that could not be read")
    yield from (Fact("not seen", caveat, "caution") for caveat in purge.caveats)
    yield Fact("recommended", f"--remove-from {purge.advice.side}: {purge.advice.why}")


def _written(purge: Purge, summary: AuditSummary, out: Path | None) -> Iterator[Fact]:
    written = purge.written
    if written is None:
        where = f"-o {shlex.quote(str(out))}" if out is not None else "-o DIR"
        how = f"add {where} --format manifest|link|copy --apply"
        yield Fact("dry run", f"nothing was written; {how}")
        return
    what = size(written.bytes) + (", verified" if written.sources else "")
    if written.reused:
        what = "was there already, unchanged"
    yield Fact("written", f"{written.folder} ({written.files:,} files, {what})", "strong")
    if lost := len(written.unreadable):
        yield Fact("left out", f"{counted(lost, 'image')} that cannot be read", "caution")
    yield from (Fact("source", f"{name}={source}") for name, source in written.sources.items())
    if written.sources:
        yield Fact("check it", _command(written.sources, purge.settings.remove_from, summary))
    else:
        lists = "kept.csv and removed.csv name every image"
        if not written.counts:
            lists = "removed.csv names the images to remove"
        yield Fact("lists", f"{written.folder}: {lists}")


def _command(sources: Mapping[str, str], side: str, summary: AuditSummary) -> str:
    """Return the command that audits the result."""
    tests = {total.query_set for total in summary.totals}
    trained = any(each.name not in tests for each in summary.sets)
    words = ["visleak audit"]
    here = Path(summary.opened_in) == Path.cwd()
    for each in summary.sets:
        own = "test" if each.name in tests else "train"
        if own != side or each.name in sources:
            opened = each.source if here else resolved(each.source, Path(summary.opened_in))
            source = f"{each.name}={sources.get(each.name) or opened}"
            words.append(f"--{own if trained else 'set'} {shlex.quote(source)}")
    return " ".join([*words, "-o AUDIT"])


def undo_document(result: Undo) -> Document:
    """Return the document of the removal of written files."""
    done = "removed" if result.applied else "would be removed"
    lines = [f"  kept: {name}: {change}" for name, change in result.kept]
    lines += [f"  kept: {name}: not written by visleak" for name in result.others]
    if not result.applied:
        lines.append("dry run: nothing was removed; add --apply")
    return Document(
        "Undo",
        f"{len(result.removed):,} files of {result.folder} {done} ({size(result.bytes)})",
        tuple(lines),
    )


def split_document(content: Mapping[str, Any], out: Path) -> Document:
    """Return the document of a planned or written split."""
    parts, before = content["parts"], content.get("before")
    rows = []
    for name, about in parts.items():
        images = f"{about['images']:,}"
        if before:
            rows.append([name, f"{before[name]['images']:,}", images])
        else:
            rows.append([name, images, _percent(about["share"]), _percent(about["asked"])])
    heads = ("before", "after") if before else ("images", "share", "target")
    return Document(
        "Split",
        _split_headline(content),
        tables=(Grid("sizes", ["part", *heads], rows), _class_grid(parts, before)),
        facts=(*_split_facts(content), *_split_outcome(content, out)),
    )


def _split_headline(content: Mapping[str, Any]) -> str:
    parts = content["parts"]
    done = content["written"] is not None
    if content["kind"] == "split":
        sizes = ", ".join(f"{name} {about['images']:,}" for name, about in parts.items())
        return f"{content['images']:,} images {'were' if done else 'would be'} split: {sizes}"
    moves = content["moves"]
    if not moves["images"]:
        return f"no image has to move: no component is in two of {', '.join(parts)}"
    back = moves["keeping_sizes"]
    extra = f", and {back:,} more to keep sizes" if back else ""
    if moves["uniting"] > moves["fewest"]:
        extra += f" ({moves['fewest']:,} without keeping sizes)"
    return (
        f"{counted(moves['uniting'], 'image')} {'were moved' if done else 'would move'} to unite"
        f" {counted(moves['components'], 'component')}{extra}"
    )


def _percent(share: float) -> str:
    return f"{100 * share:.2f} %"


def _class_grid(parts: Mapping[str, Any], before: Mapping[str, Any] | None) -> Grid:
    """Return the classes with their counts or shares in every part, largest deviation first."""
    rows = []
    for name in next(iter(parts.values())).get("classes", ()):
        found = {part: about["classes"][name] for part, about in parts.items()}
        if before:
            counts = [
                (before[part]["classes"][name]["images"], own["images"])
                for part, own in found.items()
            ]
            deviation = max(abs(old - new) for old, new in counts)
            cells = [f"{old:,} > {new:,}" for old, new in counts]
        else:
            shares, whole = [own["share"] for own in found.values()], found[next(iter(parts))]
            deviation = max(abs(share - whole["of_all"]) for share in shares)
            cells = [_percent(share) for share in (whole["of_all"], *shares)]
        if deviation or not before:
            rows.append((-deviation, name, cells))
    title = "classes, largest deviation first"
    if len(rows) > CLASSES:
        title += f" ({CLASSES} of {len(rows):,})"
    shown = [[name, *cells] for _, name, cells in sorted(rows)[:CLASSES]]
    return Grid(title, ["class", *([] if before else ["all"]), *parts], shown)


def _split_facts(content: Mapping[str, Any]) -> Iterator[Fact]:
    components = content["components"]
    largest = components["largest"]
    yield Fact(
        "components",
        f"{components['count']:,}, {components['single']:,} of one image"
        + (f"; the largest of {largest:,} ({components['largest_is']})" * (largest > 1)),
    )
    disputed = content["disputed"]
    doubtful = f"; {disputed:,} of them disputed, kept together" if disputed else ""
    groups = f", {counted(content['groups'], 'group')}" if content["groups"] else ""
    yield Fact(
        "connected",
        f"{counted(content['pairs'], 'pair')} of grade {content['grade']} or stronger{doubtful},"
        f" equal bytes{groups}",
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
                words = f"{name} would be empty: try --keep-sizes, or create a new split"
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
            " the first audit had not listed; they were included",
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
    """Return the document of a planned or written fair test set."""
    grade = plan.settings.grade
    grades = "exact" if grade == "exact" else f"{grade} or closer"
    headline = (
        f"{plan.duplicates:,} of {plan.size:,} images of {plan.test_set} are duplicates ({grades}):"
        f" {plan.leaks:,} of a training image, {plan.within:,} of another test image"
    )
    rows: list[tuple[str | int | None, ...]] = []
    for each in plan.classes:
        missing = each.duplicates - each.replaced
        counts = (each.duplicates, each.replaced, missing, each.candidates_left)
        rows.append((each.label or "(no label)", *counts))
    if len(rows) > 1:
        left = sum(each.candidates_left for each in plan.classes) if plan.by_class else None
        rows.append(("all", plan.duplicates, len(plan.replaced), len(plan.missing), left))
    headings = ("class", "duplicates", "replaced", "without", "candidates left")
    facts = tuple(Fact("", line) for line in _replace_lines(plan, out))
    table = Table.of("replacements", headings, rows, limit=len(rows))
    return Document("Fair test set", headline, tuple(_left_out(plan)), (table,), facts=facts)


def _replace_lines(plan: ReplacePlan, out: Path | None) -> Iterator[str]:
    if plan.automatic:
        yield (
            f"{plan.automatic:,} of {len(plan.replaced):,} replacements were selected"
            f" automatically (seed {plan.settings.seed}); no person has checked them"
        )
    for id_, why in plan.missing[:NAMED]:
        yield f"no replacement: {id_} ({why})"
    if len(plan.missing) > NAMED:
        yield f"and {len(plan.missing) - NAMED:,} more without a replacement"
    if plan.written is not None:
        verb = "reused" if plan.written.reused else "written"
        source = plan.written.sources.get(plan.test_set)
        yield f"{verb}: {plan.written.folder!s}{f'; it opens as {source}' if source else ''}"
    elif not plan.duplicates:
        yield "nothing to replace"
    else:
        where = f"to {out!s}" if out is not None else "to the folder of -o DIR"
        yield f"dry run: nothing was written; --apply writes the test set {where}"


def _left_out(plan: ReplacePlan) -> Iterator[str]:
    if plan.blank:
        yield f"left out, blank: {counted(plan.blank, 'test image')}"
    if plan.disputed:
        images = counted(plan.disputed, "test image")
        yield f"left out, reviewers disagree: {images} (--include-disputed)"
    pool = plan.pool
    reasons = {"in_the_audit": "in the audit already", "repeated": "repeating another one"}
    reasons |= {name: name for name in ("blank", "unreadable")}
    unused = [f"{pool[key]:,} {what}" for key, what in reasons.items() if pool[key]]
    rest = f"; not {', '.join(unused)}" if unused else ""
    yield f"pool: {pool['usable']:,} of {pool['images']:,} images can be used{rest}"
    if not plan.by_class:
        yield "classes: the test set or the pool has no labels, so any image may replace any other"
