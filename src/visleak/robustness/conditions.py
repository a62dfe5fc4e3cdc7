"""The conditions under which an encoder is tested: the paper's nineteen, and more.

An image is bounded to a long side of 500 pixels and changed at that resolution before it is encoded
(Ramos et al. 2025, section 6.1). The result depends on the condition, the image and its id alone;
that of a collage also on its three other images.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import cv2
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from visleak.errors import UsageError
from visleak.records import Bytes8

LONG_SIDE: Final = 500  # long side to which an image is bounded before it is changed, pixels
LEAST_LEFT: Final = 32  # a crop that leaves a shorter side than this does not apply, pixels
BLUR_SIGMA: Final = 3.0  # standard deviation of the Gaussian filter, pixels
NOISE_SIGMA: Final = 25.0  # standard deviation of the noise, levels of 255
NOISE_SEED: Final = 0

#: Takes an image, others of the collection, and a random generator; returns ``None`` where it does
#: not apply.
Change = Callable[[Bytes8, Sequence[Bytes8], np.random.Generator], Bytes8 | None]


def plain(function: Callable[[Bytes8], Bytes8 | None]) -> Change:
    """Return a change that needs neither other images nor random numbers."""
    return lambda pixels, _others, _rng: function(pixels)


def bounded(pixels: Bytes8, side: int = LONG_SIDE) -> Bytes8:
    """Return the image with its long side at most ``side``, averaged; small ones unchanged.

    >>> bounded(np.zeros((300, 1000, 3), np.uint8)).shape
    (150, 500, 3)
    """
    height, width = pixels.shape[:2]
    factor = side / max(height, width)
    if factor >= 1.0:
        return pixels
    return resized(pixels, max(1, round(width * factor)), max(1, round(height * factor)))


def resized(pixels: Bytes8, width: int, height: int) -> Bytes8:
    """Return the image at a size: averaged where both sides shrink, else interpolated."""
    shrinks = width <= pixels.shape[1] and height <= pixels.shape[0]
    method = cv2.INTER_AREA if shrinks else cv2.INTER_LINEAR
    return np.asarray(cv2.resize(pixels, (width, height), interpolation=method), np.uint8)


def flipped(pixels: Bytes8, axis: int) -> Bytes8:
    """Return the image upside down (axis 0) or mirrored (axis 1)."""
    return np.ascontiguousarray(np.flip(pixels, axis))


def turned(pixels: Bytes8, degrees: float) -> Bytes8:
    """Return the image turned clockwise about its centre; canvas kept, corners black."""
    height, width = pixels.shape[:2]
    # OpenCV's angles are counterclockwise
    matrix = cv2.getRotationMatrix2D(((width - 1) / 2, (height - 1) / 2), -degrees, 1.0)
    return np.asarray(cv2.warpAffine(pixels, matrix, (width, height)), np.uint8)


def cropped(pixels: Bytes8, border: int) -> Bytes8 | None:
    """Return the image without ``border`` pixels on each side; ``None`` if too little is left."""
    height, width = pixels.shape[:2]
    if min(height, width) - 2 * border < LEAST_LEFT:
        return None
    return np.ascontiguousarray(pixels[border : height - border, border : width - border])


def blurred(pixels: Bytes8) -> Bytes8:
    """Return the image after a Gaussian filter of :data:`BLUR_SIGMA`."""
    return np.asarray(cv2.GaussianBlur(pixels, (0, 0), BLUR_SIGMA), np.uint8)


def noisy(pixels: Bytes8, _others: Sequence[Bytes8], rng: np.random.Generator) -> Bytes8:
    """Return the image with Gaussian noise on every channel, rounded and clipped."""
    noise = rng.normal(0.0, NOISE_SIGMA, pixels.shape)
    return np.clip(np.rint(pixels + noise), 0, 255).astype(np.uint8)


def luminance(pixels: Bytes8) -> Bytes8:
    """Return the luminance of ITU-R BT.601, (height, width)."""
    return np.asarray(cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY), np.uint8)


def grey(pixels: Bytes8) -> Bytes8:
    """Return the image in grey."""
    return np.repeat(luminance(pixels)[..., None], 3, axis=2)


def inverted(pixels: Bytes8) -> Bytes8:
    """Return the negative."""
    return np.asarray(255 - pixels, np.uint8)


def tinted(pixels: Bytes8, channel: int) -> Bytes8:
    """Return the luminance mapped from black to full red (0), green (1) or blue (2)."""
    result = np.zeros_like(pixels)
    result[..., channel] = luminance(pixels)
    return result


CAPTION: Final = ("WHEN THE TEST SET", "WAS THE TRAINING SET")
CAPTION_HEIGHT: Final = 0.11  # of a line, as a share of the image's height
LOGO_SIZE: Final = 0.3  # diameter of the logo as a share of the short side
LOGO_OPACITY: Final = 0.9
LETTERBOX_MARGIN: Final = 0.08  # round the square of the letterbox, as a share of its side
STRETCH: Final = 1.5  # factor on the ratio of width to height; the area is kept
SHOT_SCALE: Final = 0.7  # of the image in the drawn page
SHOT_PAGE: Final = 1.25  # size of the page in images
PERSPECTIVE: Final = 0.12  # how far a corner moves inwards at most, as a share of the side
AREA: Final = 0.2  # share of the area that the small crop keeps
_WHITE: Final = (255, 255, 255)
_BLACK: Final = (0, 0, 0)


def compressed(pixels: Bytes8, quality: int) -> Bytes8:
    """Return the image after JPEG compression (baseline, chroma at half resolution)."""
    parameters = [cv2.IMWRITE_JPEG_QUALITY, quality]
    _, stored = cv2.imencode(".jpg", np.ascontiguousarray(pixels[..., ::-1]), parameters)
    decoded = cv2.imdecode(stored, cv2.IMREAD_COLOR)
    return np.ascontiguousarray(np.asarray(decoded, np.uint8)[..., ::-1])


def captioned(pixels: Bytes8) -> Bytes8:
    """Return the image with a white, black-rimmed line at the top and at the bottom."""
    height, width = pixels.shape[:2]
    image = Image.fromarray(pixels)
    draw = ImageDraw.Draw(image)
    for line, anchor, y in zip(CAPTION, ("mt", "mb"), (0.03, 0.97), strict=True):
        left, top, right, bottom = ImageFont.load_default(100).getbbox(line)
        scale = min(0.94 * width / (right - left), CAPTION_HEIGHT * height / (bottom - top))
        size = max(4.0, 100 * scale)
        rim = max(1, round(size / 12))
        draw.text(
            (width / 2, y * height), line, _WHITE, ImageFont.load_default(size), anchor,
            stroke_width=rim, stroke_fill=_BLACK,
        )  # fmt: skip
    return np.asarray(image, np.uint8)


def with_logo(pixels: Bytes8, _others: Sequence[Bytes8], rng: np.random.Generator) -> Bytes8:
    """Return the image with a round emblem in a random corner."""
    height, width = pixels.shape[:2]
    side = max(8, round(LOGO_SIZE * min(height, width)))
    side = min(side, height, width)
    gap = min(side // 6, (min(height, width) - side) // 2)
    y = gap if rng.integers(2) else height - side - gap
    x = gap if rng.integers(2) else width - side - gap
    emblem, opacity = _emblem(side)
    result = pixels.astype(np.float64)
    under = result[y : y + side, x : x + side]
    under += (emblem - under) * (LOGO_OPACITY * opacity[..., None])
    return np.rint(result).astype(np.uint8)


def _emblem(side: int) -> tuple[Bytes8, np.ndarray[tuple[int, ...], np.dtype[np.float64]]]:
    """Return colours (side, side, 3) and coverage (side, side) of a star in a disc."""
    fine = 4 * side
    image = Image.new("RGB", (fine, fine), (20, 60, 140))
    cover = Image.new("L", (fine, fine), 0)
    draw = ImageDraw.Draw(image)
    ImageDraw.Draw(cover).ellipse((0, 0, fine - 1, fine - 1), 255)
    rim = 0.06 * fine
    draw.ellipse((rim, rim, fine - rim, fine - rim), outline=_WHITE, width=max(1, round(rim)))
    points = []
    for corner in range(10):
        radius = fine * (0.34 if corner % 2 == 0 else 0.14)
        angle = math.pi * corner / 5
        points.append((fine / 2 + radius * math.sin(angle), fine / 2 - radius * math.cos(angle)))
    draw.polygon(points, fill=(250, 200, 40))
    small = image.resize((side, side), Image.Resampling.BOX)
    mask = cover.resize((side, side), Image.Resampling.BOX)
    return np.asarray(small, np.uint8), np.asarray(mask, np.float64) / 255


def letterboxed(pixels: Bytes8) -> Bytes8:
    """Return the image on a black square, with a margin all round."""
    height, width = pixels.shape[:2]
    side = max(height, width)
    side += 2 * round(LETTERBOX_MARGIN * side)
    result = np.zeros((side, side, 3), np.uint8)
    y, x = (side - height) // 2, (side - width) // 2
    result[y : y + height, x : x + width] = pixels
    return result


def stretched(pixels: Bytes8) -> Bytes8:
    """Return the image wider by the root of :data:`STRETCH` and lower by as much."""
    height, width = pixels.shape[:2]
    factor = math.sqrt(STRETCH)
    return resized(pixels, max(1, round(width * factor)), max(1, round(height / factor)))


def tiled(pixels: Bytes8, others: Sequence[Bytes8], rng: np.random.Generator) -> Bytes8 | None:
    """Return a canvas of the image with three others at half size, shuffled, if there are three."""
    height, width = pixels.shape[0] // 2, pixels.shape[1] // 2
    if len(others) < 3 or min(height, width) < 1:
        return None
    parts = [resized(part, width, height) for part in (pixels, *others[:3])]
    a, b, c, d = (parts[place] for place in rng.permutation(4))
    return np.vstack([np.hstack([a, b]), np.hstack([c, d])])


def on_screen(pixels: Bytes8) -> Bytes8:
    """Return the image, smaller, in a drawn page with a window bar and lines of text."""
    height, width = (round(SHOT_PAGE * side) for side in pixels.shape[:2])
    page = np.full((height, width, 3), 255, np.uint8)
    bar = max(2, round(0.07 * height))
    page[:bar] = (222, 225, 230)
    radius = max(1, round(0.22 * bar))
    for number, colour in enumerate(((237, 106, 94), (245, 191, 79), (98, 197, 84))):
        centre = (round(bar * (0.6 + 0.8 * number)), bar // 2)
        cv2.circle(page, centre, radius, colour, -1, cv2.LINE_AA)
    left, top = round(0.05 * width), bar + round(0.09 * height)
    _line(page, (left, bar + round(0.03 * height)), 0.5, 0.028, (50, 55, 60))
    tall, wide = (max(1, round(SHOT_SCALE * side)) for side in pixels.shape[:2])
    shown = resized(pixels, wide, tall)
    bottom, right = top + shown.shape[0], left + shown.shape[1]
    page[top:bottom, left:right] = shown[: height - top, : width - left]
    for number, share in enumerate((0.56, 0.51, 0.54, 0.32)):
        _line(page, (left, bottom + round((0.03 + 0.045 * number) * height)), share, 0.018)
    for number, share in enumerate((0.26, 0.3, 0.24, 0.29, 0.3, 0.2, 0.28, 0.3, 0.17)):
        at = (right + round(0.04 * width), top + round((0.01 + 0.045 * number) * height))
        _line(page, at, share, 0.018)
    return page


def _line(
    page: Bytes8,
    at: tuple[int, int],
    width: float,
    height: float,
    ink: tuple[int, int, int] = (176, 182, 190),
) -> None:
    """Draw a line of text as a bar; its size in shares of the page."""
    x, y = at
    tall, wide = max(1, round(height * page.shape[0])), round(width * page.shape[1])
    page[y : y + tall, x : min(x + wide, round(0.96 * page.shape[1]))] = ink


def tilted(pixels: Bytes8, _others: Sequence[Bytes8], rng: np.random.Generator) -> Bytes8:
    """Return the image as a photograph of a print: each corner moved inwards; the rest black."""
    height, width = pixels.shape[:2]
    corners = np.array([(0, 0), (width, 0), (width, height), (0, height)], np.float32)
    inwards = np.array([(1, 1), (-1, 1), (-1, -1), (1, -1)], np.float32)
    moves = rng.uniform(0, PERSPECTIVE, (4, 2)) * (width, height)
    matrix = cv2.getPerspectiveTransform(corners, (corners + inwards * moves).astype(np.float32))
    return np.asarray(cv2.warpPerspective(pixels, matrix, (width, height)), np.uint8)


def small_part(
    pixels: Bytes8, _others: Sequence[Bytes8], rng: np.random.Generator
) -> Bytes8 | None:
    """Return a crop of :data:`AREA` of the image, of its own shape, at a random place.

    ``None`` if the short side would fall below :data:`LEAST_LEFT`.
    """
    height, width = pixels.shape[:2]
    tall, wide = round(height * math.sqrt(AREA)), round(width * math.sqrt(AREA))
    y, x = int(rng.integers(height - tall + 1)), int(rng.integers(width - wide + 1))
    if min(tall, wide) < LEAST_LEFT:
        return None
    return np.ascontiguousarray(pixels[y : y + tall, x : x + wide])


@dataclass(frozen=True, slots=True)
class Condition:
    """One way to change an image."""

    name: str
    description: str
    change: Change
    group: str = "paper"  # Ramos et al. (2025), section 6, or `beyond`
    others: int = 0  # further images of the collection that it needs
    seed: int | None = None  # `None` takes one from condition and image id

    def of(self, pixels: Bytes8, image_id: str, others: Sequence[Bytes8] = ()) -> Bytes8 | None:
        """Return the changed image, or ``None`` if the condition does not apply.

        ``pixels`` (height, width, 3), RGB, bounded by :func:`bounded`.
        """
        text = f"{self.name}\0{image_id}".encode("utf-8", "backslashreplace")
        digest = hashlib.blake2b(text, digest_size=16).digest()
        own = int.from_bytes(digest, "little") if self.seed is None else self.seed
        return self.change(pixels, others, np.random.default_rng(own))


def _turn(name: str, degrees: int, group: str = "paper") -> Condition:
    text = f"turned clockwise by {degrees} degrees about the centre; canvas kept, corners black"
    return Condition(name, text, plain(partial(turned, degrees=degrees)), group)


def _crop(border: int) -> Condition:
    text = f"{border} pixels removed on each side; not where fewer than {LEAST_LEFT} would be left"
    return Condition(f"crop-{border}", text, plain(partial(cropped, border=border)))


def _tint(channel: int, name: str) -> Condition:
    text = f"luminance (ITU-R BT.601) mapped from black to {name}"
    return Condition(name, text, plain(partial(tinted, channel=channel)))


def _jpeg(quality: int) -> Condition:
    text = f"JPEG compression at quality {quality}, chroma at half resolution"
    change = plain(partial(compressed, quality=quality))
    return Condition(f"jpeg-{quality}", text, change, "beyond")


#: The nineteen conditions of Ramos et al. 2025, section 6, in the order of its figure 6.
PAPER: Final = (
    Condition("original", "not changed", plain(lambda pixels: pixels)),
    Condition("flip-v", "upside down", plain(partial(flipped, axis=0))),
    Condition("flip-h", "mirrored left to right", plain(partial(flipped, axis=1))),
    *(_turn(f"rot-{degrees}", degrees) for degrees in (45, 135, 225, 315)),
    *(_crop(border) for border in (20, 50, 100)),
    Condition("gauss", f"Gaussian blur, sigma {BLUR_SIGMA:g} px", plain(blurred)),
    Condition(
        "noise",
        f"Gaussian noise N(0, {NOISE_SIGMA:g}) on 8 bit, clipped, seed {NOISE_SEED}",
        noisy,
        seed=NOISE_SEED,
    ),
    *(
        Condition(
            f"rs-{side}",
            f"resized to {side} x {side} pixels, aspect ratio given up",
            plain(partial(resized, width=side, height=side)),
        )
        for side in (128, 256)
    ),
    Condition("gray", "luminance (ITU-R BT.601) in all channels", plain(grey)),
    Condition("invert", "255 minus every value", plain(inverted)),
    *(_tint(channel, name) for channel, name in enumerate(("red", "green", "blue"))),
)

_beyond = partial(Condition, group="beyond")

#: Conditions beyond the paper.
BEYOND: Final = (
    *(_jpeg(quality) for quality in (5, 10, 30, 50, 70, 90)),
    _beyond(
        "text",
        f"a caption of two lines, each up to {CAPTION_HEIGHT:.0%} of the height",
        plain(captioned),
    ),
    _beyond(
        "logo",
        f"an emblem of {LOGO_SIZE:.0%} of the short side in a corner, {LOGO_OPACITY:.0%} opaque",
        with_logo,
    ),
    _beyond(
        "border",
        f"letterboxed to a black square, {LETTERBOX_MARGIN:.0%} margin all round",
        plain(letterboxed),
    ),
    _beyond("aspect", f"stretched: width to height times {STRETCH:g}, area kept", plain(stretched)),
    _beyond("collage", "2 x 2 with three others of the collection, at half size", tiled, others=3),
    _beyond(
        "screenshot",
        f"shown at {SHOT_SCALE:.0%} in a drawn page of {SHOT_PAGE:g} times its size",
        plain(on_screen),
    ),
    _turn("rot-5", 5, "beyond"),
    _beyond(
        "perspective",
        f"each corner moved inwards by up to {PERSPECTIVE:.0%} of the side; the rest black",
        tilted,
    ),
    _beyond(
        "crop-area-20",
        f"{AREA:.0%} of the area at a random place; not where a side would fall below {LEAST_LEFT}",
        small_part,
    ),
)

#: All conditions by name, the paper's first.
CONDITIONS: Final[Mapping[str, Condition]] = {c.name: c for c in (*PAPER, *BEYOND)}

#: Names that stand for several conditions.
GROUPS: Final = {"paper": PAPER, "beyond": BEYOND, "all": (*PAPER, *BEYOND)}

#: Constants of all conditions, stored with every result.
CONSTANTS: Final[Mapping[str, float | str]] = {
    "long_side": LONG_SIDE,
    "least_left": LEAST_LEFT,
    "blur_sigma": BLUR_SIGMA,
    "noise_sigma": NOISE_SIGMA,
    "noise_seed": NOISE_SEED,
    "caption_height": CAPTION_HEIGHT,
    "logo_size": LOGO_SIZE,
    "logo_opacity": LOGO_OPACITY,
    "letterbox_margin": LETTERBOX_MARGIN,
    "stretch": STRETCH,
    "shot_scale": SHOT_SCALE,
    "shot_page": SHOT_PAGE,
    "perspective": PERSPECTIVE,
    "area": AREA,
    "rotation": "clockwise, canvas kept, black fill, linear interpolation",
    "luminance": "ITU-R BT.601",
}


def named(names: Sequence[str]) -> tuple[Condition, ...]:
    """Return conditions by name, each once, in the order of the tables.

    >>> [condition.name for condition in named(["gray", "original", "gray"])]
    ['original', 'gray']
    """
    chosen: set[str] = set()
    for name in names:
        if name not in CONDITIONS and name not in GROUPS:
            known = ", ".join((*GROUPS, *CONDITIONS))
            raise UsageError(f"conditions must be among {known}; got {name!r}")
        chosen.update(c.name for c in GROUPS.get(name) or (CONDITIONS[name],))
    if not chosen:
        raise UsageError(f"conditions must name at least one, or {', '.join(GROUPS)}; got none")
    return tuple(condition for name, condition in CONDITIONS.items() if name in chosen)
