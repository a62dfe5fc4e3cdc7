"""Top-1, top-3 and the share of copies against loops that say what the paper says."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from visleak.errors import UsageError
from visleak.memorization.extraction.similarity import PixelSimilarity
from visleak.memorization.metrics import against_references, copying

TABLES = arrays(
    np.float64,
    st.tuples(st.integers(1, 5), st.integers(1, 6)),
    # coarse, so that ties and values on the limit come up
    elements=st.integers(-10, 10).map(lambda tenth: tenth / 10),
)


@given(TABLES, st.sampled_from([0.5, 0.7]))
def test_the_three_numbers_are_the_papers(table: np.ndarray, limit: float) -> None:
    """By sorting lists; on the limit is no copy."""
    found = copying(table, limit)
    for row, own in enumerate(table.tolist()):
        falling = sorted(own, reverse=True)
        best = falling[:3]
        assert found.top1[row] == falling[0]
        assert found.top3[row] == pytest.approx(sum(best) / len(best))
        assert found.share[row] == sum(each > limit for each in own) / len(own)


def test_an_unknown_prompt_stays_unknown() -> None:
    """A prompt whose images are not at hand is no prompt without copies."""
    found = copying([[0.9, 0.8], [np.nan, np.nan]])
    for column in (found.top1, found.top3, found.share):
        assert np.isnan(column).tolist() == [False, True]
    with pytest.raises(UsageError, match="finite for all of its images, or NaN for all of them"):
        copying([[0.9, np.nan]])
    with pytest.raises(UsageError, match="finite for all of its images"):
        copying([[0.9, np.inf]])


@pytest.mark.parametrize("shape", [(0,), (2, 0), (1, 1, 1)])
def test_what_is_no_table(shape: tuple[int, ...]) -> None:
    with pytest.raises(UsageError, match="similarities are a table of prompts and their images"):
        copying(np.zeros(shape))


def test_the_nearest_reference_counts(small_pictures: list[np.ndarray]) -> None:
    """Against each reference by itself; one of them is a replay of the first image."""
    similarity = PixelSimilarity()
    images, references = small_pictures[:3], [small_pictures[5], small_pictures[0]]
    found = against_references(similarity, images, references)
    one_by_one = [
        max(similarity.between([image], [reference])[0, 0] for reference in references)
        for image in images
    ]
    np.testing.assert_allclose(found, one_by_one, atol=1e-12)
    assert found[0] == pytest.approx(1.0)
    assert found[1] < 0.9
    assert against_references(similarity, [], references).shape == (0,)
    with pytest.raises(UsageError, match="there are no memorized images to compare with"):
        against_references(similarity, images, [])
