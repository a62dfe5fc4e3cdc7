"""The screen of tiny images: gradient correlation over scales and shifts.

A crop or a copy with a border agrees with its original at one scale and shift only. The gradients
of the query are therefore placed on the frame of the reference in more than a hundred ways, and
each placement is scored by the normalized correlation of the overlap (gradients after Argyriou &
Vlachos 2003, masks after Padfield 2012). If the best one scales the query, it is scored again at
full resolution.

Gradients are rounded to integers whose sums ``float32`` holds exactly, so that a score does not
depend on the other pairs of a batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Final

import cv2
import numpy as np

from visleak.records import VIEWS, Bool, Bytes8, Float32, Float64, Int8
from visleak.verification import align
from visleak.verification.align import Matrix
from visleak.verification.screen import SIDE, damped_differences, in_views

#: Side of the grid on which gradients are compared, cells.
GRID: Final = 16
#: Scales of the query across and down, and number of shifts to either side of each. Steps of more
#: than two cells miss the gradients; stretches are for letterboxes, bars and strips.
SCALES: Final = (
    *((1.0, 1.0, 3, 3), (0.84, 0.84, 1, 1), (1.19, 1.19, 1, 1)),
    *((0.71, 0.71, 2, 2), (1.41, 1.41, 2, 2)),
    *((0.84, 1.0, 1, 0), (1.0, 0.84, 0, 1), (1.19, 1.0, 1, 0), (1.0, 1.19, 0, 1)),
    *((0.71, 1.0, 1, 0), (1.0, 0.71, 0, 1), (1.41, 1.0, 1, 0), (1.0, 1.41, 0, 1)),
)
#: Largest shift at scale 1, as a share of the side; other scales are shifted up to the edges.
REACH: Final = 3 / 16
#: Smallest share of a cell that the query covers.
COVERS: Final = 0.5
#: Exponent of the covered share, a factor of the score: a small overlap agrees by chance.
SHARE: Final = 0.25
#: Smallest score of a scaled placement that is scored at full resolution, largest shift there,
#: pixels, and what the best of these shifts gains by chance.
FINE_FROM: Final = 0.3
FINE_REACH: Final = 2
FINE_CHANCE: Final = 0.06
#: Largest integer: the sum of 512 products is less than 2**24.
LEVELS: Final = 127

#: Images per batch, which fit into the cache of a core.
_BATCH: Final = 32
_INVERSE: Final = (0, 3, 2, 1, 4, 5, 6, 7, 8)


def place(query: Bytes8, reference: Bytes8, view: Int8) -> tuple[Float32, Float32]:
    """Return the score of the best placement of each pair, and that placement.

    Args:
        query, reference: ``uint8`` (n, 32, 32) thumbnails.
        view: ``int8`` (n,): the view in which each query is compared.

    Returns:
        Score ``float32`` (n,) in [-1, 1], higher is more similar, and placement ``float32``
        (n, 4) of the query in its view: shift of the centre right and down in shares of the sides,
        and scale across and down.
    """
    score, found = np.empty(len(query), np.float32), np.empty((len(query), 4), np.float32)
    keys = np.ascontiguousarray(query.reshape(len(query), -1)).view(f"V{SIDE * SIDE}").ravel()
    _, first, which = np.unique(keys, return_index=True, return_inverse=True)
    # the inverse view is applied to the reference, so that a query is placed once for all views
    backwards = _planes(in_views(reference, np.asarray(_INVERSE, np.int8)[view]))
    cells = _cells(backwards)
    energy = np.square(cells).reshape(len(cells), 2, -1).sum(axis=1)
    bank, planes = _bank(), _planes(query[first])
    order = np.argsort(which, kind="stable")
    edges = np.searchsorted(which[order], np.arange(len(first) + 1))
    for number in range(len(first)):
        rows = order[edges[number] : edges[number + 1]]
        placed = _placed(planes[number], bank)
        norm = np.einsum("kc,kc->k", placed, placed)
        beneath = bank.covers @ energy[rows].T
        value = placed @ cells[rows].T
        value *= bank.share[:, None] / np.sqrt(np.maximum(norm[:, None] * beneath, 1.0))
        best = value.argmax(axis=0)
        score[rows] = value[best, np.arange(len(rows))]
        found[rows] = bank.in_views[view[rows], best]
    fine = np.flatnonzero((score >= FINE_FROM) & (found[:, 2:] != 1).any(axis=1))
    left, right = planes[which[fine]], backwards[fine]
    turned = view[fine] != 0
    rows = fine[turned]
    left[turned] = _planes(in_views(query[rows], view[rows]))
    right[turned] = _planes(reference[rows])
    score[fine] = np.maximum(score[fine], _fine_scores(left, right, found[fine]) - FINE_CHANCE)
    return score, found


def _fine_scores(query: Float32, reference: Float32, found: Float32) -> Float32:
    """Return the scores of placements at full resolution, at the best shift of up to two pixels.

    ``query``, ``reference``: gradients (n, 2, 32, 32), the query's in its view.
    """
    left, right = (
        np.ascontiguousarray(planes.transpose(0, 2, 3, 1)) for planes in (query, reference)
    )
    score = np.empty(len(query), np.float32)
    for number, placed in enumerate(found.astype(np.float64).tolist()):
        part, whole = left[number], right[number]
        x, y, across, down = placed
        if max(across, down) > 1:
            part, whole, x, y = whole, part, -x / across, -y / down
            across, down = 1 / across, 1 / down
        width, height = round(SIDE * across), round(SIDE * down)
        part = cv2.resize(part, (width, height), interpolation=cv2.INTER_AREA)
        edge = SIDE // 4
        whole = cv2.copyMakeBorder(whole, edge, edge, edge, edge, cv2.BORDER_CONSTANT)
        column = round(SIDE * (0.5 + x) - width / 2) + edge - FINE_REACH
        row = round(SIDE * (0.5 + y) - height / 2) + edge - FINE_REACH
        field = whole[row : row + height + 2 * FINE_REACH, column : column + width + 2 * FINE_REACH]
        agreement = cv2.matchTemplate(field, part, cv2.TM_CCORR_NORMED).max()
        score[number] = agreement * (across * down) ** SHARE
    return score


def matrix_of(placement: tuple[float, float, float, float]) -> Matrix:
    """Return a placement (shift right and down, scale across and down) as a relation."""
    x, y, across, down = placement
    return np.array([[across, 0, 0.5 + x - across / 2], [0, down, 0.5 + y - down / 2], [0, 0, 1.0]])


@dataclass(frozen=True, slots=True)
class _Bank:
    """All placements."""

    # weights of the cells at each scale, down (shifts x 16, 32) and across
    blocks: tuple[tuple[Float32, Float32], ...]
    covers: Float32  # 1 for the cells that each placement covers, else 0, float32 (k, 256)
    share: Float32  # factor of the score of each placement (k,)
    in_views: Float32  # the placements in each view, float32 (9, k, 4)


@cache
def _bank() -> _Bank:
    blocks, covers, placements = [], [], []
    for across, down, *steps in SCALES:
        axes = [_axis(down, steps[1]), _axis(across, steps[0])]
        blocks.append((axes[0][0].reshape(-1, SIDE), axes[1][0].reshape(-1, SIDE)))
        (_, covered_down, downs), (_, covered_across, rights) = axes
        both = covered_down[:, None, :, None] * covered_across[None, :, None, :]
        covers.append(both.reshape(-1, GRID * GRID))
        placements += [(x, y, across, down) for y in downs for x in rights]
    in_views = [[_in_view(one, view) for one in placements] for view in range(len(VIEWS))]
    cover = np.concatenate(covers).astype(np.float32)
    share = cover.mean(axis=1) ** np.float32(SHARE)
    return _Bank(tuple(blocks), cover, share, np.array(in_views, np.float32))


def _axis(scale: float, steps: int) -> tuple[Float32, Bool, Float64]:
    """Return the weights of the cells (shifts, 16, 32), whether each is covered, and the shifts."""
    slack = REACH if scale == 1 else abs(scale - 1) / 2
    shifts = np.linspace(-slack, slack, 2 * steps + 1) if steps else np.zeros(1)
    edges, pixel = np.arange(GRID + 1) / GRID, np.arange(SIDE) / SIDE
    back = (edges[None] - 0.5 - shifts[:, None]) / scale + 0.5
    low, high = back[:, :-1, None], back[:, 1:, None]
    overlap = np.minimum(high, pixel + 1 / SIDE) - np.maximum(low, pixel)
    weights = np.maximum(overlap, 0) / (high - low)
    covered = weights.sum(axis=2) >= COVERS
    return (weights * covered[..., None]).astype(np.float32), covered, shifts


def _in_view(placement: tuple[float, float, float, float], view: int) -> tuple[float, ...]:
    """Return a placement of the query as a placement of the query in a view."""
    turn = align.view_matrix(view)
    matrix = turn @ matrix_of(placement) @ align.inverse(turn)
    x, y, _ = matrix @ np.array([0.5, 0.5, 1.0])
    return x - 0.5, y - 0.5, matrix[0, 0], matrix[1, 1]


def _placed(planes: Float32, bank: _Bank) -> Float32:
    """Return the gradients (2, 32, 32) of a thumbnail in all placements, integers (k, 512)."""
    placed = np.empty((len(bank.share), 2 * GRID * GRID), np.float32)
    done = 0
    for down, across in bank.blocks:
        steps = len(down) // GRID, len(across) // GRID
        part = slice(done, done + steps[0] * steps[1])
        cells = ((down @ planes) @ across.T).reshape(2, steps[0], GRID, steps[1], GRID)
        placed[part].reshape(*steps, 2, GRID, GRID)[...] = cells.transpose(1, 3, 0, 2, 4)
        done = part.stop
    placed *= _to_levels(planes[None])[0]
    return np.rint(placed, out=placed)


def _cells(planes: Float32) -> Float32:
    """Return the gradients (n, 2, 32, 32) of thumbnails on the grid, integers (n, 512)."""
    cells = np.empty((len(planes), 2, GRID, GRID), np.float32)
    for start in range(0, len(planes), _BATCH):
        part = planes[start : start + _BATCH]
        made = cells[start : start + _BATCH]
        rows = part[..., 0::2, :] + part[..., 1::2, :]
        np.add(rows[..., 0::2], rows[..., 1::2], out=made)
        made *= _to_levels(part)[..., None, None] / 4
    return np.rint(cells, out=cells).reshape(len(cells), -1)


def _planes(thumbnails: Bytes8) -> Float32:
    """Return damped gradients across and down, ``float32`` (n, 2, 32, 32)."""
    planes = np.empty((len(thumbnails), 2, SIDE, SIDE), np.float32)
    for start in range(0, len(thumbnails), _BATCH):
        part = slice(start, start + _BATCH)
        planes[part, 0], planes[part, 1] = damped_differences(thumbnails[part])
    return planes


def _to_levels(planes: Float32) -> Float32:
    """Return the factors by which gradients are scaled before rounding, (n, 1)."""
    most = np.abs(planes).max(axis=(1, 2, 3))
    return np.asarray(LEVELS / np.maximum(most, 1e-3), np.float32)[:, None]
