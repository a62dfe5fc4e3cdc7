"""Draw the wrong pairs that domains.json lists: docs/remaining_errors.png.

usage: VISLEAK_DATA=FOLDER python benchmarks/remaining_errors.py
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import cv2
import documents
import numpy as np
import numpy.typing as npt
from changes import changed
from domain_sets import FOLDERS, DomainSet
from matplotlib.figure import Figure
from record import data_folder

TARGET = Path(__file__).parents[1] / "docs" / "remaining_errors.png"

#: Pairs in a row, pairs of one set, and long side of a thumbnail, pixels.
ACROSS, MOST, SIDE = 4, 4, 260

Pixels = npt.NDArray[np.uint8]


def errors(data: Path, figures: Mapping[str, Any]) -> Iterator[tuple[str, Pixels, Pixels]]:
    """Yield what each wrong pair is, and its two images."""
    for name in FOLDERS:
        images = DomainSet.of(data, name)
        for error in figures[name]["errors"][:MOST]:
            query, reference = (
                images.image(images.names.index(error[side])) for side in ("query", "reference")
            )
            if error["change"]:
                query = changed(query, error["change"], error["query"])
            change = f", {error['change']}" if error["change"] else ""
            yield f"{name}{change}: P(near) {error['probability']}", query, reference
    for error in figures["documents"]["errors"]:
        made = documents.document(error["kind"], error["number"])
        pair = documents.pairs(made, processed=1)[error["pair"]]
        change, copy = error["change"], error["copy"]
        yield f"{error['kind']}, {change} changed, {copy or 'as it is'}", pair.query, pair.reference


def thumbnail(pixels: Pixels) -> Pixels:
    """Return an image with its long side at ``SIDE`` pixels."""
    ratio = SIDE / max(pixels.shape[:2])
    size = [max(1, round(side * ratio)) for side in pixels.shape[1::-1]]
    method = cv2.INTER_AREA if ratio < 1 else cv2.INTER_NEAREST
    return np.asarray(cv2.resize(pixels, size, interpolation=method), np.uint8)


def main() -> None:
    """Draw the pairs, side by side."""
    figures = json.loads(Path(__file__).with_name("domains.json").read_text("utf-8"))["figures"]
    pairs = list(errors(data_folder("domains", "photos", "coco128"), figures))
    rows = max(1, -(-len(pairs) // ACROSS))
    figure = Figure(figsize=(4.2 * ACROSS, 2.6 * rows), layout="constrained")
    cells = figure.subplots(rows, ACROSS, squeeze=False).ravel()
    for cell in cells:
        cell.set_axis_off()
    for cell, (name, query, reference) in zip(cells, pairs, strict=False):
        sides = [thumbnail(query), thumbnail(reference)]
        high = max(side.shape[0] for side in sides)
        padded = [
            cv2.copyMakeBorder(side, 0, high - side.shape[0], 0, 12, cv2.BORDER_CONSTANT,
                               value=(255, 255, 255))
            for side in sides
        ]  # fmt: skip
        cell.imshow(np.hstack(padded))
        cell.set_title(name, fontsize=9)
    figure.savefig(TARGET, dpi=80)


if __name__ == "__main__":
    main()
