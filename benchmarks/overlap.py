"""Detection and measurement of overlaps on tiles at known places, and their cost.

Pairs of tiles are cut out of photographs, X-rays, receipts, steel plates and generated landscapes
at known offsets; one of each pair is compressed, resized, brightened or unchanged. All tiles of the
half of each source that was not used for tuning are searched together. Two tiles of two images do
not overlap, and none of these pairs may be called an overlap. Repetitive patterns, strong or faint,
compressed or not, must not be placed wrongly.

Recall is that of overlaps with texture: in the shared part, at least 10 squares of 16 pixels, and a
tenth of all, have details that vary by 2.5 levels or more. That of all overlaps is reported too.

The cost of a million references is extrapolated from 20,000, whose features are those of the tiles
with noise: two and a half blocks of an index, which replace each other in memory.

Needs VISLEAK_DATA. About ten minutes of one core. Writes ``overlap.json`` after every step;
``finished`` in it is false until the last one.
"""

from __future__ import annotations

import multiprocessing
import resource
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
from overlap_tiles import REPORTED, SHARES, SOURCES, Pixels, TilePair, changed, images_of, pairs_of
from record import Bar, data_folder, write

from visleak.pipeline.local_features import DEEP, INDEXED, Patches, candidates, layered, voted
from visleak.pipeline.overlaps import BLOCK
from visleak.search.votes import FeatureRows
from visleak.verification.overlap import overlap_of
from visleak.verification.regions import share_of

#: Images of each source; every second share is used, for five pairs per image. Half of the steel
#: plates have no texture.
IMAGES = {"photographs": 13, "X-rays": 13, "receipts": 13, "steel": 24, "landscapes": 10}
#: Shares below this are reported without a limit.
LEAST = 0.195
#: Squares with texture, and deviation of their details, levels.
SQUARE, SQUARES, PART, DEVIATION = 16, 10, 0.1, 2.5
#: Features per reference, as for a tile of 256 pixels; references that are compared, of which the
#: first part is also measured separately; queries; and references of the extrapolated cost.
FEATURES, COMPARED, FIRST, QUERIES, MANY = 500, 20_000, 12_000, 40, 1_000_000
#: Amplitudes of the repetitive patterns, levels: strong, faint, and below their noise of 4 levels.
CONTRASTS = (60.0, 6.0, 1.5)
#: Candidates per line of progress.
STEP = 1_000


@dataclass(frozen=True)
class Result:
    """Result of a pair."""

    source: str
    pair: TilePair
    textured: bool
    voted: bool  # local features proposed it
    share: float | None  # measured


def is_textured(pair: TilePair) -> bool:
    """Whether the shared part has texture, by its pixels."""
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


def patches_of(tiles: list[Pixels]) -> Patches:
    """Return the features of tiles as an audit extracts them."""
    found = [layered(tile, DEEP) for tile in tiles]
    starts = np.cumsum([0, *(len(words) for _, words, _ in found)], dtype=np.int64)
    rows = FeatureRows(
        np.concatenate([words for _, words, _ in found]),
        np.concatenate([points for _, _, points in found]),
        starts,
    )
    return Patches(np.arange(len(tiles)), rows, np.array([w for w, _, _ in found], np.int32))


def searched(
    queries: Patches, references: Patches
) -> tuple[set[tuple[int, int]], dict[str, float]]:
    """Return the pairs of query and reference tiles that local features propose, and times."""
    begun = time.process_time()
    order = np.arange(len(references.rows))
    votes = candidates(voted((queries, references), order, order, 1, DEEP), order, DEEP)
    found = set(zip(votes.query.tolist(), votes.reference.tolist(), strict=True))
    cost = (time.process_time() - begun) / len(queries.rows)
    return found, {
        "candidates_per_query": round(len(found) / len(queries.rows), 1),
        "search_ms_per_query": round(1000 * cost, 2),
    }


def of_pairs(sources: list[str], pairs: list[TilePair], found: set[tuple[int, int]]
             ) -> list[Result]:  # fmt: skip
    """Return the results of the pairs of tiles of one image."""
    results = []
    for at, (source, pair) in enumerate(zip(sources, pairs, strict=True)):
        matrix = overlap_of(pair.query, pair.reference) if (at, at) in found else None
        share = None if matrix is None else share_of(matrix)
        results.append(Result(source, pair, is_textured(pair), (at, at) in found, share))
    return results


def of_others(
    pairs: list[TilePair], found: set[tuple[int, int]], store: Callable[[dict[str, Any]], None]
) -> None:
    """Measure the candidates of two images, and store those that are called overlaps."""
    others = [(q, r) for q, r in found if pairs[q].name != pairs[r].name]
    # as an audit does, so that features are cached
    others.sort(key=lambda each: (each[0] // BLOCK, each[1] // BLOCK, each))
    names = [pair.name for pair in pairs]
    apart = len(pairs) ** 2 - sum(names.count(name) for name in names)
    wrong: list[tuple[str, str]] = []
    begun = time.process_time()
    for done, (query, reference) in enumerate(others, 1):
        if overlap_of(pairs[query].query, pairs[reference].reference) is not None:
            wrong.append((names[query], names[reference]))
        if done % STEP == 0 or done == len(others):
            cost = 1000 * (time.process_time() - begun) / done
            print(f"{done:,} of {len(others):,} candidates, {len(wrong)} wrong", flush=True)
            store(
                {
                    "pairs": apart,
                    "candidates": len(others),
                    "measured": done,
                    "called_overlaps": wrong,
                    "measure_ms_per_candidate": round(cost, 1),
                }
            )


def patterns() -> tuple[int, int, int]:
    """Return the number of displaced patterns, of placed ones, and of wrongly placed ones."""
    count = claimed = wrong = 0
    rng = np.random.default_rng(5)
    for contrast, change, plane in product(CONTRASTS, ("none", "jpeg"), _planes()):
        field = 128 + contrast * plane
        tiles = []
        for x in (0, 100):
            # sensor noise differs between shots
            noisy = field[:200, x : x + 200] + rng.normal(0, 4, (200, 200))
            tile = np.repeat(np.clip(noisy, 0, 255).astype(np.uint8)[..., None], 3, axis=2)
            tiles.append(changed(tile, change, rng))
        matrix = overlap_of(tiles[0], tiles[1])
        count += 1
        claimed += matrix is not None
        wrong += matrix is not None and abs(share_of(matrix) - 0.5) > 0.02
    return count, claimed, wrong


def _planes() -> Iterator[npt.NDArray[np.float64]]:
    """Yield stripes, waves and boards of several periods, turned, -1..1."""
    down, across = np.mgrid[:300, :300].astype(np.float64)
    for period, turn in product((9, 14, 22, 31), (0.0, 0.4, np.pi / 4)):
        u = across * np.cos(turn) + down * np.sin(turn)
        v = down * np.cos(turn) - across * np.sin(turn)
        waves = np.sin(2 * np.pi * u / period), np.sin(2 * np.pi * v / period)
        yield from (waves[0], waves[0] * waves[1], np.sign(waves[0] * waves[1]))


def of_source(results: list[Result]) -> dict[str, Any]:
    """Return the results of a source, or of all."""
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


def million(features: FeatureRows) -> dict[str, float]:
    """Return memory and cost of comparing with many references, made of given features.

    Runs in a separate process, to measure its memory.
    """
    with tempfile.TemporaryDirectory() as folder:
        every = np.arange(COMPARED)
        stored = _stored(features, Path(folder))
        references = Patches(every, stored, np.full(COMPARED, 256, np.int32))
        queries = references.taken(every[:: COMPARED // QUERIES])
        seconds, peaks = [], [_peak()]
        for asked, most in ((1, FIRST), (1, COMPARED), (QUERIES, COMPARED)):
            begun = time.process_time()
            voted((queries.taken(every[:asked]), references), every[:most], every, 1, DEEP)
            seconds.append(time.process_time() - begun)
            peaks.append(_peak())
    return {
        "references": COMPARED,
        "features_of_each": FEATURES,
        "features_of_a_block": INDEXED,
        "index_ms_per_reference": round(1000 * seconds[1] / COMPARED, 3),
        "search_s_per_query": round((seconds[2] - seconds[1]) / (QUERIES - 1), 3),
        "peak_gib_before": round(peaks[0], 2),
        "peak_gib_of_12000": round(peaks[1], 2),
        "peak_gib_of_20000": round(peaks[2], 2),
        "peak_gib_of_20000_and_40_queries": round(peaks[3], 2),
    }


def _stored(features: FeatureRows, folder: Path) -> FeatureRows:
    """Return features on disk, as in an audit: some of the given ones, with noise."""
    rng = np.random.default_rng(1)
    count, step = COMPARED * FEATURES, 1000 * FEATURES
    with (folder / "words").open("wb") as words, (folder / "points").open("wb") as points:
        for _ in range(0, count, step):
            rows = rng.integers(0, len(features.descriptors), step)
            drawn = features.descriptors[rows].astype(np.int16)
            drawn += rng.integers(-28, 29, drawn.shape, dtype=np.int16) * (drawn > 0)
            np.clip(drawn, 0, 255).astype(np.uint8).tofile(words)
            features.keypoints[rows].tofile(points)
    return FeatureRows(
        np.memmap(folder / "words", np.uint8, "r", shape=(count, 128)),
        np.memmap(folder / "points", np.float32, "r", shape=(count, 4)),
        np.arange(0, count + 1, FEATURES, dtype=np.int64),
    )


def _peak() -> float:
    """Return the peak memory of this process, GiB, including pages of files."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def extrapolated(large: dict[str, float], extract_ms: float) -> dict[str, float]:
    """Return the extrapolated cost of a million references."""
    times = MANY / COMPARED
    per_reference = extract_ms + large["index_ms_per_reference"]
    return {
        # rows, widths and starts of all references are in memory
        "memory_gib": round(large["peak_gib_of_20000_and_40_queries"] + MANY * 20 / 2**30, 2),
        "disk_gb": round(MANY * FEATURES * 144 / 1e9, 1),
        "blocks": round(MANY * FEATURES / INDEXED, 1),
        "cpu_hours_to_extract_and_index": round(per_reference * MANY / 3.6e6, 1),
        "search_s_per_query": round(large["search_s_per_query"] * times, 1),
    }


def bars_of(figures: dict[str, Any]) -> list[Bar]:
    """Return the results with limits."""
    bars = [
        Bar(f"recall of overlaps with texture from 20 %, {name}", own["recall_textured"], 0.95,
            most=False)
        for name, own in figures["sources"].items()
    ]  # fmt: skip
    every = figures["all"]
    bars.append(Bar("error of the share, median", every["error_median"], 0.02))
    bars.append(Bar("error of the share, 95th percentile", every["error_p95"], 0.05))
    if "not_overlapping" in figures:
        apart = figures["not_overlapping"]
        bars.append(Bar("pairs that do not overlap", apart["pairs"], 100_000, most=False))
        bars.append(Bar("of these called overlaps", len(apart["called_overlaps"]), 0))
    if "patterns" in figures:
        wrong = figures["patterns"]["misplaced"]
        bars.append(Bar("repeating patterns claimed at a wrong place", wrong, 0))
    if "of_a_million" in figures:
        memory = figures["of_a_million"]["memory_gib"]
        bars.append(Bar("memory for a million references, GiB", memory, 4.0))
    return bars


def tiles_of(root: Path) -> tuple[list[str], list[TilePair]]:
    """Return the source of each pair of tiles, and the pairs."""
    sources: list[str] = []
    pairs: list[TilePair] = []
    for source, (_, size) in SOURCES.items():
        for number, (name, image) in enumerate(images_of(source, root, REPORTED, IMAGES[source])):
            own = list(pairs_of(name, image, size, SHARES[number % 2 :: 2]))
            pairs += own
            sources += [source] * len(own)
    return sources, pairs


def main() -> None:
    """Measure all sources, print the results and store them after every step."""
    root = data_folder("photos", "domains/xray", "domains/receipts", "domains/steel")
    cv2.setNumThreads(1)
    begun = time.process_time()
    figures: dict[str, Any] = {
        "finished": False,
        "half": "of each source by a hash of the names; thresholds were chosen on the other",
    }

    def store(**more: Any) -> None:
        figures.update(more)
        figures["cpu_seconds"] = round(time.process_time() - begun, 1)
        write(__file__, bars_of(figures), figures)

    sources, pairs = tiles_of(root)
    print(f"{len(pairs):,} pairs of tiles", flush=True)
    started = time.process_time()
    references, queries = (
        patches_of([getattr(pair, side) for pair in pairs]) for side in ("reference", "query")
    )
    extract = 500 * (time.process_time() - started) / len(pairs)
    found, cost = searched(queries, references)
    results = of_pairs(sources, pairs, found)
    own = {source: of_source([r for r in results if r.source == source]) for source in SOURCES}
    cost["extract_ms_per_tile"] = round(extract, 2)
    cost["features_per_tile"] = round(len(references.features.descriptors) / len(pairs), 1)
    store(all=of_source(results), sources=own, cost=cost)
    of_others(pairs, found, lambda apart: store(not_overlapping=apart))
    count, claimed, misplaced = patterns()
    store(patterns={"pairs": count, "claimed": claimed, "misplaced": misplaced})
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        large = pool.apply(million, (references.taken(np.arange(min(200, len(pairs)))).features,))
    store(many_references=large, of_a_million=extrapolated(large, extract), finished=True)


if __name__ == "__main__":
    main()
