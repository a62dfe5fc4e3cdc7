"""Recall at k of retrieval (Ramos et al. 2025, table 4): of all queries, and of draws of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np

from visleak.records import Int8, Int64
from visleak.stats import Rate
from visleak.stats.draws import part_draws

#: The ranks up to which a caption counts as found.
AT: Final = (1, 5, 10)

#: The paper's protocol: so many queries, drawn so often.
DRAWN: Final = 200
DRAWS: Final = 10


@dataclass(frozen=True, slots=True)
class Drawn:
    """Recall of queries that are drawn again and again.

    Attributes:
        mean, deviation: over the draws; the deviation is that of a sample (n - 1).
        queries: of a draw.
        draws: how often.
    """

    mean: float
    deviation: float
    queries: int = DRAWN
    draws: int = DRAWS


@dataclass(frozen=True, slots=True)
class Recall:
    """How often an image finds its caption among the first.

    Attributes:
        k: how many of the first count.
        share: of all queries, once.
        drawn: of draws of them; ``None`` where there are no more queries than a draw has.
    """

    k: int
    share: Rate
    drawn: Drawn | None

    def plain(self) -> dict[str, Any]:
        """Return the numbers, for JSON."""
        found = {"value": self.share.share, "low": self.share.low, "high": self.share.high}
        counts = {"found": self.share.count, "queries": self.share.total}
        return {"k": self.k, **found, **counts, "drawn": self.drawn and asdict(self.drawn)}


def hit_columns(ranks: Int64) -> Mapping[str, Int8]:
    """Return whether each query found a caption of its own by each rank: ``r@1``, ``r@5``, ...

    >>> {name: list(map(int, hits)) for name, hits in hit_columns(np.array([1, 6])).items()}
    {'r@1': [1, 0], 'r@5': [1, 0], 'r@10': [1, 1]}
    """
    return {f"r@{k}": (ranks <= k).astype(np.int8) for k in AT}


def recalls(ranks: Int64, seed: int = 0) -> Sequence[Recall]:
    """Return the recall at each of :data:`AT`.

    Args:
        ranks: (n,), from 1.
        seed: of the draws; those of all k are the same queries.
    """
    hits = np.stack(list(hit_columns(ranks).values()), axis=1).astype(np.float64)
    drawn: list[Drawn | None] = [None] * len(AT)
    if len(ranks) > DRAWN:
        scores = part_draws(hits, np.ones(len(ranks), np.bool_), DRAWN, DRAWS, seed).scores
        deviation = scores.std(axis=0, ddof=1)
        drawn = [Drawn(*pair) for pair in zip(scores.mean(axis=0), deviation, strict=True)]
    return [
        Recall(k, Rate.of(int(hits[:, place].sum()), len(ranks)), drawn[place])
        for place, k in enumerate(AT)
    ]
