"""Search by faiss: candidates come from an index, similarities from the vectors themselves.

A flat index gives the result of :class:`visleak.search.exact.ExactSearch`, byte for byte. The
others compare a part of the references: what they find is right, but they may miss pairs. Their
effort is tuned on some queries, and their recall is measured on others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import log2, sqrt
from types import ModuleType
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from visleak.errors import MissingExtra
from visleak.groups import places
from visleak.rates import Rate
from visleak.records import Bool, Float32, Float64, Int64
from visleak.search.exact import MARGIN, ExactSearch, chosen, joined, no_hits, rescore
from visleak.search.hits import Account, Hits, Recall, Rows, Sides, Wanted
from visleak.vectors import parts_of

Kind = Literal["flat", "hnsw", "ivf", "ivfpq"]
#: Most references -> kind of index; more than the last get an ``ivfpq``.
SIZES: Final[tuple[tuple[int, Kind], ...]] = ((20_000, "flat"), (200_000, "hnsw"), (999_999, "ivf"))
BLOCK: Final = 1 << 14  # rows read at a time
#: Training rows per cell; centroids of each part of a product quantiser, and its training rows.
ROWS_PER_CELL: Final = 40
CENTROIDS: Final = 256
QUANTISER_ROWS: Final = 1 << 14
LEAST_PER_CELL: Final = 10  # fewest references per cell on average, for few references
COORDINATES_PER_BYTE: Final = 4  # coordinates that share one byte of a product quantiser's code
#: Rows whose own similarity measures what a code loses, and the quantile of it.
SLACK_ROWS: Final = 1000
SLACK_SHARE: Final = 0.999
DIGEST: Final = "faiss-2"  # text that changes whenever an index built by this module could


def faiss() -> ModuleType:
    """Return the library."""
    try:
        import faiss as library
    except ImportError as error:
        raise MissingExtra("faiss", "the faiss search engine") from error
    return library


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Let faiss use ``count`` threads; restore their number after."""
    library = faiss()
    before = library.omp_get_max_threads()
    library.omp_set_num_threads(count)
    try:
        yield
    finally:
        library.omp_set_num_threads(before)


def kind_for(references: int) -> Kind:
    """Return the kind of index for a number of references.

    >>> kind_for(20_000), kind_for(200_000), kind_for(500_000), kind_for(1_000_000)
    ('flat', 'hnsw', 'ivf', 'ivfpq')
    """
    return next((kind for most, kind in SIZES if references <= most), "ivfpq")


def cells_for(references: int) -> int:
    """Return the number of cells for references: a power of 2 near 4 roots, as AutoFaiss.

    >>> cells_for(500), cells_for(200_000), cells_for(1_000_000), cells_for(10**9)
    (32, 2048, 4096, 65536)
    """
    wanted = round(log2(4 * sqrt(references)))
    filled = int(log2(max(1, references // LEAST_PER_CELL)))
    return 1 << min(wanted, filled, 16)


def key_for(kind: Kind, references: int, width: int) -> str:
    """Return the key by which faiss's ``index_factory`` makes the index.

    >>> key_for("ivfpq", 1_000_000, 512)
    'IVF4096,PQ128np'
    """
    match kind:
        case "flat":
            return "Flat"
        case "hnsw":
            return "HNSW32"
        case "ivf":
            return f"IVF{cells_for(references)},Flat"
        case "ivfpq":
            return f"IVF{cells_for(references)},PQ{width // COORDINATES_PER_BYTE}np"


@dataclass(frozen=True, slots=True)
class Layout:
    """How vectors are stored in an index."""

    kind: Kind  # of index
    key: str  # of faiss's index_factory
    width: int  # coordinates in the index: those of a vector, the penalty, and zeros to fill up
    own: int  # coordinates of a vector

    @classmethod
    def of(cls, kind: Kind, references: int, own: int, penalised: bool) -> Layout:
        """Return the layout for references of ``own`` coordinates.

        Fewer rows than a quantiser has centroids cannot train it: these get ``flat``.
        """
        width = own + penalised
        if kind == "ivfpq" and references < CENTROIDS:
            kind = "flat"
        if kind == "ivfpq":
            width = -(-width // COORDINATES_PER_BYTE) * COORDINATES_PER_BYTE
        return cls(kind, key_for(kind, references, width), width, own)

    def placed(self, rows: Float32, extra: Float32 | float) -> Float32:
        """Return rows (n, own) with their extra coordinate, as the index holds them."""
        if self.width == self.own:
            return np.ascontiguousarray(rows)
        wide = np.zeros((len(rows), self.width), np.float32)
        wide[:, : self.own] = rows
        wide[:, self.own] = extra
        return wide


@dataclass(frozen=True, slots=True)
class Effort:
    """The effort of a search in an index."""

    probes: int = 0  # cells searched (IVF), or length of the list of candidates (HNSW); 0 for flat
    fetch: int = 1  # candidates fetched for each of the best that are wanted


class Index:
    """A filled index."""

    def __init__(self, layout: Layout, filled: Any, slack: float = 0.0) -> None:
        self.layout = layout
        self.slack = slack
        self.filled = filled

    def __len__(self) -> int:
        return int(self.filled.ntotal)

    @property
    def exact(self) -> bool:
        """Whether it compares every reference."""
        return self.layout.kind == "flat"

    @property
    def by_range(self) -> bool:
        """Whether it finds all from a threshold on; a graph stops at its list of candidates."""
        return self.layout.kind != "hnsw"

    def set(self, effort: Effort) -> None:
        """Set the effort of the following searches."""
        if self.layout.kind == "hnsw":
            self.filled.hnsw.efSearch = effort.probes
        elif self.layout.kind != "flat":
            faiss().extract_index_ivf(self.filled).nprobe = effort.probes

    def nearest(self, rows: Float32, count: int, *, penalised: bool) -> tuple[Float32, Int64]:
        """Return scores and references (n, count), best first; -1 fills up missing ones."""
        count = min(count, len(self))
        return tuple(self.filled.search(self._placed(rows, penalised), count))

    def reaching(
        self, rows: Float32, radius: float, *, penalised: bool
    ) -> tuple[Int64, Float32, Int64]:
        """Return row, score and reference of everything found above a score."""
        limits, scores, found = self.filled.range_search(self._placed(rows, penalised), radius)
        row = np.repeat(np.arange(len(rows)), np.diff(limits.astype(np.int64)))
        return row, scores, found

    def _placed(self, rows: Float32, penalised: bool) -> Float32:
        return self.layout.placed(np.asarray(rows, np.float32), 1.0 if penalised else 0.0)


def build(
    layout: Layout, reference: Float32 | Rows, penalty: Float32, progress: Callable[[int], None]
) -> Index:
    """Return the index of the references."""
    library = faiss()
    index = library.index_factory(layout.width, layout.key, library.METRIC_INNER_PRODUCT)
    _configure(library, index, layout.kind)
    if not index.is_trained:
        index.train(_training_rows(layout, reference, penalty, index.nlist))
    # several threads would build another graph each time
    with threads(1 if layout.kind == "hnsw" else library.omp_get_max_threads()):
        for part in parts_of(len(reference), BLOCK):
            index.add(layout.placed(np.asarray(reference[part]), -penalty[part]))
            progress(min(part.stop, len(reference)))
    return Index(layout, index, _slack(layout, index, reference, penalty))


def _configure(library: ModuleType, index: Any, kind: Kind) -> None:
    if kind in ("ivf", "ivfpq"):
        cells = library.extract_index_ivf(index)
        cells.cp.min_points_per_centroid = 1  # without a warning for small sets
        cells.cp.max_points_per_centroid = ROWS_PER_CELL
    if kind == "ivfpq":
        index.pq.cp.min_points_per_centroid = 1
        index.pq.cp.max_points_per_centroid = QUANTISER_ROWS // CENTROIDS
        index.pq.cp.niter = 10


def _training_rows(
    layout: Layout, reference: Float32 | Rows, penalty: Float32, cells: int
) -> Float32:
    """Return rows to train on, evenly spread."""
    wanted = max(cells * ROWS_PER_CELL, QUANTISER_ROWS if layout.kind == "ivfpq" else 0)
    places = _spread(len(reference), wanted)
    return layout.placed(np.asarray(reference[places]), -penalty[places])


def _spread(count: int, wanted: int) -> Int64:
    """Return at most ``wanted`` places among ``count``, evenly spread."""
    return np.unique(np.linspace(0, count - 1, min(count, wanted)).astype(np.int64))


def _slack(layout: Layout, index: Any, reference: Float32 | Rows, penalty: Float32) -> float:
    """Return by how much the index underestimates duplicates: rows compared with their codes."""
    if layout.kind != "ivfpq":
        return 0.0
    places = _spread(len(reference), SLACK_ROWS)
    rows = np.asarray(reference[places])
    wide = layout.placed(rows, -penalty[places])
    seen = index.sa_decode(index.sa_encode(wide))[:, : layout.own]
    lost: npt.NDArray[np.float32] = np.einsum("ij,ij->i", rows, rows - seen)
    return max(0.0, float(np.quantile(lost, SLACK_SHARE)))


# -- search ----------------------------------------------------------------------------------------


SEED: Final = 0  # seed of the draw of queries
#: Queries whose candidates are collected at a time; fewer if there are many candidates.
QUERY_BLOCK: Final = 256
CROWD: Final = 1_000_000  # candidates a block of queries should not exceed; only bounds memory
SPARE: Final = 12  # fetched beyond the best that are wanted, so that ties at the end show
#: Neighbours fetched first if an index finds those above a threshold only by fetching more.
FIRST_NEIGHBOURS: Final = 64


def sampled(queries: int, count: int) -> tuple[Int64, Int64]:
    """Return rows of queries to tune on and others to measure on, each ascending.

    Up to ``count`` each, with nothing in common but where there is only one query.
    """
    drawn = np.random.default_rng(SEED).permutation(queries)[: 2 * count].astype(np.int64)
    measured, tuned = np.sort(drawn[0::2]), np.sort(drawn[1::2])
    return (tuned if len(tuned) else measured), measured


def part_of(rows: Int64, sides: Sides) -> Sides:
    """Return the sides with some of the queries only; they are no longer one set."""
    own = sides.query
    query = Rows(own.matrix, own.index[rows]) if isinstance(own, Rows) else Rows(own, rows)
    return replace(sides, query=query, same=False)


def exact_answer(sides: Sides, wanted: Wanted, rows: Int64, workers: int) -> Hits:
    """Return what exact search finds for some queries, numbered as in ``rows``.

    Totals are not counted for queries of a set that is compared with itself.
    """
    rule = wanted
    if sides.same:  # one more of each, for an image is its own best match
        rule = replace(wanted, best=wanted.best and wanted.best + 1, cap=wanted.cap + 1)
    hits = ExactSearch().find(part_of(rows, sides), rule, workers=workers)
    if not sides.same:
        return hits
    scored = hits.scored.only(rows[hits.query] != hits.reference)
    kept = scored.only(chosen(scored, sides, wanted))
    return joined([(0, kept, np.zeros(len(rows), np.int64))], sides.order)


def only_queries(hits: Hits, rows: Int64) -> Hits:
    """Return the hits of some queries, ascending, numbered by their place in ``rows``."""
    kept = hits.scored.only(np.isin(hits.query, rows))
    return Hits(*kept._replace(query=np.searchsorted(rows, kept.query)), hits.total[rows])


def measure(hits: Hits, sides: Sides, wanted: Wanted, rows: Int64, workers: int) -> Recall:
    """Return how much of what exact search finds for some queries is among the hits of all."""
    exact = exact_answer(sides, wanted, rows, workers)
    return recall(only_queries(hits, rows), exact, sides, wanted)


def recall(found: Hits, exact: Hits, sides: Sides, wanted: Wanted) -> Recall:
    """Compare two answers to the same queries."""
    queries, references = len(exact.total), len(sides.order)
    pairs = leaks = best = Rate.of(0, 0)
    if wanted.threshold is not None:
        least = np.float32(wanted.threshold)
        ours, theirs = found.similarity >= least, exact.similarity >= least
        keys = exact.query[theirs] * references + exact.reference[theirs]
        met = np.isin(keys, found.query[ours] * references + found.reference[ours])
        pairs = Rate.of(int(met.sum()), len(keys))
        leaking = np.unique(exact.query[theirs])
        leaks = Rate.of(int(np.isin(leaking, found.query[ours]).sum()), len(leaking))
    if wanted.best:
        last, places = _last_of_best(exact, sides, wanted.best, queries)
        good = _corrected(found, sides) >= last[found.query]
        filled = np.minimum(np.bincount(found.query[good], minlength=queries), places)
        best = Rate.of(int(filled.sum()), int(places.sum()))
    return Recall(queries, pairs, leaks, best)


def _corrected(hits: Hits, sides: Sides) -> Float64:
    return np.asarray(hits.similarity.astype(np.float64) - sides.penalty[hits.reference])


def _last_of_best(exact: Hits, sides: Sides, best: int, queries: int) -> tuple[Float64, Int64]:
    """Return each query's corrected similarity of its last place, and how many places it has."""
    value = _corrected(exact, sides)
    order = np.lexsort((-value, exact.query))
    place = places(exact.query[order])
    top = order[place < best]
    last = np.full(queries, np.inf)
    np.minimum.at(last, exact.query[top], value[top])
    return last, np.bincount(exact.query[top], minlength=queries)


def search_index(index: Index, sides: Sides, wanted: Wanted, rows: Int64, effort: Effort) -> Hits:
    """Return what an index finds for some queries."""
    index.set(effort)
    parts, totals = [], np.zeros(len(sides.query), np.int64)
    start, block = 0, 16
    while start < len(rows):
        mine = rows[start : start + block]
        query, reference = candidates(index, sides, wanted, mine, effort)
        vectors = np.asarray(sides.query[mine])
        scored = rescore(sides, vectors, query, reference)
        if wanted.threshold is not None:
            reached = scored.only(scored.similarity >= np.float32(wanted.threshold))
            weight = 1 if sides.weight is None else sides.weight[reached.reference]
            np.add.at(totals, mine[reached.query], weight)
        kept = scored.only(chosen(scored, sides, wanted))
        parts.append(kept._replace(query=mine[kept.query]))
        start += len(mine)
        if len(query) > CROWD:
            block = max(1, block // 4)
        elif 4 * len(query) < CROWD:
            block = min(QUERY_BLOCK, 2 * block)
    none = np.empty(0, np.int64)
    hits = joined([(0, part, none) for part in parts], sides.order)
    return replace(hits, total=totals)


def candidates(
    index: Index, sides: Sides, wanted: Wanted, rows: Int64, effort: Effort
) -> tuple[Int64, Int64]:
    """Return pairs worth scoring exactly: place in ``rows``, and reference; each pair once."""
    vectors = np.asarray(sides.query[rows])
    seen = [sides.seen(vectors, view) for view in sides.views]
    stacked = np.ascontiguousarray(np.stack(seen, axis=1).reshape(-1, vectors.shape[1]))
    owner = np.repeat(np.arange(len(rows)), len(sides.views))
    pairs = [(np.empty(0, np.int64), np.empty(0, np.int64))]
    if wanted.best:
        pairs.append(_best(index, sides, wanted.best, rows, stacked, owner, effort))
    if wanted.threshold is not None:
        radius = wanted.threshold - MARGIN - index.slack
        pairs.append(_reaching(index, stacked, owner, radius))
    query, reference = (np.concatenate(column) for column in zip(*pairs, strict=True))
    keys = np.unique(query * len(sides.order) + reference)
    query, reference = np.divmod(keys, len(sides.order))
    if sides.same:
        others = rows[query] != reference
        query, reference = query[others], reference[others]
    return query, reference


def _best(
    index: Index,
    sides: Sides,
    best: int,
    rows: Int64,
    stacked: Float32,
    owner: Int64,
    effort: Effort,
) -> tuple[Int64, Int64]:
    """Return candidates for the best of each query: place in ``rows``, and reference.

    A reference among a query's best over all views is among the best of the view it is best in.
    """
    count = best * effort.fetch + sides.same + (SPARE if index.exact else 0)
    scores, ids = index.nearest(stacked, count, penalised=True)
    query = np.repeat(owner, ids.shape[1])
    reference, score = ids.ravel(), scores.ravel()
    there = reference >= 0
    if sides.same:
        there &= rows[query] != reference
    query, reference, score = query[there], reference[there], score[there]
    if index.layout.kind == "ivfpq":  # its scores are those of codes: too rough to exclude any
        return query, reference
    floor = _floor(query, reference, score, len(rows), best) - np.float32(MARGIN)
    keep = score >= floor[query]
    query, reference = query[keep], reference[keep]
    if not index.exact or ids.shape[1] == len(index):
        return query, reference
    # if all fetched ones tie, there may be more: fetch everything down to the floor
    tied = np.flatnonzero(scores[:, -1] >= floor[owner])
    lists = [
        index.reaching(stacked[[row]], float(floor[owner[row]]), penalised=True)[2] for row in tied
    ]
    owners = np.repeat(owner[tied], [len(each) for each in lists])
    return np.concatenate([query, owners]), np.concatenate([reference, *lists])


def _floor(query: Int64, reference: Int64, score: Float32, queries: int, best: int) -> Float32:
    """Return each query's score of its last place among the best, over distinct references."""
    order = np.lexsort((-score, reference, query))
    first = np.any(np.diff([query[order], reference[order]], prepend=-1), axis=0)
    query, score = query[order][first], score[order][first]
    order = np.lexsort((-score, query))
    query, score = query[order], score[order]
    floor = np.full(queries, -np.inf, np.float32)
    last = places(query) == best - 1
    floor[query[last]] = score[last]
    return floor


def _reaching(index: Index, stacked: Float32, owner: Int64, radius: float) -> tuple[Int64, Int64]:
    """Return candidates from a score on: owner of the row, and reference."""
    if index.by_range:
        row, _, reference = index.reaching(stacked, radius, penalised=False)
        return owner[row], reference
    found_query, found_reference = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    left, count = np.arange(len(stacked)), FIRST_NEIGHBOURS
    while len(left):
        scores, ids = index.nearest(stacked[left], count, penalised=False)
        inside: Bool = (ids >= 0) & (scores >= radius)
        whole = ~inside[:, -1] if count < len(index) else np.ones(len(left), np.bool_)
        row, place = np.nonzero(inside & whole[:, None])
        found_query.append(owner[left[row]])
        found_reference.append(ids[row, place])
        left, count = left[~whole], 4 * count
    return np.concatenate(found_query), np.concatenate(found_reference)


#: Recall of the pairs by threshold, and of the best, that the effort is tuned to. Duplicates are
#: close and found early; most of a query's best are unrelated images, and cost the most.
TARGET_PAIRS: Final = 0.99
TARGET_BEST: Final = 0.95
#: Shortest list of candidates of a graph that is tried, and the longest: a search that needs more
#: is faster through every reference.
LEAST_LIST: Final = 16
MOST_LIST: Final = 4096
MOST_FETCHED: Final = 32  # most candidates fetched for each of the best, where codes blur the order


def tune(index: Index, sides: Sides, wanted: Wanted, rows: Int64, workers: int) -> Effort:
    """Return the least effort, doubled step by step, that reaches the target recall.

    The largest effort if none does. AutoFaiss tunes the same numbers for a given time instead.
    """
    answer = exact_answer(sides, wanted, rows, workers)

    def reached(effort: Effort) -> float:
        hits = only_queries(search_index(index, sides, wanted, rows, effort), rows)
        return _share_of_target(recall(hits, answer, sides, wanted))

    fetch = MOST_FETCHED if index.layout.kind == "ivfpq" and wanted.best else 1
    effort, best = Effort(fetch=fetch), 0.0
    for probes in _levels(index):
        effort = Effort(probes, fetch)
        best = reached(effort)
        if best >= 1:
            break
    for fewer in (1 << power for power in range(fetch.bit_length() - 1)):
        if reached(Effort(effort.probes, fewer)) >= min(best, 1):
            return Effort(effort.probes, fewer)
    return effort


def _share_of_target(seen: Recall) -> float:
    """Return the recall as a share of its target, the lower of pairs and best."""
    aims = ((seen.pairs, TARGET_PAIRS), (seen.best, TARGET_BEST))
    return min((rate.share / aim for rate, aim in aims if rate.total), default=1.0)


def _levels(index: Index) -> Iterator[int]:
    """Yield efforts to try: cells to search, or lengths of the list of candidates."""
    graph = index.layout.kind == "hnsw"
    level, most = (LEAST_LIST, MOST_LIST) if graph else (1, index.filled.nlist)
    while level < most:
        yield level
        level *= 2
    yield most


SAMPLE: Final = 200  # queries to tune on, and as many others to measure on
MOST_VIEWS: Final = 2  # most views of a query that are searched one by one


class FaissSearch:
    """Finds pairs through an index of faiss."""

    name = "faiss"

    def __init__(
        self,
        kind: Kind | None = None,
        *,
        progress: Callable[[int], None] | None = None,
        sample: int = SAMPLE,
    ) -> None:
        faiss()
        self._kind = kind
        self._progress = progress or (lambda done: None)
        self._sample = sample
        self.accounts: list[Account] = []

    def find(self, sides: Sides, wanted: Wanted, *, workers: int = 1) -> Hits:
        """Return the wanted pairs; see :class:`visleak.search.hits.Search`.

        An index that is not flat may miss some: ``total`` then counts only what was found.
        """
        references = len(sides.reference)
        if not len(sides.query) or not references:
            return no_hits(len(sides.query))
        kind = self._kind or suited(sides, self._sample)
        if kind is None:
            self.accounts.append(Account(self.name, "exact", exact=True))
            return ExactSearch(progress=self._progress).find(sides, wanted, workers=workers)
        with threads(workers), threadpool_limits(workers, user_api="blas"):
            penalised = bool(wanted.best and sides.penalty.any())
            layout = Layout.of(kind, references, sides.query[:1].shape[1], penalised)
            index = build(layout, sides.reference, sides.penalty, lambda n: self._progress(n // 2))
            tuned, measured = sampled(len(sides.query), self._sample)
            effort = Effort() if index.exact else tune(index, sides, wanted, tuned, workers)
            hits = search_index(index, sides, wanted, np.arange(len(sides.query)), effort)
            seen = measure(hits, sides, wanted, measured, workers)
        self._progress(references)
        self.accounts.append(account_of(index, effort, seen))
        return hits


def suited(sides: Sides, sample: int) -> Kind | None:
    """Return the kind of index for a search, by the number of references; ``None`` for none.

    ``None`` if the queries are so few that tuning and measuring would search all of them exactly,
    or if all views are compared: exact search compares nine at one and a half times the cost of
    one, an index searches nine times (``benchmarks/search_engines.py``).
    """
    kind = kind_for(len(sides.reference))
    few = len(sides.query) <= 2 * sample
    return None if kind != "flat" and (few or len(sides.views) > MOST_VIEWS) else kind


def account_of(index: Index, effort: Effort, seen: Recall | None) -> Account:
    """Return the account of a search through an index."""
    kind = index.layout.kind
    parameters: dict[str, float] = {}
    if kind == "hnsw":
        parameters = {"efSearch": effort.probes}
    elif kind != "flat":
        parameters = {"nprobe": effort.probes}
    if kind == "ivfpq":
        parameters |= {"fetch": effort.fetch, "slack": round(index.slack, 4)}
    return Account(FaissSearch.name, index.layout.key, parameters, index.exact, seen)
