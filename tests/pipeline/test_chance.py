"""Pairs that reach the thresholds by chance: counted, stored, and reported where they are many."""

import numpy as np
import pytest
from frames import textured
from PIL import Image

import visleak
from visleak.pipeline import rates
from visleak.settings import Settings


def summary(*sides, **settings):
    found = visleak.audit(*sides, settings=Settings(**settings), workers=1, cache=None)
    return found.summary.as_dict()


def form(seed):
    """Return a copy of one form with its own content: another content in one template."""
    pixels = textured(0)
    rng = np.random.default_rng(seed)
    for top in (16, 40, 64):
        pixels[top : top + 8, 16:80] = rng.integers(0, 255, (8, 64, 1), dtype=np.uint8)
    return pixels


FORMS = [form(seed) for seed in range(24)]


def test_a_set_of_one_template_is_reported():
    content = summary(FORMS, verify=False, local=False)
    assert any("visleak calibrate" in words for words in content["skipped"])
    found = content["comparisons"][0]["chance"]
    assert found["sampled"] == 24 * 23
    assert found["per_image"]["soft"] > 20
    # half of the ordered pairs, for each unordered pair is one
    assert found["pairs"]["soft"] == pytest.approx(found["per_image"]["soft"] * 24 / 2)


@pytest.mark.parametrize("verify", [True, False])
def test_unrelated_images_and_their_copies_are_not(verify):
    train = [textured(seed) for seed in range(12)]
    test = [np.ascontiguousarray(pixels[:, ::-1]) for pixels in train]
    content = summary(test, train, verify=verify, local=False)
    assert content["totals"][0]["rates"]["hard"]["count"] == 12
    assert not any("calibrate" in words for words in content["skipped"])


def test_the_estimate_is_that_of_brute_force(tmp_path):
    """Of all pairs where the sets are small; each query's most similar one is set aside."""
    rng = np.random.default_rng(1)
    vectors = rng.normal(size=(60, 16)) + 1.5
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    np.save(tmp_path / "a.npy", vectors.astype(np.float32))
    source = f"emb:{tmp_path / 'a.npy'}?encoder=other:net"
    found = summary(source, hard=0.9, soft=0.75)["comparisons"][0]["chance"]
    similarity = vectors @ vectors.T
    np.fill_diagonal(similarity, -1)
    for degree, threshold in (("soft", 0.75), ("hard", 0.9)):
        counts = (similarity >= threshold).sum(axis=1)
        expected = np.maximum(counts - 1, 0).sum() / (60 * 59) * 59
        assert found["per_image"][degree] == pytest.approx(expected, abs=1e-5)


def test_the_order_of_files_does_not_change_a_sample(tmp_path, monkeypatch):
    monkeypatch.setattr(rates, "QUERIES", 5)
    monkeypatch.setattr(rates, "REFERENCES", 9)
    for number, pixels in enumerate(FORMS):
        Image.fromarray(pixels).save(tmp_path / f"{number:02d}.png")
    found = []
    for step in (1, -1):
        table = tmp_path / "list.csv"
        table.write_text("\n".join(["path", *[f"{n:02d}.png" for n in range(24)][::step]]))
        content = summary(str(table), verify=False, local=False)
        found.append(content["comparisons"][0]["chance"])
    assert found[0] == found[1]
    assert found[0]["sampled"] == 5 * 8
