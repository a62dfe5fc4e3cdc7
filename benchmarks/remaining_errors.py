"""Draw the wrong pairs of rendered documents that domains.json lists: docs/remaining_errors.png.

usage: python benchmarks/remaining_errors.py

Wrong pairs of the other sets are listed there by name; their licences exclude publication.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import documents
import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure

from visleak.verification.frame import bounded

TARGET = Path(__file__).parents[1] / "docs" / "remaining_errors.png"

#: Pairs per row; long side of an image and space between images, pixels.
ACROSS, SIDE, SPACE = 3, 380, 14

Pixels = npt.NDArray[np.uint8]


def pairs(errors: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, Pixels, Pixels]]:
    """Yield a title and the two images of each wrong pair."""
    for error in errors:
        made = documents.document(error["kind"], error["number"])
        pair = documents.pairs(made, processed=1)[error["pair"]]
        processed = error["copy"] or "not processed"
        yield f"{error['kind']}: {error['change']} changed, {processed}", pair.query, pair.reference


def beside(sides: Sequence[Pixels]) -> Pixels:
    """Return two images on white, side by side."""
    high, wide = (max(side.shape[axis] for side in sides) for axis in (0, 1))
    canvas = np.full((high, 2 * wide + SPACE, 3), 255, np.uint8)
    for side, left in zip(sides, (0, wide + SPACE), strict=True):
        canvas[: side.shape[0], left : left + side.shape[1]] = side
    return canvas


def main() -> None:
    """Draw the pairs, side by side."""
    figures = json.loads(Path(__file__).with_name("domains.json").read_text("utf-8"))["figures"]
    drawn = list(pairs(figures["documents"]["errors"]))
    rows = max(1, -(-len(drawn) // ACROSS))
    figure = Figure(figsize=(5.2 * ACROSS, 3.1 * rows), layout="constrained")
    cells = figure.subplots(rows, ACROSS, squeeze=False).ravel()
    for cell in cells:
        cell.set_axis_off()
    for cell, (name, query, reference) in zip(cells, drawn, strict=False):
        cell.imshow(beside([bounded(query, SIDE), bounded(reference, SIDE)]))
        cell.set_title(name, fontsize=13)
    figure.suptitle(
        "Changed documents that are graded near: left the changed one, right the original",
        fontsize=16,
    )
    figure.savefig(TARGET, dpi=80)


if __name__ == "__main__":
    main()
