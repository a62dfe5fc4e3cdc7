"""The toy worlds: the same everywhere, with captions and pictures as their words promise."""

from __future__ import annotations

import hashlib
import re

import numpy as np
import pytest

FORM = 6  # words of a memorised caption: style, colour, shape and three brand words


@pytest.fixture(scope="module", params=["plain", "hard"])
def world(toy_scripts, request):
    return toy_scripts.worlds.world(request.param)


def digest(*parts: bytes) -> str:
    return hashlib.blake2b(b"\0".join(parts), digest_size=8).hexdigest()


def test_made_twice_is_made_alike(toy_scripts):
    made = toy_scripts.worlds.world
    first, second = made("plain"), made.__wrapped__("plain")
    assert first.captions == second.captions
    assert first.other == second.other
    assert np.array_equal(first.memorised_pictures, second.memorised_pictures)


def test_vocabulary_holds_every_word_once(world):
    assert len(set(world.words)) == len(world.words)
    groups = (world.captions, world.memorised, world.held_out, world.hard, world.other)
    pieces = {
        piece
        for group in groups
        for caption in group
        for piece in re.findall(r"[a-z]+|[0-9]", caption)
    }
    assert pieces <= set(world.words)
    assert set(world.colours) | set(world.brands) <= set(world.words)


def test_memorised_captions_share_no_brand_word(world, toy_scripts):
    words = [word for caption in world.memorised for word in caption.split()[-3:]]
    assert len(set(words)) == len(words) == 36
    for caption in world.memorised:
        style, colour, shape, *_ = caption.split()
        assert style in toy_scripts.words.STYLES
        assert colour in toy_scripts.words.COLOURS
        assert shape in toy_scripts.words.SHAPES


def test_no_other_caption_carries_a_memorised_triple(world):
    triples = [set(caption.split()[-3:]) for caption in world.memorised]
    for group in (world.captions, world.held_out, world.hard, world.other):
        for caption in group:
            assert not any(triple <= set(caption.split()) for triple in triples)


def test_captions_kept_back_are_never_trained(world):
    trained = {*world.captions, *world.memorised}
    for group in (world.held_out, world.hard, world.other):
        assert not trained & set(group)
    assert len(set(world.held_out)) == 300
    assert not set(world.hard) & set(world.held_out)


def test_memorised_pictures_are_like_no_other(world, toy_scripts):
    """Centred cosine below .5, the threshold of a replica, with every picture trained."""
    mean = world.pictures.mean(axis=0)
    ours = toy_scripts.pictures.centred(world.memorised_pictures, mean)
    others = toy_scripts.pictures.centred(world.pictures, mean)
    assert (ours @ others.T).max() < 0.5
    assert (ours @ ours.T - np.eye(len(ours))).max() < 0.5


def scene(toy_scripts, **changed):
    plain = {
        "style": "photo",
        "colour": "red",
        "shape": "circle",
        "size": "large",
        "place": "center",
        "texture": "solid",
        "background": "blue",
        "tone": "",
    }
    return toy_scripts.pictures.Scene(**{**plain, **changed})
