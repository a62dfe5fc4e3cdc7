"""Similarity by the built-in fingerprint of pairs that another encoder found.

The gate of the verification and the grader were fitted on similarities of the built-in fingerprint,
corrected by its cohort. Similarities of another encoder have another distribution: taken for these,
every pair of tiny images that CLIP finds would be graded near. So pairs are measured by the
built-in fingerprint before they are verified. Only images that are in a pair are read for that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from visleak.encoders import load_encoder
from visleak.pipeline.candidates import side, similarities, views_for
from visleak.pipeline.context import RunContext
from visleak.pipeline.encoded_set import EncodedSet, ImagesLost, Side
from visleak.pipeline.fingerprints import fingerprint
from visleak.records import Encoder, Int64, Pairs, Unreadable
from visleak.search.exact import ExactSearch


def reference_similarities(
    found: Sequence[Pairs],
    sets: Mapping[str, EncodedSet],
    encoder: Encoder,
    choice: str,
    context: RunContext,
) -> list[Pairs]:
    """Return pairs with similarity, background and view by the built-in fingerprint."""
    builtin = load_encoder("builtin")
    if encoder.digest == builtin.digest:
        return list(found)
    views = views_for(builtin, choice)
    rows: dict[str, list[Int64]] = {}
    for pairs in found:
        rows.setdefault(pairs.query_set, []).append(pairs.query)
        rows.setdefault(pairs.reference_set, []).append(pairs.reference)
    used = {name: np.unique(np.concatenate(parts)) for name, parts in rows.items()}
    sides = {name: _encoded(sets[name], own, builtin, views, context) for name, own in used.items()}
    measured = []
    for pairs in found:
        query, reference = sides[pairs.query_set], sides[pairs.reference_set]
        left = np.searchsorted(used[pairs.query_set], pairs.query)
        right = np.searchsorted(used[pairs.reference_set], pairs.reference)
        both = query.fingerprints, reference.fingerprints
        similarity, view = similarities(both, left, right, builtin, views)
        both_backgrounds = query.background[left] + reference.background[right]
        background = (both_backgrounds / 2).astype(np.float32)
        measured.append(replace(pairs, similarity=similarity, background=background, view=view))
    return measured


def _encoded(
    whole: EncodedSet,
    rows: Int64,
    builtin: Encoder,
    views: tuple[int, ...],
    context: RunContext,
) -> Side:
    """Return the built-in fingerprints of the images of some rows."""
    positions = whole.fingerprints.rows[rows]
    images = replace(whole.images, opener=whole.opener)
    fingerprints = fingerprint(images, builtin, context, positions)
    if fingerprints.problems:
        gone = positions[~np.isin(positions, fingerprints.rows)].tolist()
        why = [Unreadable(problem.reason, problem.detail) for problem in fingerprints.problems]
        raise ImagesLost(images.name, list(zip(gone, why, strict=True)))
    encoded = EncodedSet(images, fingerprints)
    return side(encoded, builtin, views, ExactSearch(), context.workers)
