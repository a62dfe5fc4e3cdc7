"""The summary of an audit on the terminal: the headline first, then rates, then the rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from rich import box
from rich.table import Table
from rich.text import Text

from visleak.cli.edges import plain
from visleak.images.listing import describe_skipped
from visleak.pipeline import chance, recordings
from visleak.settings import NEAR_AT
from visleak.stats import percent
from visleak.storage import REPORT, UNREADABLE, AuditSummary, TotalSummary
from visleak.storage.summary import ThresholdSummary
from visleak.verdicts import read_verdicts

if TYPE_CHECKING:
    from rich.console import RenderableType

    from visleak.auditing import Audit

#: Rates of the table: key and words.
SHOWN: Final = (
    ("near_or_exact", "near or exact"),
    ("similar_or_closer", "similar or closer"),
    ("hard_or_soft", "hard or soft"),
)
#: Groups that are named.
SOME: Final = 5
#: Width of the names of the lines under the table.
NAMES: Final = 12


def summary(audit: Audit) -> Iterator[RenderableType]:
    """Yield what the terminal shows of a finished audit."""
    content = audit.summary
    for total in content.totals:
        yield _headline(total, finished=not audit.unfinished)
    yield Text()
    rates = _rates(content)
    if rates.row_count:
        yield rates
    yield from _within(content)
    yield from _groups(content)
    yield from _recordings(content)
    yield Text()
    yield from _facts(audit)


def _headline(total: TotalSummary, *, finished: bool) -> Text:
    rate = total.rates.get("near_or_exact") or total.rates.get("hard_or_soft")
    groups = total.rates.get("group")
    clean = rate and rate.total and not rate.count and not (groups and groups.count)
    return Text(plain(total.headline), "bold green" if clean and finished else "bold")


def _rates(content: AuditSummary) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="dim")
    table.add_column("test set", overflow="fold")
    table.add_column("")
    for name in ("images", "share", "95 % CI"):
        table.add_column(name, justify="right", no_wrap=True)
    for total in content.totals:
        first = True
        for key, words in SHOWN:
            rate = total.rates.get(key)
            if rate is None:
                continue
            table.add_row(
                plain(total.query_set) if first else "",
                words,
                f"{rate.count:,} of {rate.total:,}",
                f"{percent(rate.share)} %",
                f"{percent(rate.low)}-{percent(rate.high)}",
                style="" if rate.count else "dim",
            )
            first = False
        table.add_section()
    return table


def _within(content: AuditSummary) -> Iterator[Text]:
    """Yield a line for every set in which images repeat each other."""
    for each in content.comparisons:
        found = each.within
        if not found:
            continue
        pairs, images = found["duplicate_pairs"], found["distinct_images"]
        count = pairs["exact"] + pairs["near"]
        if count:
            repeated = images["exact"] + images["near"]
            yield _fact(
                "repeats",
                f"{repeated:,} images of {plain(each.query_set)} repeat each other"
                f" ({_counted(count, 'pair')}, {pairs['exact']:,} exact)",
            )


def _groups(content: AuditSummary) -> Iterator[Text]:
    """Yield a line for every pair of sets with groups, and some of those that both have."""
    for each in content.comparisons:
        found = each.groups
        if not found:
            continue
        sides = f"{plain(each.query_set)} and {plain(each.reference_set)}"
        if not found.shared:
            yield _fact("groups", f"none is in both {sides}")
            continue
        named = ", ".join(plain(name) for name in found.named[:SOME])
        rest = f" and {found.shared - SOME:,} more" if found.shared > SOME else ""
        yield _fact("groups", f"{found.shared:,} in both {sides}: {named}{rest}", "yellow")


def _recordings(content: AuditSummary) -> Iterator[Text]:
    """Yield a line for every pair of sets whose frames are known by time, and the worst of them."""
    for each in content.comparisons:
        found = each.recordings
        if not found or not found.shared:
            continue
        bound = recordings.words(found.within, found.unit)
        if not found.leaking:
            nearest = f"none of {_counted(found.queries, 'test frame')} lies within {bound}"
            doubt = recordings.doubt(found.unit, found.within, found.nearest)
            line = f"{nearest} of a training frame{doubt and f'; {doubt}'}"
            yield _fact("recordings", line, "yellow" if doubt else "")
            continue
        named = ", ".join(
            f"{plain(one.recording)} ({one.close:,} of {one.queries:,})"
            for one in found.listed[:SOME]
        )
        rest = f" and {found.leaking - SOME:,} more" if found.leaking > SOME else ""
        leak = "leaks" if found.leaking == 1 else "leak"
        yield _fact(
            "recordings",
            f"{found.leaking:,} of {found.shared:,} on both sides {leak}"
            f" (test frames within {bound}): {named}{rest}",
            "yellow",
        )


def _facts(audit: Audit) -> Iterator[Text]:
    content = audit.summary
    yield _fact("thresholds", _thresholds(content.thresholds))
    for words in chance.notes(content.comparisons):
        yield _fact("", plain(words), "yellow")
    near_at = content.grader.near_at if content.grader else None
    if near_at not in (None, NEAR_AT):
        yield _fact("grades", f"near from probability {near_at:.12g} (default {NEAR_AT:g})")
    if conflicts := content.label_conflicts:
        pairs = _counted(conflicts, "near or exact pair")
        words = f"{pairs} with different labels: possible label conflicts, or false positives"
        yield _fact("labels", words, "yellow")
    flat = sum(each.flat or 0 for each in content.sets)
    if flat:
        yield _fact("blank", f"{_counted(flat, 'picture')} without content, counted apart")
    yield from _unreadable(audit)
    for each in content.sets:
        words = describe_skipped(each.not_listed or {})
        if words:
            yield _fact("skipped", plain(f"{each.name}: {words}"), "yellow")
    yield from _review(audit)
    for words in content.skipped:
        yield _fact("not done", plain(words))
    seconds = sum(content.timings.values())
    # with --sample, fewer than there are
    read = sum(each.readable + each.unreadable for each in content.sets)
    yield _fact("time", f"{seconds:,.1f} s for {_counted(read, 'image')}")
    yield _fact("report", plain(str(audit.folder / REPORT)), "bold")


def _thresholds(found: ThresholdSummary) -> str:
    limits = (("hard", found.hard), ("soft", found.soft))
    known = [f"{name} {value:g}" for name, value in limits if value is not None]
    if not known:
        return "none are known for this encoder"
    return f"{', '.join(known)}{' (provisional)' if found.provisional else ''}"


def _unreadable(audit: Audit) -> Iterator[Text]:
    problems = audit.unreadable()
    if not problems:
        return
    total = sum(each.images for each in audit.summary.sets)
    reasons = Counter(problem.reason for problem in problems).most_common()
    listed = ", ".join(f"{count:,} {plain(reason)}" for reason, count in reasons)
    yield _fact(
        "unreadable", f"{len(problems):,} of {_counted(total, 'image')}: {listed}", "yellow"
    )
    yield _fact("", plain(str(audit.folder / UNREADABLE)))


def _review(audit: Audit) -> Iterator[Text]:
    """Say that people have judged pairs of an audit that stood here before, or stands again."""
    judged = len({verdict.key for verdict in read_verdicts(audit.folder)})
    if judged and not audit.judged:
        yield _fact("review", f"{_counted(judged, 'pair')} judged; `visleak stats` counts that")


def _fact(name: str, words: str, style: str = "") -> Text:
    return Text.assemble((f"{name:<{NAMES}}", "dim"), (words, style))


def _counted(count: int, what: str) -> str:
    """Return a count with its noun.

    >>> _counted(1, "pair"), _counted(2_000, "pair")
    ('1 pair', '2,000 pairs')
    """
    return f"{count:,} {what}{'' if count == 1 else 's'}"
