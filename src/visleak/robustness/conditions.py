"""The conditions under which an encoder is tested: the paper's nineteen, and more.

An image is bounded to a long side of 500 pixels and changed at that resolution, before any
encoder sees it (Ramos et al. 2025, section 6.1). What a condition makes of an image depends on
the condition and the image's id alone, never on order, workers or the rest of the set; only a
collage depends on the three others in it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np

from visleak.errors import UsageError
from visleak.records import Bytes8
from visleak.robustness import changes
from visleak.robustness.changes import Change, bounded, plain

__all__ = ["BEYOND", "CONDITIONS", "CONSTANTS", "PAPER", "Condition", "bounded", "named"]


@dataclass(frozen=True, slots=True)
class Condition:
    """One way to change an image."""

    name: str  # how tables and the command line call it
    group: str  # `paper` (Ramos et al. 2025, section 6) or `beyond`
    description: str  # one line with its constants
    change: Change  # what is done; use apply or of
    others: int = 0  # how many other images of the collection it needs
    # fixed seed of its generator; `None` takes one from condition and image id
    seed: int | None = None

    def apply(
        self, pixels: Bytes8, others: Sequence[Bytes8], rng: np.random.Generator
    ) -> Bytes8 | None:
        """Return the changed image, or ``None`` if the condition does not apply."""
        return self.change(pixels, others, rng)

    def rng(self, image_id: str) -> np.random.Generator:
        """Return the source of chance for an image: the same whenever it is asked for."""
        if self.seed is not None:
            return np.random.default_rng(self.seed)
        text = f"{self.name}\0{image_id}".encode("utf-8", "backslashreplace")
        digest = hashlib.blake2b(text, digest_size=16).digest()
        return np.random.default_rng(int.from_bytes(digest, "little"))

    def of(self, pixels: Bytes8, image_id: str, others: Sequence[Bytes8] = ()) -> Bytes8 | None:
        """Return the changed image of an image, by its own source of chance."""
        return self.apply(pixels, others, self.rng(image_id))


def _paper(name: str, description: str, change: Change, seed: int | None = None) -> Condition:
    return Condition(name, "paper", description, change, seed=seed)


def _turn(name: str, group: str, degrees: int) -> Condition:
    said = f"turned clockwise by {degrees} degrees about the centre; canvas kept, corners black"
    return Condition(name, group, said, plain(partial(changes.turned, degrees=degrees)))


def _crop(border: int) -> Condition:
    said = (
        f"{border} pixels removed on each side; not where fewer than {changes.LEAST_LEFT} would be"
        " left"
    )
    return _paper(f"crop-{border}", said, plain(partial(changes.cropped, border=border)))


def _size(side: int) -> Condition:
    said = f"resized to {side} x {side} pixels, aspect ratio given up"
    change = partial(changes.resized, width=side, height=side)
    return _paper(f"rs-{side}", said, plain(change))


def _tint(channel: int) -> Condition:
    name = ("red", "green", "blue")[channel]
    said = f"luminance (ITU-R BT.601) mapped from black to {name}"
    return _paper(name, said, plain(partial(changes.tinted, channel=channel)))


def _jpeg(quality: int) -> Condition:
    said = f"JPEG compression at quality {quality}, chroma at half resolution"
    change = plain(partial(changes.compressed, quality=quality))
    return Condition(f"jpeg-{quality}", "beyond", said, change)


#: The nineteen conditions of Ramos et al. 2025, section 6, in the order of its figure 6.
PAPER: Final = (
    _paper("original", "not changed", plain(lambda pixels: pixels)),
    _paper("flip-v", "upside down", plain(partial(changes.flipped, axis=0))),
    _paper("flip-h", "mirrored left to right", plain(partial(changes.flipped, axis=1))),
    *(_turn(f"rot-{degrees}", "paper", degrees) for degrees in (45, 135, 225, 315)),
    *(_crop(border) for border in (20, 50, 100)),
    _paper("gauss", f"Gaussian blur, sigma {changes.BLUR_SIGMA:g} px", plain(changes.blurred)),
    _paper(
        "noise",
        f"Gaussian noise N(0, {changes.NOISE_SIGMA:g}) on 8 bit, clipped,"
        f" seed {changes.NOISE_SEED}",
        changes.noisy,
        seed=changes.NOISE_SEED,
    ),
    *(_size(side) for side in (128, 256)),
    _paper("gray", "luminance (ITU-R BT.601) in all channels", plain(changes.grey)),
    _paper("invert", "255 minus every value", plain(changes.inverted)),
    *(_tint(channel) for channel in range(3)),
)


def _beyond(name: str, description: str, change: Change, others: int = 0) -> Condition:
    return Condition(name, "beyond", description, change, others)


#: Conditions beyond the paper.
BEYOND: Final = (
    *(_jpeg(quality) for quality in (5, 10, 30, 50, 70, 90)),
    _beyond(
        "text",
        f"a caption of two lines, each up to {changes.CAPTION_HEIGHT:.0%} of the height",
        plain(changes.captioned),
    ),
    _beyond(
        "logo",
        f"an emblem of {changes.LOGO_SIZE:.0%} of the short side in a corner,"
        f" {changes.LOGO_OPACITY:.0%} opaque",
        changes.with_logo,
    ),
    _beyond(
        "border",
        f"letterboxed to a black square, {changes.LETTERBOX_MARGIN:.0%} margin all round",
        plain(changes.letterboxed),
    ),
    _beyond(
        "aspect",
        f"stretched: width to height times {changes.STRETCH:g}, area kept",
        plain(changes.stretched),
    ),
    _beyond("collage", "2 x 2 with three others of the collection, at half size", changes.tiled, 3),
    _beyond(
        "screenshot",
        f"shown at {changes.SHOT_SCALE:.0%} in a drawn page of {changes.SHOT_PAGE:g} times"
        " its size",
        plain(changes.on_screen),
    ),
    _turn("rot-5", "beyond", 5),
    _beyond(
        "perspective",
        f"each corner moved inwards by up to {changes.PERSPECTIVE:.0%} of the side; the rest black",
        changes.tilted,
    ),
    _beyond(
        "crop-area-20",
        f"{changes.AREA:.0%} of the area at a random place; not where a side would fall below"
        f" {changes.LEAST_LEFT}",
        changes.small_part,
    ),
)

#: All conditions by name, the paper's first.
CONDITIONS: Final[Mapping[str, Condition]] = {c.name: c for c in (*PAPER, *BEYOND)}

#: Names that stand for several conditions.
GROUPS: Final[Mapping[str, tuple[Condition, ...]]] = {
    "paper": PAPER,
    "beyond": BEYOND,
    "all": (*PAPER, *BEYOND),
}

#: Constants of all conditions, stored with every result.
CONSTANTS: Final[Mapping[str, Any]] = {
    "long_side": changes.LONG_SIDE,
    "least_left": changes.LEAST_LEFT,
    "blur_sigma": changes.BLUR_SIGMA,
    "noise_sigma": changes.NOISE_SIGMA,
    "noise_seed": changes.NOISE_SEED,
    "rotation": "clockwise, canvas kept, black fill, linear interpolation",
    "luminance": "ITU-R BT.601",
    "caption_height": changes.CAPTION_HEIGHT,
    "logo_size": changes.LOGO_SIZE,
    "logo_opacity": changes.LOGO_OPACITY,
    "letterbox_margin": changes.LETTERBOX_MARGIN,
    "stretch": changes.STRETCH,
    "shot_scale": changes.SHOT_SCALE,
    "shot_page": changes.SHOT_PAGE,
    "perspective": changes.PERSPECTIVE,
    "area": changes.AREA,
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
