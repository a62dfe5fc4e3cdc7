"""Grades outside photographs, through a whole audit: documents, plates, and their true copies."""

import cv2
import numpy as np
import pytest
from PIL import Image

import visleak
from image_changes import in_colour, jpeg
from invoices import LINES, invoice


def turned(pixels, degrees):
    height, width = pixels.shape[:2]
    matrix = cv2.getRotationMatrix2D((width / 2, height / 2), degrees, 1)
    return cv2.warpAffine(pixels, matrix, (width, height), borderValue=(252, 251, 246))


def plate(seed, grain=3.0):
    """Return a surface of low contrast beside a dark ground."""
    rng = np.random.default_rng(seed)
    texture = cv2.GaussianBlur(rng.normal(0, 1, (224, 224)), (0, 0), 1.2)
    grey = 105 + np.linspace(-6, 6, 224)[None, :] + grain * texture / texture.std()
    grey[:, :60] = 14 + rng.normal(0, 1, (224, 60))
    return in_colour(grey)


def grades(queries, references):
    """Return the rows of the pair of each query with the reference of the same number."""
    sides = [[Image.fromarray(pixels) for pixels in side] for side in (queries, references)]
    found = visleak.audit(*sides, settings=visleak.Settings(within=False), workers=1, cache=None)
    rows = found.pairs().to_pylist()
    return {int(row["query"]): row for row in rows if int(row["reference"]) % len(references) == 0}


@pytest.fixture(scope="module")
def documents():
    """Return the pairs of processed and changed invoices with the original."""
    copies = {
        "saved again": jpeg(invoice(), 80),
        "half size": cv2.resize(invoice(), None, fx=0.5, fy=0.5, interpolation=cv2.INTER_AREA),
        "turned by 2 degrees": turned(invoice(), 2),
        "cropped": invoice()[60:700, 40:600].copy(),
    }
    others = {
        "another total": invoice(line_8="Total              748.20 EUR"),
        "another number, saved again": jpeg(invoice(line_1="Invoice 2024-947"), 80),
        "other items": invoice(
            **{f"line_{n}": LINES[8 - n] for n in range(3, 6)}, line_8="Total   96.55 EUR"
        ),
    }
    found = grades([*copies.values(), *others.values()], [invoice()])
    return {name: found[row] for row, name in enumerate((*copies, *others))}


@pytest.mark.parametrize("name", ["saved again", "half size", "turned by 2 degrees", "cropped"])
def test_true_copies_of_a_document_are_near(documents, name):
    assert documents[name]["grade"] in ("near", "exact")
    assert documents[name]["probability"] > 0.5


@pytest.mark.parametrize("name", ["another total", "another number, saved again", "other items"])
def test_a_document_with_other_content_is_similar_at_most(documents, name):
    assert documents[name]["grade"] in ("similar", "different")
    assert documents[name]["probability"] < 0.5
    assert "place" in documents[name]["reason"]


def test_two_plates_are_different_and_a_copy_is_near():
    """Edge and shading agree on all plates; only the copy shares the grain."""
    found = grades([plate(2), jpeg(plate(1), 90), plate(1)[:, ::-1].copy()], [plate(1)])
    assert 0 not in found or found[0]["grade"] not in ("near", "exact")
    assert found[1]["grade"] in ("near", "exact")
    assert found[2]["grade"] == "near"


def test_bands_that_were_saved_again_are_exact_and_bands_of_other_colours_are_not_near():
    flag = np.uint8([(200, 40, 30), (255, 255, 255), (0, 120, 60)]).repeat(40, axis=0)
    flag = flag[:, None].repeat(160, axis=1)
    found = grades([jpeg(flag, 90), flag[..., ::-1].copy()], [flag])
    assert found[0]["grade"] == "exact"
    assert 1 not in found or found[1]["grade"] not in ("near", "exact")
