"""Searching images by words, and the reference performance, against loops over all pairs."""

import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from PIL import Image

from visleak.encoders.features import load_alignment
from visleak.errors import UsageError, VisleakError
from visleak.memorization.extraction.similarity import PixelSimilarity
from visleak.memorization.metrics import (
    FolderByPrompt,
    against_references,
    copying,
    reference_performance,
)

PROMPTS = ["a red circle", "a blue square", "the red square of a circle"]


@pytest.fixture(scope="module")
def model(word_clip):
    return load_alignment(str(word_clip), device="cpu")


@pytest.fixture(scope="module")
def source(tmp_path_factory, small_pictures, model):
    """Search eight images, one that is none, and one that comes twice."""
    made = tmp_path_factory.mktemp("searched")
    for number, pixels in enumerate([*small_pictures, small_pictures[2]]):
        Image.fromarray(pixels).save(made / f"{number}.png")
    (made / "broken.png").write_bytes(b"words")
    return FolderByPrompt(str(made), model, workers=1, cache=None)


@pytest.mark.parametrize("block", [2, 100])
def test_the_nearest_image_is_kept(source, model, small_pictures, block, monkeypatch):
    """By all pairs; of two equal images the first in the set, and its memorized images."""
    # a function of the same name hides the module
    monkeypatch.setattr(sys.modules[FolderByPrompt.__module__], "BLOCK", block)
    table = model.texts(PROMPTS) @ model.images(small_pictures).T
    best = table.argmax(1)
    rows, cosines = source.nearest(PROMPTS)
    assert rows.tolist() == best.tolist()
    np.testing.assert_allclose(cosines, table.max(1), atol=1e-6)
    assert [len(each) for each in source.nearest([])] == [0, 0]
    measure, told = PixelSimilarity(), []
    references = [[small_pictures[6], small_pictures[7]], [], [small_pictures[0]]]
    similarity, clip = reference_performance(
        *(source, PROMPTS, references.__getitem__, measure),
        progress=lambda step, done, total: told.append((done, total)),
    )
    np.testing.assert_array_equal(clip, cosines)
    for number in (0, 2):
        wanted = measure.between([small_pictures[best[number]]], references[number]).max()
        assert similarity[number] == pytest.approx(wanted)
    assert np.isnan(similarity[1])
    assert told[-1] == (3, 3)


def test_an_image_that_is_lost_has_no_similarity(model, small_pictures, tmp_path):
    Image.fromarray(small_pictures[0]).save(tmp_path / "0.png")
    source = FolderByPrompt(str(tmp_path), model, workers=1, cache=None)
    (tmp_path / "0.png").write_bytes(b"words")
    found = reference_performance(source, PROMPTS, lambda _: small_pictures[:1], PixelSimilarity())
    assert np.isnan(found[0]).all()
    assert np.isfinite(found[1]).all()


def test_another_picture_of_the_same_name_is_another_search(model, small_pictures, tmp_path):
    """What a finished benchmark was asked for is told apart by it."""
    about = []
    for chosen in ([0, 1], [0, 1], [0, 2]):
        for name, number in enumerate(chosen):
            Image.fromarray(small_pictures[number]).save(tmp_path / f"{name}.png")
        about.append(FolderByPrompt(str(tmp_path), model, workers=1, cache=None).about())
    assert about[0] == about[1] != about[2]
    assert {**about[0], "digest": ""} == {**about[2], "digest": ""}


def test_a_folder_without_pictures(tmp_path, model):
    (tmp_path / "words.png").write_bytes(b"words")
    with pytest.raises(VisleakError, match=r"none of the images of \S+ can be read, such as 'wo"):
        FolderByPrompt(str(tmp_path), model, workers=1, cache=None)


TABLES = arrays(
    np.float64,
    st.tuples(st.integers(1, 5), st.integers(1, 6)),
    # coarse, so that ties and values on the limit come up
    elements=st.integers(-10, 10).map(lambda tenth: tenth / 10),
)


@given(TABLES, st.sampled_from([0.5, 0.7]))
def test_the_three_numbers_are_the_papers(table, limit):
    """By sorting lists; on the limit is no copy."""
    found = copying(table, limit)
    for row, own in enumerate(table.tolist()):
        falling = sorted(own, reverse=True)
        best = falling[:3]
        assert found.top1[row] == falling[0]
        assert found.top3[row] == pytest.approx(sum(best) / len(best))
        assert found.share[row] == sum(each > limit for each in own) / len(own)


def test_an_unknown_prompt_stays_unknown():
    """A prompt whose images are not at hand is no prompt without copies."""
    found = copying([[0.9, 0.8], [np.nan, np.nan]])
    for column in (found.top1, found.top3, found.share):
        assert np.isnan(column).tolist() == [False, True]
    with pytest.raises(UsageError, match="finite for all of its images, or NaN for all of them"):
        copying([[0.9, np.nan]])
    with pytest.raises(UsageError, match="finite for all of its images"):
        copying([[0.9, np.inf]])
    for shape in ((0,), (2, 0)):
        with pytest.raises(UsageError, match="similarities are a table of prompts and their im"):
            copying(np.zeros(shape))


def test_the_nearest_reference_counts(small_pictures):
    """One of them is a replay of the first image."""
    similarity = PixelSimilarity()
    images, references = small_pictures[:3], [small_pictures[5], small_pictures[0]]
    found = against_references(similarity, images, references)
    assert found[0] == pytest.approx(1.0)
    assert found[1] < 0.9
    assert against_references(similarity, [], references).shape == (0,)
    with pytest.raises(UsageError, match="there are no memorized images to compare with"):
        against_references(similarity, images, [])
