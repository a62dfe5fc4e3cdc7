"""Which sets are compared with which: a pure function of the roles and what is known."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from visleak.auditing import Audit
from visleak.pipeline.rates import NOTHING, rates
from visleak.rates import Rate
from visleak.records import DEGREES, GRADES
from visleak.storage import IMAGES, PAIRS, read_table
from visleak.study.config import Study, StudySet


@dataclass(frozen=True, slots=True)
class Comparison:
    """A query set against a reference set."""

    # names of the sets
    query: str
    reference: str
    coverage: str  # ``intra`` within a dataset, ``inter`` between two
    # how images are told that are known to be in both (see ``Inclusion``), or empty
    match: str = ""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A comparison that is not made, and why, in words."""

    comparison: Comparison
    why: str


@dataclass(frozen=True, slots=True)
class Plan:
    """All comparisons of a study."""

    comparisons: tuple[Comparison, ...]  # that are made
    # that would find what is known: one set is part of the other
    included: tuple[LeftOut, ...] = ()
    skipped: tuple[LeftOut, ...] = ()  # that would be made if their sets were there
    idle: tuple[str, ...] = ()  # sets that are in no comparison at all

    def by_reference(self) -> dict[str, tuple[Comparison, ...]]:
        """Return the comparisons by reference set: one audit each."""
        references = dict.fromkeys(each.reference for each in self.comparisons)
        return {
            name: tuple(each for each in self.comparisons if each.reference == name)
            for name in references
        }


def plan(study: Study, missing: Mapping[str, str] | None = None) -> Plan:
    """Return every comparison that makes sense; ``missing``: sets that are not there, and why.

    Within a dataset, a set is compared with the sets that come before it in use: a benchmark
    with all that is trained on, a set that serves as both with what is only trained on. Between
    datasets the same, or exactly the sets that ``[matrix]`` names.

    Source: the comparisons of Ramos et al. 2025, section 4.
    """
    missing = missing or {}
    made, included, skipped = [], [], []
    for query, reference in _couples(study):
        coverage = "intra" if query.dataset == reference.dataset else "inter"
        whole, match = _known(study, query.name, reference.name)
        each = Comparison(query.name, reference.name, coverage, match)
        if whole:
            included.append(LeftOut(each, whole))
        elif absent := [name for name in (query.name, reference.name) if name in missing]:
            skipped.append(LeftOut(each, f"needs {' and '.join(absent)}"))
        else:
            made.append(each)
    seen = [*made, *(left.comparison for left in (*included, *skipped))]
    busy = {name for each in seen for name in (each.query, each.reference)}
    idle = tuple(each.name for each in study.sets if each.name not in busy)
    return Plan(tuple(made), tuple(included), tuple(skipped), idle)


def _couples(study: Study) -> Iterator[tuple[StudySet, StudySet]]:
    """Yield the queries and references to compare, in the order of the file."""
    for reference in study.sets:
        for query in study.sets:
            if query.dataset == reference.dataset or not (study.references or study.queries):
                belong = _precedes(reference, query)
            else:
                belong = _in_matrix(study, query, reference)
            if belong:
                yield query, reference


def _precedes(reference: StudySet, query: StudySet) -> bool:
    """Whether a set is used before another: training, then both, then benchmark only."""
    roles = query.is_benchmark and reference.is_training
    return roles and query.is_training + reference.is_benchmark < 2


def _in_matrix(study: Study, query: StudySet, reference: StudySet) -> bool:
    """Whether ``[matrix]`` asks for a comparison; a side that it leaves open goes by role."""
    asked = query.name in study.queries if study.queries else query.is_benchmark
    against = reference.name in study.references if study.references else reference.is_training
    return asked and against


def _known(study: Study, query: str, reference: str) -> tuple[str, str]:
    """Return why two sets are not compared, and how common images are told; both may be empty."""
    for whole, part in ((reference, query), (query, reference)):
        direct = [i for i in study.named(whole).contains if i.set == part]
        if direct and direct[0].match:
            return "", direct[0].match
        if direct or part in _parts(study, whole):
            return f"{part} is part of {whole}", ""
    return "", ""


def _parts(study: Study, name: str) -> set[str]:
    """Return everything a set is known to hold: a part of a part is a part."""
    found: set[str] = set()
    waiting = [name]
    while waiting:
        for inclusion in study.named(waiting.pop()).contains:
            if inclusion.set not in found:
                found.add(inclusion.set)
                waiting.append(inclusion.set)
    return found


# -- which images leak, comparison by comparison and together -------------------------------------


#: Grades that are a finding.
_FOUND: Final = GRADES[:3]


@dataclass(frozen=True, slots=True)
class Leaks:
    """The leaking images of a query set, by id, with the strongest code of each."""

    total: int  # readable images of the query set
    degree: Mapping[str, int]  # image to index into ``DEGREES``
    grade: Mapping[str, int]  # image to index into ``GRADES``
    measured: bool  # there were thresholds, so that no degree means no leak
    graded: bool  # pairs were verified, so no grade means no leak
    own: int = 0  # pairs left out because they are known to be one image in two sets

    def rates(self) -> dict[str, Rate | None]:
        """Return the rates that an audit has, ``None`` if nothing was measured."""
        best = {
            "degree": _filled(self.degree.values(), self.total),
            "grade": _filled(self.grade.values(), self.total),
        }
        return rates(best, self.graded, self.measured)


def _filled(codes: Iterable[int], total: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return codes with those of the images that do not leak behind them."""
    result = np.full(total, NOTHING, np.int64)
    known = np.fromiter(codes, np.int64)
    result[: len(known)] = known
    return result


def together(parts: Sequence[Leaks]) -> Leaks:
    """Return the leaks of one query set into any of several references.

    An image has its strongest code over all of them. If one reference was not verified,
    the whole is unknown: the union is then not graded (or measured) either.
    """
    return Leaks(
        total=parts[0].total,
        degree=_strongest([part.degree for part in parts]),
        grade=_strongest([part.grade for part in parts]),
        measured=all(part.measured for part in parts),
        graded=all(part.graded for part in parts),
        own=sum(part.own for part in parts),
    )


def _strongest(parts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    result: dict[str, int] = {}
    for part in parts:
        for image, code in part.items():
            result[image] = min(code, result.get(image, code))
    return result


def leaks_of(audit: Audit, comparisons: Sequence[Comparison]) -> dict[Comparison, Leaks]:
    """Return what leaks in an audit's comparisons: neither repeats in a set nor blank images."""
    flats = _flats(audit, {each.query for each in comparisons})
    stored = {(c.query_set, c.reference_set): c for c in audit.summary.comparisons}
    result = {}
    for each in comparisons:
        about = stored[each.query, each.reference]
        pairs = _pairs(audit, each)
        own = _own(pairs, each.match)
        kept = pairs.filter(pc.and_not(pc.invert(own), pc.is_in(pairs["query"], flats[each.query])))
        result[each] = Leaks(
            total=about.queries,
            degree=_best(kept, "degree", DEGREES),
            grade=_best(kept, "grade", _FOUND),
            measured=about.rates["hard_or_soft"] is not None,
            graded=about.rates["near_or_exact"] is not None,
            own=int(pc.sum(own).as_py() or 0),
        )
    return result


def _pairs(audit: Audit, each: Comparison) -> pa.Table:
    """Return the pairs of a comparison that have a degree or a grade that counts."""
    found = pc.is_valid(pc.field("degree")) | pc.field("grade").isin(list(_FOUND))
    return read_table(
        audit.folder,
        PAIRS,
        ["query", "reference", "degree", "grade"],
        (pc.field("query_set") == each.query)
        & (pc.field("reference_set") == each.reference)
        & (pc.field("coverage") != "within")
        & found,
    )


def _flats(audit: Audit, names: set[str]) -> dict[str, pa.Array]:
    """Return the blank images of the query sets, by set."""
    where = pc.field("set").isin(sorted(names)) & pc.field("flat")
    table = read_table(audit.folder, IMAGES, ["set", "id"], where)
    return {
        name: table.filter(pc.equal(table["set"], name))["id"].combine_chunks() for name in names
    }


def _own(pairs: pa.Table, match: str) -> pa.Array:
    """Return which pairs are one image in two sets, as the known inclusion tells it."""
    if not match:
        return pa.array(np.zeros(len(pairs), bool))
    left, right = (_keys(pairs[side], match) for side in ("query", "reference"))
    return pa.array(
        [a is not None and a == b for a, b in zip(left, right, strict=True)], pa.bool_()
    )


def _keys(ids: pa.ChunkedArray, match: str) -> list[str | None]:
    """Return what is compared of each id: all of it, or the pattern's first group."""
    if match == "id":
        return list(ids.to_pylist())
    pattern = re.compile(match[1:-1])
    found = (pattern.search(id_) for id_ in ids.to_pylist())
    return [hit[1] if hit else None for hit in found]


def _best(pairs: pa.Table, column: str, words: tuple[str, ...]) -> dict[str, int]:
    """Return the strongest code of each query that has one."""
    codes = pc.index_in(pairs[column], pa.array(words))
    table = pa.table({"query": pairs["query"], "code": codes})
    best = table.filter(pc.is_valid(table["code"])).group_by("query").aggregate([("code", "min")])
    return dict(zip(best["query"].to_pylist(), best["code_min"].to_pylist(), strict=True))
