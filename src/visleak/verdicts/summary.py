"""``audit.json`` with the verdicts of people counted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from visleak.pipeline.rates import (
    EXCLUSIVE,
    NOTHING,
    ContentPairs,
    duplicate_groups,
    group_sentence,
    headline,
    rates,
)
from visleak.records import GRADES, Int64
from visleak.storage import IMAGES, read_summary, read_table
from visleak.storage.audit_folder import (
    AuditSummary,
    ComparisonSummary,
    Rates,
    ReviewSummary,
    TotalSummary,
)
from visleak.verdicts.ledger import read_verdicts
from visleak.verdicts.overlay import judged_pairs
from visleak.verdicts.record import Verdict, agreement

_COLUMNS: Final = (
    "query_set",
    "query",
    "reference_set",
    "reference",
    "grade",
    "coverage",
    "label_relation",
    "machine_grade",
    "judged",
)


def judged_summary(folder: Path, verdicts: Iterable[Verdict] | None = None) -> AuditSummary:
    """Return ``audit.json`` with every number of grades counted again under the verdicts.

    Its ``review`` is set. Without verdicts it is ``audit.json`` unchanged.

    Args:
        folder: the audit folder.
        verdicts: to lay over, in order of time; by default those of the folder.

    Raises:
        UsageError: the folder holds no finished audit.
        VisleakError: a file of it is damaged.
    """
    stored = read_summary(folder)
    said = tuple(read_verdicts(folder) if verdicts is None else verdicts)
    if not said:
        return stored
    pairs = judged_pairs(folder, _COLUMNS, said)
    strongest = _Strongest(folder, pairs)
    comparisons = tuple(_comparison(each, pairs, strongest) for each in stored.comparisons)
    totals = tuple(_total(each, stored, strongest, comparisons) for each in stored.totals)
    near = pc.is_in(pairs["grade"], pa.array(GRADES[:2]))
    conflicts = pc.and_(near, pc.equal(pairs["label_relation"], "different"))
    return replace(
        stored,
        headline="; ".join(each.headline for each in totals),
        comparisons=comparisons,
        totals=totals,
        label_conflicts=pc.sum(conflicts).as_py() or 0,
        review=_review(said, pairs),
    )


def _review(said: Sequence[Verdict], pairs: pa.Table) -> ReviewSummary:
    agreed = agreement(said)
    human = pairs.filter(pc.equal(pairs["judged"], "human"))
    same = pc.fill_null(pc.equal(human["grade"], human["machine_grade"]), False)
    new = human["machine_grade"].null_count
    return ReviewSummary(
        judged=agreed.judged,
        disputed=agreed.disputed,
        reviewers=dict(agreed.reviewers),
        changed=human.num_rows - (pc.sum(same).as_py() or 0) - new,
        added=new,
    )


class _Strongest:
    """The strongest grade of each image that has one, for any choice of rows; blank ones none."""

    def __init__(self, folder: Path, pairs: pa.Table) -> None:
        self.pairs = pairs
        self.images = read_table(folder, IMAGES, ["set", "id", "digest", "flat"])
        images = self.images.filter(pc.fill_null(self.images["flat"], False))
        self._blank = {
            name: images.filter(pc.equal(images["set"], name))["id"].combine_chunks()
            for name in pc.unique(images["set"]).to_pylist()
        }

    def rows(self, query_set: str, reference_set: str | None, *, within: bool) -> pa.Table:
        """Return the graded pairs of a query set, of one comparison or of all."""
        pairs = self.pairs
        mine = pc.and_(pc.equal(pairs["query_set"], query_set), pc.is_valid(pairs["grade"]))
        mine = pc.and_(mine, pc.equal(pc.equal(pairs["coverage"], "within"), within))
        if reference_set is not None:
            mine = pc.and_(mine, pc.equal(pairs["reference_set"], reference_set))
        rows = pairs.filter(mine)
        blank = self._blank.get(query_set)
        return rows if blank is None else rows.filter(pc.invert(pc.is_in(rows["query"], blank)))

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
