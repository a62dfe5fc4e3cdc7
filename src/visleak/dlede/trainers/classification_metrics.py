"""How many labels are right: accuracy, and the mean F1 of the classes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from visleak.records import Int64


def score_labels(true: Int64, said: Int64) -> Mapping[str, float]:
    """Return ``accuracy`` and ``f1``, in [0, 1], higher is better.

    F1 is the mean over the classes that are there (macro), 2 TP / (said + there) each.

    Args:
        true: ``int64`` (n,): class of each image, n > 0.
        said: ``int64`` (n,): what was said of it; -1 for nothing.
    """
    classes = int(max(true.max(), said.max())) + 1
    right = true == said
    found = np.bincount(true[right], minlength=classes)
    there = np.bincount(true, minlength=classes)
    told = np.bincount(said[said >= 0], minlength=classes)
    known = there > 0
    f1 = 2 * found[known] / (told + there)[known]
    return {"accuracy": float(right.mean()), "f1": float(f1.mean())}
