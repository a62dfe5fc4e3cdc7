"""The section on overlaps: which test images are seen, and the scenes that overlaps connect."""

from __future__ import annotations

import base64
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import cv2
import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from visleak.quantities import counted
from visleak.rates import percent
from visleak.records import Bytes8, ends_of
from visleak.reporting import Document
from visleak.reporting.document import Fact, Figure, Show, Table
from visleak.reporting.gallery import ImageLoader, decoded
from visleak.storage import IMAGES, PAIRS, AuditSummary, read_table

Matrix = npt.NDArray[np.floating]
Key = tuple[str, str]  # set and id of an image
#: Scenes that are drawn, and images of each at most.
DRAWN: Final = 4
MEMBERS: Final = 150
#: Long side of a drawing, and bytes of the pixels in it.
SIDE: Final = 900
QUALITY: Final = 80
#: A scene whose images would be enlarged or reduced by more than this is not drawn whole.
ZOOM: Final = 8.0
#: Colours of test and of other images, and grey level of what none shows.
COLOURS: Final = ("#d1495b", "#3a6ea5")
NOTHING: Final = 232
#: Height of the figures, and the least side of an image that has one, pixels.
FIGURES: Final = 17
LABELLED: Final = 80

_READING: Final = (
    "Seen is the share of a test image that at least one image of the other sets shows, all of"
    " them together.",
    "Images of little texture and of a periodic pattern are not claimed to overlap, because"
    " several displacements fit.",
    "A scene is a set of images that overlaps connect. In the drawings, test images have red"
    " outlines and the share that is seen, all others blue outlines; what only test images show is"
    " paler.",
)


def facts(content: AuditSummary) -> Iterator[Fact]:
    """Yield the lines of the summary of an audit on overlaps."""
    for each in content.comparisons:
        found = each.overlap
        if found is None or not found.pairs:
            continue
        where = f"in {each.reference_set}" if each.coverage != "within" else "of each other"
        text = (
            f"{found.queries:,} of {counted(each.queries, f'{each.query_set} image')} show parts of"
            f" images {where} ({counted(found.pairs, 'pair')})"
        )
        yield Fact("overlap", text, "caution" if each.coverage != "within" else "")
    for box in content.boxes or ():
        yield Fact(
            "boxes",
            f"{box.seen:,} of {counted(box.total, 'annotated box')} of {box.query_set} lie in what"
            f" {box.reference_set} shows: annotated there as the same class {box.same:,}, as"
            f" another {box.different:,}, not at all {box.unmatched:,}",
        )
    if (scenes := content.scenes) is not None and scenes.scenes:
        yield Fact(
            "scenes",
            f"overlaps connect {counted(scenes.images, 'image')} into"
            f" {counted(scenes.scenes, 'scene')}, {scenes.shared:,} of them on both sides; the"
            f" largest has {scenes.largest[0]:,} images",
        )


def document(folder: Path, content: AuditSummary, loader: ImageLoader | None) -> Document | None:
    """Return the section of a page, ``None`` where overlaps were not measured."""
    least = content.settings.overlap
    if least is None:
        return None
    statements = [
        f"{total.query_set}: {rate.count:,} of {rate.total:,} images ({percent(rate.share)} %) are"
        f" seen to at least {100 * least:g} %"
        for total in content.totals
        if (rate := total.rates.get("overlap")) is not None
    ]
    return Document(
        "Overlap",
        "; ".join(statements) or "no set has images that could be compared",
        tables=(_seen(folder, content),),
        figures=tuple(_figures(folder, content, loader)),
        facts=tuple(facts(content)),
        reading=_READING,
    )


def _seen(folder: Path, content: AuditSummary) -> Table:
    """Return the test images that are seen, those of which most is first."""
    tested = pc.field("set").isin([total.query_set for total in content.totals])
    names = ["set", "id", "seen", "scene"]
    images = read_table(folder, IMAGES, names, (pc.field("seen") > 0) & tested)
    images = images.sort_by([("seen", "descending"), ("id", "ascending")])
    rows = list(zip(*(images[name].to_pylist() for name in names), strict=True))
    title, headings = "Test images by the share that is seen", ("set", "image", "seen, %", "scene")
    show: Show = {"seen, %": percent, "scene": str}
    return Table.of(title, headings, rows, 2, show=show, file="images.parquet", limit=50)


# -- drawings --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Scene:
    """The images that overlaps connect, and where each lies."""

    number: int
    members: tuple[Key, ...]
    # of each member: its unit square to pixels of the drawing
    places: tuple[Matrix, ...]
    seen: tuple[float | None, ...]  # share of each test image
    size: tuple[int, int]  # of the drawing, pixels


def _figures(folder: Path, content: AuditSummary, loader: ImageLoader | None) -> Iterator[Figure]:
    tested = {total.query_set for total in content.totals}
    for scene in _scenes(folder, tested):
        tests = sum(name in tested for name, _ in scene.members)
        others = len(scene.members) - tests
        title = f"Scene {scene.number}: {counted(tests, 'test image')} among {others:,} others"
        yield Figure(
            f"scene-{scene.number}", title, {"svg": _drawing(scene, tested, loader).encode()}
        )


def _scenes(folder: Path, tested: set[str]) -> Iterator[Scene]:
    """Yield the largest scenes with images of both sides, or of one if there are no others."""
    names = ["set", "id", "width", "height", "scene", "seen"]
    rows = read_table(folder, IMAGES, names, pc.field("scene").is_valid()).to_pylist()
    images = {(row["set"], row["id"]): row for row in rows}
    members: dict[int, list[Key]] = {}
    for key, row in images.items():
        members.setdefault(row["scene"], []).append(key)
    edges = _edges(folder)
    both = {n for n, own in members.items() if len({name in tested for name, _ in own}) > 1}
    order = sorted(both or members, key=lambda number: (-len(members[number]), number))
    for number in order[:DRAWN]:
        yield _laid_out(number, sorted(members[number])[:MEMBERS], images, edges)


def _edges(folder: Path) -> dict[Key, list[tuple[float, Key, Matrix]]]:
    """Return the overlaps of each image: share, the other image, and the relation to it."""
    columns = ["query_set", "query", "reference_set", "reference", "overlap", "overlap_matrix"]
    found: dict[Key, list[tuple[float, Key, Matrix]]] = {}
    for row in read_table(folder, PAIRS, columns, pc.field("overlap").is_valid()).to_pylist():
        query, reference = ends_of(row)
        matrix = np.array(row["overlap_matrix"], np.float64).reshape(3, 3)
        found.setdefault(query, []).append((row["overlap"], reference, matrix))
        found.setdefault(reference, []).append((row["overlap"], query, np.linalg.inv(matrix)))
    return found


def _laid_out(
    number: int,
    members: Sequence[Key],
    images: Mapping[Key, Mapping[str, Any]],
    edges: Mapping[Key, Sequence[tuple[float, Key, Matrix]]],
) -> Scene:
    """Lay out a scene around the image with the most overlaps, by the largest ones first."""
    kept = set(members)
    root = max(members, key=lambda key: (len(edges[key]), key))
    width, height = images[root]["width"], images[root]["height"]
    places = {root: np.diag([float(width), float(height), 1.0])}
    waiting = deque([root])
    while waiting:
        here = waiting.popleft()
        for _, other, matrix in sorted(edges[here], key=lambda each: (-each[0], each[1])):
            if other in kept and other not in places:
                place = places[here] @ np.linalg.inv(matrix)
                zoom = float(np.sqrt(abs(np.linalg.det(place)) / (width * height)))
                if 1 / ZOOM < zoom < ZOOM:
                    places[other] = place
                    waiting.append(other)
    corners = np.concatenate([_corners(place) for place in places.values()])
    low, high = corners.min(axis=0), corners.max(axis=0)
    scale = SIDE / float((high - low).max())
    move = np.array([[scale, 0, -scale * low[0]], [0, scale, -scale * low[1]], [0, 0, 1]])
    across, down = np.ceil(scale * (high - low)).astype(int).tolist()
    shown = tuple(key for key in members if key in places)
    moved = tuple(move @ places[key] for key in shown)
    seen = tuple(images[key]["seen"] for key in shown)
    return Scene(number, shown, moved, seen, (across, down))


def _corners(place: Matrix) -> npt.NDArray[np.float64]:
    unit = np.array([[0.0, 1, 1, 0], [0, 0, 1, 1], [1, 1, 1, 1]])
    return np.asarray((place @ unit)[:2].T)


def _drawing(scene: Scene, tested: set[str], loader: ImageLoader | None) -> str:
    """Return a scene as SVG: the pixels of its images, and their outlines."""
    width, height = scene.size
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="-3 -3 {width + 6} {height + 6}"'
        f' width="{width + 6}" height="{height + 6}">'
    ]
    if loader is not None:
        data = base64.b64encode(_mosaic(scene, tested, loader)).decode()
        parts.append(
            f'<image width="{width}" height="{height}" href="data:image/jpeg;base64,{data}"/>'
        )
    # outlines of test images last, above the others
    for test in (False, True):
        style = f'fill="none" stroke="{COLOURS[not test]}" stroke-width="{3 if test else 2}"'
        if not test:
            style += ' stroke-dasharray="6 4"'
        for (name, _), place in zip(scene.members, scene.places, strict=True):
            if (name in tested) == test:
                points = " ".join(f"{x:.1f},{y:.1f}" for x, y in _corners(place))
                parts.append(f'<polygon points="{points}" {style}/>')
    return "".join([*parts, *_labels(scene), "</svg>"])


def _labels(scene: Scene) -> Iterator[str]:
    """Yield the share that is seen of each test image, in its middle."""
    style = (
        f'font-family="sans-serif" font-size="{FIGURES}" font-weight="bold" text-anchor="middle"'
        f' fill="{COLOURS[0]}" stroke="#fff" stroke-width="4" paint-order="stroke"'
    )
    for place, seen in zip(scene.places, scene.seen, strict=True):
        corners = _corners(place)
        if seen is not None and np.ptp(corners, axis=0).min() >= LABELLED:
            x, y = corners.mean(axis=0)
            yield f'<text x="{x:.1f}" y="{y + FIGURES / 3:.1f}" {style}>{percent(seen)} %</text>'


def _mosaic(scene: Scene, tested: set[str], loader: ImageLoader) -> bytes:
    """Return the pixels of a scene as JPEG: what only a test image shows is paler."""
    width, height = scene.size
    canvas = np.full((height, width, 3), NOTHING, np.uint8)
    covered = np.zeros((height, width), np.bool_)
    pixels = decoded((), loader, scene.members)
    for test in (False, True):
        for key, place in zip(scene.members, scene.places, strict=True):
            if (key[0] in tested) != test or key not in pixels:
                continue
            moved, inside = _placed(pixels[key], place, scene.size)
            new = inside & ~covered
            canvas[new] = moved[new] // 2 + 127 if test else moved[new]
            covered |= inside
    _, data = cv2.imencode(".jpg", canvas[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, QUALITY])
    return data.tobytes()


def _placed(
    pixels: Bytes8, place: Matrix, size: tuple[int, int]
) -> tuple[Bytes8, npt.NDArray[np.bool_]]:
    """Return an image in its place of a drawing, and where it lies there."""
    height, width = pixels.shape[:2]
    matrix = (place @ np.diag([1 / width, 1 / height, 1]))[:2]
    moved = cv2.warpAffine(pixels, matrix, size, flags=cv2.INTER_AREA)
    inside = cv2.warpAffine(np.full((height, width), 255, np.uint8), matrix, size)
    return np.asarray(moved, np.uint8), np.asarray(inside > 127)
