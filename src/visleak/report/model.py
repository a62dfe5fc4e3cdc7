"""The content of the page: the typed summary of an audit, arranged as the page shows it."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from visleak.pipeline.recordings import doubt, words
from visleak.rates import Rate
from visleak.records import DEGREES, GRADES, PairRow
from visleak.report.counts import Counts, Example, classes_figure, count, types_figure
from visleak.report.document import next_steps
from visleak.reporting.gallery import Card, ImageLoader, data_uri, decoded, drawn
from visleak.stats.intervals import clopper_pearson
from visleak.storage import UNREADABLE, AuditSummary, read_problems, read_summary
from visleak.storage.audit_folder import ComparisonSummary, Rates, RecordingSummary, TotalSummary
from visleak.verdicts import Verdict, judged_summary

#: The cumulative rates of the key numbers: name, title, explanation.
KEYS: Final = (
    (
        *("near_or_exact", "Near or exact"),
        "The same camera shot is in the training data, at most post-processed.",
    ),
    (
        *("similar_or_closer", "Similar or closer"),
        "Also counts other shots that differ only at second glance.",
    ),
    (
        *("hard_or_soft", "Hard or soft"),
        "Similarity alone reaches the soft threshold, whatever the grade.",
    ),
)
#: What the commands after an audit are for.
PURPOSES: Final = {
    "review": "Judge the pairs yourself",
    "purge": "Plan a test set without leaks",
    "split": "Plan a repaired split",
}
#: Columns of the table of exclusive rates.
EXCLUSIVE: Final = (*GRADES[:3], *DEGREES)
#: Most unreadable images listed by name.
MOST_PROBLEMS: Final = 50


@dataclass(frozen=True, slots=True)
class RateRow:
    """A row of the table of rates; ``scenario`` is empty where it joins several comparisons."""

    query_set: str
    reference_set: str
    scenario: str  # what was available in training, and from where, in plain words
    rates: Mapping[str, Rate]


@dataclass(frozen=True, slots=True)
class Recordings:
    """Recordings on both sides of a comparison, and the rate of its images in them."""

    query_set: str
    reference_set: str
    about: RecordingSummary
    rate: Rate
    bound: str  # the largest distance that counts as a leak, in words
    doubt: str  # why the numbers may not be frame numbers, in words


@dataclass(frozen=True, slots=True)
class Problems:
    """The images that could not be read: counts by set and reason, and the first by name."""

    counts: tuple[tuple[str, str, int], ...]
    listed: tuple[tuple[str, str, str, str], ...]
    total: int


@dataclass(frozen=True, slots=True)
class PageSummary:
    """The summary of an audit as the page shows it."""

    audit: AuditSummary
    verified: bool
    headline: str
    title: str  # of the page: for an audit without leaks with what is still possible
    clean: bool  # images were compared, no query image leaks and no group is on both sides
    totals: tuple[TotalSummary, ...]
    deciding: list[Rate]  # of each query set the rate that decides whether a leak was found
    leaks: list[ComparisonSummary]  # of two sets
    within: list[ComparisonSummary]  # of a set with itself
    groups: list[ComparisonSummary]  # of two sets with groups
    segments: list[ComparisonSummary]  # with recordings that share intervals of time
    recordings: list[Recordings]  # on both sides
    # names in the order of the audit
    query_sets: tuple[str, ...]
    reference_sets: tuple[str, ...]
    table: list[RateRow]  # every comparison, and after those of a query set their union
    not_listed: list[tuple[str, str]]  # the sets with files that are not images, and which
    settings: list[tuple[str, str]]  # as texts
    origin: list[tuple[str, str]]  # versions and digests that the numbers depend on

    def keys(self, total: TotalSummary) -> list[tuple[str, Rate, str]]:
        """Return the key numbers of a query set that are known: title, rate, explanation."""
        rates = self.known(total.rates)
        return [(title, rates[name], text) for name, title, text in KEYS if name in rates]

    def known(self, rates: Rates) -> dict[str, Rate]:
        """Return the rates that were measured; those of grades only where pairs have grades."""
        return _known(rates, self.verified)


def _known(rates: Rates, verified: bool) -> dict[str, Rate]:
    names = (*DEGREES, "hard_or_soft")
    return {name: rate for name, rate in rates.items() if rate and (verified or name in names)}


def read(folder: Path, verdicts: Sequence[Verdict] = ()) -> PageSummary:
    """Read the summary of an audit."""
    audit = judged_summary(folder, verdicts)
    # without a grader no comparison had images on both sides; verdicts are grades in any case
    verified = (audit.settings.verify and audit.grader is not None) or bool(verdicts)
    names = ("near_or_exact", "hard_or_soft") if verified else ("hard_or_soft",)
    measured = [[rate for name in names if (rate := t.rates.get(name))] for t in audit.totals]
    deciding = [rates[0] for rates in measured if rates]
    groups = [c for c in audit.comparisons if c.groups and c.rates.get("group")]
    shared = any(c.groups.shared for c in groups if c.groups)
    clean = bool(deciding) and not shared and not any(rate.count for rate in deciding)
    headline = audit.headline or "An audit without a headline"
    leaks = [c for c in audit.comparisons if c.coverage != "within"]
    within = [c for c in audit.comparisons if c.coverage == "within"]
    sides = [row.name for row in audit.sets if row.side == "query"]
    query_sets = tuple(dict.fromkeys([*(c.query_set for c in (*leaks, *within)), *sides]))
    described = [(each.name, each.not_listed_words) for each in audit.sets]
    shown = {True: "yes", False: "no", None: "the encoder's own"}
    origin = {
        "visleak": audit.visleak,
        "encoder": audit.encoder.name,
        "encoder digest": audit.encoder.digest,
        "embedding width": str(audit.encoder.width),
        "verifier digest": audit.verifier.digest if audit.verifier else "",
        **audit.versions,
    }
    return PageSummary(
        audit=audit,
        verified=verified,
        headline=headline,
        title=_clean_title(audit.totals, deciding) if clean else headline,
        clean=clean,
        totals=audit.totals,
        deciding=deciding,
        leaks=leaks,
        within=within,
        groups=groups,
        segments=[c for c in audit.comparisons if c.segments],
        recordings=list(_recordings(audit)),
        query_sets=query_sets,
        reference_sets=tuple(dict.fromkeys(c.reference_set for c in leaks)),
        table=list(_table(audit, leaks, query_sets, verified)),
        not_listed=[each for each in described if each[1]],
        settings=[
            (name, shown[value] if value is None or isinstance(value, bool) else str(value))
            for name, value in audit.settings.as_dict().items()
        ],
        origin=[(name, value) for name, value in origin.items() if value],
    )


def _clean_title(totals: Sequence[TotalSummary], deciding: Sequence[Rate]) -> str:
    several = len(totals) > 1
    names = [f"images of {each.query_set}" if several else "test images" for each in totals]
    counts = [
        f"{rate.total:,} {name} (95 % upper bound {largest(rate)})"
        for name, rate in zip(names, deciding, strict=False)
    ]
    return f"No leaks found in {'; '.join(counts)}"


def _table(
    audit: AuditSummary,
    leaks: Sequence[ComparisonSummary],
    query_sets: Sequence[str],
    verified: bool,
) -> Iterator[RateRow]:
    totals = {total.query_set: total.rates for total in audit.totals}
    for name in query_sets:
        mine = [c for c in leaks if c.query_set == name]
        for c in mine:
            scenario = plain_words(c.modality, c.coverage)
            yield RateRow(name, c.reference_set, scenario, _known(c.rates, verified))
        if len(mine) > 1 and name in totals:
            yield RateRow(name, "all together", "", _known(totals[name], verified))


def _recordings(audit: AuditSummary) -> Iterator[Recordings]:
    for c in audit.comparisons:
        if (found := c.recordings) and found.shared and (rate := c.rates.get("recording")):
            bound = words(found.within, found.unit)
            why = doubt(found.unit, found.within, found.nearest)
            yield Recordings(c.query_set, c.reference_set, found, rate, bound, why)


def duplicates(comparison: ComparisonSummary) -> tuple[tuple[str, int, int | None], ...]:
    """Return grade, pairs and images in them of the duplicates within a set."""
    within = comparison.within or {}
    pairs, images = within.get("duplicate_pairs", {}), within.get("distinct_images", {})
    return tuple((kind, pairs[kind], images.get(kind)) for kind in EXCLUSIVE if pairs.get(kind))


def read_unreadable(folder: Path) -> Problems:
    """Read ``unreadable.csv``; a folder without one has no unreadable images."""
    path = folder / UNREADABLE
    problems = read_problems(path) if path.is_file() else ()
    counts = Counter((problem.set, problem.reason) for problem in problems)
    rows = sorted(counts.items(), key=lambda item: (item[0][0], -item[1], item[0][1]))
    return Problems(
        counts=tuple((name, reason, count) for (name, reason), count in rows),
        listed=tuple((p.set, p.id, p.reason, p.detail) for p in problems[:MOST_PROBLEMS]),
        total=len(problems),
    )


def plain_words(modality: str, coverage: str) -> str:
    """Return a scenario of Ramos et al. 2025 in plain words.

    >>> plain_words("image-only", "inter")
    'image only, another dataset'
    """
    seen = "image and label" if modality == "full" else "image only"
    return f"{seen}, {'same' if coverage == 'intra' else 'another'} dataset"


def largest(rate: Rate) -> str:
    """Return the largest share that is compatible with having found nothing.

    The upper end of the exact two-sided interval (Clopper & Pearson 1934).

    >>> largest(Rate.of(0, 100)), largest(Rate.of(0, 10_000))
    ('3.6 %', '0.037 %')
    """
    return f"{100 * clopper_pearson(rate.count, rate.total)[1]:.2g} %"


def bound(rate: Rate) -> str:
    """Return the same bound in a sentence."""
    return f"up to {largest(rate)} (95 % upper bound)"


def steps(summary: PageSummary, folder: Path) -> tuple[tuple[str, str], ...]:
    """Return the next commands, and what each is for."""
    commands = next_steps(folder, summary.audit)
    return tuple((PURPOSES[command.split()[1]], command) for command in commands)


def show_command(folder: Path, row: PairRow) -> str:
    """Return the command that lists every pair of a query image."""
    words = ["visleak", "show", str(folder), row["query"], "--set", row["query_set"]]
    return shlex.join(words)


# -- the review ----------------------------------------------------------------------------------

#: Most disputed pairs that the page names.
MOST_DISPUTES: Final = 50
SVG: Final = "image/svg+xml"


@dataclass(frozen=True, slots=True)
class Reviewed:
    """The section about the review."""

    counts: Counts
    names: str  # the reviewers, each with the number of judged pairs
    machine: str
    types: str
    classes: tuple[tuple[str, str], ...]
    examples: tuple[tuple[Example, Card | None], ...]


def read_review(folder: Path, verdicts: Sequence[Verdict], loader: ImageLoader | None) -> Reviewed:
    """Return the section about the duplicates of an audit that people judged."""
    counts = count(folder, verdicts=verdicts)
    examples = [example for own in counts.sets for example in own.examples]
    pixels = decoded([example.pair for example in examples], loader) if loader else {}
    drawings = [(own.query_set, classes_figure(own)) for own in counts.sets]
    people = counts.review.agreement.reviewers if counts.review else {}
    return Reviewed(
        counts=counts,
        names=", ".join(f"{name} ({number:,})" for name, number in people.items()),
        machine=read_summary(folder).headline,
        types=data_uri(types_figure(counts), SVG),
        classes=tuple((name, data_uri(drawing, SVG)) for name, drawing in drawings if drawing),
        examples=tuple((example, drawn(example.pair, pixels)) for example in examples),
    )
