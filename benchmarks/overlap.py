"""How well overlaps are found and measured on tiles of known place, and at what cost.

Pairs of tiles are cut out of photographs, X-rays, receipts, steel plates and generated landscapes
at known offsets; one of each pair is compressed, resized or brightened, or stays as it is. All
tiles of the half of each source on which nothing was tuned are searched together. Two tiles of two
images do not overlap: none of these pairs may be called an overlap. Patterns that repeat must not
be claimed at a wrong place.

Recall is that of overlaps with texture: in the part that is shared, at least 10 squares of 16
pixels, and a tenth of all, have details that vary by 2.5 levels or more. That of all is reported
too. The cost of a million references follows from one block of an index, which is what the memory
holds.

Needs VISLEAK_DATA. About four minutes of one core. Writes ``overlap.json``.
"""

from __future__ import annotations

import resource
import sys
import time
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
from overlap_tiles import REPORTED, SHARES, SOURCES, Pixels, TilePair, images_of, pairs_of
from record import Bar, data_folder, write

from visleak.encoders.local import local_features, view_features
from visleak.pipeline.local_features import DEEP, INDEXED, SEEN
from visleak.search.votes import FeatureRows, LocalIndex
from visleak.verification.overlap import overlap_of
from visleak.verification.regions import share_of

#: Images of each source; every second share of each, so that there are five pairs of an image.
IMAGES = 20
#: Shares below this are reported and bound by no bar.
LEAST = 0.195
#: Squares with texture, and deviation of their details, levels.
SQUARE, SQUARES, PART, DEVIATION = 16, 10, 0.1, 2.5
#: Features of a reference, as of an image of 256 pixels, and references of which costs are given.
FEATURES, MANY = 250, 1_000_000
#: References of the block whose cost is measured.
BLOCK = 4_000


@dataclass(frozen=True)
class Result:
    """What was found of a pair."""

    source: str
    pair: TilePair
    textured: bool
    voted: bool  # local features proposed it
    share: float | None  # that was measured


def is_textured(pair: TilePair) -> bool:
    """Whether the part that is shared has texture, by its pixels alone."""
    height, width = pair.query.shape[:2]
    x0, y0, x1, y1 = pair.place
    part = pair.query[
        round(y0 * height) : round(y1 * height), round(x0 * width) : round(x1 * width)
    ]
    if min(part.shape[:2]) < SQUARE:
        return False
    grey = cv2.cvtColor(np.ascontiguousarray(part), cv2.COLOR_RGB2GRAY).astype(np.float32)
    details = grey - cv2.blur(grey, (9, 9))
    down, across = (side // SQUARE for side in details.shape)
    cut = details[: down * SQUARE, : across * SQUARE].reshape(down, SQUARE, across, SQUARE)
    lively = int((cut.std(axis=(1, 3)) >= DEVIATION).sum())
    return lively >= max(SQUARES, PART * down * across)


def features_of(tiles: list[Pixels]) -> tuple[FeatureRows, npt.NDArray[np.int32]]:
    """Return the features of tiles as an audit extracts them, and the width of each tile's."""
    found = [local_features(tile, smallest=32, bound=DEEP.layers[0][0]) for tile in tiles]
    deeper = [
        local_features(tile, smallest=32, bound=bound, most=most)
        if max(tile.shape[:2]) > DEEP.layers[0][0]
        else None
        for tile in tiles
        for bound, most in DEEP.layers[1:]
    ]
    descriptors, keypoints, counts = [], [], []
    for first, more in zip(found, deeper, strict=True):
        layers = [first] if more is None else [first, more]
        descriptors += [layer.descriptors for layer in layers]
        keypoints += [
            layer.keypoints * np.array([first.width / layer.width] * 3 + [1], np.float32)
            for layer in layers
        ]
        counts.append(sum(map(len, layers)))
    starts = np.cumsum([0, *counts], dtype=np.int64)
    rows = FeatureRows(np.concatenate(descriptors), np.concatenate(keypoints), starts)
    return rows, np.array([each.width for each in found], np.int32)


def searched(pairs: list[TilePair]) -> tuple[set[tuple[int, int]], dict[str, float]]:
    """Return the pairs of query and reference tiles that local features propose, and times."""
    begun = time.process_time()
    references, _ = features_of([pair.reference for pair in pairs])
    queries, widths = features_of([pair.query for pair in pairs])
    extracted = time.process_time()
    counts = np.diff(queries.starts)
    views = {}
    for view in SEEN:
        rows = view_features(
            queries.descriptors, queries.keypoints, np.repeat(widths, counts), view
        )
        views[view] = FeatureRows(*rows, queries.starts)
    votes = LocalIndex(references).search(views, best=DEEP.best)
    done = time.process_time()
    times = {
        "extract_ms_per_tile": round(500 * (extracted - begun) / len(pairs), 2),
        "search_ms_per_query": round(1000 * (done - extracted) / len(pairs), 2),
    }
    found = zip(votes.query.tolist(), votes.reference.tolist(), strict=True)
    return set(found), times


def measured(
    sources: list[str], pairs: list[TilePair], found: set[tuple[int, int]]
) -> tuple[list[Result], list[tuple[str, str]], dict[str, float]]:
    """Return what is measured of all pairs, and which tiles of two images are called overlaps."""
    results, wrong, measured_pairs = [], [], 0
    begun = time.process_time()
    for at, (source, pair) in enumerate(zip(sources, pairs, strict=True)):
        voted = (at, at) in found
        matrix = overlap_of(pair.query, pair.reference) if voted else None
        measured_pairs += voted
        share = None if matrix is None else share_of(matrix)
        results.append(Result(source, pair, is_textured(pair), voted, share))
    for query, reference in sorted(found):
        if pairs[query].name != pairs[reference].name:
            measured_pairs += 1
            if overlap_of(pairs[query].query, pairs[reference].reference) is not None:
                wrong.append((pairs[query].name, pairs[reference].name))
    cost = 1000 * (time.process_time() - begun) / max(1, measured_pairs)
    return results, wrong, {"measure_ms_per_candidate": round(cost, 1)}


def patterns() -> tuple[int, int, int]:
    """Return how many displaced patterns there are, and how many are claimed, and wrongly."""
    count = claimed = wrong = 0
    rng = np.random.default_rng(5)
    down, across = np.mgrid[:300, :300].astype(np.float64)
    for period in (9, 14, 22, 31):
        for turn in (0.0, 0.4, np.pi / 4):
            u = across * np.cos(turn) + down * np.sin(turn)
            v = down * np.cos(turn) - across * np.sin(turn)
            waves = np.sin(2 * np.pi * u / period), np.sin(2 * np.pi * v / period)
            for plane in (waves[0], waves[0] * waves[1], np.sign(waves[0] * waves[1])):
                field = 128 + 60 * plane
                tiles = []
                for x in (0, 100):
                    # the sensor's noise is another one in each shot
                    noisy = field[:200, x : x + 200] + rng.normal(0, 4, (200, 200))
                    tile = np.clip(noisy, 0, 255).astype(np.uint8)
                    tiles.append(np.repeat(tile[..., None], 3, axis=2))
                matrix = overlap_of(tiles[0], tiles[1])
                count += 1
                claimed += matrix is not None
                wrong += matrix is not None and abs(share_of(matrix) - 0.5) > 0.02
    return count, claimed, wrong


def of_source(results: list[Result]) -> dict[str, Any]:
    """Return the figures of a source, or of all."""
    counted = [each for each in results if each.pair.share >= LEAST]
    textured = [each for each in counted if each.textured]
    errors = [abs(e.share - e.pair.share) for e in results if e.share is not None]
    by_share = {}
    for share in SHARES:
        own = [each for each in results if abs(each.pair.share - share) < 0.02]
        if own:
            by_share[f"{share:g}"] = {
                "pairs": len(own),
                "textured": sum(each.textured for each in own),
                "found": sum(each.share is not None for each in own),
                "found_textured": sum(each.share is not None and each.textured for each in own),
            }
    return {
        "pairs": len(results),
        "from_20_percent": len(counted),
        "textured": len(textured),
        "proposed_textured": round(_share([each.voted for each in textured]), 4),
        "recall_textured": round(_share([e.share is not None for e in textured]), 4),
        "recall_all": round(_share([e.share is not None for e in counted]), 4),
        "error_median": round(float(np.median(errors)), 5),
        "error_p95": round(float(np.percentile(errors, 95)), 5),
        "error_largest": round(float(np.max(errors)), 5),
        "by_share": by_share,
    }


def _share(values: list[bool]) -> float:
    return sum(values) / max(1, len(values))


def million(references: FeatureRows) -> dict[str, float]:
    """Return memory and cost of a block of an index, and what follows for a million references."""
    rng = np.random.default_rng(1)
    wanted = BLOCK * FEATURES
    rows = rng.integers(0, len(references.descriptors), wanted)
    drawn = references.descriptors[rows].astype(np.int16)
    drawn += rng.integers(-28, 29, drawn.shape, dtype=np.int16) * (drawn > 0)
    starts = np.arange(0, wanted + 1, FEATURES, dtype=np.int64)
    block = FeatureRows(np.clip(drawn, 0, 255).astype(np.uint8), references.keypoints[rows], starts)
    del drawn
    begun = time.process_time()
    index = LocalIndex(block)
    built = time.process_time() - begun
    queries = 40
    part = FeatureRows(
        references.descriptors[: references.starts[queries]],
        references.keypoints[: references.starts[queries]],
        references.starts[: queries + 1],
    )
    begun = time.process_time()
    index.search({0: part}, best=DEEP.searched)
    search = (time.process_time() - begun) / queries
    fixed = 50_000_000
    per_feature = (index.nbytes - fixed) / wanted
    return {
        "block_references": BLOCK,
        "index_bytes_per_feature": round(per_feature, 1),
        "build_ms_per_reference": round(1000 * built / BLOCK, 3),
        "search_ms_per_query_view_and_block": round(1000 * search, 2),
        # an index of INDEXED features, the descriptors it is made of, and a part of the queries
        "memory_gib_extrapolated": round(
            (INDEXED * (per_feature + 144) + fixed + 3 * 1_000_000 * 144) / 2**30, 2
        ),
        "disk_gb_of_a_million_extrapolated": round(MANY * FEATURES * 144 / 1e9, 1),
        "blocks_of_a_million": round(MANY * FEATURES / INDEXED, 1),
    }


def main() -> None:
    """Measure all sources, print their figures and store them."""
    root = data_folder("photos", "domains/xray", "domains/receipts", "domains/steel")
    cv2.setNumThreads(1)
    begun = time.process_time()
    images = int(sys.argv[1]) if len(sys.argv) > 1 else IMAGES
    sources: list[str] = []
    pairs: list[TilePair] = []
    for source, (_, size) in SOURCES.items():
        for number, (name, image) in enumerate(images_of(source, root, REPORTED, images)):
            own = list(pairs_of(name, image, size, SHARES[number % 2 :: 2]))
            pairs += own
            sources += [source] * len(own)
    print(f"{len(pairs):,} pairs of tiles", flush=True)
    found, times = searched(pairs)
    print(f"searched: {len(found):,} candidates, {times}", flush=True)
    results, wrong, cost = measured(sources, pairs, found)
    names = [pair.name for pair in pairs]
    same = sum(names.count(name) for name in names)
    apart = len(pairs) ** 2 - same
    count, claimed, misplaced = patterns()
    figures = {source: of_source([r for r in results if r.source == source]) for source in SOURCES}
    every = of_source(results)
    large = million(features_of([pair.reference for pair in pairs[:200]])[0])
    per_reference = times["extract_ms_per_tile"] + large["build_ms_per_reference"]
    large["cpu_hours_of_a_million_extrapolated"] = round(per_reference * MANY / 3.6e6, 1)
    large["search_s_per_query_of_a_million_extrapolated"] = round(
        3 * large["search_ms_per_query_view_and_block"] / 1000 * MANY / BLOCK, 1
    )
    bars = [
        *(
            Bar(f"recall of overlaps with texture from 20 %, {name}", own["recall_textured"], 0.95,
                most=False)
            for name, own in figures.items()
        ),
        Bar("error of the share, median", every["error_median"], 0.02),
        Bar("error of the share, 95th percentile", every["error_p95"], 0.05),
        Bar("pairs that do not overlap", apart, 100_000, most=False),
        Bar("of these called overlaps", len(wrong), 0),
        Bar("repeating patterns claimed at a wrong place", misplaced, 0),
        Bar("memory for a million references, GiB", large["memory_gib_extrapolated"], 4.0),
    ]  # fmt: skip
    write(
        __file__,
        bars,
        {
            "half": "of each source by a hash of the names; thresholds were chosen on the other",
            "all": every,
            "sources": figures,
            "not_overlapping": {"pairs": apart, "called_overlaps": wrong},
            "patterns": {"pairs": count, "claimed": claimed, "misplaced": misplaced},
            "cost": times | cost,
            "a_million_references": large,
            "peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3),
            "cpu_seconds": round(time.process_time() - begun, 1),
        },
    )


if __name__ == "__main__":
    main()
