"""Indexes of faiss: the kind for a number of references, building, and searching.

Which index suits is chosen by size in the manner of AutoFaiss (Paltz 2021, ``autofaiss``,
``get_optimal_index_keys_v2``), written directly on faiss (Douze et al., "The Faiss library", 2024).
Similarities are inner products. References carry a penalty that is taken off when the best are
ranked: as one more coordinate, ``[q, 1] . [r, -penalty] = q . r - penalty`` and
``[q, 0] . [r, -penalty] = q . r``, so one index answers both questions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import log2, sqrt
from types import ModuleType
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from visleak.errors import MissingExtra
from visleak.records import Float32, Int64
from visleak.search.hits import Rows

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
        for start in range(0, len(reference), BLOCK):
            part = slice(start, start + BLOCK)
            index.add(layout.placed(np.asarray(reference[part]), -penalty[part]))
            progress(min(start + BLOCK, len(reference)))
    return Index(layout, index, _slack(layout, index, reference, penalty))


def _configure(library: ModuleType, index: Any, kind: Kind) -> None:
    """Set how the parts of an index are trained."""
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
