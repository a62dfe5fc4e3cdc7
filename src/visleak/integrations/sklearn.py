"""Cross-validation of scikit-learn whose folds have no duplicate in common."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
from sklearn.model_selection import GroupKFold

from visleak.integrations.duplicates import duplicate_groups
from visleak.records import GradeName, Int64, Source


class LeakFreeGroupKFold(GroupKFold):  # type: ignore[misc]
    """``GroupKFold`` by duplicates of the images, and by groups where these are given.

    Args:
        images: what ``X`` was computed from, in the order of its rows: a source as of
            :func:`visleak.audit`.
        n_splits: number of folds.
        grade: the weakest grade that keeps two images in one fold.

    >>> folds = LeakFreeGroupKFold("photos/", n_splits=5)  # doctest: +SKIP
    >>> cross_val_score(model, X, y, cv=folds)  # doctest: +SKIP
    """

    def __init__(self, images: Source, n_splits: int = 5, *, grade: GradeName = "near") -> None:
        super().__init__(n_splits)
        self.images = images
        self.grade = grade

    def split(
        self,
        X: Sequence[object] | npt.NDArray[np.generic],  # noqa: N803
        y: object = None,
        groups: Sequence[object] | npt.NDArray[np.generic] | None = None,
    ) -> Iterator[tuple[Int64, Int64]]:
        """Yield the training and the test rows of each fold."""
        found = duplicate_groups(self.images, grade=self.grade, groups=groups)
        yield from super().split(X, y, found)
