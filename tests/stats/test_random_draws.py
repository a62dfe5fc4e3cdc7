"""Size, class mix and distribution of random draws."""

import numpy as np
import pytest

from visleak.stats.draws import matched_draws, part_draws, random_draws


def test_random_draws_have_mean_and_spread_of_drawing_without_replacement():
    """Cochran 1977, theorem 2.2: variance s^2/k (1 - k/n)."""
    values = np.random.default_rng(1).random((400, 1))
    (drawn,) = random_draws(values, [100], 4000, seed=0)
    assert drawn.scores.shape == (4000, 1)
    expected = values.std(ddof=1) / 10 * np.sqrt(1 - 0.25)
    assert drawn.scores.mean() == pytest.approx(values.mean(), abs=4 * expected / np.sqrt(4000))
    assert drawn.scores.std(ddof=1) == pytest.approx(expected, rel=0.05)
    assert (drawn.images, drawn.overlap) == (100, 0.25)


def test_a_draw_has_the_same_images_for_all_columns_and_sizes():
    values = np.random.default_rng(1).random((50, 1))
    alone = random_draws(values, [10], 20, seed=5)[0].scores
    both, other = random_draws(np.hstack([values, 2 * values]), [10, 20], 20, seed=5)
    np.testing.assert_allclose(both.scores[:, 0], alone[:, 0])
    np.testing.assert_allclose(both.scores[:, 1], 2 * alone[:, 0])
    assert not np.allclose(other.scores[:, 0], alone[:, 0])


def test_matched_draws_have_the_classes_of_the_leaked_images():
    classes = np.repeat([0, 1, 2], [50, 30, 20])
    columns = np.stack([classes == c for c in range(3)], axis=1).astype(float)
    leaked = np.zeros(100, bool)
    leaked[[0, 1, 2, 60, 61, 99]] = True
    (drawn,) = matched_draws(columns, classes, [leaked], 50, seed=0)
    np.testing.assert_allclose(drawn.scores, np.tile([3 / 6, 2 / 6, 1 / 6], (50, 1)))
    assert drawn.images == 6
    assert drawn.overlap == pytest.approx((9 / 50 + 4 / 30 + 1 / 20) / 6)


def test_matched_draws_are_uniform_within_classes():
    classes = np.repeat([0, 1], [5, 4])
    leaked = np.array([1, 1, 1, 1, 1, 1, 0, 0, 0], bool)
    columns = np.eye(9)
    (drawn,) = matched_draws(columns, classes, [leaked], 8000, seed=2)
    # each image at most once, and all images of a class that leaks completely
    assert set(np.unique(np.round(drawn.scores * 6, 9))) <= {0.0, 1.0}
    np.testing.assert_allclose(drawn.scores[:, :5], 1 / 6)
    np.testing.assert_allclose(drawn.scores[:, 5:].mean(axis=0) * 6, 0.25, atol=0.02)


def test_matched_draws_of_a_size_follow_the_mix_on_average():
    classes = np.repeat([0, 1], [60, 40])
    leaked = np.zeros(100, bool)
    leaked[:5], leaked[60:80] = True, True
    columns = (classes == 1).astype(float)[:, None]
    (drawn,) = matched_draws(columns, classes, [leaked], 3000, seed=0, size=10)
    assert drawn.images == 10
    assert drawn.scores.mean() == pytest.approx(20 / 25, abs=0.01)


def test_a_part_not_larger_than_the_draw_is_used_once():
    columns = np.arange(6.0)[:, None]
    part = np.array([1, 1, 1, 0, 0, 0], bool)
    whole = part_draws(columns, part, 3, 10, seed=0)
    assert (whole.scores.tolist(), whole.images, whole.overlap) == ([[1.0]], 3, 1.0)
    drawn = part_draws(columns, part, 2, 10, seed=0)
    assert drawn.scores.shape == (10, 1)
    assert set(drawn.scores[:, 0]) <= {0.5, 1.0, 1.5}
    assert drawn.overlap == pytest.approx(2 / 3)
