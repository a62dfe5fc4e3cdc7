"""What a pair means for a score: relation of labels, modality and coverage."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from visleak.records import ImageSet

#: Sets are compared by label where they share this much of the smaller vocabulary.
SHARED: Final = 0.5


def coverage(query: ImageSet, reference: ImageSet) -> str:
    """Return ``within`` (one set), ``intra`` (one dataset) or ``inter``."""
    if query.name == reference.name:
        return "within"
    return "intra" if query.dataset == reference.dataset else "inter"


def modality(reference: ImageSet, annotations: str) -> str:
    """Return ``full`` where the annotation was exposed in training too, else ``image-only``.

    Args:
        reference: the training side.
        annotations: ``used`` or ``unused`` overrides what roles and annotations say.
    """
    if annotations != "auto":
        return "full" if annotations == "used" else "image-only"
    annotated = reference.annotated or reference.labels is not None
    return "full" if annotated and "training" in reference.roles else "image-only"


def comparable(query: ImageSet, reference: ImageSet) -> bool:
    """Whether the labels of two sets speak of the same classes."""
    if query.labels is None or reference.labels is None:
        return False
    return share_classes(query.labels, reference.labels)


def share_classes(left: pa.Array, right: pa.Array) -> bool:
    """Whether two columns of labels share :data:`SHARED` of the smaller vocabulary."""
    mine, theirs = _vocabulary(left), _vocabulary(right)
    smaller = min(len(mine), len(theirs))
    return smaller > 0 and len(mine & theirs) >= SHARED * smaller


def _vocabulary(labels: pa.StringArray) -> set[str]:
    return set(normalised(pc.unique(labels)).drop_null().to_pylist())


def normalised(labels: pa.Array) -> pa.Array:
    """Return labels as they are compared: without case, ``_`` and ``-`` as spaces.

    >>> normalised(pa.array(["Great_White-Shark "])).to_pylist()
    ['great white shark']
    """
    return pc.utf8_trim_whitespace(pc.replace_substring_regex(pc.utf8_lower(labels), "[_-]", " "))


def relation(query: pa.Array, reference: pa.Array, compare: bool) -> pa.Array:
    """Return ``same``, ``different`` or ``unknown`` for each pair of labels."""
    if not compare:
        return pa.array(np.full(len(query), "unknown"), pa.string())
    equal = pc.equal(normalised(query), normalised(reference))
    known = pc.if_else(equal, "same", "different")
    return pc.fill_null(known, "unknown").cast(pa.string())
