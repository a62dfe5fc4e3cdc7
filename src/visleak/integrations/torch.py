"""Splits of data sets of torch that have no duplicate in common."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from torch.utils.data import Dataset, Subset

from visleak.integrations.duplicates import divided, duplicate_groups
from visleak.records import GradeName


def leak_free_split(
    dataset: Dataset[object],
    shares: Sequence[float] = (0.8, 0.2),
    *,
    grade: GradeName = "near",
    groups: Sequence[object] | npt.NDArray[np.generic] | None = None,
    seed: int = 0,
) -> tuple[Subset[object], ...]:
    """Split a data set so that duplicates are in one part, as ``random_split`` does for any.

    Args:
        dataset: with a length and images, or (image, label), or mappings with ``image``.
        shares: of the parts; sizes differ from them by the size of a group of duplicates at most
            where groups are small.
        grade: the weakest grade that keeps two images together.
        groups: a known group of each image, such as a patient, which stays together too.
        seed: of the draw.

    >>> train, test = leak_free_split(dataset, (0.8, 0.2))  # doctest: +SKIP
    """
    found = duplicate_groups(dataset, grade=grade, groups=groups)
    return tuple(Subset(dataset, part.tolist()) for part in divided(found, shares, seed=seed))
