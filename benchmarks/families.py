"""Drawn images in families: one template, and members of which one part differs; slices of volumes.

Icons with and without an emblem, flags with and without arms or with exchanged colours, figures
with and without a rider, faces, buttons of one frame, pages of other lines. Members of a family
are different images, and the hardest to tell apart: nearly everything in them agrees.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random

import cv2
import numpy as np
import numpy.typing as npt
from changes import generator, noisy
from matplotlib import font_manager
from PIL import Image, ImageDraw, ImageFilter, ImageFont
from scipy.ndimage import zoom

Pixels = npt.NDArray[np.uint8]
Colour = tuple[int, int, int]

#: Number of families of larger and of tiny images, and of members beside the first.
FAMILIES, TINY_FAMILIES, MEMBERS = 90, 360, 4

#: Long sides of tiny and least and greatest one of larger members, pixels; those of drawings
#: without intermediate colours, which may be enlarged.
TINY_SIDES, LARGE_SIDES, PIXEL_SIDES = (24, 28, 32, 32, 40, 48), (56, 420), (32, 72)

#: Number of volumes, and of slices through each.
VOLUMES, SLICES = 12, 24

#: Number of cantons, and of flags that share each.
CANTONS, ENSIGNS = 16, 6

#: Images are drawn at this many times their size, so that edges are smooth.
FINER = 4

#: Two members differ if in every view this share of their pixels differs by this many levels.
DIFFERENT_SHARE, DIFFERENT_LEVELS = 0.01, 48

LETTERS = "ABCDEFGHJKLMNPQRSTUVWXYZabdefghkmnqrtuvwy23456789?&%@#"

#: Shapes of a part.
SHAPES = ("ellipse", "rectangle", "rounded", "polygon", "star", "ring", "line", "letter")


@dataclass(frozen=True)
class Shape:
    """A part of a drawing.

    Attributes:
        shape: one of ``SHAPES``.
        x, y, width, height: centre and sides, as shares of the image.
        colour, lower: at its top and at its bottom.
        turn: degrees.
        text: the letter; of a polygon and a star its length is the number of corners.
        edge: colour of the outline, if any.
    """

    shape: str
    x: float
    y: float
    width: float
    height: float
    colour: Colour
    lower: Colour
    turn: float = 0.0
    text: str = ""
    edge: Colour | None = None


Parts = tuple[Shape, ...]


@dataclass(frozen=True)
class Template:
    """A drawing.

    Attributes:
        ground: colour of the ground.
        fixed: parts that no member changes.
        parts: those of which a member changes one.
        ratio: height over width.
        gloss: brightness at the bottom of all parts as a factor, and softness of a shadow, as a
            share of the side.
    """

    ground: Colour
    fixed: Parts
    parts: Parts
    ratio: float
    gloss: tuple[float, float] = (1.0, 0.0)


def families(*, tiny: bool) -> list[tuple[str, Pixels]]:
    """Return the members of all families by name, tiny ones or larger ones."""
    found = []
    for number in range(TINY_FAMILIES if tiny else FAMILIES):
        rng = Random(f"family {number}")
        first = DRAWERS[number % len(DRAWERS)](rng)
        if rng.random() < 0.5:
            first = replace(first, gloss=(rng.choice((0.5, 0.7, 1.6)), rng.uniform(0.0, 0.06)))
        drawn = _members(first, rng, tiny=tiny)
        noise = rng.uniform(1, 6) if not tiny and rng.random() < 0.3 else 0.0
        for member, pixels in enumerate(drawn):
            name = f"{number:03}-{member}"
            found.append((name, noisy(pixels, generator("family", name), noise)))
    return found


def _members(first: Template, rng: Random, *, tiny: bool) -> list[Pixels]:
    """Return the first member of a family and those of which one part differs."""
    crisp = rng.random() < 0.25
    if crisp:
        side, times = rng.randint(*PIXEL_SIDES), 1 if tiny else rng.choice((1, 1, 2, 4))
        side = min(side, max(TINY_SIDES)) if tiny else side
    else:
        low, high = LARGE_SIDES
        side = rng.choice(TINY_SIDES) if tiny else round(low * (high / low) ** rng.random())
        times = 1
    drawn: list[Pixels] = []
    for edit in [None, *rng.sample(EDITS, len(EDITS)), *rng.sample(EDITS, len(EDITS))]:
        parts = first.parts if edit is None else edit(first.parts, rng)
        pixels = _drawn(replace(first, parts=parts), side, crisp=crisp)
        if parts and all(differ(pixels, other) for other in drawn):
            drawn.append(pixels)
        if len(drawn) > MEMBERS:
            break
    return [np.repeat(np.repeat(pixels, times, 0), times, 1) for pixels in drawn]


def differ(one: Pixels, other: Pixels) -> bool:
    """Whether two images differ in every view that has the size of the other one."""
    if one.shape != other.shape and one.shape[:2] != other.shape[1::-1]:
        return True
    views = [turned for flipped in (one, one[:, ::-1]) for turned in (flipped, flipped[::-1])]
    views += [np.transpose(view, (1, 0, 2)) for view in views]
    return all(_differs(view, other) for view in views if view.shape == other.shape)


def _differs(one: Pixels, other: Pixels) -> bool:
    least = DIFFERENT_SHARE * one.shape[0] * one.shape[1]
    # every 16th pixel is mostly enough
    for step in (4, 1):
        apart = cv2.absdiff(*(np.ascontiguousarray(each[::step, ::step]) for each in (one, other)))
        if np.count_nonzero(apart.max(axis=2) >= DIFFERENT_LEVELS) >= least:
            return True
    return False


def ensigns() -> list[tuple[str, Pixels]]:
    """Return flags of which some share a canton that is the same upside down, and nothing else."""
    found = []
    for number in range(CANTONS):
        rng = Random(f"canton {number}")
        side, ratio = rng.randint(128, LARGE_SIDES[1]), rng.uniform(0.5, 0.8)
        canton = _drawn(_emblem(rng), round(rng.uniform(0.45, 0.6) * side), crisp=False)
        canton = np.array(canton[: round(len(canton) * ratio)])
        canton[len(canton) // 2 :] = canton[::-1, ::-1][len(canton) // 2 :]
        for member in range(ENSIGNS):
            field = replace(DRAWERS[member % len(DRAWERS)](rng), ratio=ratio)
            flag = np.array(_drawn(field, side, crisp=False))
            flag[: len(canton), : canton.shape[1]] = canton
            found.append((f"{number:02}-{member}", flag))
    return found


def _emblem(rng: Random) -> Template:
    parts = [_part(rng, 0.5, rng.uniform(0.1, 0.5), rng.uniform(0.2, 0.9)) for _ in range(8)]
    return Template(_ground(rng), (), tuple(parts), 1.0)


def slices(*, tiny: bool) -> list[tuple[str, Pixels]]:
    """Return slices through random volumes, like those of a scanner; neighbours differ little."""
    found = []
    for number in range(VOLUMES):
        rng = generator("volume", number)
        side = int(rng.choice(TINY_SIDES)) if tiny else int(rng.integers(96, 257))
        shape = np.array([SLICES, side, round(side * rng.uniform(0.8, 1.0))])
        depth = rng.uniform(0.8, 3)  # cells of the coarsest octave across all slices
        tissue = np.zeros(shape, np.float32)
        for octave in range(3):
            cells = np.round(2.0**octave * np.array([depth, 4, 4]) + 2).astype(int)
            coarse = rng.normal(size=cells).astype(np.float32) / 1.6**octave
            tissue += zoom(coarse, shape / cells, order=1)
        z, y, x = np.meshgrid(*(np.linspace(-1, 1, length) for length in shape), indexing="ij")
        body = 1 - (0.5 * z**2 + (y / 0.85) ** 2 + (x / 0.8) ** 2)
        folded = 0.5 + 0.5 * np.tanh(3 * np.sin(rng.uniform(2, 5) * tissue))
        levels = np.where(body > 0.12, 60 + 170 * folded, np.where(body > 0, 225, 0))
        for place in range(SLICES):
            grey = cv2.GaussianBlur(levels[place].astype(np.float32), (0, 0), side / 200)
            pixels = np.repeat(np.clip(grey, 0, 255).astype(np.uint8)[..., None], 3, axis=2)
            found.append((f"{number:02}-{place:02}", noisy(pixels, rng, rng.uniform(0, 5))))
    return found


# -- drawing -------------------------------------------------------------------------------------


def _drawn(template: Template, side: int, *, crisp: bool) -> Pixels:
    """Return the pixels of a drawing whose long side is given."""
    times = 1 if crisp else FINER
    long = max(1.0, template.ratio)
    size = (round(side / long), round(side * template.ratio / long))
    image = Image.new("RGB", (size[0] * times, size[1] * times), template.ground)
    factor, softness = template.gloss
    for part in (*template.fixed, *template.parts):
        mask, edge = (_mask(part, image.size, outline=outline) for outline in (False, True))
        if softness and not crisp:
            soft = mask.filter(ImageFilter.GaussianBlur(softness * max(image.size)))
            image.paste(_scaled(template.ground, 0.5), (0, 0), soft)
        ramp = np.linspace(0, 1, image.height)[:, None, None]
        share = np.clip((ramp - part.y + part.height / 2) / max(part.height, 1e-6), 0, 1)
        colours = (1 - share) * np.array(part.colour)
        colours = colours + share * np.array(_scaled(part.lower, factor))
        filled = np.broadcast_to(colours, (image.height, image.width, 3)).astype(np.uint8)
        image.paste(Image.fromarray(filled), (0, 0), mask)
        if part.edge is not None:
            image.paste(part.edge, (0, 0, *image.size), edge)
    return np.asarray(image.resize(size, Image.Resampling.BOX))


def _mask(part: Shape, size: tuple[int, int], *, outline: bool) -> Image.Image:
    """Return the mask of a part or of its outline."""
    mask = Image.new("L", size, 0)
    draw = ImageDraw.Draw(mask)
    x, y, wide, high = (
        value * size[axis % 2]
        for axis, value in enumerate((part.x, part.y, part.width, part.height))
    )
    wide, high = max(wide, 3.0), max(high, 3.0)
    box = (x - wide / 2, y - high / 2, x + wide / 2, y + high / 2)
    thick = max(1, round(min(size) / 40))
    ink = {"outline": 255, "width": thick} if outline else {"fill": 255}
    if part.shape == "letter":
        if not outline:
            font = ImageFont.truetype(font_manager.findfont("DejaVu Sans:bold"), max(4.0, high))
            draw.text((x, y), part.text, 255, font, "mm")
    elif part.shape == "ellipse":
        draw.ellipse(box, **ink)
    elif part.shape == "ring":
        draw.ellipse(box, outline=255, width=max(thick, round(min(wide, high) / 6)))
    elif part.shape == "line":
        draw.line(box, 255, 2 * thick)
    elif part.shape == "rectangle":
        draw.rectangle(box, **ink)
    elif part.shape == "rounded":
        draw.rounded_rectangle(box, min(wide, high) // 4, **ink)
    else:
        corners = len(part.text) * (2 if part.shape == "star" else 1)
        radii = [1.0 if part.shape == "polygon" or n % 2 == 0 else 0.45 for n in range(corners)]
        draw.polygon([
            (x + r * wide / 2 * math.sin(2 * math.pi * n / corners),
             y - r * high / 2 * math.cos(2 * math.pi * n / corners))
            for n, r in enumerate(radii)
        ], **ink)  # fmt: skip
    return mask.rotate(part.turn, center=(x, y)) if part.turn else mask


# -- templates -----------------------------------------------------------------------------------


def _colour(rng: Random) -> Colour:
    if rng.random() < 0.25:
        grey = rng.choice((0, 40, 90, 150, 200, 255))
        return grey, grey, grey
    hue, saturation, value = rng.uniform(0, 180), rng.randint(90, 255), rng.randint(70, 255)
    red, green, blue = cv2.cvtColor(
        np.uint8([[[hue, saturation, value]]]), cv2.COLOR_HSV2RGB
    )[0, 0].tolist()  # fmt: skip
    return red, green, blue


def _scaled(colour: Colour, factor: float) -> Colour:
    red, green, blue = (min(255, round(channel * factor)) for channel in colour)
    return red, green, blue


def _part(
    rng: Random, x: float, y: float, side: float, *, shape: str = "", stretch: float = 1.8
) -> Shape:
    """Return a random part around a place."""
    colour = _colour(rng)
    shape = shape or rng.choice(SHAPES)
    ratio = rng.uniform(1 / stretch, stretch)
    text = rng.choice(LETTERS) if shape == "letter" else "x" * rng.randint(3, 7)
    return Shape(
        shape, x, y, side * math.sqrt(ratio), side / math.sqrt(ratio), colour,
        _scaled(colour, rng.choice((1.0, 1.0, 0.6, 0.8, 1.3))),
        rng.choice((0.0, 0.0, rng.uniform(-40, 40))), text,
        _scaled(colour, 0.4) if rng.random() < 0.5 else None,
    )  # fmt: skip


def _ground(rng: Random) -> Colour:
    return rng.choice(((255, 255, 255), (255, 255, 255), (0, 0, 0), (235, 235, 235), _colour(rng)))


def _object(rng: Random) -> Template:
    """Return an object or a figure: parts that overlap on a plain ground."""
    body = [
        _part(rng, rng.uniform(0.35, 0.65), rng.uniform(0.3, 0.75), rng.uniform(0.3, 0.7))
        for _ in range(rng.randint(1, 3))
    ]
    details = [
        _part(rng, rng.uniform(0.2, 0.8), rng.uniform(0.2, 0.8), rng.uniform(0.08, 0.3))
        for _ in range(rng.randint(2, 7))
    ]
    ratio = rng.choice((1.0, 1.0, 1.0, 1.3))
    return Template(_ground(rng), (), (*body, *details), ratio)


def _face(rng: Random) -> Template:
    """Return a face on a disc: eyes, a mouth."""
    disc = _part(rng, 0.5, 0.5, rng.uniform(0.8, 0.95), shape="ellipse", stretch=1.0)
    dark = rng.choice(((0, 0, 0), (60, 30, 10), (255, 255, 255)))
    apart, eye = rng.uniform(0.1, 0.2), rng.uniform(0.06, 0.16)
    eyes = [
        Shape("ellipse", 0.5 + side * apart, 0.4, eye, eye * 1.4, dark, dark) for side in (-1, 1)
    ]
    mouth = _part(rng, 0.5, 0.7, rng.uniform(0.15, 0.4), stretch=3.0)
    return Template(_ground(rng), (disc,), (*eyes, mouth), 1.0)


def _badge(rng: Random) -> Template:
    """Return a button or a sign: content in a frame."""
    shape = rng.choice(("rectangle", "rounded", "ellipse", "polygon"))
    outer = _part(rng, 0.5, 0.5, rng.uniform(0.9, 1.0), shape=shape, stretch=1.0)
    inner = replace(outer, width=0.82 * outer.width, height=0.82 * outer.height,
                    colour=(ground := _ground(rng)), lower=ground)  # fmt: skip
    content = [
        _part(rng, 0.5, 0.5, rng.uniform(0.3, 0.6), shape=rng.choice(("letter", "letter", ""))),
        *(_part(rng, rng.uniform(0.35, 0.65), rng.uniform(0.35, 0.65), rng.uniform(0.1, 0.3))
          for _ in range(rng.randint(0, 2))),
    ]  # fmt: skip
    return Template(_ground(rng), (outer, inner), tuple(content), 1.0)


def _flag(rng: Random) -> Template:
    """Return a flag: bands, columns or fields of a few colours, often with arms."""
    count, layout = rng.randint(2, 5), rng.choice(("bands", "columns", "canton", "triangle"))
    colours = [_colour(rng) for _ in range(rng.randint(2, 3))]
    fields = []
    for number in range(count):
        place, colour = (number + 0.5) / count, colours[number % len(colours)]
        across = (0.5, place, 1.0, 1 / count + 0.01)
        if layout == "columns":
            across = (across[1], across[0], across[3], across[2])
        fields.append(Shape("rectangle", *across, colour, colour))
    if layout == "canton":
        fields.append(Shape("rectangle", 0.2, 0.25, 0.4, 0.5, colours[-1], colours[-1]))
    elif layout == "triangle":
        fields.append(Shape("polygon", 0.1, 0.5, 0.9, 1.2, colours[-1], colours[-1], -90, "xxx"))
    if rng.random() < 0.5:
        fields.append(_part(rng, rng.choice((0.25, 0.5, 0.5)), 0.5, rng.uniform(0.15, 0.4)))
    return Template((255, 255, 255), (), tuple(fields), rng.uniform(0.5, 0.8))


def _page(rng: Random) -> Template:
    """Return a page or a device: lines or keys in a frame."""
    sheet = _part(rng, 0.5, 0.5, rng.uniform(0.85, 0.98), shape="rectangle", stretch=1.3)
    rows, dark = rng.randint(3, 7), rng.choice(((90, 90, 90), (0, 0, 0), _colour(rng)))
    lines = []
    for row in range(rows):
        wide = rng.uniform(0.2, 0.6)
        x = 0.2 + wide / 2 if rng.random() < 0.7 else 0.5
        lines.append(Shape("rectangle", x, 0.2 + 0.65 * row / rows, wide, 0.05, dark, dark))
    pale = (245, 245, 245) if sum(dark) < 380 else (30, 30, 40)
    return Template(_ground(rng), (replace(sheet, colour=pale, lower=pale),), tuple(lines),
                    rng.choice((1.0, 1.25)))  # fmt: skip


def _letter(rng: Random) -> Template:
    """Return a large letter that touches the edges."""
    colour = rng.choice(((0, 0, 0), (0, 0, 0), _colour(rng)))
    letter = Shape("letter", 0.5, 0.5, 1.0, rng.uniform(1.0, 1.5), colour, colour,
                   text=rng.choice(LETTERS))  # fmt: skip
    return Template((255, 255, 255), (), (letter,), 1.0)


#: What draws the templates, in turn.
DRAWERS: Sequence[Callable[[Random], Template]] = (
    _object, _face, _badge, _flag, _page, _object, _flag, _badge, _letter,
)  # fmt: skip


# -- edits ---------------------------------------------------------------------------------------


def _changed(parts: Parts, rng: Random, change: Callable[[Shape], Shape]) -> Parts:
    place = rng.randrange(len(parts))
    return (*parts[:place], change(parts[place]), *parts[place + 1 :])


def _added(parts: Parts, rng: Random) -> Parts:
    """Add a part, in a corner or anywhere."""
    x, y = (rng.choice((0.25, 0.75, rng.uniform(0.2, 0.8))) for _ in range(2))
    return (*parts, _part(rng, x, y, rng.uniform(0.2, 0.45)))


def _removed(parts: Parts, rng: Random) -> Parts:
    place = rng.randrange(len(parts))
    return (*parts[:place], *parts[place + 1 :])


def _recoloured(parts: Parts, rng: Random) -> Parts:
    if len(parts) == 1:
        return parts  # another colour of the whole
    colour = _colour(rng)
    return _changed(parts, rng, lambda part: replace(part, colour=colour, lower=colour))


def _exchanged(parts: Parts, rng: Random) -> Parts:
    """Exchange two colours wherever they are."""
    one, other = (rng.choice(parts).colour for _ in range(2))
    swap = {one: other, other: one}
    return tuple(
        replace(part, colour=swap[part.colour], lower=swap[part.colour])
        if part.colour in swap else part
        for part in parts
    )  # fmt: skip


def _moved(parts: Parts, rng: Random) -> Parts:
    if len(parts) == 1:
        return parts  # a shift of the whole
    dx, dy = (rng.choice((-1, 1)) * rng.uniform(0.08, 0.25) for _ in range(2))
    return _changed(parts, rng, lambda part: replace(part, x=part.x + dx, y=part.y + dy))


def _reshaped(parts: Parts, rng: Random) -> Parts:
    """Replace a part by another shape of its colour."""
    other = _part(rng, 0, 0, 1)
    return _changed(
        parts, rng, lambda part: replace(part, shape=other.shape, text=other.text, turn=other.turn)
    )


def _rewritten(parts: Parts, rng: Random) -> Parts:
    """Replace every part that is small."""
    return tuple(
        _part(rng, part.x, part.y, min(part.width, part.height)) if part.height < 0.6 else part
        for part in parts
    )


EDITS: Sequence[Callable[[Parts, Random], Parts]] = (
    _added, _added, _removed, _recoloured, _exchanged, _moved, _reshaped, _rewritten,
)  # fmt: skip
