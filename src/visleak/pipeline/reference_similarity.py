"""The built-in fingerprint's word on candidate pairs that another encoder found.

The gate of the verification and the grader were fitted on similarities of the built-in
fingerprint, corrected by its cohort. Those of another encoder lie elsewhere and mean something
else: taken for them, every pair of tiny pictures that CLIP finds would look near. So pairs are
measured by the built-in fingerprint before they are looked at, whoever found them; only pictures
that are in a pair are read for that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from visleak.encoders import load_encoder
from visleak.pipeline.candidates import Side, side, views_for
from visleak.pipeline.context import RunContext
from visleak.pipeline.encoded_set import EncodedSet, ImagesLost
from visleak.pipeline.fingerprints import fingerprint
from visleak.pipeline.local_features import seen_vectors
from visleak.records import Encoder, Float32, Int8, Int64, Pairs, Unreadable
from visleak.search.exact import ExactSearch

#: Pairs measured at a time; only bounds memory.
CHUNK: Final = 4096


def measured(
    found: Sequence[Pairs],
    material: Mapping[str, EncodedSet],
    encoder: Encoder,
    choice: str,
    place: RunContext,
) -> list[Pairs]:
    """Return the pairs with similarity, background and view by the built-in fingerprint.

    Args:
        found: pairs of sets that have pictures.
        material: the sets, by name.
        encoder: that found them; if it is the built-in one, the pairs are passed on.
        choice: of the views, as in the settings.
        place: where to work.

    Raises:
        ImagesLost: images cannot be read again.
    """
    builtin = load_encoder("builtin")
    if encoder.digest == builtin.digest:
        return list(found)
    views = views_for(builtin, choice)
    sides = {
        name: _Rows.of(material[name], rows, builtin, views, place)
        for name, rows in _wanted(found).items()
    }
    return [
        _measured(pairs, sides[pairs.query_set], sides[pairs.reference_set], builtin, views)
        for pairs in found
    ]


def _wanted(found: Sequence[Pairs]) -> dict[str, Int64]:
    """Return the rows of each set's fingerprints that are in a pair, ascending."""
    named: dict[str, list[Int64]] = {}
    for pairs in found:
        named.setdefault(pairs.query_set, []).append(pairs.query)
        named.setdefault(pairs.reference_set, []).append(pairs.reference)
    return {name: np.unique(np.concatenate(rows)) for name, rows in named.items()}


@dataclass(frozen=True, slots=True)
class _Rows:
    """Some rows of a set's fingerprints, as the built-in one sees them.

    Attributes:
        rows: of the fingerprints of the other encoder, ascending.
        side: their built-in fingerprints and backgrounds.
    """

    rows: Int64
    side: Side

    @classmethod
    def of(
        cls,
        own: EncodedSet,
        rows: Int64,
        builtin: Encoder,
        views: tuple[int, ...],
        place: RunContext,
    ) -> _Rows:
        """Read the pictures of some rows."""
        positions = own.fingerprints.rows[rows]
        images = replace(own.images, opener=own.opener)
        prints = fingerprint(images, builtin, place, positions)
        if prints.problems:
            gone = positions[~np.isin(positions, prints.rows)].tolist()
            why = [Unreadable(problem.reason, problem.detail) for problem in prints.problems]
            raise ImagesLost(images.name, list(zip(gone, why, strict=True)))
        return cls(rows, side(prints, builtin, views, ExactSearch(), place.workers))

    def find(self, rows: Int64) -> Int64:
        """Return where rows stand here."""
        return np.searchsorted(self.rows, rows)


def _measured(
    pairs: Pairs, query: _Rows, reference: _Rows, builtin: Encoder, views: tuple[int, ...]
) -> Pairs:
    """Return pairs with what the built-in fingerprint says of them."""
    left, right = query.find(pairs.query), reference.find(pairs.reference)
    similarity = np.zeros(len(pairs), np.float32)
    background = np.zeros(len(pairs), np.float32)
    view = np.zeros(len(pairs), np.int8)
    for start in range(0, len(pairs), CHUNK):
        part = slice(start, start + CHUNK)
        one, other = query.side, reference.side
        similarity[part], view[part] = _best(
            one.fingerprints.matrix[left[part]],
            other.fingerprints.matrix[right[part]],
            builtin,
            views,
        )
        background[part] = (one.background[left[part]] + other.background[right[part]]) / 2
    return replace(pairs, similarity=similarity, background=background, view=view)


def _best(
    left: Float32, right: Float32, builtin: Encoder, views: tuple[int, ...]
) -> tuple[Float32, Int8]:
    """Return the highest similarity of rows of one number over the views, and which it is."""
    others = np.asarray(right, np.float64)
    alike = np.stack(
        [np.einsum("ij,ij->i", seen_vectors(builtin, left, view), others) for view in views]
    ).astype(np.float32)
    best = alike.argmax(axis=0)
    return alike.max(axis=0), np.array(views, np.int8)[best]
