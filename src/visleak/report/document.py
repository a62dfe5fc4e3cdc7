"""The summary of an audit for people: the headline first, then rates, then the rest."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Final

from visleak import grouping
from visleak.auditing import Audit
from visleak.pipeline import rates, recordings
from visleak.pipeline.encoded_set import lost
from visleak.quantities import counted
from visleak.rates import percent
from visleak.report import scenes
from visleak.reporting import Document, Fact
from visleak.reporting.markup import Grid
from visleak.settings import NEAR_AT
from visleak.storage import REPORT, UNREADABLE, AuditSummary, TotalSummary
from visleak.storage.audit_folder import GroupingSummary, Thresholds
from visleak.verdicts import read_verdicts

#: Rates of the table: key and words.
SHOWN: Final = (
    ("near_or_exact", "near or exact"),
    ("similar_or_closer", "similar or closer"),
    ("hard_or_soft", "hard or soft (similarity)"),
)
#: Groups that are named.
SOME: Final = 5


def document(audit: Audit) -> Document:
    """Return the summary of a finished audit."""
    content = audit.summary
    first, *others = [total.headline for total in content.totals]
    return Document(
        "Audit",
        first,
        lines=tuple(others),
        tables=(
            Grid("rates", ["set", "copies", "images", "share", "95 % CI"], [*_rates(content)], 2),
        ),
        facts=(
            *_within(content),
            *_groups(content),
            *_recordings(content),
            *grouping.facts(content.grouping or GroupingSummary()),
            *_segments(content),
            *scenes.facts(content),
            *_facts(audit),
        ),
    )


def _rates(content: AuditSummary) -> Iterator[list[str]]:
    for total in content.totals:
        name, graded = total.query_set, total.rates.get("near_or_exact")
        for key, words in SHOWN:
            if (rate := total.rates.get(key)) is None:
                continue
            if key == "hard_or_soft" and graded is not None and not graded.count:
                continue  # unverified candidates of images of which none is near
            interval = f"{percent(rate.low)}-{percent(rate.high)}"
            count = f"{rate.count:,} of {rate.total:,}"
            yield [name, words, count, f"{percent(rate.share)} %", interval]
            name = ""


def _within(content: AuditSummary) -> Iterator[Fact]:
    for each in content.comparisons:
        if found := each.within:
            pairs, images = found["duplicate_pairs"], found["distinct_images"]
            if count := pairs["exact"] + pairs["near"]:
                yield Fact(
                    "repeats",
                    f"{images['exact'] + images['near']:,} images of {each.query_set} repeat each"
                    f" other ({counted(count, 'pair')}, {pairs['exact']:,} exact)",
                )


def _groups(content: AuditSummary) -> Iterator[Fact]:
    for each in content.comparisons:
        sides = f"{each.query_set} and {each.reference_set}"
        if (found := each.groups) and found.shared:
            named = _first(found.named, found.shared)
            yield Fact("groups", f"{found.shared:,} in both {sides}: {named}", "caution")
        elif found:
            yield Fact("groups", f"none is in both {sides}")


def _first(names: Iterable[str], total: int, between: str = ", ") -> str:
    more = f" and {total - SOME:,} more" if total > SOME else ""
    return between.join(islice(names, SOME)) + more


def _recordings(content: AuditSummary) -> Iterator[Fact]:
    for each in content.comparisons:
        found = each.recordings
        if not found or not found.shared:
            continue
        bound = recordings.words(found.within, found.unit)
        if not found.leaking:
            nearest = f"none of {counted(found.queries, 'test frame')} lies within {bound}"
            doubt = recordings.doubt(found.unit, found.within, found.nearest)
            line = f"{nearest} of a training frame{doubt and f'; {doubt}'}"
            yield Fact("recordings", line, "caution" if doubt else "")
            continue
        names = (f"{one.recording} ({one.close:,} of {one.queries:,})" for one in found.listed)
        leak = "leaks" if found.leaking == 1 else "leak"
        yield Fact(
            "recordings",
            f"{found.leaking:,} of {found.shared:,} on both sides {leak}"
            f" (test frames within {bound}): {_first(names, found.leaking)}",
            "caution",
        )


def _segments(content: AuditSummary) -> Iterator[Fact]:
    for each in content.comparisons:
        if (found := each.segments) is not None:
            named = _first(found.named, found.count, "; ")
            yield Fact("segments", f"{named} (segments.csv)", "caution")


def _facts(audit: Audit) -> Iterator[Fact]:
    content = audit.summary
    yield Fact("thresholds", _thresholds(content.thresholds))
    for words in rates.chance_notes(content.comparisons):
        yield Fact("", words, "caution")
    near_at = content.grader.near_at if content.grader else None
    if near_at not in (None, NEAR_AT):
        yield Fact("grades", f"near from probability {near_at:.12g} (default {NEAR_AT:g})")
    if conflicts := content.label_conflicts:
        pairs = counted(conflicts, "near or exact pair")
        words = f"{pairs} with different labels: possible label conflicts, or false positives"
        yield Fact("labels", words, "caution")
    if flat := sum(each.flat or 0 for each in content.sets):
        yield Fact("blank", f"{counted(flat, 'image')} without content, excluded")
    if problems := audit.unreadable():
        total = sum(each.images for each in content.sets)
        reasons = Counter(problem.reason for problem in problems).most_common()
        words = ", ".join(f"{count:,} {reason}" for reason, count in reasons)
        of = f"{len(problems):,} of {counted(total, 'image')}"
        yield Fact("unreadable", f"{of}: {words}", "caution")
        yield Fact("", str(audit.folder / UNREADABLE))
    for each in content.sets:
        if words := each.not_listed_words:
            yield Fact("skipped", f"{each.name}: {words}", "caution")
    # people have judged pairs of an audit that stood here before, or stands again
    judged = len({verdict.key for verdict in read_verdicts(audit.folder)})
    if judged and not audit.judged:
        yield Fact("review", f"{counted(judged, 'pair')} judged; `visleak stats` counts that")
    yield from (Fact("not done", each.text) for each in content.skipped)
    seconds = sum(content.timings.values())
    # with --sample, fewer than there are
    read = sum(each.readable + each.unreadable for each in content.sets)
    yield Fact("time", f"{seconds:,.1f} s for {counted(read, 'image')}")
    yield Fact("report", str(audit.folder / REPORT), "strong")
    for number, command in enumerate(next_steps(audit.folder, content)):
        yield Fact("" if number else "next", command)


def _thresholds(found: Thresholds) -> str:
    limits = (("hard", found.hard), ("soft", found.soft))
    known = [f"{name} {value:g}" for name, value in limits if value is not None]
    if not known:
        return "none are known for this encoder"
    return f"{', '.join(known)}{' (provisional)' if found.provisional else ''}"


def unfinished_line(result: Audit) -> str:
    """Return why an audit is unfinished: what is claimed is not all."""
    problems = lost(result.unreadable())
    first = problems[0]
    why = f"{first.reason}{f', {first.detail}' if first.detail else ''}"
    return (
        f"the audit is unfinished: images could be read at first, and not again"
        f" ({len(problems):,}, such as {first.set} {first.id} ({why})). They are in no rate, and no"
        " gate passes; when the source is complete, run the same command again"
    )


# -- commands that continue from an audit, as they may be pasted into a shell ---------------------


def next_steps(folder: Path, content: AuditSummary) -> Iterator[str]:
    """Yield commands for an audit with leaks or repeats: review first, then what removes them."""
    found = [total for total in content.totals if _level(total)]
    # sets given in memory, and embeddings, have no images to show or to write
    if not found or not all(each.source and each.has_pixels for each in content.sets):
        return
    place = shlex.quote(str(folder))
    yield f"visleak review {place}"
    leaking = [total.query_set for total in found if _leaks(content, total.query_set)]
    if not leaking:
        return
    level = next(filter(None, map(_level, found)))
    chosen = f" --set {shlex.quote(leaking[0])}" if len(content.totals) > 1 else ""
    degree = "" if level == "near" else f" --degree {level}"
    yield f"visleak purge {place} --remove-from test{chosen}{degree}"
    references = {each.reference_set for each in content.comparisons if each.coverage != "within"}
    if len(content.totals) == 1 and len(references) == 1 and can_be_repaired(content):
        yield f"visleak split --repair {place}"


def can_be_repaired(content: AuditSummary) -> bool:
    """Whether `visleak split --repair` applies: graded images of one dataset."""
    graded = any(total.rates.get("near_or_exact") is not None for total in content.totals)
    pixels = all(each.source and each.has_pixels for each in content.sets)
    return graded and pixels and len({each.dataset for each in content.sets}) == 1


def _level(total: TotalSummary) -> str:
    """Return the grade, or without grades the degree, that images of a set are counted by."""
    for level, key in (("near", "near_or_exact"), ("soft", "hard_or_soft")):
        rate = total.rates.get(key)
        if rate is not None:
            return level if rate.count else ""
    return ""


def _leaks(content: AuditSummary, name: str) -> bool:
    return any(each.query_set == name and each.coverage != "within" for each in content.comparisons)
