"""Tiles at known places of photographs, scans, steel plates and generated landscapes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
import numpy.typing as npt

Pixels = npt.NDArray[np.uint8]

#: Folder of each source in the data, and the size (width, height) of its tiles.
SOURCES: Mapping[str, tuple[str, tuple[int, int]]] = {
    "photographs": ("photos", (224, 224)),
    "X-rays": ("domains/xray", (320, 320)),
    "receipts": ("domains/receipts", (300, 480)),
    "steel": ("domains/steel", (120, 216)),
    "landscapes": ("", (256, 256)),
}
#: Halves of a source, by a hash of the names: one for choosing thresholds, one for reporting.
CHOSEN_ON, REPORTED = 0, 1
SHARES = (0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
#: Side of a generated landscape, pixels.
SIDE = 560


@dataclass(frozen=True)
class TilePair:
    """Two tiles of one image; ``share`` of the query is in the reference."""

    name: str
    query: Pixels
    reference: Pixels
    share: float
    place: tuple[float, float, float, float]  # the shared area, in the query's unit coordinates
    change: str


def half_of(name: str) -> int:
    """Return the half of a name."""
    return hashlib.blake2b(name.encode(), digest_size=1).digest()[0] & 1


def images_of(source: str, root: Path, half: int, most: int) -> Iterator[tuple[str, Pixels]]:
    """Yield names and images of one half of a source, in the order of a hash of their names."""
    folder, (width, height) = SOURCES[source]
    if not folder:
        for number in range(most):
            yield f"{half}-{number}", landscape(2 * number + half)
        return
    paths = [p for p in (root / folder).rglob("*") if p.suffix in (".jpg", ".png", ".jpeg")]
    names = {p.relative_to(root).as_posix(): p for p in paths}
    order = sorted(names, key=lambda n: hashlib.blake2b(n.encode(), digest_size=8).digest())
    found = 0
    for name in order:
        if found == most:
            return
        if half_of(name) != half:
            continue
        image = cv2.imread(str(names[name]), cv2.IMREAD_COLOR)
        if image is None or image.shape[1] < width or image.shape[0] < height:
            continue
        found += 1
        yield name, np.ascontiguousarray(image[..., ::-1])


def landscape(seed: int) -> Pixels:
    """Return a landscape as seen from above: fields, roads, houses and trees."""
    rng = np.random.default_rng([seed, 77])
    image = np.zeros((SIDE, SIDE, 3), np.uint8)
    grid = np.stack(np.meshgrid(np.arange(SIDE), np.arange(SIDE)), -1).astype(np.float32)
    seeds = rng.uniform(0, SIDE, (14, 2)).astype(np.float32)
    owner = np.linalg.norm(grid[:, :, None] - seeds, axis=3).argmin(axis=2)
    colours = rng.integers((60, 80, 30), (170, 160, 90), (14, 3))
    image[:] = colours[owner]
    for field in range(14):
        turn, step = rng.uniform(0, np.pi), rng.uniform(5, 11)
        wave = np.sin((grid @ np.array([np.cos(turn), np.sin(turn)])) * 2 * np.pi / step)
        part = owner == field
        image[part] = np.clip(image[part] + (6 * wave[part])[:, None], 0, 255)
    for _ in range(5):
        ends = rng.integers(0, SIDE, (2, 2))
        grey = tuple(int(v) for v in np.full(3, rng.integers(110, 190)))
        cv2.line(image, tuple(map(int, ends[0])), tuple(map(int, ends[1])), grey, 7, cv2.LINE_AA)
    for _ in range(60):
        box = ((float(rng.uniform(0, SIDE)), float(rng.uniform(0, SIDE))),
               tuple(map(float, rng.uniform(8, 22, 2))), float(rng.uniform(0, 90)))  # fmt: skip
        corners = cv2.boxPoints(box).astype(np.int32)
        cv2.fillPoly(image, [corners + 3], (45, 50, 40))
        cv2.fillPoly(image, [corners], tuple(int(v) for v in rng.integers(90, 220, 3)))
    for _ in range(160):
        centre, green = rng.integers(0, SIDE, 2), rng.integers((20, 50, 10), (70, 110, 50))
        cv2.circle(image, tuple(map(int, centre)), int(rng.integers(2, 6)), green.tolist(), -1)
    noise = cv2.GaussianBlur(rng.normal(0, 14, (SIDE, SIDE, 1)).astype(np.float32), (0, 0), 1.0)
    return np.clip(image + noise[..., None], 0, 255).astype(np.uint8)


def pairs_of(name: str, image: Pixels, size: tuple[int, int], shares: Sequence[float]
             ) -> Iterator[TilePair]:  # fmt: skip
    """Yield two tiles of an image for each share that its size allows."""
    height, width = image.shape[:2]
    w, h = size
    for share in shares:
        rng = np.random.default_rng([int(1000 * share), *name.encode()])
        offsets = [
            o for o in _offsets(share, w, h, rng) if o[0] + w <= width and o[1] + h <= height
        ]
        if not offsets:
            continue
        dx, dy = offsets[0]
        left, top = (int(rng.integers(0, room + 1)) for room in (width - w - dx, height - h - dy))
        flip = bool(rng.integers(2))
        x = (left + dx, left) if flip else (left, left + dx)
        y = (top, top + dy)
        query = image[y[0] : y[0] + h, x[0] : x[0] + w]
        reference = image[y[1] : y[1] + h, x[1] : x[1] + w]
        begin = (max(x[0], x[1]) - x[0]) / w, (max(y[0], y[1]) - y[0]) / h
        end = (min(x[0], x[1]) + w - x[0]) / w, (min(y[0], y[1]) + h - y[0]) / h
        exact = (end[0] - begin[0]) * (end[1] - begin[1])
        change = ("none", "jpeg", "scaled", "light")[int(rng.integers(4))]
        yield TilePair(name, changed(query, change, rng), np.ascontiguousarray(reference), exact,
                       (*begin, *end), change)  # fmt: skip


def _offsets(share: float, w: int, h: int, rng: np.random.Generator) -> list[tuple[int, int]]:
    """Return offsets of two tiles with about this overlap, in random directions."""
    along = np.sqrt(share)
    found = [
        (round(w * (1 - share)), 0), (0, round(h * (1 - share))),
        (round(w * (1 - along)), round(h * (1 - along))),
    ]  # fmt: skip
    return [found[int(i)] for i in rng.permutation(3)]


def changed(tile: Pixels, change: str, rng: np.random.Generator) -> Pixels:
    """Return a tile as it may be stored: compressed, at another size, or brighter."""
    if change == "jpeg":
        _, data = cv2.imencode(".jpg", tile[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, 75])
        return np.ascontiguousarray(cv2.imdecode(data, cv2.IMREAD_COLOR)[..., ::-1])
    if change == "scaled":
        ratio = float(rng.uniform(0.75, 1.3))
        size = (round(tile.shape[1] * ratio), round(tile.shape[0] * ratio))
        how = cv2.INTER_AREA if ratio < 1 else cv2.INTER_CUBIC
        return np.asarray(cv2.resize(tile, size, interpolation=how), np.uint8)
    if change == "light":
        gain, lift = float(rng.uniform(0.85, 1.15)), float(rng.uniform(-15, 15))
        return np.clip(tile * gain + lift, 0, 255).astype(np.uint8)
    return np.ascontiguousarray(tile)
