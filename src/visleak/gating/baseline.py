"""What is known already: leaks of earlier audits, accepted pairs, and what people judged."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from visleak.errors import UsageError
from visleak.rates import Rate, chance
from visleak.records import DEGREES, GRADES, Bool, PairRow
from visleak.storage import AUDIT, AuditSummary, read_summary
from visleak.templates import plain
from visleak.verdicts import consensus_of, digests_of, judged_pairs, read_verdicts
from visleak.verdicts.ledger import Key
from visleak.verdicts.overlay import Level, accepting, alone, leaks, read_accepted, tolerant

#: Columns of the pairs of a baseline.
_KNOWN: Final = pa.schema(
    [("key", pa.string()), ("within", pa.bool_()), ("grade", pa.int8()), ("degree", pa.int8())]
)
#: Between the two contents of a key: in no digest, and in no id either.
_BETWEEN: Final = "\0\0"
#: What is kept of a pair: enough to name it.
COLUMNS: Final = (
    *("query_set", "query", "reference_set", "reference", "similarity", "degree", "grade"),
    *("probability", "reason", "transform", "coverage"),
)


@dataclass(frozen=True, slots=True)
class Baseline:
    """Pairs that a gate does not count, keyed by the unordered pair of their contents.

    Make it with :func:`read_baseline`.
    """

    sources: tuple[str, ...]  # the folders and files it was read from
    # ``key``, ``within`` (a duplicate within a set, not a leak between sets), ``grade`` and
    # ``degree`` as places on their scales
    pairs: pa.Table
    accepted: Mapping[Key, str]  # accepted pairs and their grade, see ``verdicts.accepted``
    judged: Mapping[Key, str]  # what people said of pairs; disputed ones are not there
    summaries: Mapping[str, AuditSummary]  # ``audit.json`` of the audits, by source

    def knows(self, keys: pa.Array, within: pa.Array, level: Level) -> Bool:
        """Return which pairs of a later audit, by their keys, are known at a level.

        A pair is known if the baseline has it at the level or stronger, both times as a repeat
        ``within`` a set or both times not, if it is accepted, or if a person judged it weaker.
        """
        # degrees do not reflect verdicts: for them, pairs that are not duplicates are weaker
        limit = level.code if level.scale == "grade" else GRADES.index("near")
        weaker = [key for key, grade in self.judged.items() if GRADES.index(grade) > limit]
        spared = map(_BETWEEN.join, [*accepting(self.accepted, level), *weaker])
        known = pc.is_in(keys, pa.array(spared, pa.string()))
        strong = self.pairs.filter(pc.less_equal(self.pairs[level.scale], level.code))
        for inside in (False, True):
            own = strong.filter(pc.equal(strong["within"], inside))["key"]
            listed = pc.and_(pc.equal(within, inside), pc.is_in(keys, own.combine_chunks()))
            known = pc.or_(known, listed)
        return np.asarray(known.to_numpy(zero_copy_only=False), bool)

    def notes(self, summary: AuditSummary, levels: Iterable[Level]) -> Iterator[str]:
        """Yield in what its audits differ from a later one, where that bears on what is new."""
        for source, old in self.summaries.items():
            for level in levels:
                if all(total.rates.get(level.rate) is None for total in old.totals):
                    yield (
                        f"baseline {source}: it has no {level.scale}s, so it knows no {level.name}"
                        " pairs"
                    )
            for what in ("encoder", "grader"):
                before, after = getattr(old, what), getattr(summary, what)
                if before and after and before.digest != after.digest:
                    one, two = (str(getattr(e, "name", e.digest))[:40] for e in (before, after))
                    other = f"{one}, not {two}" if one != two else "another version"
                    yield (
                        f"baseline {source}: made with another {what} ({other}); pairs are matched"
                        " by content all the same"
                    )


def read_baseline(
    sources: Sequence[str | os.PathLike[str]], out: str | os.PathLike[str] | None = None
) -> Baseline:
    """Read audit folders and files of accepted pairs.

    Args:
        sources: one or more. Where two of them hold a verdict on one pair, the later one counts.
        out: folder of the audit that is to be compared with it.

    Raises:
        UsageError: one of them does not exist, is a folder without a finished audit, or is
            ``out`` itself.
        VisleakError: one of them is damaged.
    """
    tables: list[pa.Table] = [_KNOWN.empty_table()]
    accepted: dict[Key, str] = {}
    judged: dict[Key, str] = {}
    summaries: dict[str, AuditSummary] = {}
    for source in map(Path, sources):
        if not source.exists():
            raise UsageError(
                f"the baseline {source} does not exist; give an audit folder or a file of"
                " accepted pairs"
            )
        if out is not None and source.resolve() == Path(out).resolve():
            raise UsageError(
                f"the baseline {source} is the output folder itself, so the second run would know"
                " every leak; keep the baseline in another folder, or a file of accepted pairs"
            )
        if not source.is_dir():
            for key, grade in read_accepted(source).items():
                accepted[key] = tolerant(accepted.get(key, grade), grade)
            continue
        if not (source / AUDIT).is_file():
            raise UsageError(f"the baseline {source} holds no finished audit (no {AUDIT})")
        summaries[str(source)] = read_summary(source)
        tables.append(_pairs(source, summaries[str(source)]))
        consensus = consensus_of(read_verdicts(source))
        judged |= {key: said.grade for key, said in consensus.items() if said.grade is not None}
    return Baseline(tuple(map(str, sources)), pa.concat_tables(tables), accepted, judged, summaries)


def _pairs(folder: Path, summary: AuditSummary) -> pa.Table:
    """Return the pairs of an audit that have a degree, or a grade stronger than ``different``."""
    columns = ["query_set", "query", "reference_set", "reference", "grade", "degree", "coverage"]
    table = judged_pairs(folder, columns)
    graded = pc.is_in(table["grade"], pa.array(GRADES[:3]))
    table = table.filter(pc.or_(graded, pc.is_valid(table["degree"])))
    # what has none is null, which no comparison keeps
    grade, degree = (
        pc.index_in(table[name], pa.array(scale)).cast(pa.int8()).combine_chunks()
        for name, scale in (("grade", GRADES), ("degree", DEGREES))
    )
    keys, within = keys_of(folder, table), within_of(summary, table)
    return pa.table([keys, within, grade, degree], schema=_KNOWN)


def within_of(summary: AuditSummary, table: pa.Table) -> pa.Array:
    """Return which pairs are repeats within a set that is also compared with others."""
    selves = [total.query_set for total in summary.totals if alone(summary, total.query_set)]
    own = pc.is_in(table["query_set"], pa.array(selves, pa.string()))
    inside = pc.and_(pc.equal(table["coverage"], "within"), pc.invert(own))
    return inside.combine_chunks()


def keys_of(folder: Path, table: pa.Table) -> pa.Array:
    """Return the unordered pair of contents of each row, as a text.

    An image of which only its vector is left is known by its set and id.
    """
    sides = []
    for side, digest in zip(("query", "reference"), digests_of(folder, table), strict=True):
        about = [table[name].combine_chunks() for name in (f"{side}_set", side)]
        sides.append(pc.coalesce(digest, pc.binary_join_element_wise(*about, "\0")))
    low, high = pc.min_element_wise(*sides), pc.max_element_wise(*sides)
    return pc.binary_join_element_wise(low, high, _BETWEEN)


@dataclass(frozen=True, slots=True)
class NewLeaks:
    """What is new in a query set at a level."""

    query_set: str  # its name
    level: Level  # the weakest that counts
    rate: Rate  # of the images with at least one pair that is not known
    known: int  # how many more images leak, by known pairs alone
    pairs: pa.Table  # the rows of ``pairs.parquet`` that are not known, worst first

    def as_dict(self, named: int = 10) -> dict[str, object]:
        """Return plain values, with the ``named`` worst pairs."""
        return {
            "level": self.level.name,
            "query_set": self.query_set,
            "new": self.rate.as_dict(),
            "known": self.known,
            "new_pairs": self.pairs.num_rows,
            "worst": self.pairs.slice(0, named).drop_columns(["coverage"]).to_pylist(),
        }


def new_leaks(
    folder: Path, summary: AuditSummary, level: Level, baseline: Baseline | None = None
) -> tuple[NewLeaks, ...]:
    """Return what is new in each query set of an audit, verdicts of people applied.

    An image is new if at least one of the pairs by which it leaks is.

    Args:
        folder: the audit folder.
        summary: its ``audit.json``, verdicts counted.
        level: the weakest that counts; its rate must have been measured.
        baseline: what is known; without it all is new.

    Raises:
        VisleakError: a table of the folder is damaged.
    """
    table = leaks(folder, summary, level, COLUMNS)
    known = np.zeros(table.num_rows, bool)
    if baseline is not None:
        known = baseline.knows(keys_of(folder, table), within_of(summary, table), level)
    found = []
    for total in summary.totals:
        name, rate = total.query_set, total.rates[level.rate]
        if rate is None:
            raise UsageError(f"{folder} has no rate of {level.name!r}")
        own = pc.equal(table["query_set"], name).to_numpy()
        fresh, every = (table.filter(pa.array(rows)) for rows in (own & ~known, own))
        # of a set that is compared with itself only, both images of a pair leak
        ends = ("query", "reference") if alone(summary, name) else ("query",)
        new, leaking = (
            len(pc.unique(pa.concat_arrays([rows[end].combine_chunks() for end in ends])))
            for rows in (fresh, every)
        )
        share = Rate.of(new, rate.total, population=rate.population)
        found.append(NewLeaks(name, level, share, leaking - new, worst_first(fresh)))
    return tuple(found)


def worst_first(pairs: pa.Table) -> pa.Table:
    """Return pairs by grade, falling probability and similarity, then by their ids."""
    grade = pc.fill_null(pc.index_in(pairs["grade"], pa.array(GRADES)), len(GRADES))
    degree = pc.fill_null(pc.index_in(pairs["degree"], pa.array(DEGREES)), len(DEGREES))
    ranked = pairs.append_column("_grade", grade).append_column("_degree", degree)
    falling = ("probability", "similarity")
    names = ("_grade", "probability", "_degree", "similarity", *COLUMNS[:4])
    keys = [(name, "descending" if name in falling else "ascending") for name in names]
    return pairs.take(pc.sort_indices(ranked, sort_keys=keys))


def worst(found: NewLeaks, count: int) -> list[PairRow]:
    """Return the worst pair of each of the worst images."""
    queries = found.pairs["query"].to_numpy(zero_copy_only=False)
    first = np.sort(np.unique(queries, return_index=True)[1])[:count]
    rows: list[PairRow] = found.pairs.take(pa.array(first)).to_pylist()
    return rows


def named(found: NewLeaks, count: int) -> Iterator[str]:
    """Yield a line for the worst pair of each of the worst images, and one for what is left."""
    shown = worst(found, count)
    yield from map(pair_line, shown)
    left = found.pairs.num_rows - len(shown)
    if left:
        yield f"and {left:,} more {'pair' if left == 1 else 'pairs'}"


def pair_line(row: PairRow) -> str:
    """Return a pair in one line."""
    said = [row["grade"] or row["degree"] or "no grade"]
    if row["probability"] is not None:
        said.append(f"probability {chance(row['probability'])}")
    if row["similarity"] is not None:
        said.append(f"similarity {row['similarity']:.3f}")
    why = row["transform"] or row["reason"]
    return plain(
        f"{row['query_set']} {row['query']} = {row['reference_set']} {row['reference']}:"
        f" {', '.join(said)}{f' ({why})' if why else ''}"
    )
