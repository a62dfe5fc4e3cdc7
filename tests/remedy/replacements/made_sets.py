"""Sets of images that exist as fingerprints only."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from visleak.records import Fingerprints, ImageSet, Problem


def made_set(
    name: str,
    ids: Sequence[str],
    digests: Sequence[Sequence[int]],
    flat: Sequence[bool] = (),
    labels: Sequence[str | None] | None = None,
    matrix: np.ndarray | None = None,
    problems: tuple[Problem, ...] = (),
) -> tuple[ImageSet, Fingerprints]:
    count, texts = len(ids), pa.array(ids, pa.string())
    prints = Fingerprints(
        set=name,
        rows=np.arange(count),
        ids=texts,
        matrix=np.ones((count, 1), np.float32) if matrix is None else matrix,
        digests=np.array(digests, np.uint8).reshape(count, 16),
        sizes=np.ones((count, 2), np.int32),
        flat=np.array(flat, np.bool_) if len(flat) else np.zeros(count, np.bool_),
        encoder="e",
    )
    known = None if labels is None else pa.array(labels, pa.string())
    return ImageSet(name, texts, texts, opener=None, labels=known, problems=problems), prints
