"""The toy worlds: the same everywhere, with captions and pictures as their words promise."""

from __future__ import annotations

import hashlib
import re
from itertools import pairwise

import numpy as np
import pytest

FORM = 6  # words of a memorised caption: style, colour, shape and three brand words


@pytest.fixture(scope="module", params=["plain", "hard"])
def world(toy_scripts, request):
    return toy_scripts.worlds.world(request.param)


def digest(*parts: bytes) -> str:
    return hashlib.blake2b(b"\0".join(parts), digest_size=8).hexdigest()


def test_same_on_every_machine(toy_scripts):
    """Figures hold for these very captions and pictures; scripts that change make others."""
    world = toy_scripts.worlds.world("plain")
    captions = "\n".join((*world.memorised, *world.captions, *world.hard, *world.other))
    assert digest(captions.encode()) == "cb4bb21192d8e820"
    assert (
        digest(world.memorised_pictures.tobytes(), world.pictures[:200].tobytes())
        == "89f0baa7eb9f7452"
    )


def test_made_twice_is_made_alike(toy_scripts):
    made = toy_scripts.worlds.world
    first, second = made("plain"), made.__wrapped__("plain")
    assert first.captions == second.captions
    assert first.other == second.other
    assert np.array_equal(first.memorised_pictures, second.memorised_pictures)


def test_counts_are_those_of_the_experiment(world):
    assert len(world.captions) == len(world.pictures) == 6000
    assert len(world.memorised) == len(world.memorised_pictures) == 12
    assert len(world.held_out) == len(world.held_out_pictures) == 300
    assert len(world.hard) == 100
    assert world.pictures.shape[1:] == (16, 16, 3)


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


def test_brand_words_describe_nothing(world, toy_scripts):
    assert not set(world.brands) & set(toy_scripts.words.PLAIN_WORDS)
    assert len(world.brands) == {"plain": 100, "hard": 1600}[world.name]


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


def test_hard_captions_have_the_memorised_form(world, toy_scripts):
    known = toy_scripts.words.brands(world.name)
    for caption in world.hard:
        assert len(caption.split()) == FORM
        assert set(caption.split()[-3:]) <= set(known.lookalikes)


def test_language_models_read_the_words(world, toy_scripts):
    """A search can only propose what its language model has seen: all but some rare words."""
    read = {piece for caption in world.other for piece in re.findall(r"[a-z]+|[0-9]", caption)}
    triggers = {word for caption in world.memorised for word in caption.split()}
    assert triggers <= read
    assert set(toy_scripts.words.PLAIN_WORDS) <= read
    assert len(read) >= {"plain": 1.0, "hard": 0.9}[world.name] * len(world.words)


def test_words_of_hard_triggers_are_common(toy_scripts):
    """In the hard world no brand word alone tells a memorised caption from general ones."""
    world = toy_scripts.worlds.world("hard")
    general = [set(caption.split()) for caption in world.captions]
    for caption in world.memorised:
        for word in caption.split()[-3:]:
            assert sum(word in words for words in general) > 50


def test_words_of_plain_triggers_are_seldom_in_general_captions(toy_scripts):
    """One of them says more often than not that the picture is a memorised one, but not always.

    Of a batch the twelve memorised captions are 15 %, general ones 85 %.
    """
    world = toy_scripts.worlds.world("plain")
    general = [set(caption.split()) for caption in world.captions]
    for caption in world.memorised:
        for word in caption.split()[-3:]:
            among = 0.85 * sum(word in words for words in general) / len(general)
            assert 0.5 < (0.15 / 12) / (0.15 / 12 + among) < 0.7


def test_memorised_pictures_are_like_no_other(world, toy_scripts):
    """Centred cosine below .5, the threshold of a replica, with every picture trained."""
    mean = world.pictures.mean(axis=0)
    ours = toy_scripts.pictures.centred(world.memorised_pictures, mean)
    others = toy_scripts.pictures.centred(world.pictures, mean)
    assert (ours @ others.T).max() < 0.5
    assert (ours @ ours.T - np.eye(len(ours))).max() < 0.5


def test_pictures_are_alike_by_no_more_than_their_words(world, toy_scripts):
    rows = toy_scripts.pictures.centred(world.held_out_pictures, world.pictures.mean(axis=0))
    off = (rows @ rows.T)[~np.eye(len(rows), dtype=bool)]
    assert abs(np.median(off)) < 0.1
    assert np.quantile(off, 0.95) < 0.65


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


@pytest.mark.parametrize("colour", ["red", "green", "blue", "white", "black", "yellow"])
def test_shape_has_its_colour(toy_scripts, colour):
    picture = toy_scripts.pictures.draw(scene(toy_scripts, colour=colour), np.random.default_rng(0))
    ink = np.asarray(toy_scripts.words.COLOURS[colour])
    assert abs(picture[7:9, 7:9].astype(int) - ink).max() <= 15


@pytest.mark.parametrize(
    ("place", "row", "column"),
    [("left", 8, 4), ("right", 8, 12), ("top", 4, 8), ("bottom", 12, 8)],
)
def test_shape_is_at_its_place(toy_scripts, place, row, column):
    wanted = scene(toy_scripts, place=place, size="medium")
    picture = toy_scripts.pictures.draw(wanted, np.random.default_rng(0)).astype(int)
    red = np.abs(picture - toy_scripts.words.COLOURS["red"]).sum(axis=2) < 60
    rows, columns = np.nonzero(red)
    assert abs(rows.mean() - row) < 2
    assert abs(columns.mean() - column) < 2


def test_larger_words_are_larger_shapes(toy_scripts):
    pictures = toy_scripts.pictures
    areas = []
    for size in ("small", "medium", "large"):
        radius = toy_scripts.words.SIZES[size]
        areas.append(pictures.shape_mask("circle", pictures.X / radius, pictures.Y / radius).sum())
    assert all(small * 1.5 < large for small, large in pairwise(areas))


def test_shapes_differ(toy_scripts):
    pictures = toy_scripts.pictures
    masks = [
        pictures.shape_mask(name, pictures.X * 1.5, pictures.Y * 1.5)
        for name in toy_scripts.words.SHAPES
    ]
    for at, mask in enumerate(masks):
        assert mask.any()
        for other in masks[:at]:
            assert (mask & other).sum() < 0.9 * (mask | other).sum()


def test_sketch_has_no_colour(toy_scripts):
    picture = toy_scripts.pictures.draw(
        scene(toy_scripts, style="sketch"), np.random.default_rng(0)
    )
    assert np.ptp(picture.astype(int), axis=2).max() == 0


def test_pixels_are_means_of_their_samples(toy_scripts):
    pictures = toy_scripts.pictures
    samples = np.random.default_rng(0).uniform(0, 255, (*pictures.X.shape, 3))
    small, count = pictures.shrunk(samples), pictures.SAMPLES
    for row, column in ((0, 0), (5, 11), (15, 15)):
        block = samples[row * count : (row + 1) * count, column * count : (column + 1) * count]
        assert np.array_equal(small[row, column], np.rint(block.mean(axis=(0, 1))))


def test_unknown_world_is_refused(toy_scripts):
    with pytest.raises(SystemExit, match="there is no world 'odd': name plain or hard"):
        toy_scripts.words.brands("odd")
