"""The rendered documents: one field changed and nothing else, and copies that are true ones."""

import importlib
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
NUMBERS = range(5)


@pytest.fixture(scope="module")
def module():
    """Import the package from its folder, which is on no path."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [str(BENCHMARKS), *sys.path])
        yield importlib.import_module("documents")
    for name in [name for name in sys.modules if name.split(".")[0] == "documents"]:
        del sys.modules[name]


@pytest.fixture(scope="module")
def made(module):
    """Return five documents of every kind, the first one with several variants."""
    return {
        (kind, number): module.document(
            kind, number, changes=1 if number else 4, templates=0 if number else 1
        )
        for kind in module.KINDS
        for number in NUMBERS
    }


def test_variants_differ_inside_their_box_only(module, made):
    for (kind, number), document in made.items():
        assert document.variants, (kind, number)
        for variant in document.variants:
            left, top, right, bottom = variant.box
            channels = cv2.split(cv2.absdiff(variant.pixels, document.original))
            difference = cv2.max(cv2.max(*channels[:2]), channels[2])
            assert (difference >= module.VISIBLE_LEVELS).sum() == variant.contrast
            assert variant.contrast >= module.VISIBLE_PIXELS
            difference[top:bottom, left:right] = 0
            assert not difference.any(), (kind, number, variant.field)
            assert variant.change in module.CHANGES + module.WHOLE


def test_equal_numbers_make_equal_documents(module, made):
    for kind in ("letter", "card", "map", "dialog", "speed_sign"):
        again = module.document(kind, 1, changes=1, templates=0)
        np.testing.assert_array_equal(again.original, made[kind, 1].original)
        for one, other in zip(again.variants, made[kind, 1].variants, strict=True):
            assert (one.change, one.field, one.box) == (other.change, other.field, other.box)
            np.testing.assert_array_equal(one.pixels, other.pixels)
        for document in (
            module.document(kind, 1, seed=1, changes=0, templates=0),
            made[kind, 2],
        ):
            assert not np.array_equal(document.original, again.original)


def test_copies_keep_the_content(module, made):

    def small(pixels):
        return cv2.resize(pixels, (24, 24), interpolation=cv2.INTER_AREA).astype(float)

    def distance(one, other):
        return np.abs(small(one) - small(other)).mean()

    for kind in ("receipt", "table", "dialog"):
        original, other = made[kind, 0].original, made[kind, 1].original
        kept = original.copy()
        found = {c.name: c.pixels for c in module.copies(original, np.random.default_rng(3))}
        again = {c.name: c.pixels for c in module.copies(original, np.random.default_rng(3))}
        assert tuple(found) == module.COPIES
        np.testing.assert_array_equal(original, kept)
        for name, pixels in found.items():
            assert pixels.dtype == np.uint8
            np.testing.assert_array_equal(pixels, again[name])
            assert not np.array_equal(pixels, original)
            if name != "crop":
                assert distance(pixels, original) < distance(other, original)
        shares = np.array(found["half"].shape[:2]) / original.shape[:2]
        assert np.all((shares > 0.47) & (shares < 0.53))
        crop = found["crop"]
        shares = np.array(crop.shape[:2]) / original.shape[:2]
        assert np.all((shares > 0.67) & (shares < 0.73))
        found_at = cv2.matchTemplate(original[..., 1], crop[..., 1], cv2.TM_SQDIFF)
        y, x = np.unravel_index(found_at.argmin(), found_at.shape)
        window = original[y : y + crop.shape[0], x : x + crop.shape[1]]
        np.testing.assert_array_equal(crop, window)
        assert distance(found["jpeg"], original) < 1


def test_pairs(module, made):
    receipt = made["receipt", 0]
    pairs = module.pairs(receipt, processed=2)
    near = [pair for pair in pairs if pair.grade == "near"]
    similar = [pair for pair in pairs if pair.grade == "similar"]
    assert [pair.copy for pair in near] == list(module.COPIES)
    assert not any(pair.change for pair in near)
    assert len(near) + len(similar) == len(pairs)
    assert len(similar) == 3 * len(receipt.variants)
    assert sum(not pair.copy for pair in similar) == len(receipt.variants)
    assert all(pair.reference is receipt.original for pair in pairs)
    for one, other in zip(pairs, module.pairs(receipt, processed=2), strict=True):
        np.testing.assert_array_equal(one.query, other.query)
