"""Which images of a set go."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from visleak.groups import components
from visleak.remedy.manifest import Removed
from visleak.remedy.purge_plan import SetPlan, Share, Wish
from visleak.storage import SetSummary


def plan_set(
    about: SetSummary, images: pa.Table, leaks: pa.Table, inside: pa.Table, wish: Wish
) -> tuple[SetPlan, int]:
    """Return what becomes of a set, and how many of its blank images stay."""
    name = about.name
    own, other = ("query", "reference") if wish.side == "test" else ("reference", "query")
    leaks = leaks.filter(pc.equal(leaks[f"{own}_set"], name))
    why = dict(_strongest(leaks, own, other, wish))
    blank = {id_ for id_ in images.filter(images["flat"])["id"].to_pylist() if id_ in why}
    why = {id_: reason for id_, reason in why.items() if id_ not in blank}
    _add_same_content(images, why)
    if wish.within == "drop":
        inside = inside.filter(pc.equal(inside["query_set"], name))
        flat = set(images.filter(images["flat"])["id"].to_pylist())
        why.update(_repeats(images, inside, set(why) | flat, wish))
    goes = pc.is_in(images["id"], pa.array(list(why), pa.string()))
    gone = images.filter(goes)
    removed = tuple(
        Removed(
            name,
            row["id"],
            row["digest"] or "",
            row["locator"] or "",
            row["label"] or "",
            *why[row["id"]],
        )
        for row in gone.to_pylist()
    )
    pictures = about.has_pixels
    plan = SetPlan(
        name,
        pictures,
        int(about.images),
        int(about.unreadable),
        removed,
        _classes(images, gone) if pictures else (),
    )
    return plan, len(blank)


def _strongest(
    pairs: pa.Table, own: str, other: str, wish: Wish
) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield each image with the word of its strongest pair and its partner there."""
    rank = pc.index_in(pairs[wish.column], pa.array(wish.words))
    order = pc.sort_indices(
        pa.table(
            {
                "rank": rank,
                "s": pairs["similarity"],
                "set": pairs[f"{other}_set"],
                "o": pairs[other],
            }
        ),
        [("rank", "ascending"), ("s", "descending"), ("set", "ascending"), ("o", "ascending")],
    )
    seen = set()
    for row in pairs.select([own, f"{other}_set", other, wish.column]).take(order).to_pylist():
        if row[own] not in seen:
            seen.add(row[own])
            yield row[own], (row[wish.column], f"{row[f'{other}_set']}/{row[other]}")


def _add_same_content(images: pa.Table, why: dict[str, tuple[str, str]]) -> None:
    """Let images go that have the very bytes of one that goes."""
    gone = images.filter(pc.is_in(images["id"], pa.array(list(why), pa.string())))
    reasons = dict(zip(gone["digest"].to_pylist(), gone["id"].to_pylist(), strict=True))
    reasons.pop(None, None)
    same = images.filter(pc.is_in(images["digest"], pa.array(list(reasons), pa.string())))
    for id_, digest in zip(same["id"].to_pylist(), same["digest"].to_pylist(), strict=True):
        why.setdefault(id_, why[reasons[digest]])


def _repeats(
    images: pa.Table, inside: pa.Table, out: set[str], wish: Wish
) -> dict[str, tuple[str, str]]:
    """Return the images to drop so that one of each group of repeats stays: its first."""
    ids = images["id"].combine_chunks()
    ends = [pc.index_in(inside[side].combine_chunks(), ids) for side in ("query", "reference")]
    words = inside[wish.column].to_pylist()
    staying = np.array([id_ not in out for id_ in ids.to_pylist()], np.bool_)
    left, right = (end.to_numpy(zero_copy_only=False).astype(np.int64) for end in ends)
    both = staying[left] & staying[right]
    group = components(len(ids), [(left[both], right[both])])
    first: dict[int, int] = {}
    dropped = {}
    strongest = dict(_word_of_each(left[both], right[both], np.array(words, object)[both], wish))
    for at in np.flatnonzero(staying).tolist():
        kept = first.setdefault(int(group[at]), at)
        if kept != at:
            partner = f"{images['set'][at].as_py()}/{ids[kept].as_py()}"
            dropped[ids[at].as_py()] = (f"repeat: {strongest[at]}", partner)
    return dropped


def _word_of_each(left: Any, right: Any, words: Any, wish: Wish) -> Iterator[tuple[int, str]]:
    """Yield each image in a pair with its strongest word; the last that is yielded counts."""
    for word in reversed(wish.words):
        for end in (left, right):
            yield from ((int(at), word) for at in end[words == word])


def _classes(images: pa.Table, gone: pa.Table) -> tuple[Share, ...]:
    before = Counter(label for label in images["label"].to_pylist() if label is not None)
    lost = Counter(gone["label"].to_pylist())
    return tuple(
        Share(label, before[label], before[label] - lost[label]) for label in sorted(before)
    )
