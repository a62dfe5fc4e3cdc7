"""Twins: planted oracles for what difficulty explains, and what it does not."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from predictions_making import IDS, as_csv, as_parquet, benchmark, leaky, scored

from refusals import refused
from visleak.errors import VisleakError
from visleak.impact.difficulty import probe, read_difficulty
from visleak.impact.effects import Sampling, effects_of
from visleak.stats.draws import CALIPER, MOST, matched_controls

FEW = Sampling(draws=2)


@given(
    seed=st.integers(0, 2**16),
    count=st.integers(2, 200),
    share=st.sampled_from([0.05, 0.3, 0.8]),
    grades=st.sampled_from([0, 2, 5]),
)
def test_twins_are_others_of_the_class_and_used_once(seed, count, share, grades):
    rng = np.random.default_rng(seed)
    difficulty = rng.integers(0, grades, count).astype(float) if grades else rng.random(count)
    difficulty[rng.random(count) < 0.1] = np.nan
    classes, leaked = rng.integers(0, 3, count), rng.random(count) < share
    found = matched_controls(difficulty, classes, leaked, seed)
    assert len(found.leaked) + found.alone == leaked.sum()
    assert found.controls.shape[1] <= MOST
    assert leaked[found.leaked].all()
    assert not leaked[found.controls].any()
    assert len(np.unique(found.controls)) == found.controls.size
    assert (classes[found.controls] == classes[found.leaked][:, None]).all()
    known = ~np.isnan(difficulty)
    for image, others in zip(found.leaked, found.controls, strict=True):
        for other in others:
            low, high = sorted((difficulty[image], difficulty[other]))
            between = known & (low < difficulty) & (difficulty < high)
            assert between.sum() <= CALIPER * known.sum() + 1
    again = matched_controls(3 * difficulty - 7, classes, leaked, seed)
    assert np.array_equal(found.controls, again.controls)


def test_the_nearest_are_taken():
    others = np.r_[0.11, 0.12, 0.48, 0.51, 0.9, 0.0, np.linspace(0.52, 0.89, 200)]
    difficulty = np.r_[0.10, 0.50, others]
    found = matched_controls(difficulty, None, np.arange(len(difficulty)) < 2)
    assert set(found.controls[0][:2]) == {2, 7}
    assert {4, 5} <= set(found.controls[1])


def planted(seed, count=3000):
    """Return a test set whose easy images leak more, and a model that is right on easy images."""
    rng = np.random.default_rng(seed)
    hard = rng.random(count)
    leaked = rng.random(count) < 0.15 * (1 - hard)
    return leaky(leaked, difficulty=hard), scored(rng.random(count) > hard)


def compared(test, scores):
    ((each,),) = ([*effect.comparisons] for effect in effects_of(test, [scores], FEW))
    return each


def test_a_model_that_remembers_nothing_does_no_better_than_on_twins():
    plain = matched = inside = 0
    for seed in range(20):
        test, scores = planted(seed)
        each = compared(test, scores)
        plain += each.p < 0.01 and each.difference.value > 0.1
        matched += each.twinned.p < 0.05
        inside += each.twinned.difference.low <= 0 <= each.twinned.difference.high
        leaked, others, kept, twins = each.twinned.difficulty
        assert leaked < others - 0.1
        assert twins == pytest.approx(kept, abs=0.01)
    assert (plain, matched <= 3, inside >= 17) == (20, True, True)


def test_nothing_is_compared_where_no_image_has_a_twin():
    leaked = np.arange(40) < 20
    hard = np.where(leaked, 0.0, 1.0)
    assert compared(leaky(leaked, difficulty=hard), scored(hard)).twinned is None
    unknown = np.full(40, np.nan)
    assert compared(leaky(leaked, difficulty=unknown), scored(hard)).twinned is None


def scene(seed, count, classes=4, width=12):
    """Return unit vectors, classes, and how plain each image shows its class."""
    rng = np.random.default_rng(seed)
    centres = np.eye(width)[:classes]
    labels = rng.integers(0, classes, count)
    plain = rng.random(count)
    vectors = plain[:, None] * centres[labels] + 0.25 * rng.standard_normal((count, width))
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True), labels, plain


def test_the_probe_tells_easier_from_memorized():
    """Ridge regression is a model of another training set; 1-NN has the copies to remember."""
    vectors, labels, plain = scene(0, 4000)
    train, names, _ = scene(1, 4000)
    leaked = np.random.default_rng(2).random(4000) < 0.1 * plain**2
    copies = np.r_[train, vectors[leaked] + 0.01 * scene(3, int(leaked.sum()))[0]]
    owners = np.r_[names, labels[leaked]]
    ridge = np.linalg.solve(copies.T @ copies + np.eye(12), copies.T @ np.eye(4)[owners])
    right = {
        "ridge": (vectors @ ridge).argmax(axis=1) == labels,
        "1-NN": owners[(vectors @ copies.T).argmax(axis=1)] == labels,
    }
    found = probe(vectors.astype(np.float32), np.arange(4000), labels, np.arange(4000))
    assert min(found.ridge, found.nearest) > 2 * found.largest
    test = leaky(leaked, [str(label) for label in labels], difficulty=found.difficulty)
    each = {n: compared(test, scored(v, n)) for n, v in right.items()}
    assert each["ridge"].p < 1e-6
    assert each["1-NN"].p < 1e-6
    easy, learnt = (each[name].twinned for name in ("ridge", "1-NN"))
    assert easy.difference.low <= 0 <= easy.difference.high
    assert easy.p > 0.05
    assert learnt.difference.low > 0.1
    assert learnt.p < 1e-6


def test_the_probe_learns_nothing_from_an_image_or_its_copies():
    rng = np.random.default_rng(0)
    noise = rng.standard_normal((300, 200))
    vectors = np.repeat(noise / np.linalg.norm(noise, axis=1, keepdims=True), 2, axis=0)
    labels, rows = np.repeat(rng.integers(0, 3, 300), 2), np.arange(600)
    blind = probe(vectors.astype(np.float32), rows, labels, rows // 2)
    seen = probe(vectors.astype(np.float32), rows, labels, rows)
    assert max(blind.ridge, blind.nearest) < 0.42
    assert min(seen.ridge, seen.nearest) > 0.5
    assert "hardly" in blind.about


def test_difficulty_from_a_file(tmp_path):
    values = [float(n) for n in range(20)]
    file = as_csv(tmp_path / "a.csv", {"id": IDS[::-1], "loss": values, "note": ["x"] * 20})
    for text in (str(file), f"{file}#loss"):
        assert read_difficulty(text, benchmark()).values.tolist() == values[::-1]
    both = {"id": IDS, "loss": values, "difficulty": [1.0] * 20}
    found = read_difficulty(str(as_parquet(tmp_path / "b.parquet", both)), benchmark())
    assert found.values.tolist() == [1.0] * 20
    assert "'difficulty' of b.parquet" in found.source
    partly = as_csv(tmp_path / "c.csv", {"id": IDS[:15], "loss": values[:15]})
    found = read_difficulty(str(partly), benchmark())
    assert math.isnan(found.values[19])
    assert "15 of 20" in found.source


def test_files_without_a_difficulty_are_refused(tmp_path):
    two = as_csv(tmp_path / "a.csv", {"id": IDS, "x": [1] * 20, "y": [2] * 20, "word": ["z"] * 20})
    few = as_csv(tmp_path / "b.csv", {"id": IDS[:9], "x": [1] * 9})
    for text, said in (
        (str(two), "several columns of numbers: 'x', 'y'"),
        (f"{two}#id", "has no column 'id'; it has 'x'"),
        (f"{two}#word", "must hold numbers"),
        (str(few), "9 of the 20 images"),
    ):
        refused(VisleakError, said, text, read_difficulty, benchmark=benchmark())
