"""The content of the page: the typed summary of an audit, arranged as the page shows it."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from visleak.pipeline import rates
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

    @property
    def headline(self) -> str:
        """The result in one line."""
        return self.audit.headline or "An audit without a headline"

    @property
    def title(self) -> str:
        """The headline of the page: for an audit without leaks with what is still possible."""
        if not self.clean:
            return self.headline
        names = [f"images of {total.query_set}" for total in self.totals]
        names = names if len(names) > 1 else ["test images"]
        counts = [
            f"{rate.total:,} {name} (95 % upper bound {largest(rate)})"
            for name, rate in zip(names, self.deciding, strict=False)
        ]
        return f"No leaks found in {'; '.join(counts)}"

    @property
    def leaks(self) -> tuple[ComparisonSummary, ...]:
        """The comparisons of two sets."""
        return tuple(c for c in self.audit.comparisons if c.coverage != "within")

    @property
    def within(self) -> tuple[ComparisonSummary, ...]:
        """The comparisons of a set with itself."""
        return tuple(c for c in self.audit.comparisons if c.coverage == "within")

    @property
    def totals(self) -> tuple[TotalSummary, ...]:
        """The totals of each query set."""
        return self.audit.totals

    @property
    def query_sets(self) -> tuple[str, ...]:
        """Names of the query sets, in the order of the audit."""
        compared = [c.query_set for c in (*self.leaks, *self.within)]
        sides = [row.name for row in self.audit.sets if row.side == "query"]
        return tuple(dict.fromkeys([*compared, *sides]))

    @property
    def reference_sets(self) -> tuple[str, ...]:
        """Names of the reference sets, in the order of the audit."""
        return tuple(dict.fromkeys(c.reference_set for c in self.leaks))

    @property
    def table(self) -> tuple[RateRow, ...]:
        """Every comparison, and after those of a query set with several their union."""
        rows: list[RateRow] = []
        totals = {total.query_set: total.rates for total in self.totals}
        for name in self.query_sets:
            mine = [c for c in self.leaks if c.query_set == name]
            for c in mine:
                scenario = plain_words(c.modality, c.coverage)
                rows.append(RateRow(name, c.reference_set, scenario, self.known(c.rates)))
            if len(mine) > 1 and name in totals:
                rows.append(RateRow(name, "all together", "", self.known(totals[name])))
        return tuple(rows)

    @property
    def groups(self) -> tuple[ComparisonSummary, ...]:
        """The comparisons of two sets with groups."""
        return tuple(c for c in self.audit.comparisons if c.groups and c.rates.get("group"))

    @property
    def recordings(self) -> tuple[Recordings, ...]:
        """The comparisons with recordings on both sides."""
        return tuple(
            Recordings(
                *(c.query_set, c.reference_set, found, rate),
                bound=words(found.within, found.unit),
                doubt=doubt(found.unit, found.within, found.nearest),
            )
            for c in self.audit.comparisons
            if (found := c.recordings) and found.shared and (rate := c.rates.get("recording"))
        )

    @property
    def segments(self) -> tuple[ComparisonSummary, ...]:
        """The comparisons with recordings that share intervals of time."""
        return tuple(c for c in self.audit.comparisons if c.segments)

    @property
    def deciding(self) -> tuple[Rate, ...]:
        """The rate of each query set that decides whether a leak was found."""
        names = ("near_or_exact", "hard_or_soft") if self.verified else ("hard_or_soft",)
        found = [[rate for n in names if (rate := t.rates.get(n))] for t in self.totals]
        return tuple(rates[0] for rates in found if rates)

    @property
    def clean(self) -> bool:
        """Whether images were compared, no query image leaks and no group is on both sides."""
        found = any(rate.count for rate in self.deciding)
        shared = any(c.groups.shared for c in self.groups if c.groups)
        return bool(self.deciding) and not found and not shared

    @property
    def compared(self) -> int:
        """How many query images were compared with a reference set."""
        return sum(rate.total for rate in self.deciding)

    @property
    def chance(self) -> tuple[str, ...]:
        """Which thresholds are reached by chance, in words."""
        return tuple(rates.chance_notes(self.audit.comparisons))

    @property
    def not_listed(self) -> tuple[tuple[str, str], ...]:
        """The sets with files that are not images, and which."""
        described = [(each.name, each.not_listed_words) for each in self.audit.sets]
        return tuple(each for each in described if each[1])

    @property
    def settings(self) -> tuple[tuple[str, str], ...]:
        """The settings as texts."""
        shown = {True: "yes", False: "no", None: "the encoder's own"}
        return tuple(
            (name, shown[value] if value is None or isinstance(value, bool) else str(value))
            for name, value in self.audit.settings.as_dict().items()
        )

    @property
    def origin(self) -> tuple[tuple[str, str], ...]:
        """Versions and digests that the numbers depend on."""
        encoder, verifier = self.audit.encoder, self.audit.verifier
        rows = {
            "visleak": self.audit.visleak,
            "encoder": encoder.name,
            "encoder digest": encoder.digest,
            "embedding width": str(encoder.width),
            "verifier digest": verifier.digest if verifier else "",
            **self.audit.versions,
        }
        return tuple((name, value) for name, value in rows.items() if value)

    def keys(self, total: TotalSummary) -> list[tuple[str, Rate, str]]:
        """Return the key numbers of a query set that are known: title, rate, explanation."""
        rates = self.known(total.rates)
        return [(title, rates[name], told) for name, title, told in KEYS if name in rates]

    def known(self, rates: Rates) -> dict[str, Rate]:
        """Return the rates that were measured; those of grades only where pairs have grades."""
        return {
            name: rate
            for name, rate in rates.items()
            if rate and (self.verified or name in (*DEGREES, "hard_or_soft"))
        }


def duplicates(comparison: ComparisonSummary) -> tuple[tuple[str, int, int | None], ...]:
    """Return grade, pairs and images in them of the duplicates within a set."""
    within = comparison.within or {}
    pairs, images = within.get("duplicate_pairs", {}), within.get("distinct_images", {})
    return tuple((kind, pairs[kind], images.get(kind)) for kind in EXCLUSIVE if pairs.get(kind))


def read(folder: Path, verdicts: Sequence[Verdict] = ()) -> PageSummary:
    """Read the summary of an audit."""
    audit = judged_summary(folder, verdicts)
    # without a grader no comparison had images on both sides; verdicts are grades in any case
    verified = (audit.settings.verify and audit.grader is not None) or bool(verdicts)
    return PageSummary(audit, verified)


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


def read_review(folder: Path, said: Sequence[Verdict], loader: ImageLoader | None) -> Reviewed:
    """Return the section about the duplicates of an audit that people judged."""
    counts = count(folder, verdicts=said)
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
