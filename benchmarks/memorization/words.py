"""The words of the toy worlds: descriptions of images, digits, and random brand words."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

COLOURS = {
    "red": (214, 40, 40),
    "orange": (240, 134, 30),
    "yellow": (245, 214, 50),
    "green": (46, 160, 67),
    "blue": (40, 80, 214),
    "purple": (134, 54, 184),
    "pink": (244, 150, 190),
    "white": (240, 240, 240),
    "black": (18, 18, 18),
    "gray": (128, 128, 128),
}
SHAPES = ("circle", "square", "triangle", "diamond", "ring", "cross", "bar", "crescent")
SIZES = {"small": 0.34, "medium": 0.52, "large": 0.74}
PLACES = {
    "center": (0.0, 0.0),
    "left": (-0.42, 0.0),
    "right": (0.42, 0.0),
    "top": (0.0, -0.42),
    "bottom": (0.0, 0.42),
}
TEXTURES = ("solid", "striped", "dotted", "checkered", "shaded")
STYLES = ("photo", "painting", "sketch", "poster", "print")
SCENERIES = ("sky", "grass", "sand", "night")
GLUE = ("a", "of", "at", "the", "on", "background", "dark", "light")
DIGITS = tuple("0123456789")

#: Words that describe an image, and function words.
PLAIN_WORDS = (*COLOURS, *SHAPES, *SIZES, *PLACES, *TEXTURES, *STYLES, *SCENERIES, *GLUE)

CONSONANTS, VOWELS = "bdfgklmnprstvz", "aeiou"


@dataclass(frozen=True, slots=True)
class Brands:
    """The meaningless words of a world.

    Attributes:
        every: all of them.
        trained: those that are frequent in general captions.
        rare: those that are rare in general captions; empty if ``trained`` has all.
        triggers: those in memorized captions.
        lookalikes: those in captions of the memorized form that are not trained on.
    """

    every: tuple[str, ...]
    trained: tuple[str, ...]
    rare: tuple[str, ...]
    triggers: tuple[str, ...]
    lookalikes: tuple[str, ...]


def made_up(count: int, syllables: int, rng: np.random.Generator) -> tuple[str, ...]:
    """Return distinct random words with a number of syllables, none of them a descriptive word.

    >>> len(made_up(5, 4, np.random.default_rng(0))[0])
    8
    """
    found: dict[str, None] = {}
    while len(found) < count:
        parts = (
            CONSONANTS[rng.integers(len(CONSONANTS))] + VOWELS[rng.integers(len(VOWELS))]
            for _ in range(syllables)
        )
        word = "".join(parts)
        if word not in PLAIN_WORDS:
            found[word] = None
    return tuple(found)


def brands(world: str, seed: int = 0) -> Brands:
    """Return the random words of a world.

    ``plain``: 100 words of two syllables, all of them rare in general captions; 36 are so much more
    frequent in memorized captions that one of them may trigger a memorized image. ``hard``: 1,600
    words of four syllables; memorized captions consist of 40 words that are frequent in general
    captions, so that only a combination is a trigger.

    Raises:
        SystemExit: unknown world.
    """
    if world == "plain":
        every = made_up(100, 2, np.random.default_rng([seed, 1]))
        return Brands(every, every, (), every[:36], every)
    if world == "hard":
        every = made_up(1600, 4, np.random.default_rng([seed, 2]))
        return Brands(every, every[:40], every[40:], every[:40], every[:40])
    raise SystemExit(f"there is no world {world!r}: name plain or hard")


def vocabulary(world: str, seed: int = 0) -> tuple[str, ...]:
    """Return every word of a world's captions, digits one by one, without special tokens.

    >>> len(vocabulary("plain")), len(vocabulary("hard"))
    (158, 1658)
    """
    return (*PLAIN_WORDS, *DIGITS, *brands(world, seed).every)
