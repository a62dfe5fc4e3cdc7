"""Grading: the probabilities of the grader, its text, and grades with their reasons."""

import re
from dataclasses import asdict

import numpy as np
import pytest
from scipy.special import expit

from visleak.errors import VisleakError
from visleak.grading import Grader, features, grade, load_grader, verdict
from visleak.grading.model import Logistic, PairModels, Product, Trees, as_text
from visleak.records import GRADES, Evidence, Grade
from visleak.verification.align import view_matrix
from visleak.verification.measures import CHECKS, NO_OVERLAP
from visleak.verification.tiny import TINY_NO_OVERLAP


def evidence(rows, other=0.5, skipped=None):
    """Return evidence with one row per mapping of measures; the others have another value."""
    names = ("screen", "across", "down", *CHECKS)
    checks = {n: np.array([row.get(n, other) for row in rows], np.float32) for n in names}
    matrix = np.tile(np.eye(3, dtype=np.float32).ravel(), (len(rows), 1))
    return Evidence(checks, matrix, None if skipped is None else np.array(skipped, np.int8))


def grader(**models):
    flat = Logistic(0.0, {})
    models = dict.fromkeys(("tiny", "large"), PairModels(flat, flat)) | {"screened": flat} | models
    return Grader(**models, near_at=0.5, digest="d", provenance="p")


def columns_of(rows, similarity=0.6, background=0.5):
    full = [np.full(len(rows), value, np.float32) for value in (similarity, background)]
    return features(*full, evidence(rows))


def test_tiny_large_and_unchecked_pairs_have_models_of_their_own():
    tiny = PairModels(Logistic(1.0, {}), Logistic(2.0, {}))
    large = PairModels(Logistic(-2.0, {"opposed": -1.0}), Logistic(-1.0, {}))
    made = grader(tiny=tiny, large=large, screened=Logistic(-5.0, {}))
    side = np.array([32, 48, 49, 160, np.nan], np.float32)
    near, similar = made.probabilities(columns_of([{}] * 3 + [{"opposed": 9.0}, {}]), side)
    # no pair is less probable than one that the screen rejected
    np.testing.assert_allclose(near, expit([1.0, 1.0, -2.5, -5.0, -5.0]))
    np.testing.assert_allclose(similar, [*expit([2.0, 2.0, -1.0, -1.0]), 0.0])


def test_near_pairs_are_similar_or_closer():
    doubtful = PairModels(Logistic(3.0, {}), Logistic(-3.0, {}))
    near, similar = grader(tiny=doubtful).probabilities(columns_of([{}]), np.float32([32]))
    assert similar[0] == near[0] == pytest.approx(expit(3.0))


def test_features_are_differences_and_fishers_z():
    columns = columns_of([{"core": 0.8, "gradient": -1.0, "directions": 0.7}])
    assert columns["corrected"][0] == pytest.approx(0.1, abs=1e-6)
    assert columns["core"][0] == pytest.approx(np.arctanh(0.8), abs=1e-6)
    assert np.isfinite(columns["gradient"][0])
    assert columns["directions"][0] == pytest.approx(0.7, abs=1e-6)


def test_a_grader_is_read_from_its_text():
    text = as_text(grader(screened=Logistic(0.1234567, {"core": 2.0})))
    again = load_grader(text)
    assert again.screened == Logistic(0.123457, {"core": 2.0})
    assert again.provenance == "p"
    assert load_grader(text).digest == again.digest != load_grader(text + " ").digest


def test_the_shipped_grader_has_known_features_and_provenance():
    shipped = load_grader()
    assert load_grader() is shipped
    assert {"CIFAR-10", "photographs"} <= set(re.findall(r"[\w-]+", shipped.provenance))
    known = set(columns_of([{}]))
    used = {name for trees in shipped.tiny.near.conditions.values() for name in trees.features}
    assert used | set(shipped.tiny.similar.weights) <= known
    assert set(shipped.large.near.conditions) == {"shared", "unchanged", "unmoved"}
    assert all(np.isfinite(chance) for (chance,) in shipped.conditions(columns_of([{}])).values())


def test_a_mark_on_each_image_speaks_against_a_copy_and_a_mark_on_one_does_not():
    one = {"laid_more": 6.0, "tinted_more": 6.5, "laid_less": -6.0, "tinted_less": 0.0}
    both = one | {"laid_less": 6.0, "tinted_less": 6.4}
    one, both = load_grader().conditions(columns_of([one, both]))["unmoved"]
    assert both < 0.5 < 0.95 < one


@pytest.mark.parametrize("measures", [NO_OVERLAP, TINY_NO_OVERLAP])
def test_images_without_overlap_are_not_near(measures):
    columns = columns_of([asdict(measures)], similarity=0.9, background=0.5)
    near, similar = load_grader().probabilities(columns, np.float32([measures.side]))
    assert near[0] < 0.02
    assert similar[0] < 0.5


@pytest.mark.parametrize(
    "text", ["", "[]", '{"tiny": 3}', '{"tiny": {"near": {"intercept": "x"}}}']
)
def test_other_texts_are_refused(text):
    with pytest.raises(VisleakError, match="grader file is not"):
        load_grader(text)


def test_trees_agree_with_scikit_learn():
    from sklearn.ensemble import HistGradientBoostingClassifier

    rng = np.random.default_rng(0)
    table = rng.normal(size=(600, 3))
    true = table[:, 0] * table[:, 1] + 0.3 * rng.normal(size=600) > 0
    model = HistGradientBoostingClassifier(max_iter=12, max_depth=3, random_state=0)
    model.fit(table, true)

    def of(node):
        if node["is_leaf"]:
            return (float(node["value"]),)
        feature, threshold = int(node["feature_idx"]), float(node["num_threshold"])
        return feature, threshold, int(node["left"]), int(node["right"])

    nodes = [[of(node) for node in predictor.nodes] for (predictor,) in model._predictors]
    made = Trees.of(float(model._baseline_prediction.ravel()[0]), ("a", "b", "c"), nodes)
    columns = dict(zip("abc", table.T, strict=True))
    expected = model.predict_proba(table)[:, 1]
    np.testing.assert_allclose(made.probability(columns), expected, atol=1e-9)
    both = Product({"first": Logistic(0.0, {"a": 1.0}), "second": made})
    chances = expit(table[:, 0]) * expected
    np.testing.assert_allclose(both.probability(columns), chances)
    again = load_grader(as_text(grader(large=PairModels(both, Logistic(0.0, {})))))
    np.testing.assert_allclose(again.large.near.probability(columns), chances, atol=1e-4)
    assert set(again.conditions(columns)) == {"first", "second"}


def test_a_missing_feature_has_no_probability():
    made = Trees.of(0.0, ("a",), [[(0, 0.5, 1, 2), (-1.0,), (1.0,)]])
    found = made.probability({"a": np.array([0.0, 1.0, np.nan])})
    np.testing.assert_allclose(found[:2], expit([-1.0, 1.0]))
    assert np.isnan(found[2])


#: Near if gradients agree, similar if grey values do.
SCALES = PairModels(Logistic(-10.0, {"gradient": 10.0}), Logistic(-10.0, {"grey": 10.0}))
GRADER = Grader(SCALES, SCALES, Logistic(-9.0, {}), near_at=0.5, digest="d", provenance="p")

CHECKED = {"screen": 0.8, "side": 32, "within": 0.96, "gain": 1, "offset": 0, "tint": 0, "patch": 4}
CHECKED |= {"query_ratio": 1.0, "reference_ratio": 1.0}
MISSING = dict.fromkeys(("screen", *CHECKS), np.nan)


def verdicts(*rows, equal=(), flat=(), skipped=None):
    """Return grades of pairs with some measures; the others are 0."""
    marks = [np.isin(np.arange(len(rows)), chosen) for chosen in (equal, flat)]
    zeros, found = np.zeros(len(rows), np.float32), evidence(rows, 0.0, skipped)
    return grade(zeros, zeros, found, equal_bytes=marks[0], flat=marks[1], grader=GRADER)


def names(grades):
    return [GRADES[number] if number >= 0 else None for number in grades.grade]


def test_each_grade():
    found = verdicts(
        {**CHECKED, "exact": 1, "gradient": 1.2},
        {**CHECKED, "gradient": 0.95},
        {**CHECKED, "grey": 0.95, "patch": 40},
        {**CHECKED, "gradient": 0.1},
    )
    assert names(found) == ["exact", "near", "similar", "different"]
    assert found.probability[0] >= 0.999
    assert found.probability[1] > 0.5 > found.probability[2]
    words = ("encoded again", "same shot", "similar", "do not agree")
    assert all(word in reason for word, reason in zip(words, found.reason, strict=True))


def test_equal_bytes_are_exact_without_measures_and_lost_images_have_no_grade():
    found = verdicts(MISSING, MISSING, equal=[0])
    assert names(found) == ["exact", None]
    np.testing.assert_equal(found.probability, [1, np.nan])
    assert found.reason[0] == "identical bytes"
    assert "decoded" in found.reason[1]


def test_skipped_pairs_have_no_grade_unless_their_bytes_are_equal():
    rows = [{**CHECKED, "gradient": 0.95}] * 5
    found = verdicts(*rows, equal=[4], skipped=[0, 1, 2, 3, 1])
    assert names(found) == ["near", None, None, None, "exact"]
    assert np.isnan(found.probability[1:4]).all()
    assert len(set(found.reason[1:4])) == 3
    assert all(reason.startswith("not verified") for reason in found.reason[1:4])


def test_pairs_that_the_screen_rejected_are_different():
    found = verdicts({**MISSING, "screen": 0.1})
    assert names(found) == ["different"]
    assert found.probability[0] == pytest.approx(1 / (1 + np.exp(9)), rel=1e-3)
    assert "align" in found.reason[0]


def test_blank_images_are_exact_or_similar_and_never_near():
    rows = {**CHECKED, "gradient": 0.99}, {**CHECKED, "gradient": 0.99, "exact": 1}
    found = verdicts(*rows, flat=[0, 1])
    assert names(found) == ["similar", "exact"]
    assert found.probability.tolist() == [0, 1]
    assert "blank" in found.reason[0]


def test_near_and_similar_pairs_have_a_transform():
    brighter = {**CHECKED, "gain": 1.0, "offset": 30.0, "tint": 40.0}
    found = verdicts({**brighter, "gradient": 0.95}, {**brighter, "gradient": 0.1})
    assert found.transform == ("brighter, other colours", "")
    assert found.transform[0] in found.reason[0]
    assert "96 %" in found.reason[0]


UNCHANGED = {"gain": 1.0, "offset": 0.0, "tint": 0.0}
FINE = {"close_side": 600.0, "altered_places": 0.0, "places": 0.0, "opposed": 0.0, "colour": 1.0}


def about_centre(linear):
    """Return the relation with a linear part that does not move the centre."""
    matrix = np.eye(3)
    matrix[:2, :2] = linear
    matrix[:2, 2] = 0.5 - matrix[:2, :2] @ [0.5, 0.5]
    return matrix


def turn(degrees):
    angle = np.radians(degrees)
    return [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]


@pytest.mark.parametrize(
    ("matrix", "expected"),
    [
        (np.eye(3), []),
        (view_matrix(1), ["turned 90° clockwise"]),
        (view_matrix(3), ["turned 90° anticlockwise"]),
        (view_matrix(6), ["flipped top to bottom"]),
        (about_centre(np.eye(2) / 0.9), ["cropped to 81 %"]),
        (about_centre(np.eye(2) * 0.5), ["shown at 50 % size"]),
        (np.array([[1, 0, 0.1], [0, 1, 0], [0, 0, 1.0]]), ["shifted by 10 %"]),
        (about_centre(np.diag([1.3, 1.0])), ["stretched 1.30 to 1", "cropped to 77 %"]),
        (np.array([[1, 0, 0.01], [0, 1, -0.01], [0, 0, 1.0]]), []),
    ],
)
def test_geometry(matrix, expected):
    assert verdict.geometry(matrix) == expected


def test_a_turned_oblong_image_is_not_stretched_and_a_squeezed_one_is():
    ratio = 4 / 3
    shape = np.diag([ratio, 1.0])
    turned = about_centre(np.linalg.inv(shape) @ turn(-45) @ shape)
    assert verdict.geometry(turned, (ratio, ratio)) == ["turned 45° anticlockwise"]
    assert verdict.geometry(view_matrix(1), (ratio, 1 / ratio)) == ["turned 90° clockwise"]
    assert verdict.geometry(np.eye(3), (ratio, ratio)) == []
    assert verdict.geometry(np.eye(3), (1.0, ratio)) == ["stretched 1.33 to 1"]


@pytest.mark.parametrize(
    ("change", "inverted", "expected"),
    [
        ({"offset": -20.0}, False, ["darker"]),
        ({"gain": 1.5, "offset": -64.0}, False, ["more contrast"]),
        ({"gain": 0.5, "offset": 64.0}, False, ["less contrast"]),
        ({"offset": 20.0, "tint": 40.0}, False, ["brighter", "other colours"]),
        ({"offset": 50.0}, True, ["inverted"]),
    ],
)
def test_colours(change, inverted, expected):
    assert verdict.colours({**UNCHANGED, **change}, inverted) == expected


@pytest.mark.parametrize(
    ("grade", "measured", "weakest", "words"),
    [
        (Grade.SIMILAR, {"altered_places": 2.0}, "unchanged", "2 places"),
        (Grade.SIMILAR, {}, "unmoved", "another place"),
        (Grade.SIMILAR, {"opposed": 0.4}, "unchanged", "40 %"),
        (Grade.SIMILAR, {"colour": 0.3}, "unchanged", "colours"),
        (Grade.SIMILAR, {"colour": 0.3}, "shared", "too little"),
        (Grade.DIFFERENT, {"windows": 1.0}, "", "too little"),
        (Grade.DIFFERENT, {"windows": 9.0, "matched": 0.1}, "", "does not agree"),
    ],
)
def test_the_reason_is_the_measure_that_decided(grade, measured, weakest, words):
    assert words in verdict.reason(GRADES.index(grade), "", FINE | measured, weakest)
