"""The full check of a pair: align the images, fit brightness and colour, compare the overlap."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from types import ModuleType
from typing import Final

import numpy as np

from visleak.records import Bytes8
from visleak.verification import (
    agreement,
    align,
    alteration,
    bars,
    clipping,
    covers,
    detail,
    differences,
    exact,
    features,
    fine_comparison,
    frame,
    large,
    markings,
    networks,
    photometry,
    placements,
    registration,
    screen,
    texture,
    tints,
    tiny,
    tiny_overlaps,
    unexplained,
)
from visleak.verification.align import Matrix
from visleak.verification.image_pair import ImagePair
from visleak.verification.measures import Measures

#: Images up to this side are compared as tiny images.
TINY: Final = 48
#: Images up to this side have few or no local features: they are screened at many scales.
SMALL: Final = 128
#: Long side to which images are reduced before the check.
BOUND: Final = fine_comparison.BOUND
#: Version of the measures: part of the digest that keys cached evidence.
VERSION: Final = 31


def digest() -> bytes:
    """Return the digest of everything except the two images that evidence depends on."""
    # in this order, which is part of the digest
    modules = (
        *(align, alteration, fine_comparison, agreement, covers, detail, exact, features, frame),
        *(large, photometry, tiny_overlaps, placements, differences, registration, screen),
        *(texture, tiny, tints, markings, bars, unexplained, clipping),
    )
    recipe = [
        [VERSION, TINY, SMALL, BOUND, networks.networks_digest()],
        *(constants(module) for module in modules),
    ]
    return hashlib.blake2b(json.dumps(recipe, default=repr).encode(), digest_size=16).digest()


def constants(module: ModuleType) -> list[tuple[str, object]]:
    """Return names and values of a module's public constants, for digests."""
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
    local_features: bool = True,
) -> tuple[Measures, Matrix]:
    """Return the measures of one pair, and its relation; see :class:`ImagePair`."""
    pair = ImagePair(query, reference, view, shift, same_size, local_features=local_features)
    return check_pairs([pair])[0]


def check_pairs(pairs: Sequence[ImagePair]) -> list[tuple[Measures, Matrix]]:
    """Return the measures of each pair, and the relation from query to reference.

    Tiny images are measured together, which takes half the time; no pair depends on the others.
    """
    found: dict[int, tuple[Measures, Matrix]] = {}
    tiny_rows = []
    for row, pair in enumerate(pairs):
        if pair.same_size and exact.is_exact(pair.query, pair.reference):
            found[row] = _exact(pair)
        elif _is_tiny(pair):
            tiny_rows.append(row)
        else:
            measures, matrix = large.check_large(pair)
            found[row] = _completed(measures, pair), matrix
    if tiny_rows:
        checked = tiny.check_tiny([pairs[row] for row in tiny_rows])
        found.update(zip(tiny_rows, checked, strict=True))
    return [found[row] for row in range(len(pairs))]


def _is_tiny(pair: ImagePair) -> bool:
    return bool(max(*pair.query.shape[:2], *pair.reference.shape[:2]) <= TINY)


def _exact(pair: ImagePair) -> tuple[Measures, Matrix]:
    """Return the measures of a pair of exact images.

    The view is ignored: a symmetric image may resemble its mirror image more.
    """
    matrix: Matrix = np.eye(3)
    measure = tiny.measure if _is_tiny(pair) else large.measure
    measures = measure(pair.query, pair.reference, matrix)
    identical = float(exact.is_identical(pair.query, pair.reference))
    # they are in register, even where they have no texture that shows it
    measures = replace(measures, exact=1.0, identical=identical, drift=0.0)
    return _completed(measures, pair), matrix


def _completed(measures: Measures, pair: ImagePair) -> Measures:
    """Return measures of large or exact images with those that need no alignment."""
    alignment = -1.0
    if measures.side > TINY and large.resembles(measures.structure, measures.core):
        # edges of smooth images hardly agree, not even with themselves
        alignment = 1.0 if measures.exact else max(0.0, large.score(measures))
    return replace(measures, alignment=alignment, **pair.ratios)
