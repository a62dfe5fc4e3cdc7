"""A page that is drawn repeatedly with one field changed and all other pixels equal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import cv2
import matplotlib
import numpy as np
import numpy.typing as npt
from PIL import Image as PillowImage
from PIL import ImageDraw, ImageFont

from documents.words import PHRASES, PROSE, prose

Image = npt.NDArray[np.uint8]
Colour = tuple[int, int, int]
Box = tuple[int, int, int, int]
T = TypeVar("T")

#: Font files by family: regular, bold, italic.
FAMILIES = {
    "sans": ("DejaVuSans", "DejaVuSans-Bold", "DejaVuSans-Oblique"),
    "serif": ("DejaVuSerif", "DejaVuSerif-Bold", "DejaVuSerif-Italic"),
    "mono": ("DejaVuSansMono", "DejaVuSansMono-Bold", "DejaVuSansMono-Oblique"),
    "stix": ("STIXGeneral", "STIXGeneralBol", "STIXGeneralItalic"),
    "roman": ("cmr10", "cmb10", "cmti10"),
    "plain": ("cmss10", "cmss10", "cmss10"),
    "typewriter": ("cmtt10", "cmtt10", "cmtt10"),
}
PROPORTIONAL = ("sans", "sans", "serif", "stix", "stix", "roman", "plain")

#: The Computer Modern and STIX fonts are smaller at the same nominal size.
ENLARGED = {"stix": 1.15, "roman": 1.12, "plain": 1.12, "typewriter": 1.12}

#: Padding of a declared area in pixels: antialiasing, and the resampling of the page.
MARGIN = 4

#: Long side of a document in pixels.
SHORTEST, LONGEST = 500, 1400


@dataclass(frozen=True)
class Font:
    """A family of ``FAMILIES``, a size in pixels, and ``regular``, ``bold`` or ``italic``."""

    family: str
    size: int
    weight: str = "regular"

    @property
    def face(self) -> ImageFont.FreeTypeFont:
        """The font as Pillow draws it."""
        return _face(self.family, self.size, self.weight)

    def width(self, text: str) -> float:
        """Return the width of a text in pixels."""
        return _width(self, text)

    def bold(self) -> Font:
        """Return the bold font of this size."""
        return Font(self.family, self.size, "bold")

    def italic(self) -> Font:
        """Return the italic font of this size."""
        return Font(self.family, self.size, "italic")

    def scaled(self, factor: float) -> Font:
        """Return the font at another size, 7 pixels at least."""
        return Font(self.family, max(7, round(self.size * factor)), self.weight)


@cache
def _face(family: str, size: int, weight: str) -> ImageFont.FreeTypeFont:
    name = FAMILIES[family][("regular", "bold", "italic").index(weight)]
    path = Path(matplotlib.get_data_path()) / "fonts" / "ttf" / f"{name}.ttf"
    pixels = round(size * ENLARGED.get(family, 1.0))
    return ImageFont.truetype(str(path), pixels, layout_engine=ImageFont.Layout.BASIC)


@lru_cache(maxsize=200_000)
def _width(font: Font, text: str) -> float:
    return font.face.getlength(text)


@dataclass(frozen=True)
class Change:
    """The field that a variant changes.

    Attributes:
        field: name of the field.
        what: ``digit`` for one digit, ``line`` for a line of prose, otherwise the type of the
        field.
        attempt: seed of the value.
    """

    field: str
    what: str
    attempt: int = 0


class Entry(str):
    """The text of a field."""

    field: str


class Page:
    """Drawing of one document.

    ``style`` determines the layout, with the same draws in every rendering; every field has its own
    generator. A field must only be drawn in the areas marked for it, and nothing else may depend on
    its value.

    Attributes:
        style: generator of all that the variants share.
        fields: types of change by field name, filled while drawing.
        areas: drawn areas (left, top, right, bottom) by field name.
        language: key of ``PHRASES``; ``translated`` pages have another one.
    """

    def __init__(self, seed: str, change: Change | None = None, template: int = 0) -> None:
        self.style = Random(f"{seed} style")
        self.fields: dict[str, tuple[str, ...]] = {}
        self.areas: dict[str, list[Box]] = {}
        self.translatable = False
        self._seed, self._change, self._template = seed, change, template
        languages = Random(f"{seed} language").sample(sorted(PHRASES), 2)
        self.language = languages[change is not None and change.what == "language"]

    def start(self, ratio: float, paper: Colour, squeeze: float = 0.0) -> None:
        """Start an empty page.

        Args:
            ratio: height / width.
            paper: its colour.
            squeeze: the finished page is stretched by up to this share along one axis, for narrower
                or wider fonts.
        """
        style = self.style
        long_side = style.randint(SHORTEST, LONGEST)
        width = round(long_side / max(ratio, 1))
        height = round(width * ratio)
        self._final = (min(max(width, 320), LONGEST), min(max(height, 320), LONGEST))
        stretch = style.uniform(1 - squeeze, 1 + squeeze) if squeeze else 1.0
        self.width, self.height = round(self._final[0] / stretch), self._final[1]
        self._resampling = style.choice((cv2.INTER_LINEAR, cv2.INTER_AREA, cv2.INTER_CUBIC))
        self.paper = paper
        self.image = PillowImage.new("RGB", (self.width, self.height), paper)
        self.draw = ImageDraw.Draw(self.image)
        self.grain = 0.0

    def background(self, pixels: Image) -> None:
        """Replace all pixels."""
        self.image = PillowImage.fromarray(pixels)
        self.draw = ImageDraw.Draw(self.image)

    def fill(self, name: str, what: str, make: Callable[[Random], T], base: T | None = None) -> T:
        """Return the value of a field, a changed one in the variant that changes it.

        Args:
            name: unique on the page.
            what: type of the field, such as ``amount``.
            make: makes a value; text becomes an :class:`Entry`, and may have one digit changed.
            base: value if this field is not changed, such as the height of a bar.
        """
        value = self.value(name, make) if base is None else base
        digits = isinstance(value, str) and any(c.isdigit() for c in value)
        self.fields[name] = (what, "digit") if digits else (what,)
        if (change := self._change) and change.field == name:
            rng = Random(f"{self._seed} {name} {change.what} {change.attempt}")
            value = (
                _redigit(value, what, rng) if change.what == "digit" else _other(value, make, rng)
            )
        if isinstance(value, str):
            value = Entry(value)  # type: ignore[assignment]
            value.field = name  # type: ignore[attr-defined]
        return value

    def value(self, name: str, make: Callable[[Random], T]) -> T:
        """Return a value that changes only with the template."""
        return make(Random(f"{self._seed} {self._template} {name}"))

    def mark(self, name: str, box: Sequence[float]) -> None:
        """Declare that a field is drawn in a box."""
        left, top, right, bottom = box
        self.areas.setdefault(name, []).append(
            (
                int(left) - MARGIN,
                int(top) - MARGIN,
                int(right) + MARGIN + 1,
                int(bottom) + MARGIN + 1,
            )
        )

    def write(
        self,
        x: float,
        y: float,
        text: str,
        font: Font,
        colour: Colour = (0, 0, 0),
        anchor: str = "ls",
        room: float | None = None,
    ) -> None:
        """Draw one line of text, in a smaller font if it is wider than ``room``."""
        while room is not None and font.size > 7 and font.width(text) > room:
            font = font.scaled((font.size - 1) / font.size)
        at = (round(x), round(y))
        if isinstance(text, Entry):
            self.mark(text.field, self.draw.textbbox(at, text, font.face, anchor))
        self.draw.text(at, str(text), colour, font.face, anchor)

    def paragraph(
        self,
        name: str,
        box: tuple[float, float, float],
        font: Font,
        colour: Colour = (0, 0, 0),
        *,
        words: int,
        leading: float = 1.35,
        justify: bool = False,
        indent: float = 0,
        lines: int = 1000,
    ) -> float:
        """Draw prose and return its end; a changed word has about the same width.

        Args:
            name: of the field.
            box: left, top and right in pixels.
            font, colour: of the text.
            words: number of words.
            leading: distance of lines in font sizes.
            justify: also align the right edge.
            indent: of the first line, in pixels.
            lines: most lines; further ones are not drawn.
        """
        left, top, right = box
        text = prose(Random(f"{self._seed} {self._template} {name}"), words)
        rows = _broken(text, font, right - left, indent)[:lines]
        self.fields[name] = ("word", "line") + (("digit",) if _numbers(rows) else ())
        replaced = self._replaced(name, rows, font)
        space = font.width(" ")
        y = top + font.size
        for number, row in enumerate(rows):
            x = left + (indent if number == 0 else 0)
            gap = space
            if justify and len(row) > 1 and number < len(rows) - 1:
                gap = (right - x - sum(map(font.width, row))) / (len(row) - 1)
            for position, word in enumerate(row):
                drawn = replaced.get((number, position), word)
                if drawn is not word:
                    drawn = Entry(drawn)
                    drawn.field = name
                    self.mark(name, self.draw.textbbox((round(x), round(y)), word, font.face, "ls"))
                self.write(x, y, drawn, font, colour)
                x += font.width(word) + gap
            y += leading * font.size
        return y - font.size + 0.2 * font.size

    def _replaced(self, name: str, rows: list[list[str]], font: Font) -> dict[tuple[int, int], str]:
        """Return the changed words of a paragraph by line and position."""
        change = self._change
        if change is None or change.field != name:
            return {}
        rng = Random(f"{self._seed} {name} {change.what} {change.attempt}")
        if change.what == "digit":
            row, position = rng.choice(_numbers(rows))
            return {(row, position): _redigit(rows[row][position], "number", rng)}
        if change.what == "line":
            row = rng.randrange(len(rows))
            return {(row, p): _synonym(word, font, rng) for p, word in enumerate(rows[row])}
        places = [
            (r, p) for r, row in enumerate(rows) for p, word in enumerate(row) if len(word) > 3
        ]
        row, position = rng.choice(places or [(0, 0)])
        return {(row, position): _synonym(rows[row][position], font, rng)}

    def phrase(self, key: str) -> str:
        """Return a phrase in the page's language."""
        self.translatable = True
        return PHRASES[self.language][key]

    def rectangle(
        self,
        box: Sequence[float],
        fill: Colour | None = None,
        outline: Colour | None = None,
        width: int = 1,
        radius: float = 0,
    ) -> None:
        """Draw a rectangle, with round corners if ``radius`` is positive."""
        if radius > 0:
            self.draw.rounded_rectangle(tuple(map(round, box)), radius, fill, outline, width)
        else:
            self.draw.rectangle(tuple(map(round, box)), fill, outline, width)

    def line(self, points: Sequence[tuple[float, float]], colour: Colour, width: float = 1) -> None:
        """Draw connected lines."""
        flat = [(round(x), round(y)) for x, y in points]
        self.draw.line(flat, colour, max(1, round(width)), joint="curve")

    def smooth(self, points: Sequence[Sequence[float]], colour: Colour, width: float = 1) -> None:
        """Draw connected lines, antialiased."""
        fixed = np.round(np.asarray(points, float) * 16).astype(np.int32)
        pixels = np.asarray(self.image).copy()
        cv2.polylines(pixels, [fixed], False, colour, max(1, round(width)), cv2.LINE_AA, 4)
        self.background(pixels)

    def finished(self) -> Image:
        """Return the page at its final size, with paper grain if ``grain`` is positive."""
        pixels = np.asarray(self.image)
        if pixels.shape[1::-1] != self._final:
            pixels = cv2.resize(pixels, self._final, interpolation=self._resampling)
        if self.grain > 0:
            pixels = grained(pixels, self.grain, Random(f"{self._seed} grain"))
        return np.ascontiguousarray(pixels, np.uint8)

    def area(self, name: str) -> npt.NDArray[np.bool_]:
        """Return the area of a field, as a mask of the finished page."""
        mask = np.zeros((self._final[1], self._final[0]), bool)
        across = self._final[0] / self.width
        for left, top, right, bottom in self.areas.get(name, []):
            first, last = int(left * across) - 3, int(right * across) + 4
            mask[max(top, 0) : max(bottom, 0), max(first, 0) : max(last, 0)] = True
        return mask


@lru_cache(maxsize=64)
def _grain(number: int) -> npt.NDArray[np.float32]:
    """Return a tile of noise of deviation 1, of several scales."""
    rng = np.random.default_rng([7, number])
    tile = np.zeros((256, 256), np.float32)
    for cells, weight in ((16, 0.3), (64, 0.5), (128, 1.0), (256, 1.0)):
        noise = rng.normal(size=(cells, cells)).astype(np.float32)
        tile += np.float32(weight) * cv2.resize(noise, (256, 256), interpolation=cv2.INTER_LINEAR)
    return tile / tile.std()


def grained(pixels: Image, strength: float, rng: Random) -> Image:
    """Return pixels with noise of a deviation of ``strength`` levels, equal on all channels."""
    tile = _grain(rng.randrange(8))
    tile = np.roll(tile, (rng.randrange(256), rng.randrange(256)), (0, 1)) * np.float32(strength)
    bias = np.clip(np.rint(tile + 32), 0, 64).astype(np.uint8)
    height, width = pixels.shape[:2]
    bias = np.tile(bias, (height // 256 + 1, width // 256 + 1))[:height, :width]
    bias = cv2.merge([bias] * 3)
    # lighter and darker separately, because a clipped sum would shift dark ink
    lighter = cv2.add(pixels, cv2.subtract(bias, np.full_like(bias, 32)))
    return np.asarray(cv2.subtract(lighter, cv2.subtract(np.full_like(bias, 32), bias)), np.uint8)


def _broken(words: list[str], font: Font, width: float, indent: float) -> list[list[str]]:
    """Return words by line."""
    rows: list[list[str]] = [[]]
    x, space = indent, font.width(" ")
    for word in words:
        wide = font.width(word)
        if rows[-1] and x + wide > width:
            rows.append([])
            x = 0.0
        rows[-1].append(word)
        x += wide + space
    return rows


def _numbers(rows: list[list[str]]) -> list[tuple[int, int]]:
    return [
        (r, p) for r, row in enumerate(rows) for p, w in enumerate(row) if any(map(str.isdigit, w))
    ]


def _other(value: T, make: Callable[[Random], T], rng: Random) -> T:
    """Return a different value."""
    for _ in range(100):
        other = make(rng)
        if other != value:
            return other
    msg = f"a field must have several values, got {value!r} 100 times"
    raise RuntimeError(msg)


def _redigit(value: Any, what: str, rng: Random) -> Any:
    """Return a text with one digit changed; in dates and times the last digit of a figure."""
    places = [i for i, c in enumerate(value) if c.isdigit()]
    if what in {"date", "time"}:
        places = [i for i in places if i + 1 not in places]
    place = rng.choice(places)
    digit = rng.choice(
        [d for d in "1234567890"[: 9 if place == places[0] else 10] if d != value[place]]
    )
    return value[:place] + digit + value[place + 1 :]


def _synonym(word: str, font: Font, rng: Random) -> str:
    """Return another word of about the same width, with the same capital and punctuation."""
    core = word.rstrip(".,")
    if any(map(str.isdigit, core)):
        return _redigit(core, "number", rng) + word[len(core) :]
    capital = core[:1].isupper()
    others = [other.capitalize() if capital else other for other in PROSE]
    others = [other for other in others if other != core and abs(len(other) - len(core)) <= 1]
    others.sort(key=lambda other: abs(font.width(other) - font.width(core)))
    return rng.choice(others[:5]) + word[len(core) :]


def mixed(one: Colour, other: Colour, share: float) -> Colour:
    """Return a colour between two."""
    red, green, blue = (round(a + (b - a) * share) for a, b in zip(one, other, strict=True))
    return red, green, blue


def accent(rng: Random) -> Colour:
    """Return a strong colour that is dark enough for white text."""
    hue, saturation, value = rng.uniform(0, 180), rng.randint(110, 255), rng.randint(80, 190)
    colour = cv2.cvtColor(np.uint8([[[hue, saturation, value]]]), cv2.COLOR_HSV2RGB)[0, 0]
    return int(colour[0]), int(colour[1]), int(colour[2])


def paper(rng: Random) -> Colour:
    """Return a colour of paper: mostly white, else a light tint."""
    if rng.random() < 0.55:
        return 255, 255, 255
    tints = (
        (252, 251, 248),
        (250, 248, 242),
        (247, 243, 232),
        (243, 238, 224),
        (240, 240, 238),
        (230, 230, 228),
        (243, 246, 250),
        (253, 250, 234),
        (250, 242, 242),
        (241, 247, 241),
    )
    return rng.choice(tints)


def ink(rng: Random) -> Colour:
    """Return a dark colour of text."""
    return rng.choice(((0, 0, 0), (20, 20, 24), (45, 45, 45), (25, 35, 70), (60, 40, 30)))
