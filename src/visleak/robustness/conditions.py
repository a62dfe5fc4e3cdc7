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
from typing import Final

import numpy as np

from visleak.errors import UsageError
from visleak.records import Bytes8
from visleak.robustness import changes
from visleak.robustness.changes import Change, bounded, plain

__all__ = ["BEYOND", "CONDITIONS", "CONSTANTS", "PAPER", "Condition", "bounded", "named"]


@dataclass(frozen=True, slots=True)
class Condition:
    """One way to change an image."""

    name: str
    description: str
    change: Change
    group: str = "paper"  # Ramos et al. (2025), section 6, or `beyond`
    others: int = 0  # further images of the collection that it needs
    seed: int | None = None  # of chance; `None` takes one from condition and image id

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
    return Condition(name, text, plain(partial(changes.turned, degrees=degrees)), group)


#: The nineteen conditions of Ramos et al. 2025, section 6, in the order of its figure 6.
PAPER: Final = (
    Condition("original", "not changed", plain(lambda pixels: pixels)),
    Condition("flip-v", "upside down", plain(partial(changes.flipped, axis=0))),
    Condition("flip-h", "mirrored left to right", plain(partial(changes.flipped, axis=1))),
    *(_turn(f"rot-{degrees}", degrees) for degrees in (45, 135, 225, 315)),
    *(
        Condition(
            f"crop-{border}",
            f"{border} pixels removed on each side; not where fewer than {changes.LEAST_LEFT} would"
            " be left",
            plain(partial(changes.cropped, border=border)),
        )
        for border in (20, 50, 100)
    ),
    Condition("gauss", f"Gaussian blur, sigma {changes.BLUR_SIGMA:g} px", plain(changes.blurred)),
    Condition(
        "noise",
        f"Gaussian noise N(0, {changes.NOISE_SIGMA:g}) on 8 bit, clipped,"
        f" seed {changes.NOISE_SEED}",
        changes.noisy,
        seed=changes.NOISE_SEED,
    ),
    *(
        Condition(
            f"rs-{side}",
            f"resized to {side} x {side} pixels, aspect ratio given up",
            plain(partial(changes.resized, width=side, height=side)),
        )
        for side in (128, 256)
    ),
    Condition("gray", "luminance (ITU-R BT.601) in all channels", plain(changes.grey)),
    Condition("invert", "255 minus every value", plain(changes.inverted)),
    *(
        Condition(
            name,
            f"luminance (ITU-R BT.601) mapped from black to {name}",
            plain(partial(changes.tinted, channel=channel)),
        )
        for channel, name in enumerate(("red", "green", "blue"))
    ),
)

_beyond = partial(Condition, group="beyond")

#: Conditions beyond the paper.
BEYOND: Final = (
    *(
        _beyond(
            f"jpeg-{quality}",
            f"JPEG compression at quality {quality}, chroma at half resolution",
            plain(partial(changes.compressed, quality=quality)),
        )
        for quality in (5, 10, 30, 50, 70, 90)
    ),
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
    _beyond(
        "collage",
        "2 x 2 with three others of the collection, at half size",
        changes.tiled,
        others=3,
    ),
    _beyond(
        "screenshot",
        f"shown at {changes.SHOT_SCALE:.0%} in a drawn page of {changes.SHOT_PAGE:g} times"
        " its size",
        plain(changes.on_screen),
    ),
    _turn("rot-5", 5, "beyond"),
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
CONSTANTS: Final[Mapping[str, float | str]] = {
    **{
        name.lower(): getattr(changes, name)
        for name in (
            *("LONG_SIDE", "LEAST_LEFT", "BLUR_SIGMA", "NOISE_SIGMA", "NOISE_SEED"),
            *("CAPTION_HEIGHT", "LOGO_SIZE", "LOGO_OPACITY", "LETTERBOX_MARGIN", "STRETCH"),
            *("SHOT_SCALE", "SHOT_PAGE", "PERSPECTIVE", "AREA"),
        )
    },
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
