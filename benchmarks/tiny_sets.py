"""Sets of tiny images for fitting and measuring, beside CIFAR-10.

Images of other domains are reduced. Icons, flags, block mosaics and those of :mod:`families` are
drawn, tiny and larger. Drawn images are the hardest: they have few edges and plain areas, and
differ in one colour or one length; mosaics share a grid of edges and nothing else. The icons of a
desktop are those of the Debian package oxygen-icon-theme.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import cv2
import numpy as np
import numpy.typing as npt
from changes import generator, noisy
from domain_sets import DomainSet
from families import differ, families, slices
from matplotlib import font_manager
from PIL import Image, ImageDraw, ImageFont

from visleak.images import decode
from visleak.records import DecodedImage

Pixels = npt.NDArray[np.uint8]

#: Long side in pixels of the reduced images, for sets that are fitted on and sets that are not.
FITTED_SIDES = {"fashion": 28, "photos": 32, "coco": 32, "clothing": 40, "xray": 28}
LEFT_OUT_SIDES = {"leaf": 48, "skin": 28}

#: Drawn sets; number of flags and of mosaics.
DRAWN = ("icons", "flags", "mosaics", "families", "slices")
FLAGS, MOSAICS = 300, 240

#: Icons of a desktop, where its package puts them, and most of them; most images of a reduced set.
DESKTOP, THEME, ICONS = "desktop", Path("/usr/share/icons/oxygen/base"), 1000
MOST = 450

#: Blocks along the short side of a mosaic, and long sides of tiny and of larger ones in pixels.
#: There are few choices, so that many mosaics share a grid.
BLOCKS_OF_MOSAIC = (4, 4, 4, 6, 8, 8, 12, 16)
TINY_SIDES, MOSAIC_SIDES = (24, 28, 32, 40, 48), (64, 64, 96, 128, 256)

#: Least and greatest long side of larger drawings, pixels.
LARGE_SIDES = (64, 420)

#: Unicode blocks of the icons: arrows, signs, shapes, letters of five scripts.
BLOCKS = (
    *((0x2190, 0x21FF), (0x2300, 0x232B), (0x25A0, 0x27BF), (0x2900, 0x297F), (0x2B00, 0x2B1A)),
    *((0x0531, 0x0556), (0x10D0, 0x10F0), (0x16A0, 0x16F0)),
)

#: Two icons are the same if their mean difference in any view is below this, levels.
SAME_ICON = 12

COLOURS = np.array(
    [[206, 17, 38], [0, 38, 100], [255, 255, 255], [0, 122, 61], [252, 209, 22], [0, 0, 0],
     [117, 170, 219], [255, 130, 0]], np.uint8,
)  # fmt: skip

#: Layouts of a flag, and how many colours each has.
LAYOUTS = {"bands": 3, "columns": 3, "halves": 2, "stripes": 2, "cross": 2, "saltire": 2,
           "disc": 2, "canton": 3, "triangle": 3}  # fmt: skip


@dataclass(frozen=True)
class Reduced(DomainSet):
    """A set whose images are reduced.

    Attributes:
        side: long side, pixels.
    """

    side: int = 0

    @classmethod
    def at(cls, data: Path, name: str, side: int) -> Reduced:
        """Return a set of the project's data, reduced."""
        own = DomainSet.of(data, name)
        return cls(f"{name} at {side}", own.root, own.names, own.groups, side)

    def image(self, position: int) -> Pixels:
        """Return the pixels of an image."""
        pixels = super().image(position)
        ratio = self.side / max(pixels.shape[:2])
        size = [max(8, round(length * ratio)) for length in pixels.shape[1::-1]]
        return np.asarray(cv2.resize(pixels, size, interpolation=cv2.INTER_AREA), np.uint8)


@dataclass(frozen=True)
class Drawn(DomainSet):
    """A set of drawn images.

    Attributes:
        images: their pixels.
    """

    images: tuple[Pixels, ...] = ()

    distinguished_by_colour = True

    @classmethod
    def of_images(cls, name: str, images: Sequence[tuple[str, Pixels]]) -> Drawn:
        """Return a set of named images that are all different."""
        names = tuple(own for own, _ in images)
        return cls(name, Path(), names, names, tuple(pixels for _, pixels in images))

    def image(self, position: int) -> Pixels:
        """Return the pixels of an image."""
        return self.images[position]


def tiny_set(data: Path, name: str) -> DomainSet:
    """Return a set by name."""
    drawings = {
        "icons": icons, "flags": flags, "mosaics": tiny_mosaics, DESKTOP: desktop,
        "families": lambda: families(tiny=True), "slices": lambda: slices(tiny=True),
    }  # fmt: skip
    if name in drawings:
        return Drawn.of_images(name, drawings[name]())
    own = Reduced.at(data, name, {**FITTED_SIDES, **LEFT_OUT_SIDES}[name])
    drawn = generator("tiny", name).permutation(len(own.names))[:MOST]
    chosen = sorted(drawn.tolist())
    return replace(
        own,
        names=tuple(own.names[position] for position in chosen),
        groups=tuple(own.groups[position] for position in chosen),
    )


def large_drawn(name: str) -> DomainSet:
    """Return a drawn set with images of random sizes, half of them with noise."""
    if (sized := {"families": families, "slices": slices}.get(name)) is not None:
        return Drawn.of_images(f"{name}, large", sized(tiny=False))
    made = []
    drawings = {"icons": lambda: icons(10.0), "flags": lambda: flags(4.0), "mosaics": mosaics}
    for own, pixels in drawings[name]():
        rng = generator("large", name, own)
        low, high = LARGE_SIDES
        long = low * (high / low) ** float(rng.uniform())
        if name == "mosaics":
            long = float(rng.choice(MOSAIC_SIDES))
        ratio = long / max(pixels.shape[:2])
        size = [max(8, round(side * ratio)) for side in pixels.shape[1::-1]]
        method = cv2.INTER_NEAREST if name == "mosaics" else cv2.INTER_AREA
        large = np.asarray(cv2.resize(pixels, size, interpolation=method), np.uint8)
        noise = float(rng.uniform(1, 8)) if rng.random() < 0.5 else 0.0
        made.append((own, noisy(large, rng, noise)))
    return Drawn.of_images(f"{name}, large", made)


def icons(scale: float = 1.0) -> list[tuple[str, Pixels]]:
    """Return icons of 28 pixels times a scale; no two are the same in any view."""
    rng, masks, result = generator("icons"), [], []
    for code in (code for first, last in BLOCKS for code in range(first, last + 1)):
        mask = _icon(code, 1.0)
        views = np.array([np.rot90(m, k) for m in (mask, mask[:, ::-1]) for k in range(4)])
        if mask.mean() < 8 or any(
            np.abs(views - other).mean(axis=(1, 2)).min() < SAME_ICON for other in masks
        ):
            continue
        masks.append(mask)
        ink, ground = np.zeros(3), np.full(3, 255)
        if rng.random() < 0.5:
            while np.abs(ink - ground).sum() < 200 or ink.sum() == 0:
                ink, ground = rng.integers(0, 256, 3), rng.integers(0, 256, 3)
        share = _icon(code, scale)[..., None] / 255
        result.append((f"{code:x}", np.rint(ink * share + ground * (1 - share)).astype(np.uint8)))
    return result


def desktop() -> list[tuple[str, Pixels]]:
    """Return icons of a desktop at 22, 32 or 48 pixels, on white; all differ in every view."""
    by_name: dict[str, list[Path]] = {}
    for path in sorted(THEME.glob("[234]?x[234]?/*/*.png")):
        if not path.is_symlink():
            by_name.setdefault(f"{path.parent.name}/{path.stem}", []).append(path)
    if not by_name:
        raise SystemExit(f"{THEME} has no icons: install the Debian package oxygen-icon-theme")
    names, found = sorted(by_name), {}
    for number in generator("desktop").permutation(len(names)).tolist():
        name = names[number]
        path = generator("desktop", name).choice(np.array(by_name[name], object))
        image = decode(path.read_bytes())
        assert isinstance(image, DecodedImage)
        if all(differ(image.pixels, other) for other in found.values()):
            found[name] = image.pixels
        if len(found) == ICONS:
            break
    return list(found.items())


def _icon(code: int, scale: float) -> npt.NDArray[np.int64]:
    """Return the ink of an icon, 0..255."""
    font = ImageFont.truetype(font_manager.findfont("DejaVu Sans"), 24 * scale)
    side = round(28 * scale)
    image = Image.new("L", (side, side), 0)
    ImageDraw.Draw(image).text((side / 2, side / 2), chr(code), 255, font, "mm")
    return np.asarray(image).astype(np.int64)


def flags(scale: float = 0.25) -> list[tuple[str, Pixels]]:
    """Return flags of 128 x 88 pixels times a scale; no two are the same in any view."""
    rng, known, result = generator("flags"), set(), []
    while len(result) < FLAGS:
        layout = str(rng.choice(list(LAYOUTS)))
        chosen = rng.choice(len(COLOURS), LAYOUTS[layout], replace=False).tolist()
        mirrored = chosen[::-1] if layout in ("bands", "columns", "halves") else chosen
        if (layout, *chosen) in known or (layout, *mirrored) in known:
            continue
        known.add((layout, *chosen))
        name = "-".join(map(str, (layout, *chosen)))
        large = _flag(layout, COLOURS[chosen])
        size = (round(128 * scale), round(88 * scale))
        method = cv2.INTER_AREA if scale < 1 else cv2.INTER_NEAREST
        result.append((name, np.asarray(cv2.resize(large, size, interpolation=method))))
    return result


def mosaic(shape: tuple[int, int], shades: int, rng: np.random.Generator) -> Pixels:
    """Return a grid of random blocks, one pixel each.

    Args:
        shape: rows and columns.
        shades: 3: random colours; 1: random grey levels; 0: black and white.
        rng: random numbers.
    """
    if shades == 0:
        blocks = 255 * rng.integers(0, 2, (*shape, 1), np.uint8)
    else:
        blocks = rng.integers(0, 256, (*shape, shades), np.uint8)
    return np.ascontiguousarray(np.broadcast_to(blocks, (*shape, 3)))


def mosaics() -> list[tuple[str, Pixels]]:
    """Return random block mosaics, one pixel per block."""
    rng, result = generator("mosaics"), []
    for number in range(MOSAICS):
        blocks = int(rng.choice(BLOCKS_OF_MOSAIC))
        shape = (blocks, blocks) if rng.random() < 0.8 else (blocks, round(4 / 3 * blocks))
        shades = int(rng.choice((3, 3, 1, 0))) if blocks > 5 else 3
        result.append((f"{number:03}", mosaic(shape, shades, rng)))
    return result


def tiny_mosaics() -> list[tuple[str, Pixels]]:
    """Return random block mosaics of 24 to 48 pixels."""
    result = []
    for name, blocks in mosaics():
        side = int(generator("tiny mosaic", name).choice(TINY_SIDES))
        size = [max(8, round(side * n / max(blocks.shape[:2]))) for n in blocks.shape[1::-1]]
        tiny = cv2.resize(blocks, size, interpolation=cv2.INTER_NEAREST)
        result.append((name, np.asarray(tiny, np.uint8)))
    return result


def _flag(layout: str, colours: Pixels) -> Pixels:
    height, width = 88, 128
    flag = np.empty((height, width, 3), np.uint8)
    flag[:] = colours[0]
    ink = colours[1].tolist()
    if layout == "bands":
        flag[height // 3 :], flag[2 * height // 3 :] = colours[1], colours[2]
    elif layout == "columns":
        flag[:, width // 3 :], flag[:, 2 * width // 3 :] = colours[1], colours[2]
    elif layout == "stripes":
        flag[height // 5 : 2 * height // 5] = flag[3 * height // 5 : 4 * height // 5] = colours[1]
    elif layout == "cross":
        flag[height // 2 - 8 : height // 2 + 8] = flag[:, width // 3 - 8 : width // 3 + 8] = ink
    elif layout == "saltire":
        cv2.line(flag, (0, 0), (width, height), ink, 14)
        cv2.line(flag, (width, 0), (0, height), ink, 14)
    elif layout == "disc":
        cv2.circle(flag, (width // 2, height // 2), height // 4, ink, -1)
    else:
        flag[height // 2 :] = ink
    if layout == "canton":
        flag[: height // 2, : 2 * width // 5] = colours[2]
    elif layout == "triangle":
        corners = np.array([[0, 0], [width // 2, height // 2], [0, height]])
        cv2.fillPoly(flag, [corners], colours[2].tolist())
    return flag
