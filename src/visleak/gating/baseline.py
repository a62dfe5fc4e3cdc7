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

#: Place on a scale of what has no grade or degree; weaker than every other.
_NOTHING: Final = 99


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
        """Return which pairs of a later audit are known at a level.

        A pair is none if the baseline has it at the level or stronger, if it is accepted, or if
        a person judged it weaker than the level.

        Args:
            keys: of pairs, see :func:`keys_of`.
            within: whether each is a repeat within a set.
            level: at which they leak in the later audit.
        """
        strong = self.pairs.filter(pc.less_equal(self.pairs[level.scale], level.code))
        spared = pa.array(map(_BETWEEN.join, self._spared(level)), pa.string())
        known = pc.is_in(keys, spared)
        for inside in (False, True):
            own = strong.filter(pc.equal(strong["within"], inside))["key"]
            listed = pc.and_(pc.equal(within, inside), pc.is_in(keys, own.combine_chunks()))
            known = pc.or_(known, listed)
        return np.asarray(known.to_numpy(zero_copy_only=False), bool)

    def _spared(self, level: Level) -> Iterator[Key]:
        """Yield the pairs that are accepted at a level, or that people judged weaker."""
        yield from accepting(self.accepted, level)
        # degrees do not reflect verdicts: for them, pairs that are not duplicates are weaker
        limit = level.code if level.scale == "grade" else GRADES.index("near")
        for key, grade in self.judged.items():
            if GRADES.index(grade) > limit:
                yield key

    def notes(self, summary: AuditSummary, levels: Iterable[Level]) -> Iterator[str]:
        """Yield in what its audits differ from a later one, where that bears on what is new."""
        for source, old in self.summaries.items():
            yield from _notes(source, old, summary, levels)


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
    return pa.table(
        {
            "key": keys_of(folder, table),
            "within": within_of(summary, table),
            "grade": _places(table["grade"], GRADES),
            "degree": _places(table["degree"], DEGREES),
        },
        schema=_KNOWN,
    )


def _places(column: pa.ChunkedArray, scale: Sequence[str]) -> pa.Array:
    place = pc.index_in(column, pa.array(scale))
    return pc.fill_null(place, _NOTHING).cast(pa.int8()).combine_chunks()


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
    digests = digests_of(folder, table)
    for side, digest in zip(("query", "reference"), digests, strict=True):
        name = pc.binary_join_element_wise(
            table[f"{side}_set"].combine_chunks(), table[side].combine_chunks(), "\0"
        )
        sides.append(pc.coalesce(digest, name))
    low, high = pc.min_element_wise(*sides), pc.max_element_wise(*sides)
    return pc.binary_join_element_wise(low, high, _BETWEEN)


def _notes(
    source: str, old: AuditSummary, new: AuditSummary, levels: Iterable[Level]
) -> Iterator[str]:
    for level in levels:
        if all(total.rates.get(level.rate) is None for total in old.totals):
            yield f"baseline {source}: it has no {level.scale}s, so it knows no {level.name} pairs"
    for what in ("encoder", "grader"):
        before, after = getattr(old, what), getattr(new, what)
        if before and after and before.digest != after.digest:
            names = [str(getattr(each, "name", each.digest))[:40] for each in (before, after)]
            other = f"{names[0]}, not {names[1]}" if names[0] != names[1] else "another version"
            yield (
                f"baseline {source}: made with another {what} ({other}); pairs are matched by"
                " content all the same"
            )


# -- the leaks of an audit that its baseline does not know ----------------------------------------


#: What is kept of a pair: enough to name it.
COLUMNS: Final = (
    *("query_set", "query", "reference_set", "reference", "similarity", "degree", "grade"),
    *("probability", "reason", "transform", "coverage"),
)


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
        worst = self.pairs.slice(0, named).to_pylist()
        return {
            "level": self.level.name,
            "query_set": self.query_set,
            "new": self.rate.as_dict(),
            "known": self.known,
            "new_pairs": self.pairs.num_rows,
            "worst": [{k: v for k, v in row.items() if k != "coverage"} for row in worst],
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
    if baseline is None:
        known = np.zeros(table.num_rows, bool)
    else:
        known = baseline.knows(keys_of(folder, table), within_of(summary, table), level)
    found = []
    for total in summary.totals:
        name = total.query_set
        own = pc.equal(table["query_set"], name).to_numpy()
        inside = alone(summary, name)
        fresh = _images(table, own & ~known, inside)
        every = _images(table, own, inside)
        rate = total.rates[level.rate]
        if rate is None:
            raise UsageError(f"{folder} has no rate of {level.name!r}")
        found.append(
            NewLeaks(
                name,
                level,
                Rate.of(fresh, rate.total, population=rate.population),
                every - fresh,
                worst_first(table.filter(pa.array(own & ~known))),
            )
        )
    return tuple(found)


def _images(table: pa.Table, rows: Bool, inside: bool) -> int:
    """Return how many images the rows are about: the queries, inside one set both images."""
    chosen = table.filter(pa.array(rows))
    ids = chosen["query"]
    if inside:
        ids = pa.chunked_array([*ids.chunks, *chosen["reference"].chunks], pa.string())
    return len(pc.unique(ids))


def worst_first(pairs: pa.Table) -> pa.Table:
    """Return pairs by grade, falling probability and similarity, then by their ids."""
    grade = pc.fill_null(pc.index_in(pairs["grade"], pa.array(GRADES)), len(GRADES))
    degree = pc.fill_null(pc.index_in(pairs["degree"], pa.array(DEGREES)), len(DEGREES))
    ranked = pairs.append_column("_grade", grade).append_column("_degree", degree)
    order = pc.sort_indices(
        ranked,
        sort_keys=[
            ("_grade", "ascending"),
            ("probability", "descending"),
            ("_degree", "ascending"),
            ("similarity", "descending"),
            *((name, "ascending") for name in COLUMNS[:4]),
        ],
    )
    return pairs.take(order)


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
    """Return a pair in one line: who, how strong, how sure, and what was done to the image."""
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
