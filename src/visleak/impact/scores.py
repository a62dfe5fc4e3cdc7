"""How well a model did on each image of a test set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

Float64 = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Scores:
    """The scores of one model, image by image.

    Attributes:
        model: its name.
        values: metric to ``float64`` (n,), in the order of the benchmark's images; NaN where the
            model has no answer. All metrics lack the same images.
        file: where they come from, as given.
        unknown: answers whose ids the benchmark lacks.
        lower: metrics of which less is better, such as a loss.
        doubts: why the file may be mixed up, see :mod:`visleak.impact.plausibility`.
        checked: what of the file could be compared with the labels to find that out.
    """

    model: str
    values: Mapping[str, Float64]
    file: str = ""
    unknown: int = 0
    lower: frozenset[str] = field(default_factory=frozenset)
    doubts: tuple[str, ...] = ()
    checked: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        columns = list(self.values.values())
        if not columns:
            raise ValueError(f"model {self.model!r} has no scores")
        answered = ~np.isnan(columns[0])
        if any(c.ndim != 1 or (~np.isnan(c) != answered).any() for c in columns):
            raise ValueError(f"model {self.model!r}: all metrics must score the same images")

    @property
    def answered(self) -> npt.NDArray[np.bool_]:
        """Which images have an answer, (n,)."""
        return np.asarray(~np.isnan(next(iter(self.values.values()))))

    def is_share(self, metric: str) -> bool:
        """Whether every score of a metric is 0 or 1, so that its mean is a share of images."""
        values = self.values[metric][self.answered]
        return bool(((values == 0) | (values == 1)).all())

    def in_percent(self, metric: str) -> bool:
        """Whether every score lies between 0 and 1, so that tables show it times a hundred."""
        values = self.values[metric][self.answered]
        return bool(((values >= 0) & (values <= 1)).all())
