"""The pairs of an audit with verdicts applied, as every later command reads them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from visleak.errors import UsageError, VisleakError, not_one_of
from visleak.groups import image_rows
from visleak.pipeline.comparison import relation, share_classes
from visleak.pipeline.rates import (
    EXCLUSIVE,
    NOTHING,
    ContentPairs,
    duplicate_groups,
    group_sentence,
    headline,
    rates,
)
from visleak.records import DEGREES, GRADES, ImageRow, Int64, PairRow
from visleak.storage import (
    AUDIT,
    IMAGES,
    PAIRS,
    AuditSummary,
    ComparisonSummary,
    open_rows,
    read_summary,
    read_table,
    write_csv,
)
from visleak.storage.audit_folder import Rates, ReviewSummary, TotalSummary, schema_of
from visleak.verdicts.ledger import (
    DIGEST,
    NEAR,
    Consensus,
    Key,
    Verdict,
    agreement,
    consensus_of,
    pair_key,
    read_verdicts,
)

#: Columns that verdicts add: the automatic grade, and the state of the review.
ADDED: Final = pa.schema([("machine_grade", pa.string()), ("judged", pa.string())])
#: Columns that identify a pair, and those of images that are read.
_ENDS: Final = ("query_set", "query", "reference_set", "reference")
_IMAGE: Final = (
    *("set", "id", "digest", "label", "flat"),
    *("nearest_set", "nearest", "nearest_similarity"),
)
#: Reason of a pair that the audit had not listed. Stored in tables.
UNLISTED: Final = "judged by a person; the machine had not listed it"


def judged_pairs(
    folder: Path, columns: Sequence[str] | None = None, verdicts: Iterable[Verdict] | None = None
) -> pa.Table:
    """Return ``pairs.parquet`` with the verdicts of people applied.

    If reviewers agree, ``grade`` is theirs and ``probability`` 1 or 0; disputed pairs keep both.
    Two columns are added: ``machine_grade``, and ``judged``: ``human``, ``disputed`` or null.
    Judged pairs that the audit had not listed are added in order; their ``similarity`` is null if
    it was not measured.

    Args:
        folder: the audit folder.
        columns: to return, the added ones among them; by default all.
        verdicts: in order of time; by default those of the folder.

    Raises:
        VisleakError: a file of the folder is damaged.
    """
    consensus = consensus_of(read_verdicts(folder) if verdicts is None else verdicts)
    wanted = list(columns) if columns is not None else [*_schema(folder).names, *ADDED.names]
    stored = [name for name in wanted if name not in ADDED.names]
    if not consensus:
        grade = ["grade"] if "machine_grade" in wanted else []
        table = read_table(folder, PAIRS, list(dict.fromkeys([*stored, *grade])))
        return as_unjudged(table).select(wanted)
    digests = pa.array(sorted({digest for key in consensus for digest in key}), pa.string())
    images = read_table(folder, IMAGES, list(_IMAGE), pc.field("digest").isin(digests))
    table = read_table(
        folder, PAIRS, list(dict.fromkeys([*stored, *_ENDS, "grade", "probability"]))
    )
    keys = _keys(table, images, consensus)
    sets = table.select(["query_set", "reference_set"]).take(pa.array(list(keys), pa.int64()))
    listed = set(zip(*sets.to_pydict().values(), keys.values(), strict=True))
    table = _with_grades(table, keys, consensus)
    missing = _unlisted(folder, images, consensus, listed)
    if missing:
        names = table.column_names
        table = pa.concat_tables([table, *(part.select(names) for part in missing)])
        if "similarity" in names:
            # the order of ``pairs.parquet``; those without a similarity come last
            table = table.sort_by([
                ("query_set", "ascending"), ("query", "ascending"), ("similarity", "descending"),
                ("reference_set", "ascending"), ("reference", "ascending"),
            ])  # fmt: skip
    return table.select(wanted)


def _schema(folder: Path) -> pa.Schema:
    finished = (folder / AUDIT).is_file()
    measured = finished and read_summary(folder).settings.overlap is not None
    return schema_of(PAIRS, overlap=measured)


def disputed(pairs: pa.Table) -> pa.ChunkedArray:
    """Return whether reviewers disagree on each row of judged pairs; never null."""
    return pc.fill_null(pc.equal(pairs["judged"], "disputed"), False)


def digests_of(folder: Path, table: pa.Table) -> tuple[pa.Array, pa.Array]:
    """Return the content digests of the queries and references of rows of a table of pairs.

    Null where only vectors are left of an image.
    """
    images = read_table(folder, IMAGES, ["set", "id", "digest"])
    rows = [image_rows(table, side, images) for side in ("query", "reference")]
    left, right = (images["digest"].take(pa.array(own, mask=own < 0)) for own in rows)
    return left.combine_chunks(), right.combine_chunks()


def as_unjudged(table: pa.Table) -> pa.Table:
    """Return pairs as they are stored with the columns that are added where people judge."""
    if "grade" in table.column_names:
        table = table.append_column(ADDED.field("machine_grade"), table["grade"])
    return table.append_column(ADDED.field("judged"), pa.nulls(table.num_rows, pa.string()))


def _keys(table: pa.Table, images: pa.Table, consensus: Mapping[Key, Consensus]) -> dict[int, Key]:
    """Return the judged rows, and the key of each."""
    left, right = (image_rows(table, side, images) for side in ("query", "reference"))
    digests = images["digest"].to_pylist()
    keys = {
        row: pair_key(digests[left[row]], digests[right[row]])
        for row in np.flatnonzero((left >= 0) & (right >= 0)).tolist()
    }
    return {row: key for row, key in keys.items() if key in consensus}


def _with_grades(
    table: pa.Table, keys: Mapping[int, Key], consensus: Mapping[Key, Consensus]
) -> pa.Table:
    """Return the table with the grades of people in the rows that they judged."""
    machine = table["grade"]
    grades = machine.to_numpy(zero_copy_only=False).astype(object)
    chances = table["probability"].to_numpy(zero_copy_only=False).copy()
    judged = np.full(table.num_rows, None, object)
    for row, key in keys.items():
        grade = consensus[key].grade
        judged[row] = "disputed" if grade is None else "human"
        if grade is not None:
            grades[row], chances[row] = grade, float(grade in NEAR)
    places = [table.column_names.index(name) for name in ("grade", "probability")]
    table = table.set_column(places[0], "grade", pa.array(grades, pa.string()))
    probability = pa.array(chances, pa.float32(), from_pandas=True)
    table = table.set_column(places[1], "probability", probability)
    table = table.append_column(ADDED.field("machine_grade"), machine)
    return table.append_column(ADDED.field("judged"), pa.array(judged, pa.string()))


def _unlisted(
    folder: Path,
    images: pa.Table,
    consensus: Mapping[Key, Consensus],
    listed: set[tuple[str, str, Key]],
) -> list[pa.Table]:
    """Return, by comparison, rows for the judged pairs that the audit had not listed."""
    holders: dict[tuple[str, str], list[ImageRow]] = {}
    for image in images.to_pylist():
        holders.setdefault((image["set"], image["digest"]), []).append(image)
    parts = []
    for comparison in read_summary(folder).comparisons:
        own = comparison.query_set, comparison.reference_set
        rows: list[PairRow] = []
        for key, each in consensus.items():
            if each.grade is None or (*own, key) in listed:
                continue
            # either image may be the query; within a set it is the one with the lower id
            for left, right in {key, key[::-1]}:
                queries, references = (
                    holders.get((own[0], left), ()),
                    holders.get((own[1], right), ()),
                )
                rows += _rows(queries, references, comparison, each)
        if rows:
            table = pa.Table.from_pylist(rows, pa.schema([*_schema(folder), *ADDED]))
            labels = [
                pc.unique(read_table(folder, IMAGES, ["label"], pc.field("set") == name)["label"])
                for name in own
            ]
            left_labels, right_labels = (
                table[f"{end}_label"].combine_chunks() for end in ("query", "reference")
            )
            relations = relation(left_labels, right_labels, share_classes(*labels))
            place = table.column_names.index("label_relation")
            parts.append(table.set_column(place, "label_relation", relations))
    return parts


def _rows(
    queries: Sequence[ImageRow],
    references: Sequence[ImageRow],
    comparison: ComparisonSummary,
    consensus: Consensus,
) -> Iterator[PairRow]:
    """Yield the rows of one judged pair of contents in one comparison; blank images have none."""
    inside = comparison.coverage == "within"
    measured = [v.similarity for v in consensus.verdicts if v.similarity is not None]
    for query, reference in itertools.product(queries, references):
        if (inside and query["id"] >= reference["id"]) or query["flat"] or reference["flat"]:
            continue
        nearest = (query["nearest_set"], query["nearest"])
        own = nearest == (reference["set"], reference["id"])
        yield {
            "query_set": query["set"],
            "query": query["id"],
            "reference_set": reference["set"],
            "reference": reference["id"],
            "similarity": query["nearest_similarity"] if own else next(iter(measured), None),
            "grade": consensus.grade,
            "probability": float(consensus.grade in NEAR),
            "reason": UNLISTED,
            "query_label": query["label"],
            "reference_label": reference["label"],
            "modality": comparison.modality,
            "coverage": comparison.coverage,
            "judged": "human",
        }


# -- ``audit.json`` with the verdicts of people counted -------------------------------------------


_COLUMNS: Final = (*_ENDS, "grade", "coverage", "label_relation", "machine_grade", "judged")


def judged_summary(folder: Path, verdicts: Iterable[Verdict] | None = None) -> AuditSummary:
    """Return ``audit.json`` with every number of grades counted again under the verdicts.

    Its ``review`` is set. Without verdicts it is ``audit.json`` unchanged.

    Args:
        folder: the audit folder.
        verdicts: to apply, in order of time; by default those of the folder.

    Raises:
        UsageError: the folder holds no finished audit.
        VisleakError: a file of it is damaged.
    """
    stored = read_summary(folder)
    verdicts = tuple(read_verdicts(folder) if verdicts is None else verdicts)
    if not verdicts:
        return stored
    pairs = judged_pairs(folder, _COLUMNS, verdicts)
    strongest = _Strongest(folder, pairs)
    comparisons = tuple(_comparison(each, pairs, strongest) for each in stored.comparisons)
    totals = tuple(_total(each, stored, strongest, comparisons) for each in stored.totals)
    near = pc.is_in(pairs["grade"], pa.array(GRADES[:2]))
    conflicts = pc.and_(near, pc.equal(pairs["label_relation"], "different"))
    agreed = agreement(verdicts)
    human = pairs.filter(pc.equal(pairs["judged"], "human"))
    changed = pc.not_equal(human["grade"], human["machine_grade"])
    review = ReviewSummary(
        judged=agreed.judged,
        disputed=agreed.disputed,
        reviewers=dict(agreed.reviewers),
        changed=pc.sum(changed).as_py() or 0,
        added=human["machine_grade"].null_count,
    )
    return replace(
        stored,
        headline="; ".join(each.headline for each in totals),
        comparisons=comparisons,
        totals=totals,
        label_conflicts=pc.sum(conflicts).as_py() or 0,
        review=review,
    )


class _Strongest:
    """The strongest grade of each image that has one, for any choice of rows; blank ones none."""

    def __init__(self, folder: Path, pairs: pa.Table) -> None:
        self.images = read_table(folder, IMAGES, ["set", "id", "digest", "flat"])
        blank = self.images.filter(pc.fill_null(self.images["flat"], False))
        self.pairs = _without_queries(pairs, blank)

    def rows(self, query_set: str, reference_set: str | None, *, within: bool) -> pa.Table:
        """Return the graded pairs of a query set, of one comparison or of all."""
        pairs = self.pairs
        mine = pc.and_(pc.equal(pairs["query_set"], query_set), pc.is_valid(pairs["grade"]))
        mine = pc.and_(mine, pc.equal(pc.equal(pairs["coverage"], "within"), within))
        if reference_set is not None:
            mine = pc.and_(mine, pc.equal(pairs["reference_set"], reference_set))
        return pairs.filter(mine)

    @staticmethod
    def codes(rows: pa.Table, *, within: bool) -> Int64:
        """Return the strongest grade of each image in the rows, as its place in ``GRADES``."""
        code = pc.index_in(rows["grade"], pa.array(GRADES))
        ends = ["query", "reference"] if within else ["query"]
        table = pa.concat_tables([pa.table({"id": rows[end], "code": code}) for end in ends])
        best = table.group_by("id").aggregate([("code", "min")])["code_min"]
        return np.asarray(best.to_numpy(), np.int64)


def _comparison(
    stored: ComparisonSummary, pairs: pa.Table, strongest: _Strongest
) -> ComparisonSummary:
    inside = stored.coverage == "within"
    rows = strongest.rows(stored.query_set, stored.reference_set, within=inside)
    codes = strongest.codes(rows, within=inside)
    mine = pc.and_(
        pc.equal(pairs["query_set"], stored.query_set),
        pc.equal(pairs["reference_set"], stored.reference_set),
    )
    code = np.asarray(pc.index_in(rows["grade"], pa.array(GRADES)).to_numpy())
    contents = ContentPairs.of_tables(rows, strongest.images)
    near = code <= GRADES.index("near")
    within = stored.within
    if inside:
        many = contents.stand_for(code)
        within = {
            "duplicate_pairs": {n: int(many[code == c].sum()) for c, n in enumerate(GRADES[:3])},
            "distinct_images": {n: int((codes == c).sum()) for c, n in enumerate(GRADES[:3])},
        }
    return replace(
        stored,
        rates=_rates(stored.rates, codes, stored.queries),
        pairs=pc.sum(mine).as_py() or 0,
        duplicate_groups=duplicate_groups(contents.groups(near, within=inside)),
        within=within,
    )


def _total(
    stored: TotalSummary,
    summary: AuditSummary,
    strongest: _Strongest,
    judged: Sequence[ComparisonSummary],
) -> TotalSummary:
    """Return a total of the summary, counted again; ``judged`` are its comparisons, the same."""
    name = stored.query_set
    own = [each for each in summary.comparisons if each.query_set == name]
    leaks = [each for each in own if each.coverage != "within"]
    inside = not leaks
    codes = strongest.codes(strongest.rows(name, None, within=inside), within=inside)
    counted = _rates(stored.rates, codes, own[0].queries if own else len(codes))
    references = [each.reference_set for each in leaks or own]
    before = headline(name, references, stored.rates, inside)
    after = headline(name, references, counted, inside)
    was, now = (
        group_sentence(
            each.duplicate_groups
            for each in comparisons
            if each.query_set == name and (each.coverage == "within") == inside
        )
        for comparisons in (summary.comparisons, judged)
    )
    # the rest of the headline does not depend on verdicts
    rest = stored.headline.removeprefix(before).removeprefix(was)
    return TotalSummary(name, f"{after}, after review{now}{rest}", counted)


def _rates(stored: Rates, codes: Int64, images: int) -> Rates:
    """Return rates with those of grades counted from the strongest grade of each image."""
    best = np.full(images, NOTHING, np.int64)
    best[: len(codes)] = codes
    known = next((rate for rate in stored.values() if rate), None)
    population = known.population if known else None
    counted = rates({"degree": best, "grade": best}, True, False, population)
    graded = [name for name, (scale, _) in EXCLUSIVE.items() if scale == "grade"]
    graded += ["near_or_exact", "similar_or_closer"]
    return {name: counted[name] if name in graded else rate for name, rate in stored.items()}


# -- accepted pairs --------------------------------------------------------------------------------


COLUMNS: Final = ("first", "second", "grade", "query", "reference", "note")
ANY: Final = ""  # no grade: the pair is accepted whatever grade a later audit assigns


def write_accepted(
    folder: Path, out: Path, grade: str | None = None, query_set: str | None = None
) -> tuple[Path, ...]:
    """Write the leaking pairs of an audit as accepted ones, each pair of contents once."""
    if grade not in (None, *GRADES[:3]):
        raise UsageError(f"grade must be one of {', '.join(GRADES[:3])}; got {grade!r}")
    columns = ["query_set", "query", "reference_set", "reference", "grade"]
    table = leaks(folder, read_summary(folder), Level(grade or "near"), columns)
    if query_set is not None:
        table = table.filter(pc.equal(table["query_set"], query_set))
    rows: dict[Key, tuple[str, ...]] = {}
    sides = (side.to_pylist() for side in digests_of(folder, table))
    for row, first, second in zip(table.to_pylist(), *sides, strict=True):
        if first is None or second is None:
            raise VisleakError(
                f"{row['query']!r} and {row['reference']!r} cannot be accepted by content: only"
                " vectors are left of them; give the audit folder itself as --baseline"
            )
        key = pair_key(first, second)
        rows.setdefault(key, (*key, row["grade"], row["query"], row["reference"], ""))
    try:
        write_csv(out, COLUMNS, (rows[key] for key in sorted(rows)))
    except OSError as error:
        raise VisleakError(f"{out} cannot be written ({error.strerror})") from error
    return (out,)


def read_accepted(path: Path) -> Mapping[Key, str]:
    """Read accepted pairs: key to the weakest grade a later audit may give, :data:`ANY` for all.

    ``first`` and ``second`` are required; columns may have any order, others are ignored. Of
    two rows with one pair the more tolerant one counts.
    """
    if not path.is_file():
        raise UsageError(f"{path} does not exist; give an audit folder or a file of accepted pairs")
    found = dict[Key, str]()
    with open_rows(path, padded=True) as rows:
        rows.need(COLUMNS[:2], f"; its first line must be {','.join(COLUMNS)}")
        for row in rows:
            key, grade = _pair(row)
            found[key] = tolerant(found.get(key, grade), grade)
    return found


def _pair(row: Mapping[str, str]) -> tuple[Key, str]:
    cells = {name: row.get(name, "").strip().lower() for name in COLUMNS[:3]}
    for name in COLUMNS[:2]:
        if not DIGEST.fullmatch(cells[name]):
            raise ValueError(
                f"{name} must be a content digest of 32 hex digits; got {cells[name][:40]!r}"
            )
    if cells["grade"] not in (ANY, *GRADES):
        raise ValueError(
            f"grade must be one of {', '.join(GRADES)}, or empty; got {cells['grade'][:40]!r}"
        )
    return pair_key(cells["first"], cells["second"]), cells["grade"]


def tolerant(left: str, right: str) -> str:
    """Return the one of two grades that accepts more: none at all, then the stronger one.

    >>> tolerant("near", "exact"), tolerant("near", ANY)
    ('exact', '')
    """
    order = (ANY, *GRADES)
    return order[min(order.index(left), order.index(right))]


def accepting(pairs: Mapping[Key, str], level: Level) -> Iterator[Key]:
    """Yield the pairs accepted at a level.

    A pair accepted as ``near`` is accepted where ``near`` or ``similar`` counts, not where
    ``exact`` does. Degrees rank pairs by similarity alone, so every accepted pair is accepted
    there.
    """
    for key, grade in pairs.items():
        if grade == ANY or level.scale == "degree" or GRADES.index(grade) <= level.code:
            yield key


# -- levels ----------------------------------------------------------------------------------------


#: The rate of ``audit.json`` that counts a grade or degree *or a stronger one*, and the words for a
#: counted image.
RATES: Final = {
    "exact": ("exact", "an exact copy"),
    "near": ("near_or_exact", "a near-duplicate or exact copy"),
    "similar": ("similar_or_closer", "a similar or closer image"),
    "hard": ("hard", "a hard leak"),
    "soft": ("hard_or_soft", "a hard or soft leak"),
}


@dataclass(frozen=True, slots=True)
class Level:
    """A grade or degree, which includes the stronger ones.

    >>> Level("near").scale, Level("near").names
    ('grade', ('exact', 'near'))
    """

    name: str  # ``exact``, ``near``, ``similar``, ``hard`` or ``soft``

    def __post_init__(self) -> None:
        if self.name not in RATES:
            raise not_one_of("the grade", self.name, RATES)

    @property
    def scale(self) -> str:
        """The column it is about: ``grade`` or ``degree``."""
        return "degree" if self.name in DEGREES else "grade"

    @property
    def names(self) -> tuple[str, ...]:
        """Grades or degrees that count, strongest first."""
        scale = DEGREES if self.name in DEGREES else GRADES
        return scale[: scale.index(self.name) + 1]

    @property
    def code(self) -> int:
        """Its place on its scale; a stronger one is smaller."""
        return len(self.names) - 1

    @property
    def rate(self) -> str:
        """The rate in ``audit.json`` that counts the images that leak at it."""
        return RATES[self.name][0]

    @property
    def words(self) -> str:
        """Description of the leak of an image."""
        return RATES[self.name][1]


def alone(summary: AuditSummary, query_set: str) -> bool:
    """Whether a set was compared with itself only, so its duplicates count as leaks."""
    own = [each for each in summary.comparisons if each.query_set == query_set]
    return all(each.coverage == "within" for each in own)


def leaks(
    folder: Path, summary: AuditSummary, level: Level | None, columns: Sequence[str]
) -> pa.Table:
    """Return the pairs that the rate of a level counts, with verdicts applied.

    Duplicates within a set are excluded, unless a set was compared with itself only; so are blank
    images.
    """
    scale = () if level is None else (level.scale,)
    needed = dict.fromkeys((*columns, "query_set", "query", "coverage", *scale))
    table = judged_pairs(folder, list(needed))
    if level is not None:
        table = table.filter(pc.is_in(table[level.scale], pa.array(level.names)))
    selves = [t.query_set for t in summary.totals if alone(summary, t.query_set)]
    own = pc.is_in(table["query_set"], pa.array(selves, pa.string()))
    table = table.filter(pc.or_(pc.not_equal(table["coverage"], "within"), own))
    blank = read_table(folder, IMAGES, ["set", "id"], pc.field("flat"))
    return _without_queries(table, blank).select(list(columns))


def _without_queries(pairs: pa.Table, images: pa.Table) -> pa.Table:
    """Return the pairs whose query is not one of some images."""
    return pairs.filter(pa.array(image_rows(pairs, "query", images) < 0))
