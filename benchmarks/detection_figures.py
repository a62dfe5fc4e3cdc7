"""The images of docs/detection.md, drawn from the figures of ``detection.py``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np
import numpy.typing as npt
from measures import reliability_bins
from PIL import Image, ImageDraw, ImageFont

from visleak.rates import wilson

Pixels = npt.NDArray[np.uint8]

#: Side at which an image is shown.
SIDE = 96
GAP = 10
LABEL = 30
TITLE = 32


def pair_sheet(
    title: str,
    pairs: Sequence[tuple[Pixels, Pixels, str]],
    path: Path,
    columns: int,
    *,
    crisp: bool = False,
) -> None:
    """Draw pairs side by side, query left and reference right, with two lines under each.

    Args:
        title: the first line.
        pairs: query, reference, and two lines of text with a line break between.
        path: the JPEG file.
        columns: pairs per row.
        crisp: enlarge tiny images without interpolation.
    """
    rows = max(1, -(-len(pairs) // columns))
    width, height = 2 * SIDE + 2 + GAP, SIDE + LABEL + GAP
    sheet = Image.new("RGB", (columns * width + GAP, TITLE + rows * height + GAP), "white")
    draw, font = ImageDraw.Draw(sheet), ImageFont.load_default(11)
    draw.text((GAP, GAP), title, fill="#1d2127", font=ImageFont.load_default(17))
    for number, (query, reference, text) in enumerate(pairs):
        x = GAP + number % columns * width
        y = TITLE + GAP + number // columns * height
        for place, picture in enumerate((query, reference)):
            sheet.paste(_fitted(picture, crisp), (x + place * (SIDE + 2), y))
        draw.multiline_text((x, y + SIDE + 2), text, fill="#1d2127", font=font, spacing=2)
    sheet.save(path, "JPEG", quality=88, optimize=True)


def _fitted(picture: Pixels, crisp: bool) -> Image.Image:
    """Return an image inside a grey square."""
    height, width = picture.shape[:2]
    ratio = SIDE / max(height, width)
    size = (max(1, round(width * ratio)), max(1, round(height * ratio)))
    method = cv2.INTER_NEAREST if crisp else cv2.INTER_AREA if ratio < 1 else cv2.INTER_LINEAR
    square = np.full((SIDE, SIDE, 3), 236, np.uint8)
    shown = cv2.resize(picture, size, interpolation=method)
    top, left = (SIDE - size[1]) // 2, (SIDE - size[0]) // 2
    square[top : top + size[1], left : left + size[0]] = shown
    return Image.fromarray(square)


def reliability(
    curves: Sequence[tuple[str, npt.NDArray[np.float64], npt.NDArray[np.bool_]]], path: Path
) -> None:
    """Draw a reliability diagram with ten bins of equal mass per curve.

    Args:
        curves: name, probability and truth of each.
        path: the SVG file.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    style = {"svg.hashsalt": "visleak", "font.size": 10, "axes.spines.top": False}
    with plt.rc_context({**style, "axes.spines.right": False}):
        figure, axes = plt.subplots(figsize=(4.6, 4.4), layout="constrained")
        axes.plot([0, 1], [0, 1], color="#c9ced5", linewidth=1, zorder=1)
        for (name, chance, true), colour in zip(curves, ("#d0492f", "#2c6cb0"), strict=False):
            bins = reliability_bins(chance, true)
            x, y = [b.predicted for b in bins], [b.observed for b in bins]
            ends = [wilson(round(b.observed * b.count), b.count) for b in bins]
            low = [share - end[0] for share, end in zip(y, ends, strict=True)]
            high = [end[1] - share for share, end in zip(y, ends, strict=True)]
            axes.errorbar(
                x, y, yerr=[low, high], fmt="o-", color=colour, markersize=5, linewidth=1.4,
                elinewidth=0.9, capsize=2, label=f"{name}, {len(true):,} pairs",
            )  # fmt: skip
        axes.set_title("How often pairs of a probability are near or exact", fontsize=11)
        axes.set_xlabel("probability the grader gives")
        axes.set_ylabel("share that people call near or exact")
        axes.set_xlim(-0.02, 1.02)
        axes.set_ylim(-0.02, 1.02)
        axes.set_aspect("equal")
        axes.legend(frameon=False, loc="upper left")
        figure.savefig(path, metadata={"Date": None})
        plt.close(figure)
