"""What the page says, as frozen records: taken from the audit folder, free of any markup."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from visleak.images.listing import describe_skipped
from visleak.pipeline import chance
from visleak.records import DEGREES, GRADES
from visleak.report import recordings
from visleak.report.recordings import Recordings
from visleak.stats import Rate, percent
from visleak.store import UNREADABLE, read_problems
from visleak.verdicts import Verdict, judged_summary

#: The cumulative rates of the key numbers: name, title, explanation.
KEYS: Final = (
    (
        "near_or_exact",
        "Near or exact",
        "The same camera shot is in the training data, at most post-processed.",
    ),
    (
        "similar_or_closer",
        "Similar or closer",
        "Also counts other shots that differ only at second glance.",
    ),
    (
        "hard_or_soft",
        "Hard or soft",
        "Similarity alone reaches the soft threshold; nobody looked at pixels.",
    ),
)
#: Columns of the table of exclusive rates.
EXCLUSIVE: Final = (*GRADES[:3], *DEGREES)
#: Most unreadable images listed by name.
MOST_PROBLEMS: Final = 50


@dataclass(frozen=True, slots=True)
class KeyNumber:
    """One large number of the page."""

    title: str
    rate: Rate
    explanation: str


@dataclass(frozen=True, slots=True)
class Standing:
    """One query set: its rates over all reference sets together."""

    query_set: str
    rates: Mapping[str, Rate]

    @property
    def keys(self) -> tuple[KeyNumber, ...]:
        """The key numbers that are known."""
        return tuple(
            KeyNumber(title, self.rates[name], told)
            for name, title, told in KEYS
            if name in self.rates
        )


@dataclass(frozen=True, slots=True)
class Comparison:
    """One query set against one reference set.

    ``duplicates``, of a set compared with itself: grade or degree, pairs, images in them;
    ``largest``: numbers of images of its largest duplicate groups.
    """

    query_set: str
    reference_set: str
    coverage: str
    modality: str
    pairs: int
    rates: Mapping[str, Rate]
    duplicates: tuple[tuple[str, int, int | None], ...]
    largest: tuple[int, ...] = ()

    @property
    def scenario(self) -> str:
        """The scenario in the words of Ramos et al. 2025: modality and coverage."""
        return f"{self.modality}, {self.coverage}-dataset" if self.coverage else ""


@dataclass(frozen=True, slots=True)
class Groups:
    """The groups that two sets share: how many, the images of the query set in them, some names."""

    query_set: str
    reference_set: str
    shared: int
    rate: Rate
    named: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SetRow:
    """One set, as a row of the table of sets."""

    name: str
    dataset: str
    roles: str
    side: str
    source: str
    images: int
    readable: int
    flat: int | None
    unreadable: int
    distinct: int | None
    not_listed: str


@dataclass(frozen=True, slots=True)
class Problems:
    """The images that could not be read: counts by set and reason, and the first by name."""

    counts: tuple[tuple[str, str, int], ...]
    listed: tuple[tuple[str, str, str, str], ...]
    total: int


@dataclass(frozen=True, slots=True)
class Summary:
    """``audit.json``, with every missing key filled in and every rate computed anew."""

    headline: str
    sets: tuple[SetRow, ...]
    standings: tuple[Standing, ...]
    leaks: tuple[Comparison, ...]
    within: tuple[Comparison, ...]
    groups: tuple[Groups, ...]
    recordings: tuple[Recordings, ...]
    hard: float | None
    soft: float | None
    provenance: str
    provisional: bool
    near_at: float | None
    chance: tuple[str, ...]
    verified: bool
    skipped: tuple[str, ...]
    conflicts: int | None
    settings: tuple[tuple[str, str], ...]
    origin: tuple[tuple[str, str], ...]
    command: str

    @property
    def query_sets(self) -> tuple[str, ...]:
        """Names of the query sets, in the order of the audit."""
        compared = [c.query_set for c in (*self.leaks, *self.within)]
        sides = [row.name for row in self.sets if row.side == "query"]
        return tuple(dict.fromkeys([*compared, *sides]))

    @property
    def reference_sets(self) -> tuple[str, ...]:
        """Names of the reference sets, in the order of the audit."""
        return tuple(dict.fromkeys(c.reference_set for c in self.leaks))

    @property
    def table(self) -> tuple[Comparison, ...]:
        """Every comparison, and after those of a query set with several their union."""
        rows: list[Comparison] = []
        totals = {standing.query_set: standing.rates for standing in self.standings}
        for name in self.query_sets:
            mine = [c for c in self.leaks if c.query_set == name]
            rows += mine
            if len(mine) > 1 and name in totals:
                rows.append(Comparison(name, "all together", "", "", 0, totals[name], ()))
        return tuple(rows)

    @property
    def deciding(self) -> tuple[Rate, ...]:
        """The rate of each query set that decides whether a leak was found."""
        names = ("near_or_exact", "hard_or_soft") if self.verified else ("hard_or_soft",)
        found = [[s.rates[n] for n in names if n in s.rates] for s in self.standings]
        return tuple(rates[0] for rates in found if rates)

    @property
    def clean(self) -> bool:
        """Whether images were compared, no query image leaks and no group is on both sides."""
        found = any(rate.count for rate in self.deciding)
        return bool(self.deciding) and not found and not any(g.shared for g in self.groups)

    @property
    def compared(self) -> int:
        """How many query images were compared with a reference set."""
        return sum(rate.total for rate in self.deciding)


def read(folder: Path, said: Sequence[Verdict] = ()) -> Summary:
    """Read ``audit.json``; keys that are not there are empty, unknown ones are ignored.

    Args:
        folder: the audit folder.
        said: verdicts that count in all rates, in order of time.

    Raises:
        UsageError: the folder holds no finished audit.
        VisleakError: the summary is damaged or of a newer visleak.
    """
    raw = judged_summary(folder, said)
    verified = _map(raw.get("settings")).get("verify") is not False
    # without a grader no comparison had pictures on both sides
    verified &= raw.get("grader", True) is not None
    # where people looked, there are grades in any case
    verified |= bool(said)
    comparisons = [_comparison(item, verified) for item in _maps(raw.get("comparisons"))]
    leaks = tuple(c for c in comparisons if c.coverage != "within")
    thresholds = _map(raw.get("thresholds"))
    return Summary(
        headline=_text(raw.get("headline")) or "An audit without a headline",
        sets=tuple(_set(item) for item in _maps(raw.get("sets"))),
        standings=_standings(_maps(raw.get("totals")), leaks, verified),
        leaks=leaks,
        within=tuple(c for c in comparisons if c.coverage == "within"),
        groups=tuple(_groups(_maps(raw.get("comparisons")))),
        recordings=recordings.read(_maps(raw.get("comparisons"))),
        hard=_number(thresholds.get("hard")),
        soft=_number(thresholds.get("soft")),
        provenance=_text(thresholds.get("provenance")),
        provisional=bool(thresholds.get("provisional")),
        near_at=_number(_map(raw.get("grader")).get("near_at")),
        chance=tuple(chance.notes(_maps(raw.get("comparisons")))),
        verified=verified,
        skipped=tuple(_text(line) for line in raw.get("skipped") or ()),
        conflicts=raw.get("label_conflicts"),
        settings=_pairs(_map(raw.get("settings"))),
        origin=_origin(raw),
        command=_text(raw.get("command")),
    )


def read_unreadable(folder: Path) -> Problems:
    """Read ``unreadable.csv``; a folder without one has no unreadable images."""
    path = folder / UNREADABLE
    problems = read_problems(path) if path.is_file() else ()
    counts: dict[tuple[str, str], int] = {}
    for problem in problems:
        counts[problem.set, problem.reason] = counts.get((problem.set, problem.reason), 0) + 1
    rows = sorted(counts.items(), key=lambda item: (item[0][0], -item[1], item[0][1]))
    return Problems(
        counts=tuple((name, reason, count) for (name, reason), count in rows),
        listed=tuple((p.set, p.id, p.reason, p.detail) for p in problems[:MOST_PROBLEMS]),
        total=len(problems),
    )


def _standings(
    totals: Sequence[Mapping[str, Any]], leaks: Sequence[Comparison], verified: bool
) -> tuple[Standing, ...]:
    """Take the totals; where there are none, a query set's only comparison stands for them."""
    if totals:
        return tuple(
            Standing(_text(item.get("query_set")), _rates(item.get("rates"), verified))
            for item in totals
        )
    alone = [c for c in leaks if sum(c.query_set == other.query_set for other in leaks) == 1]
    return tuple(Standing(c.query_set, c.rates) for c in alone)


def _comparison(item: Mapping[str, Any], verified: bool) -> Comparison:
    within = _map(item.get("within"))
    pairs, images = _map(within.get("duplicate_pairs")), _map(within.get("distinct_images"))
    return Comparison(
        query_set=_text(item.get("query_set")),
        reference_set=_text(item.get("reference_set")),
        coverage=_text(item.get("coverage")),
        modality=_text(item.get("modality")),
        pairs=int(item.get("pairs") or 0),
        rates=_rates(item.get("rates"), verified),
        duplicates=tuple(
            (kind, int(pairs[kind]), int(images[kind]) if kind in images else None)
            for kind in EXCLUSIVE
            if pairs.get(kind)
        ),
        largest=tuple(
            int(size) for size in _map(item.get("duplicate_groups")).get("largest") or ()
        ),
    )


def _groups(comparisons: Sequence[Mapping[str, Any]]) -> Iterator[Groups]:
    for item in comparisons:
        about, rate = _map(item.get("groups")), _map(item.get("rates")).get("group")
        if about and isinstance(rate, Mapping):
            yield Groups(
                query_set=_text(item.get("query_set")),
                reference_set=_text(item.get("reference_set")),
                shared=int(about.get("shared") or 0),
                rate=Rate.from_dict(rate),
                named=tuple(_text(name) for name in about.get("named") or ()),
            )


def _set(item: Mapping[str, Any]) -> SetRow:
    counts = {name: int(item.get(name) or 0) for name in ("images", "readable", "unreadable")}
    # of embeddings that passed by, some counts are not known
    flat, distinct = (
        None if item.get(name, 0) is None else int(item[name]) if name in item else 0
        for name in ("flat", "distinct")
    )
    return SetRow(
        name=_text(item.get("name")),
        dataset=_text(item.get("dataset")),
        roles=", ".join(_text(role) for role in item.get("roles") or ()),
        side=_text(item.get("side")),
        source=_text(item.get("source")),
        flat=flat,
        distinct=distinct,
        not_listed=describe_skipped(item.get("not_listed") or {}),
        **counts,
    )


def _rates(value: Any, verified: bool) -> dict[str, Rate]:
    """Take the rates; those of grades only where somebody looked at the pictures."""
    return {
        name: Rate.from_dict(rate)
        for name, rate in _map(value).items()
        if isinstance(rate, Mapping)
        and {"count", "total"} <= set(rate)
        and (verified or name in (*DEGREES, "hard_or_soft"))
    }


def _origin(raw: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """List what made the numbers: versions and digests, so that they can be made again."""
    encoder, verifier = _map(raw.get("encoder")), _map(raw.get("verifier"))
    rows = [
        ("visleak", raw.get("visleak")),
        ("encoder", encoder.get("name")),
        ("encoder digest", encoder.get("digest")),
        ("fingerprint width", encoder.get("width")),
        ("verifier digest", verifier.get("digest")),
        *_map(raw.get("versions")).items(),
    ]
    return tuple((name, _text(value)) for name, value in rows if value is not None)


def _pairs(values: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    words = {True: "yes", False: "no", None: "the encoder's own"}
    return tuple(
        (name, words[value] if value is None or isinstance(value, bool) else _text(value))
        for name, value in values.items()
    )


def _map(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _maps(value: Any) -> list[Mapping[str, Any]]:
    return [item for item in value or () if isinstance(item, Mapping)]


def _text(value: Any) -> str:
    return "" if value is None else str(value)


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def bound(rate: Rate) -> str:
    """Say what finding nothing means.

    >>> bound(Rate.of(0, 10_000))
    'up to 0.04 % (95 % Wilson interval; the rule of three, 3 / 10,000, says 0.03 %)'
    """
    three = min(1.0, 3 / rate.total) if rate.total else 1.0
    return (
        f"up to {percent(rate.high)} % (95 % Wilson interval; the rule of three,"
        f" 3 / {rate.total:,}, says {percent(three)} %)"
    )
