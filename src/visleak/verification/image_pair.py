"""Two images to be compared, with the relation that the screen found."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from visleak.records import VIEWS, Bytes8
from visleak.verification import align, placements
from visleak.verification.align import Matrix


@dataclass(frozen=True, slots=True)
class ImagePair:
    """A candidate pair for the full check."""

    # bounded RGB images
    query: Bytes8
    reference: Bytes8
    view: int  # view in which the query is most similar to the reference
    # shift of the reference's content relative to the query's, in shares of width and height
    shift: tuple[float, float]
    same_size: bool  # whether the full images have equal width and height
    # scale of the query's content in the reference, across and down; screened for tiny images only
    enlarged: tuple[float, float] = (1.0, 1.0)
    local_features: bool = True  # align by local features where correlation fails
    # pixels of the reference per pixel of the query, at the full size of both images
    magnification: float = 1.0

    @property
    def view_matrix(self) -> Matrix:
        """The relation of the view, a matrix in unit coordinates."""
        return align.view_matrix(self.view)

    @property
    def start(self) -> Matrix:
        """The relation that the screen found."""
        return np.asarray(placements.matrix_of((*self.shift, *self.enlarged)) @ self.view_matrix)

    @property
    def ratios(self) -> dict[str, float]:
        """The measures ``query_ratio`` and ``reference_ratio``."""
        names = "query_ratio", "reference_ratio"
        images = self.query, self.reference
        return {n: image.shape[1] / image.shape[0] for n, image in zip(names, images, strict=True)}

    @property
    def inverted(self) -> bool:
        """Whether the query is compared inverted."""
        return VIEWS[self.view] == "inverted"
