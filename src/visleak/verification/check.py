"""The full check of a pair: align the images, fit brightness and colour, compare the overlap."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Final

import numpy as np

from visleak.records import VIEWS, Bytes8
from visleak.verification import (
    agreement,
    align,
    alteration,
    bars,
    covers,
    detail,
    differences,
    exact,
    features,
    fine_comparison,
    frame,
    laid_over,
    large,
    networks,
    overlay,
    photometry,
    placements,
    registration,
    screen,
    texture,
    tints,
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
VERSION: Final = 25


def digest() -> bytes:
    """Return the digest of everything that evidence depends on beside the two images."""
    # in this order, which is part of the digest
    modules = (
        *(align, alteration, fine_comparison, agreement, covers, detail, exact, features, frame),
        *(large, photometry, overlay, placements, differences, registration, screen, texture, tiny),
        *(tints, laid_over, bars),
    )
    recipe = [
        [VERSION, TINY, SMALL, BOUND, networks.networks_digest()],
        *(constants(module) for module in modules),
    ]
    return hashlib.blake2b(json.dumps(recipe, default=repr).encode(), digest_size=16).digest()


def constants(module: ModuleType) -> list[tuple[str, object]]:
    """Return names and values of a module's public constants, which its digest is made of."""
    names = sorted(name for name in vars(module) if name.isupper() and name[0] != "_")
    return [(name, getattr(module, name)) for name in names]


def bounded(pixels: Bytes8, side: int = BOUND) -> Bytes8:
    """Return the image with its long side at most ``side`` pixels."""
    return frame.bounded(pixels, side)


@dataclass(frozen=True, slots=True)
class CheckedPair:
    """A pair to be checked."""

    # bounded RGB images
    query: Bytes8
    reference: Bytes8
    view: int  # in which the query looked most like the reference
    # where the screen found the reference's content, in shares of width and height
    shift: tuple[float, float]
    same_size: bool  # whether the full images have equal width and height
    # how much larger the screen found the query's content in the reference, across and down; of
    # tiny images
    enlarged: tuple[float, float] = (1.0, 1.0)
    local: bool = True  # align by local features where correlation does not do
    # how many pixels of the reference one of the query is, at the full size of both images
    magnification: float = 1.0

    @property
    def is_tiny(self) -> bool:
        """Whether both images are compared as tiny ones."""
        return bool(max(*self.query.shape[:2], *self.reference.shape[:2]) <= TINY)

    @property
    def start(self) -> Matrix:
        """The relation that the screen found."""
        matrix = placements.matrix_of((*self.shift, *self.enlarged))
        return np.asarray(matrix @ align.view_matrix(self.view))

    @property
    def inverted(self) -> bool:
        """Whether the query is compared inverted."""
        return VIEWS[self.view] == "inverted"


def check(
    query: Bytes8,
    reference: Bytes8,
    view: int,
    shift: tuple[float, float],
    *,
    same_size: bool,
    local: bool = True,
) -> tuple[Measures, Matrix]:
    """Return what is measured on one pair, and the relation; see :class:`CheckedPair`."""
    pair = CheckedPair(query, reference, view, shift, same_size=same_size, local=local)
    return check_pairs([pair])[0]


def check_pairs(pairs: Sequence[CheckedPair]) -> list[tuple[Measures, Matrix]]:
    """Return what is measured on each pair, and the relation from query to reference.

    Tiny images are measured together, which takes half the time; no pair depends on the others.
    """
    found: dict[int, tuple[Measures, Matrix]] = {}
    left = []
    for row, pair in enumerate(pairs):
        if pair.same_size and exact.is_exact(pair.query, pair.reference):
            found[row] = _exact(pair)
        elif pair.is_tiny:
            left.append(row)
        else:
            sides = pair.query, pair.reference, pair.start
            found[row] = large.check_large(
                *sides,
                inverted=pair.inverted,
                features=pair.local,
                magnification=pair.magnification,
            )
    tiny_pairs = [
        tiny.TinyPair(
            pair.query, pair.reference, pair.start, align.view_matrix(pair.view), pair.inverted
        )
        for pair in (pairs[row] for row in left)
    ]
    if tiny_pairs:
        found.update(zip(left, tiny.check_tiny(tiny_pairs), strict=True))
    return [_with_ratios(*found[row], pair) for row, pair in enumerate(pairs)]


def _exact(pair: CheckedPair) -> tuple[Measures, Matrix]:
    """Return the measures of a pair of exact images.

    Whatever the view: a symmetric image may resemble its mirror image more.
    """
    matrix: Matrix = np.eye(3)
    compared = tiny.compared if pair.is_tiny else large.compared
    measures = compared(pair.query, pair.reference, matrix)
    identical = float(exact.is_identical(pair.query, pair.reference))
    return replace(measures, exact=1.0, identical=identical), matrix


def _with_ratios(measures: Measures, matrix: Matrix, pair: CheckedPair) -> tuple[Measures, Matrix]:
    ratios = [image.shape[1] / image.shape[0] for image in (pair.query, pair.reference)]
    return replace(measures, query_ratio=ratios[0], reference_ratio=ratios[1]), matrix
