"""The grader: probabilities by hand, two sizes, and its JSON text."""

import re
from dataclasses import asdict

import numpy as np
import pytest
from scipy.special import expit

from visleak.errors import VisleakError
from visleak.grading import features, load_grader
from visleak.grading.model import Grader, Logistic, PairModels, Product, Trees, as_text
from visleak.records import Evidence
from visleak.verification.measures import CHECKS, NO_OVERLAP
from visleak.verification.tiny import TINY_NO_OVERLAP

NAN = float("nan")


def evidence(rows):
    """Return evidence with one row per mapping of measures; the others are 0.5."""
    names = ("screen", "across", "down", *CHECKS)
    columns = {n: np.array([row.get(n, 0.5) for row in rows], np.float32) for n in names}
    return Evidence(columns, np.zeros((len(rows), 9), np.float32))


def grader(**models):
    flat = Logistic(0.0, {})
    models = dict.fromkeys(("tiny", "large"), PairModels(flat, flat)) | {"screened": flat} | models
    return Grader(**models, near_at=0.5, digest="d", provenance="p")


def columns_of(rows, similarity=0.6, background=0.5):
    count = len(rows)
    full = [np.full(count, value, np.float32) for value in (similarity, background)]
    return features(*full, evidence(rows))


def test_a_logistic_model_does_not_overflow():
    found = Logistic(0.0, {"a": 1e6}).probability({"a": np.array([-1.0, 1.0])})
    assert 0 <= found[0] < 1e-20
    assert found[1] == pytest.approx(1)


def test_tiny_large_and_unchecked_pairs_have_models_of_their_own():
    tiny = PairModels(Logistic(1.0, {}), Logistic(2.0, {}))
    large = PairModels(Logistic(-2.0, {}), Logistic(-1.0, {}))
    made = grader(tiny=tiny, large=large, screened=Logistic(-5.0, {}))
    side = np.array([32, 48, 49, 160, NAN], np.float32)
    near, similar = made.probabilities(columns_of([{}] * 5), side)
    np.testing.assert_allclose(near, expit([1.0, 1.0, -2.0, -2.0, -5.0]))
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
    assert set(shipped.large.near.conditions) == {"shared", "unchanged"}
    assert all(np.isfinite(chance) for (chance,) in shipped.conditions(columns_of([{}])).values())


@pytest.mark.parametrize("measures", [NO_OVERLAP, TINY_NO_OVERLAP])
def test_images_without_overlap_are_not_near(measures):
    columns = columns_of([asdict(measures)], similarity=0.9, background=0.5)
    near, similar = load_grader().probabilities(columns, np.float32([measures.side]))
    assert near[0] < 0.01
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
    found = made.probability({"a": np.array([0.0, 1.0, NAN])})
    np.testing.assert_allclose(found[:2], expit([-1.0, 1.0]))
    assert np.isnan(found[2])
