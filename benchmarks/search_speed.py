"""Time of the exact search, relative to faiss's flat index with the same results.

usage: VISLEAK_DATA=FOLDER python benchmarks/search_speed.py

Fingerprints of CIFAR-10, test against train, all cores, medians of alternating rounds. First all
pairs from 0.90 on, of which 5,000 are planted with similarities of 0.85 to 0.95; then the best 20
references of every query over its nine views.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import numpy.typing as npt
from record import Bar, data_folder, write

from visleak.encoders import load_encoder
from visleak.formats import open_images
from visleak.pipeline.context import RunContext
from visleak.pipeline.fingerprints import fingerprint
from visleak.records import Float32, Int64
from visleak.search.exact import ExactSearch
from visleak.search.hits import Hits, Sides, Wanted

ROUNDS = 3
TAU = 0.90
PLANTED = 5_000
BEST = 20

#: Results may differ for similarities this close to the threshold, or to the last of the best.
TIE = 1e-6

#: Rounding error of faiss's float32 sums over 560 products.
ROUNDING = 3e-6


def fingerprints(path: Path) -> Float32:
    """Return the fingerprints of the images of a file."""
    with RunContext.at(None, os.cpu_count() or 1, None) as place:
        return np.array(fingerprint(open_images(path), load_encoder(), place).matrix)


def planted(query: Float32, reference: Float32) -> Float32:
    """Return queries of which some have a chosen similarity to one reference each."""
    rng = np.random.default_rng(0)
    count = min(PLANTED, len(query), len(reference))
    rows = rng.choice(len(query), count, replace=False)
    source = reference[rng.choice(len(reference), count, replace=False)].astype(np.float64)
    target = rng.uniform(0.85, 0.95, count)[:, None]
    noise = rng.normal(size=source.shape)
    noise -= (noise * source).sum(axis=1, keepdims=True) * source
    noise /= np.linalg.norm(noise, axis=1, keepdims=True)
    result = query.copy()
    result[rows] = target * source + np.sqrt(1 - target**2) * noise
    return result


def sides_of(query: Float32, reference: Float32, views: tuple[int, ...]) -> Sides:
    """Return plain sides, without penalty."""
    count = len(reference)
    make = load_encoder().view if len(views) > 1 else None
    zeros = np.zeros(count, np.float32)
    return Sides(query, reference, zeros, np.arange(count), views=views, make=make)


def turns(*functions: Callable[[], Any]) -> list[tuple[float, Any]]:
    """Return the median seconds and the last result of functions that are called alternately."""
    seconds: list[list[float]] = [[] for _ in functions]
    answers: list[Any] = [None for _ in functions]
    for _ in range(ROUNDS):
        for number, function in enumerate(functions):
            answers[number] = None
            begun = time.perf_counter()
            answers[number] = function()
            seconds[number].append(time.perf_counter() - begun)
    return [(statistics.median(s), a) for s, a in zip(seconds, answers, strict=True)]


def flat_index(reference: Float32) -> Any:
    """Return faiss's flat index."""
    index = faiss.IndexFlatIP(reference.shape[1])
    index.add(reference)
    return index


def by_threshold(query: Float32, reference: Float32) -> tuple[float, float, dict[str, int]]:
    """Return the seconds of faiss and visleak, and the number of different pairs without ties."""
    index, sides = flat_index(reference), sides_of(query, reference, (0,))
    wanted, cores = Wanted(TAU, best=0, cap=len(reference)), os.cpu_count() or 1
    (theirs_s, theirs), (ours_s, ours) = turns(
        lambda: index.range_search(query, TAU),
        lambda: ExactSearch().find(sides, wanted, workers=cores),
    )
    limits, _, found = theirs
    rows = np.repeat(np.arange(len(query)), np.diff(limits.astype(np.int64)))
    their_keys = rows * len(reference) + found
    our_keys = ours.query * len(reference) + ours.reference
    apart = np.setxor1d(their_keys, our_keys)
    left, right = np.divmod(apart, len(reference))
    exact = np.einsum(
        "ij,ij->i", query[left].astype(np.float64), reference[right].astype(np.float64)
    )
    wrong = int((np.abs(exact - TAU) >= TIE).sum())
    return theirs_s, ours_s, {"pairs": len(our_keys), "ties": len(apart) - wrong, "wrong": wrong}


def best_distinct(
    similarity: Float32, found: Int64, queries: int
) -> tuple[npt.NDArray[np.float32], Int64]:
    """Return the best distinct references over the views: (queries, BEST) of both."""
    similarity = similarity.reshape(-1, queries, BEST).transpose(1, 0, 2).reshape(queries, -1)
    found = found.reshape(-1, queries, BEST).transpose(1, 0, 2).reshape(queries, -1)
    order = np.argsort(-similarity, axis=1, kind="stable")
    similarity = np.take_along_axis(similarity, order, 1)
    found = np.take_along_axis(found, order, 1)
    by_reference = np.argsort(found, axis=1, kind="stable")
    ranked = np.take_along_axis(found, by_reference, 1)
    repeated = np.zeros(found.shape, np.bool_)
    np.put_along_axis(repeated[:, :], by_reference[:, 1:], ranked[:, 1:] == ranked[:, :-1], 1)
    kept = np.argsort(repeated, axis=1, kind="stable")[:, :BEST]
    return np.take_along_axis(similarity, kept, 1), np.take_along_axis(found, kept, 1)


def by_rank(query: Float32, reference: Float32) -> tuple[float, float, dict[str, int]]:
    """Return the seconds of both, and the number of different best references without ties."""
    encoder = load_encoder()
    views = tuple(range(encoder.views))
    index, sides = flat_index(reference), sides_of(query, reference, views)
    stacked = np.concatenate([encoder.view(query, view) for view in views])

    def flat() -> tuple[npt.NDArray[np.float32], Int64]:
        return best_distinct(*index.search(stacked, BEST), len(query))

    wanted, cores = Wanted(None, best=BEST), os.cpu_count() or 1
    (theirs_s, theirs), (ours_s, ours) = turns(
        flat, lambda: ExactSearch().find(sides, wanted, workers=cores)
    )
    return theirs_s, ours_s, compare_ranks(theirs, ours, sides)


def compare_ranks(
    theirs: tuple[npt.NDArray[np.float32], Int64], ours: Hits, sides: Sides
) -> dict[str, int]:
    """Return how many of the best differ, and how many of these are not ties.

    What only faiss ranks among the best is computed again in float64 over all views: it must not
    exceed the last of the best of visleak.
    """
    similarity, found = theirs
    own = ours.similarity.reshape(len(found), BEST)
    wrong = int((np.abs(own - similarity) >= ROUNDING).sum())
    keys = np.arange(len(found))[:, None] * len(sides.reference)
    missed = ~np.isin(keys + found, keys + ours.reference.reshape(found.shape))
    query, place = np.nonzero(missed)
    exact = np.full(len(query), -np.inf)
    for view in sides.views:
        seen = load_encoder().view(np.asarray(sides.query[query]), view).astype(np.float64)
        others = np.asarray(sides.reference[found[query, place]])
        np.maximum(exact, np.einsum("ij,ij->i", seen, others), out=exact)
    wrong += int((exact - own[query, -1] >= TIE).sum())
    return {"pairs": own.size, "ties": len(query), "wrong": wrong}


def main() -> None:
    """Measure, print and store."""
    data = data_folder("cifar10/test.parquet", "cifar10/train.parquet") / "cifar10"
    query, reference = (fingerprints(data / f"{name}.parquet") for name in ("test", "train"))
    print(f"{len(query):,} queries, {len(reference):,} references, {query.shape[1]} coordinates")
    theirs, ours, range_pairs = by_threshold(planted(query, reference), reference)
    print(f"from {TAU}: faiss {theirs:.2f} s, ours {ours:.2f} s, {range_pairs}", flush=True)
    their_best, our_best, best_pairs = by_rank(query, reference)
    print(
        f"best {BEST} of nine views: faiss {their_best:.2f} s, ours {our_best:.2f} s, {best_pairs}"
    )
    bars = [
        Bar(f"faiss range_search / ours at {TAU}", theirs / ours, 6, most=False),
        Bar("pairs by threshold that differ, ties apart", range_pairs["wrong"], 0),
        Bar("faiss flat top-20 of all views / ours", their_best / our_best, 2, most=False),
        Bar("best ones that differ, ties apart", best_pairs["wrong"], 0),
    ]
    figures = {
        "queries": len(query),
        "references": len(reference),
        "width": query.shape[1],
        "planted": min(PLANTED, len(query)),
        "rounds": ROUNDS,
        "range_faiss_s": round(theirs, 3),
        "range_ours_s": round(ours, 3),
        "range_pairs": range_pairs,
        "best_faiss_s": round(their_best, 2),
        "best_ours_s": round(our_best, 2),
        "best_pairs": best_pairs,
    }
    write(__file__, bars, figures)


if __name__ == "__main__":
    main()
