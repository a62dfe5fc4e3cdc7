"""Algorithm 3: picks of a bank with different meanings, by farthest points.

    begin with a random prompt of B; repeatedly add the prompt of B whose highest cosine with those
    already picked is lowest

(Hong et al. 2024, section 3.4 and Algorithm 3). The cosine is of text embeddings phi; the paper
does not specify which, here they are the pooled ones of the model's own text encoder. The first
pick leaves B like all others, which is not printed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from visleak.diffusion.model import TokenModel
from visleak.errors import UsageError, VisleakError
from visleak.memorization.search.driver import generator

#: Prompts that are embedded together.
BATCH: Final = 64


@dataclass(frozen=True, slots=True)
class Pick:
    """A prompt that was picked."""

    row: int  #: of the list it was picked from
    closeness: float | None  #: its highest cosine with the picks before it; ``None`` for the first
    source: str = ""  #: the group it was picked for


def farthest_points(
    vectors: npt.NDArray[np.floating], count: int, first: int
) -> list[tuple[int, float]]:
    """Return (row, highest cosine with earlier picks), each row the farthest from those before."""
    unit = np.asarray(vectors, np.float64)
    norms = np.linalg.norm(unit, axis=1, keepdims=True)
    if not np.isfinite(norms).all() or not norms.all():
        raise VisleakError(
            "the text encoder gives a vector that is zero or not finite; such prompts have no"
            " direction to compare"
        )
    unit = unit / norms
    # einsum adds up each row alone: equal rows have equal cosines, as a product of matrices with
    # its blocks does not promise
    closest = np.einsum("ij,j->i", unit, unit[first])
    closest[first] = np.inf
    picks = [(first, float("nan"))]
    while len(picks) < min(count, len(unit)):
        row = int(closest.argmin())
        picks.append((row, float(closest[row])))
        closest = np.maximum(closest, np.einsum("ij,j->i", unit, unit[row]))
        closest[row] = np.inf
    return picks


def diversify(
    model: TokenModel,
    prompts: Sequence[str],
    count: int = 20,
    *,
    sources: Sequence[str] = (),
    seed: int = 0,
) -> list[Pick]:
    """Pick prompts with different meanings (Algorithm 3).

    Args:
        model: whose text encoder compares them.
        prompts: the bank.
        count: of picks; of every source where there are any (the paper: 20 an original prompt).
        sources: the prompt that each was made from; empty takes all as one bank.
        seed: of the first pick; that of a source does not depend on other sources.

    Returns:
        Picks, sources in order of first sight, and in each in the order of picking. A bank of fewer
        prompts is picked whole.

    Raises:
        UsageError: nothing to pick from, or numbers that do not fit.
    """
    if not prompts:
        raise UsageError("no prompt to pick from: give at least one")
    if count < 1:
        raise UsageError(f"count is at least 1; got {count}")
    if sources and len(sources) != len(prompts):
        raise UsageError(f"sources are one per prompt, {len(prompts)}; got {len(sources)}")
    vectors = np.concatenate(
        [
            np.asarray(model.pooled_text(list(prompts[start : start + BATCH])))
            for start in range(0, len(prompts), BATCH)
        ]
    )
    rows_of: dict[str, list[int]] = {}
    for row, source in enumerate(sources or [""] * len(prompts)):
        rows_of.setdefault(source, []).append(row)
    picks = []
    for source, rows in rows_of.items():
        first = int(generator(seed, source, 0).integers(len(rows)))
        for index, cosine in farthest_points(vectors[rows], count, first):
            picks.append(Pick(rows[index], None if np.isnan(cosine) else cosine, source))
    return picks
