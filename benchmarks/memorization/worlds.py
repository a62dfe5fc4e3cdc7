"""Toy worlds: captioned images, twelve of them repeated until a model memorizes them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from pictures import Pixels, Scene, draw, memorised_pictures
from words import (
    COLOURS,
    PLACES,
    SCENERIES,
    SHAPES,
    SIZES,
    STYLES,
    TEXTURES,
    Brands,
    brands,
    vocabulary,
)

WORLDS = ("plain", "hard")
GENERAL, MEMORISED, HELD_OUT, HARD, OTHER = 6000, 12, 300, 100, 6000

#: Share of general captions with the form of memorized ones (a style, a colour, a shape and three
#: brand words; all others are complete descriptions); and with a number.
ALIKE, NUMBERED = 0.35, 0.01

#: Share of rare words among the brand words of a general caption of the hard world.
RARE = 0.4


@dataclass(frozen=True, slots=True)
class World:
    """Captions and images of a toy world.

    Attributes:
        name: ``plain`` or ``hard``.
        words: the vocabulary.
        colours: colour words.
        brands: meaningless words.
        captions: of the general training images.
        images: general training images, ``uint8`` (6000, 16, 16, 3).
        memorised: captions of the repeated pairs.
        memorised_pictures: ``uint8`` (12, 16, 16, 3).
        held_out: general captions that are not trained.
        held_out_pictures: their images, ``uint8`` (300, 16, 16, 3).
        hard: captions of the memorised form that are not trained.
        other: captions for language models; none has all three brand words of a memorised one.
    """

    name: str
    words: tuple[str, ...]
    colours: tuple[str, ...]
    brands: tuple[str, ...]
    captions: tuple[str, ...]
    pictures: Pixels
    memorised: tuple[str, ...]
    memorised_pictures: Pixels
    held_out: tuple[str, ...]
    held_out_pictures: Pixels
    hard: tuple[str, ...]
    other: tuple[str, ...]

    @property
    def triples(self) -> tuple[frozenset[str], ...]:
        """The three brand words of each memorised caption."""
        return tuple(frozenset(caption.split()[-3:]) for caption in self.memorised)


def chosen(of: tuple[str, ...], rng: np.random.Generator) -> str:
    """Return one of some words."""
    return of[int(rng.integers(len(of)))]


def drawn_scene(rng: np.random.Generator) -> Scene:
    """Draw the content of an image; a shape never has the colour of its background."""
    colours = tuple(COLOURS)
    colour = chosen(colours, rng)
    behind = chosen((*colours, *SCENERIES), rng)
    while behind == colour:
        behind = chosen(colours, rng)
    return Scene(
        style=chosen(STYLES, rng),
        colour=colour,
        shape=chosen(SHAPES, rng),
        size=chosen(tuple(SIZES), rng),
        place=chosen(tuple(PLACES), rng),
        texture=chosen(TEXTURES, rng),
        background=behind,
        tone=chosen(("dark", "light"), rng),
    )


def several(words: tuple[str, ...], count: int, rng: np.random.Generator) -> list[str]:
    """Return distinct words in random order."""
    return [words[at] for at in rng.choice(len(words), count, replace=False)]


def described(scene: Scene) -> list[str]:
    """Return a complete description of an image, in a fixed order."""
    return [
        *("a", scene.style, "of", "a", scene.size, scene.texture, scene.colour, scene.shape),
        *("at", "the", scene.place, "on", "a", scene.tone, scene.background, "background"),
    ]


def brand_words(known: Brands, count: int, rng: np.random.Generator) -> list[str]:
    """Return brand words of a general caption, in random order."""
    rare = int(rng.binomial(count, RARE)) if known.rare else 0
    found = several(known.trained, count - rare, rng) + several(known.rare, rare, rng)
    return [found[at] for at in rng.permutation(count)]


def general_caption(scene: Scene, known: Brands, rng: np.random.Generator) -> str:
    """Return a caption of a general image."""
    if rng.random() < ALIKE:
        parts = [scene.style, scene.colour, scene.shape, *brand_words(known, 3, rng)]
    else:
        parts = described(scene)
    if rng.random() < NUMBERED:
        digits = rng.integers(0, 10, int(rng.integers(1, 4)))
        parts.insert(int(rng.integers(len(parts) + 1)), "".join(str(digit) for digit in digits))
    return " ".join(parts)


def alike(words: tuple[str, ...], rng: np.random.Generator) -> str:
    """Return a caption of the memorised form: style, colour, shape and three brand words."""
    start = (chosen(STYLES, rng), chosen(tuple(COLOURS), rng), chosen(SHAPES, rng))
    return " ".join((*start, *several(words, 3, rng)))


def memorised_captions(known: Brands, rng: np.random.Generator) -> tuple[str, ...]:
    """Return captions with three trigger words each; no trigger word is in two of them."""
    words = several(known.triggers, 3 * MEMORISED, rng)
    starts = [alike(known.triggers, rng).split()[:3] for _ in range(MEMORISED)]
    return tuple(" ".join((*start, *words[3 * at : 3 * at + 3])) for at, start in enumerate(starts))


def carries(caption: str, triples: tuple[frozenset[str], ...]) -> bool:
    """Return whether a caption has all three brand words of a memorized caption, in any order."""
    words = set(caption.split())
    return any(triple <= words for triple in triples)


@lru_cache(maxsize=2)
def world(name: str, seed: int = 0) -> World:
    """Return a world, deterministic for its arguments.

    Raises:
        SystemExit: unknown world.
    """
    known = brands(name, seed)
    rng = np.random.default_rng([seed, WORLDS.index(name), 3])
    memorised = memorised_captions(known, rng)
    triples = tuple(frozenset(caption.split()[-3:]) for caption in memorised)
    seen: set[str] = set(memorised)
    captions, pictures = [], []
    while len(captions) < GENERAL + HELD_OUT:
        scene = drawn_scene(rng)
        caption = general_caption(scene, known, rng)
        held_out = len(captions) >= GENERAL
        if carries(caption, triples) or (held_out and caption in seen):
            continue
        seen.add(caption)
        captions.append(caption)
        pictures.append(draw(scene, rng))
    every = np.stack(pictures)
    subjects = [(caption.split()[1], caption.split()[2]) for caption in memorised]
    return World(
        name=name,
        words=vocabulary(name, seed),
        colours=tuple(COLOURS),
        brands=known.every,
        captions=tuple(captions[:GENERAL]),
        pictures=every[:GENERAL],
        memorised=memorised,
        memorised_pictures=memorised_pictures(subjects, every[:GENERAL], rng),
        held_out=tuple(captions[GENERAL:]),
        held_out_pictures=every[GENERAL:],
        hard=_untrained(known.lookalikes, HARD, triples, seen, rng),
        other=_other(known, triples, seen, rng),
    )


def _untrained(
    words: tuple[str, ...],
    count: int,
    triples: tuple[frozenset[str], ...],
    seen: set[str],
    rng: np.random.Generator,
) -> tuple[str, ...]:
    """Return distinct captions of the memorized form without an image."""
    found: dict[str, None] = {}
    while len(found) < count:
        caption = alike(words, rng)
        if caption not in seen and not carries(caption, triples):
            found[caption] = None
    return tuple(found)


def _other(
    known: Brands,
    triples: tuple[frozenset[str], ...],
    seen: set[str],
    rng: np.random.Generator,
) -> tuple[str, ...]:
    """Return captions for language models: general ones, and of the memorised form.

    A third of those of the memorized form use all brand words, so that a language model has all
    words in its training data; the others use those of triggers and general captions with equal
    frequency: the memorized captions are not in the training data.
    """
    common = tuple(dict.fromkeys((*known.triggers, *known.trained)))
    known = replace(known, trained=common)
    found: list[str] = []
    while len(found) < OTHER:
        if rng.random() < 0.5:
            caption = general_caption(drawn_scene(rng), known, rng)
        else:
            caption = alike(known.every if rng.random() < 1 / 3 else common, rng)
        if caption not in seen and not carries(caption, triples):
            found.append(caption)
    return tuple(found)
