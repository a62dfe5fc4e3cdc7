"""Pairs that reach the thresholds by chance: counted, stored, and reported where they are many."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from frames import textured
from PIL import Image

import visleak
from visleak.documents import from_plain
from visleak.pipeline import rates
from visleak.settings import Settings
from visleak.storage.audit_folder import ComparisonSummary

WIDTH = 16


def folder(root: Path, vectors: np.ndarray) -> str:
    """Write vectors as a set of embeddings, and return its SOURCE."""
    root.mkdir(parents=True)
    np.save(root / "vectors.npy", vectors.astype(np.float32))
    (root / "ids.txt").write_text("".join(f"{row:04d}\n" for row in range(len(vectors))))
    return f"emb:{root}"


def summary(*sides: Any, **settings: Any) -> Mapping[str, Any]:
    found = visleak.audit(*sides, settings=Settings(**settings), workers=1, cache=None)
    content: Mapping[str, Any] = json.loads((found.folder / "audit.json").read_text())
    return content


def form(seed: int) -> np.ndarray:
    """Return a copy of one form with its own content: another content in one template."""
    pixels = textured(0)
    rng = np.random.default_rng(seed)
    for top in (16, 40, 64):
        pixels[top : top + 8, 16:80] = rng.integers(0, 255, (8, 64, 1), dtype=np.uint8)
    return pixels


@pytest.fixture(scope="module")
def forms() -> list[np.ndarray]:
    return [form(seed) for seed in range(24)]


def notes_of(content: Mapping[str, Any]) -> list[str]:
    comparisons = from_plain(tuple[ComparisonSummary, ...], content["comparisons"])
    return list(rates.chance_notes(comparisons))


def test_a_set_of_one_template_is_reported(forms: list[np.ndarray]) -> None:
    content = summary(forms, verify=False, local=False)
    (line,) = notes_of(content)
    assert "visleak calibrate" in line
    found = content["comparisons"][0]["chance"]
    assert found["sampled"] == 24 * 23
    assert f"{found['sampled']:,} random pairs" in line
    assert found["per_image"]["soft"] > 20
    # half of the ordered pairs, for each unordered pair is one
    assert found["pairs"]["soft"] == pytest.approx(found["per_image"]["soft"] * 24 / 2)
    assert any("visleak calibrate" in words for words in content["skipped"])


@pytest.mark.parametrize("verify", [True, False])
def test_unrelated_images_and_their_copies_are_not(verify: bool) -> None:
    train = [textured(seed) for seed in range(12)]
    test = [np.ascontiguousarray(pixels[:, ::-1]) for pixels in train]
    content = summary(test, train, verify=verify, local=False)
    assert content["totals"][0]["rates"]["hard"]["count"] == 12
    assert notes_of(content) == []
    assert not any("calibrate" in words for words in content["skipped"])


def test_the_estimate_is_that_of_brute_force(tmp_path: Path) -> None:
    """Of all pairs where the sets are small; each query's most similar one is set aside."""
    rng = np.random.default_rng(1)
    vectors = rng.normal(size=(60, WIDTH)) + 1.5
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    source = folder(tmp_path / "a", vectors)
    content = summary(f"{source}?encoder=other:net", hard=0.9, soft=0.75)
    found = content["comparisons"][0]["chance"]
    similarity = vectors @ vectors.T
    np.fill_diagonal(similarity, -1)
    for degree, threshold in (("soft", 0.75), ("hard", 0.9)):
        counts = (similarity >= threshold).sum(axis=1)
        expected = np.maximum(counts - 1, 0).sum() / (60 * 59) * 59
        assert found["per_image"][degree] == pytest.approx(expected, abs=1e-5)


def test_neither_order_nor_workers_change_it(forms: list[np.ndarray], tmp_path: Path) -> None:
    for number, pixels in enumerate(forms):
        Image.fromarray(pixels).save(tmp_path / f"{number:02d}.png")
    found = []
    for step, workers in ((1, 1), (-1, 2)):
        table = tmp_path / f"{workers}.csv"
        names = [f"{number:02d}.png" for number in range(24)][::step]
        table.write_text("path\n" + "".join(f"{name}\n" for name in names))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(rates, "QUERIES", 5)
            patch.setattr(rates, "REFERENCES", 9)
            settings = Settings(local=False, verify=False)
            made = visleak.audit(str(table), settings=settings, workers=workers, cache=None)
        found.append(made.summary.as_dict()["comparisons"][0]["chance"])
    assert found[0] == found[1]
    assert found[0]["sampled"] == 5 * 8
