"""The full check of a pair: align the images, fit brightness and colour, compare the overlap."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from types import ModuleType
from typing import Final

import numpy as np

from visleak.records import VIEWS, Bytes8
from visleak.verification import (
    agreement,
    align,
    alteration,
    covers,
    detail,
    differences,
    exact,
    features,
    fine_comparison,
    frame,
    large,
    overlay,
    photometry,
    placements,
    registration,
    screen,
    texture,
    tiny,
)
from visleak.verification.align import Matrix
from visleak.verification.measures import Measures

#: Images up to this side are compared as tiny ones.
TINY: Final = 48
#: Images up to this side have few local features, or none: they are screened at many scales.
SMALL: Final = 128
#: Long side to which images are bounded before the check.
BOUND: Final = fine_comparison.BOUND
#: Version of the measures: part of the digest that keys cached evidence.
VERSION: Final = 17


def digest() -> bytes:
    """Return the digest of everything that evidence depends on beside the two images."""
    # in this order, which is part of the digest
    modules = (
        *(align, alteration, fine_comparison, agreement, covers, detail, exact, features, frame),
        *(large, photometry, overlay, placements, differences, registration, screen, texture, tiny),
    )
    recipe = [
        [VERSION, TINY, SMALL, BOUND, alteration.network_digest()],
        *(_constants(module) for module in modules),
    ]
    return hashlib.blake2b(json.dumps(recipe, default=repr).encode(), digest_size=16).digest()


def _constants(module: ModuleType) -> list[tuple[str, object]]:
    names = sorted(name for name in vars(module) if name.isupper() and name[0] != "_")
    return [(name, getattr(module, name)) for name in names]


def bounded(pixels: Bytes8, side: int = BOUND) -> Bytes8:
    """Return the image with its long side at most ``side`` pixels."""
    return frame.bounded(pixels, side)


def check(
    query: Bytes8,
    reference: Bytes8,
    view: int,
    shift: tuple[float, float],
    *,
    same_size: bool,
    enlarged: tuple[float, float] = (1.0, 1.0),
    local: bool = True,
) -> tuple[Measures, Matrix]:
    """Return what is measured on a pair, and the relation from query to reference.

    Args:
        query, reference: bounded RGB images.
        view: the view in which the query looked most like the reference.
        shift: where the screen found the reference's content, in shares of width and height.
        same_size: whether the full images have equal width and height.
        enlarged: how much larger the screen found the query's content in the reference, across
            and down; of tiny images.
        local: align by local features where correlation does not do.
    """
    are_tiny = bool(max(*query.shape[:2], *reference.shape[:2]) <= TINY)
    if same_size and exact.is_exact(query, reference):
        # whatever the view: a symmetric image may resemble its mirror image more
        matrix: Matrix = np.eye(3)
        measures = (tiny if are_tiny else large).compared(query, reference, matrix)
        identical = float(exact.is_identical(query, reference))
        measures = replace(measures, exact=1.0, identical=identical)
    else:
        start = placements.matrix_of((*shift, *enlarged)) @ align.view_matrix(view)
        sides, inverted = (query, reference, start), VIEWS[view] == "inverted"
        if are_tiny:
            measures, matrix = tiny.check_tiny(*sides, align.view_matrix(view), inverted=inverted)
        else:
            measures, matrix = large.check_large(*sides, inverted=inverted, features=local)
    ratios = [float(image.shape[1] / image.shape[0]) for image in (query, reference)]
    return replace(measures, query_ratio=ratios[0], reference_ratio=ratios[1]), matrix
