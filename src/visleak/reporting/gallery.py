"""Two images and how one lies on the other, as a card a person can judge at a glance.

A card is made of thumbnails: the query, the reference, and what is left between them once the
query is laid over the reference and its brightness and contrast are fitted. Everything here
works on arrays; no image is opened.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final, Literal

import cv2
import numpy as np
import numpy.typing as npt
from markupsafe import Markup
from PIL import Image

from visleak.records import GRADES, VIEWS, Bytes8, PairRow, ends_of
from visleak.templates import visible
from visleak.verification.fine_comparison import PLACES_SIDE, compare
from visleak.verification.frame import Placement, bounded

Float64 = npt.NDArray[np.float64]
Matrix = Sequence[float] | npt.NDArray[np.floating] | None

#: Returns decoded RGB images of a set by id, for those that could be read.
ImageLoader = Callable[[str, list[str]], dict[str, Bytes8]]

#: Long side of a thumbnail in pixels.
SIDE: Final = 160
#: An image whose long side is below this is shown by whole factors, pixel by pixel.
TINY: Final = 64
#: A difference of this many levels of 255 (mean of the channels) is shown as the brightest.
FULL_SCALE: Final = 96
#: A thumbnail of more bytes than this is stored once more, more coarsely.
BUDGET: Final = 4_000
#: Long side of the thumbnail of a further image, in pixels.
SMALL: Final = 72
#: Bytes that the images of all cards of a page may take.
TOTAL: Final = 2_400_000
#: Two images whose difference stays below this many levels of 255 look identical.
INVISIBLE: Final = 4


@dataclass(frozen=True, slots=True)
class Thumb:
    """One encoded image and the size to show it at."""

    data: bytes
    mime: str
    # size to show, in CSS pixels; a whole multiple of the stored size where ``crisp``
    width: int
    height: int
    crisp: bool

    @property
    def uri(self) -> str:
        """The image as a ``data:`` address."""
        return data_uri(self.data, self.mime)


@dataclass(frozen=True, slots=True)
class Detail:
    """How finely thumbnails are stored: long side in pixels, and bytes of one."""

    side: int
    budget: int

    @classmethod
    def of(cls, cards: int) -> Detail:
        """Return what so many cards have room for: few are stored larger than they are shown.

        >>> Detail.of(12).side, Detail.of(60).side, Detail.of(300).side
        (640, 480, 160)
        """
        room = TOTAL // (2 * max(1, cards))
        for side, needed in ((640, 24_000), (480, 14_000), (320, 7_000)):
            if room >= needed:
                return cls(side, needed)
        return cls(SIDE, BUDGET)


@dataclass(frozen=True, slots=True)
class Card:
    """The thumbnails of a pair; no difference where there is none to see."""

    query: Thumb
    reference: Thumb
    difference: Thumb | None


def data_uri(data: bytes, mime: str = "image/webp") -> str:
    """Return bytes as an address that needs no file and no network.

    >>> data_uri(b"abc", "image/png")
    'data:image/png;base64,YWJj'
    """
    return f"data:{mime};base64,{base64.b64encode(data).decode('ascii')}"


def card(
    query: Bytes8,
    reference: Bytes8,
    matrix: Matrix = None,
    *,
    side: int = SIDE,
    detail: Detail | None = None,
    copies: bool = False,
) -> Card:
    """Return the card of a pair of RGB images.

    The matrix (row-major 3 x 3, query to reference) is in unit coordinates: x right, y down, the
    image is [0, 1] x [0, 1]. ``None`` or NaN lays one image straight over the other. ``copies``
    leaves the difference out if it is invisible.
    """
    same = copies and look_identical(query, reference, side)
    gap = None if same else thumb(difference(query, reference, matrix, side=side), side)
    return Card(thumb(query, side, detail), thumb(reference, side, detail), gap)


def relation(row: PairRow) -> list[float] | None:
    """Return the matrix of a row of ``pairs.parquet``; where none was fitted, that of its view.

    >>> relation({"matrix": None, "view": "mirror"})
    [-1.0, 0.0, 1.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0]
    """
    matrix = row["matrix"]
    if matrix is not None and all(value is not None and np.isfinite(value) for value in matrix):
        return [float(value) for value in matrix]
    view = row["view"]
    if view not in VIEWS or view in ("original", "inverted"):
        return None
    turn = np.array([[0.0, -1.0, 1.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    mirror = np.array([[-1.0, 0.0, 1.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    first = mirror if view.startswith("mirror") else np.eye(3)
    turns = int(view.rpartition("-")[2]) // 90 if view[-1].isdigit() else 0
    whole = np.linalg.matrix_power(turn, turns) @ first
    return [float(value) + 0.0 for value in whole.ravel()]


def decoded(
    details: Iterable[PairRow], loader: ImageLoader, further: Iterable[tuple[str, str]] = ()
) -> dict[tuple[str, str], Bytes8]:
    """Ask for the images of pairs, and further ones by set and id, once per set."""
    wanted: dict[str, set[str]] = {}
    for name, image in (*(end for row in details for end in ends_of(row)), *further):
        wanted.setdefault(name, set()).add(image)
    return {
        (name, image): pixels
        for name, ids in sorted(wanted.items())
        for image, pixels in loader(name, sorted(ids)).items()
    }


def drawn(
    row: PairRow, pixels: Mapping[tuple[str, str], Bytes8], detail: Detail | None = None
) -> Card | None:
    """Return the card of a row of pairs; ``None`` where one of its images is not at hand."""
    query, reference = map(pixels.get, ends_of(row))
    if query is None or reference is None:
        return None
    copies = row["grade"] == GRADES[0]
    return card(query, reference, relation(row), detail=detail, copies=copies)


def thumb(pixels: Bytes8, side: int = SIDE, detail: Detail | None = None) -> Thumb:
    """Encode an image to be shown with its long side near ``side``: crisp where tiny."""
    height, width = pixels.shape[:2]
    if max(height, width) < min(TINY, side):
        factor = side // max(height, width)
        data, mime = _lossless(pixels)
        return Thumb(data, mime, width * factor, height * factor, crisp=True)
    height, width = shrink(pixels, side).shape[:2]
    stored = detail or Detail(side, BUDGET)
    data, mime = _lossy(shrink(pixels, stored.side), stored.budget)
    return Thumb(data, mime, width, height, crisp=False)


def shrink(pixels: Bytes8, side: int) -> Bytes8:
    """Return the image with its long side at most ``side``, averaging; small ones as they are."""
    return _averaged(pixels, side / max(pixels.shape[:2]))


def enlarge(pixels: Bytes8, side: int) -> Bytes8:
    """Repeat the pixels of a tiny image by the largest whole factor that fits ``side``."""
    factor = max(1, side // max(pixels.shape[:2]))
    return np.repeat(np.repeat(pixels, factor, axis=0), factor, axis=1)


def _averaged(pixels: Bytes8, factor: float) -> Bytes8:
    """Return an image reduced by a factor; one of 1 and more leaves it as it is."""
    if factor >= 1.0:
        return pixels
    size = tuple(max(1, round(length * factor)) for length in pixels.shape[1::-1])
    return np.asarray(cv2.resize(pixels, size, interpolation=cv2.INTER_AREA), np.uint8)


def difference(
    query: Bytes8, reference: Bytes8, matrix: Matrix = None, *, fit: bool = True, side: int = SIDE
) -> Bytes8:
    """Return what is left between two RGB images once one is laid over the other by the matrix.

    ``fit``: contrast and brightness of the query are fitted to the reference, by channel, by least
    squares over the overlap. In the reference's shape: black where equal, over violet and orange to
    pale yellow at :data:`FULL_SCALE` levels and more; grey stripes outside the overlap.
    """
    homography = _usable(matrix)
    target = shrink(reference, side)
    rows, columns = target.shape[:2]
    # A query of fewer pixels than the reference has less detail. Compare at the coarser of the
    # two, or every edge would light up.
    least = min(8, rows, columns) / min(rows, columns)
    target = _averaged(target, max(least, _magnification(homography, query.shape, target.shape)))
    warped, overlap = _lay_over(query, target, homography)
    wanted = target.astype(np.float32)
    if fit and np.count_nonzero(overlap) > 1:
        warped = _fit(warped, wanted, overlap)
    gap = np.abs(warped - wanted).mean(axis=2)
    level = np.clip(gap * (255.0 / FULL_SCALE), 0, 255).astype(np.uint8)
    shown = cv2.cvtColor(cv2.applyColorMap(level, cv2.COLORMAP_MAGMA), cv2.COLOR_BGR2RGB)
    result = np.where(overlap[..., None], np.asarray(shown, np.uint8), _stripes(*overlap.shape))
    if result.shape[:2] != (rows, columns):
        result = cv2.resize(result, (columns, rows), interpolation=cv2.INTER_NEAREST)
    return np.asarray(result, dtype=np.uint8)


def look_identical(query: Bytes8, reference: Bytes8, side: int) -> bool:
    """Whether two images are of one size and look identical as they are."""
    if query.shape != reference.shape:
        return False
    gap = cv2.absdiff(shrink(query, side), shrink(reference, side))
    return int(gap.max(initial=0)) <= INVISIBLE


def laid_over(query: Bytes8, reference: Bytes8, matrix: Matrix = None) -> Bytes8:
    """Return the query as it lies on the reference, its light unchanged."""
    warped, overlap = _lay_over(query, reference, _usable(matrix))
    rows, columns = reference.shape[:2]
    shown = np.clip(warped + 0.5, 0, 255).astype(np.uint8)
    return np.where(overlap[..., None], shown, _stripes(rows, columns))


def _usable(matrix: Matrix) -> Float64:
    """Return the 3 x 3 matrix; the identity where there is none or it flattens the image."""
    if matrix is None:
        return np.eye(3)
    square = np.asarray(matrix, dtype=np.float64).reshape(3, 3)
    if not np.isfinite(square).all() or abs(np.linalg.det(square)) < 1e-9:
        return np.eye(3)
    return square


def _magnification(homography: Float64, query: tuple[int, ...], target: tuple[int, ...]) -> float:
    """Return how many query pixels lie along one target pixel, in the middle of the overlap."""
    back = np.linalg.inv(homography)
    around = np.array([[0.5, 0.5, 1.0], [0.51, 0.5, 1.0], [0.5, 0.51, 1.0]]) @ back.T
    if np.any(np.abs(around[:, 2]) < 1e-9):
        return 1.0
    points = around[:, :2] / around[:, 2:]
    steps = (points[1:] - points[0]) / 0.01
    area = abs(np.linalg.det(steps)) * (query[0] * query[1]) / (target[0] * target[1])
    return float(np.sqrt(area)) if np.isfinite(area) and area > 0.0 else 1.0


def _lay_over(
    query: Bytes8, target: Bytes8, homography: Float64
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.bool_]]:
    """Warp the query onto the target's grid; return it and where it covers the target."""
    query = shrink(query, 4096)  # OpenCV warps no side over 32767
    # Average first: sampling a larger image here and there would alias.
    query = _averaged(query, 1 / _magnification(homography, query.shape, target.shape))
    (height, width), (rows, columns) = query.shape[:2], target.shape[:2]
    # The centre of pixel p is at (p + 0.5) / size.
    to_unit = np.array([[1 / width, 0, 0.5 / width], [0, 1 / height, 0.5 / height], [0, 0, 1]])
    to_pixel = np.array([[columns, 0, -0.5], [0, rows, -0.5], [0, 0, 1]])
    pixels = to_pixel @ homography @ to_unit
    warped = cv2.warpPerspective(
        query.astype(np.float32), pixels, (columns, rows), borderMode=cv2.BORDER_REPLICATE
    )
    y, x = np.mgrid[0:rows, 0:columns]
    grid = np.stack([(x + 0.5) / columns, (y + 0.5) / rows, np.ones_like(x, dtype=float)], axis=2)
    source = grid @ np.linalg.inv(homography).T
    with np.errstate(divide="ignore", invalid="ignore"):
        unit = source[..., :2] / source[..., 2:]
    slack = 1e-6
    inside = np.all((unit >= -slack) & (unit <= 1 + slack), axis=2) & (source[..., 2] > 0)
    return np.asarray(warped, dtype=np.float32).reshape(rows, columns, 3), inside


def _fit(
    warped: npt.NDArray[np.float32], wanted: npt.NDArray[np.float32], overlap: npt.NDArray[np.bool_]
) -> npt.NDArray[np.float32]:
    """Fit gain and offset a channel by least squares over the overlap."""
    source, goal = warped[overlap].astype(np.float64), wanted[overlap].astype(np.float64)
    centre, aim = source.mean(axis=0), goal.mean(axis=0)
    variance = ((source - centre) ** 2).sum(axis=0)
    covariance = ((source - centre) * (goal - aim)).sum(axis=0)
    gain = np.divide(covariance, variance, out=np.ones(3), where=variance > 1e-9)
    # Between strangers least squares fades the query out, which would hide that they differ.
    # A clearly negative gain is kept: an inverted image is still the same image.
    gain = np.where(gain > -0.25, np.clip(gain, 0.25, 4.0), np.clip(gain, -4.0, -0.25))
    return np.asarray(np.clip((warped - centre) * gain + aim, 0.0, 255.0), dtype=np.float32)


def _stripes(rows: int, columns: int) -> Bytes8:
    """Grey diagonal stripes: nothing to compare here."""
    y, x = np.mgrid[0:rows, 0:columns]
    dark = ((x + y) // max(1, max(rows, columns) // 40)) % 3 == 0
    return np.repeat(np.where(dark, 150, 190).astype(np.uint8)[..., None], 3, axis=2)


@cache
def _webp() -> bool:
    """Whether this Pillow writes WebP; every wheel does, a build from source need not."""
    Image.init()
    return "WEBP" in Image.SAVE


def _lossless(pixels: Bytes8) -> tuple[bytes, str]:
    if _webp():
        return _encoded(pixels, "WEBP", lossless=True, quality=80, method=4), "image/webp"
    return _encoded(pixels, "PNG", optimize=True), "image/png"


def _lossy(pixels: Bytes8, budget: int) -> tuple[bytes, str]:
    """Encode within the budget where a coarser quality still gets there."""
    kind, data = "WEBP" if _webp() else "JPEG", b""
    for quality in (78, 62, 45):
        data = _encoded(pixels, kind, quality=quality)
        if len(data) <= budget:
            break
    return data, f"image/{kind.lower()}"


def _encoded(pixels: Bytes8, kind: str, **options: int) -> bytes:
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, kind, **options)
    return out.getvalue()


# -- an audit as a notebook shows it: headline, rates, and thumbnails of pairs, all escaped -------


#: Thumbnails of pairs in one output, at most: a notebook keeps all of them.
MOST: Final = 6

#: How finely these are stored: pixels and bytes.
DETAIL: Final = Detail(160, 6_000)

_CELL: Final = "padding:2px 8px;text-align:left"


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> Markup:
    """Return a table."""
    lines = [("th", header), *(("td", row) for row in rows)]
    shown = (Markup().join(_cell(tag, each) for each in cells) for tag, cells in lines)
    return Markup("<table>{}</table>").format(
        Markup().join(map(Markup("<tr>{}</tr>").format, shown))
    )


def pairs(cards: Iterable[tuple[str, Card]]) -> Markup:
    """Return pairs of images, each above its caption."""
    shown = Markup().join(
        Markup(
            '<figure style="margin:4px 12px 4px 0">{}{}'
            '<figcaption style="font-size:small;max-width:330px;overflow-wrap:anywhere">{}'
            "</figcaption></figure>"
        ).format(_image(card.query), _image(card.reference), visible(caption))
        for caption, card in cards
    )
    return Markup('<div style="display:flex;flex-wrap:wrap">{}</div>').format(shown)


def headline(text: str) -> Markup:
    """Return the first line."""
    return Markup("<p><b>{}</b></p>").format(visible(text))


def _cell(tag: str, value: object) -> Markup:
    name = Markup(tag)
    return Markup('<{} style="{}">{}</{}>').format(name, _CELL, visible(str(value)), name)


def _image(thumb: Thumb) -> Markup:
    crisp = "image-rendering:pixelated;" if thumb.crisp else ""
    return Markup(
        '<img src="{}" width="{}" height="{}" alt="" style="display:inline;margin:1px;{}">'
    ).format(thumb.uri, thumb.width, thumb.height, crisp)


# -- where two related images differ ---------------------------------------------------------------


#: ``places``: all places that a reason counts. ``additions``: large ones only, such as a stamp or a
#: bar of text; what compression leaves in a copy is smaller.
Kind = Literal["places", "additions"]
#: What the reason of a pair contains (``visleak.grading.verdict``), and what is marked then.
REASONS: Final[dict[str, Kind]] = {
    "content differs in": "places",
    "is in another place": "places",
    "fine detail agrees": "additions",
}
#: Long side at which images are compared, pixels: additions are large.
SIDES: Final[dict[Kind, int]] = {"places": PLACES_SIDE, "additions": PLACES_SIDE // 2}
#: Area of an addition, as a share of the frame, at least.
LARGE: Final = 0.003
#: Most boxes per image.
MOST_BOXES: Final = 12
#: Gaps across and down between places that are joined, as shares of the frame's long side: words of
#: one line first, then lines of one paragraph where more than ``MOST_BOXES`` boxes are left.
GAPS: Final = ((0.02, 0.016), (0.03, 0.016), (0.04, 0.02))
#: Space between a place and its box, as a share of the frame's long side: boxes do not overlap, and
#: hold what registration moved a little.
PADDING: Final = 0.008
#: Determinant of a relation that flattens the query.
FLAT: Final = 1e-9

Box = tuple[float, float, float, float]
_Boxes = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Marks:
    """Boxes that mark where two images differ."""

    # left, top, width and height of each box in unit coordinates of the image (x right, y down,
    # 0..1), in reading order of the reference; the same number on both
    query: tuple[Box, ...] = ()
    reference: tuple[Box, ...] = ()
    more: int = 0  # number of smaller boxes that are left out

    def __bool__(self) -> bool:
        return bool(self.query)


def kind_of(reason: str | None) -> Kind | None:
    """Return what to mark on a pair with this reason; ``None`` where there is nothing to mark.

    >>> kind_of("same template; content differs in 3 places")
    'places'
    >>> kind_of("identical bytes")
    """
    return next((kind for words, kind in REASONS.items() if words in (reason or "")), None)


def marks(
    query: Bytes8, reference: Bytes8, matrix: npt.NDArray[np.floating], kind: Kind = "places"
) -> Marks:
    """Return boxes on both images where their content differs."""
    if not np.isfinite(matrix).all() or abs(np.linalg.det(matrix)) < FLAT:
        return Marks()
    query, reference = (bounded(pixels, SIDES[kind]) for pixels in (query, reference))
    found = compare(query, reference, matrix)
    shapes = query.shape[:2], reference.shape[:2]
    place = Placement.of(*shapes, matrix, found.side) if found.side else None
    if place is None:
        return Marks()
    width, height = place.size
    different = found.differences
    places = different.boxes
    if kind == "places":
        places = found.altered_boxes or places or found.tinted_boxes
    boxes = np.array([*places, *different.covers], np.int64).reshape(-1, 4)
    if kind == "additions":
        boxes = boxes[boxes[:, 2] * boxes[:, 3] >= LARGE * width * height]
    boxes = _joined(boxes, place.size)
    largest = np.argsort(-boxes[:, 2] * boxes[:, 3], kind="stable")[:MOST_BOXES]
    shown = _padded(boxes[np.sort(largest)], place.size)
    return Marks(
        query=_mapped(shown, np.linalg.inv(place.to_frame @ matrix)),
        reference=_mapped(shown, np.linalg.inv(place.to_frame)),
        more=len(boxes) - len(shown),
    )


def _joined(boxes: _Boxes, size: tuple[int, int]) -> _Boxes:
    """Return the boxes (n, 4) with neighbours joined, in reading order, in pixels."""
    for gap in GAPS:
        across, down = (max(1, round(share * max(size))) for share in gap)
        count = -1
        # the box around two joined ones may touch a third
        while len(boxes) != count:
            count = len(boxes)
            canvas = np.zeros((size[1] + down, size[0] + across), np.uint8)
            for left, top, width, height in boxes.tolist():
                canvas[top : top + height + down, left : left + width + across] = 1
            _, _, found, _ = cv2.connectedComponentsWithStats(canvas)
            boxes = np.asarray(found[1:, :4] - np.array([0, 0, across, down]), np.int64)
        if len(boxes) <= MOST_BOXES:
            break
    return boxes


def _padded(boxes: _Boxes, size: tuple[int, int]) -> npt.NDArray[np.float64]:
    """Return left, top, right and bottom of padded boxes in unit coordinates of the frame."""
    space = PADDING * max(size)
    corners = np.concatenate([boxes[:, :2] - space, boxes[:, :2] + boxes[:, 2:] + space], axis=1)
    return np.asarray(np.clip(corners / np.tile(size, 2), 0, 1))


def _mapped(corners: npt.NDArray[np.float64], matrix: npt.NDArray[np.floating]) -> tuple[Box, ...]:
    """Return the upright boxes around boxes that were moved, clipped to the image."""
    result = []
    for left, top, right, bottom in corners.tolist():
        points = matrix @ [[left, right, right, left], [top, top, bottom, bottom], [1, 1, 1, 1]]
        places = np.clip(points[:2] / points[2], 0, 1)
        low, high = places.min(axis=1), places.max(axis=1)
        result.append((*low.tolist(), *(high - low).tolist()))
    return tuple(result)
