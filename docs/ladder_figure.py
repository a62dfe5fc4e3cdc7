"""Draw docs/ladder.png: the grades by example, the degrees on the scale of similarity, coverage.

usage: VISLEAK_DATA=FOLDER python docs/ladder_figure.py
"""

import io
import os
from pathlib import Path

import matplotlib as mpl
import pyarrow as pa
import pyarrow.parquet as pq
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch
from PIL import Image

from visleak.encoders import load_encoder

FIGURE = Path(__file__).with_name("ladder.png")
#: Grade, meaning, rows of a test and a training image of CIFAR-10. Near, similar and different are
#: judged by people; exact is a test image beside its own copy as JPEG.
GRADES = (
    ("exact", "the same image,\nre-encoded", 390, None, "#b3261e"),
    ("near", "the same shot, processed:\ncolour, crop, shift, flip", 142, 19949, "#d9742b"),
    ("similar", "another shot of the\nsame scene or object", 2318, 22307, "#a38a1d"),
    ("different", "neither", 334, 2424, "#4a6d7c"),
)
DARK, PALE = "#222222", "#e8ecee"


def image_of(table: pa.Table, row: int) -> Image.Image:
    """Return an image of a table."""
    stored = table.column("image")[row].as_py()
    content = stored["bytes"] if isinstance(stored, dict) else stored
    return Image.open(io.BytesIO(content)).convert("RGB")


def resaved(image: Image.Image) -> Image.Image:
    """Return the image as JPEG keeps it."""
    out = io.BytesIO()
    image.save(out, "JPEG", quality=95)
    return Image.open(out)


def grades(figure: plt.Figure) -> None:
    """Draw a pair for each grade."""
    data = Path(os.environ["VISLEAK_DATA"]) / "cifar10"
    test, train = (pq.read_table(data / f"{name}.parquet") for name in ("test", "train"))
    for number, (grade, meaning, query, reference, colour) in enumerate(GRADES):
        left = 0.02 + 0.245 * number
        own = image_of(test, query)
        other = resaved(own) if reference is None else image_of(train, reference)
        for place, image, side in ((left, own, "test"), (left + 0.113, other, "train")):
            axes = figure.add_axes((place, 0.62, 0.11, 0.212))
            axes.imshow(image, interpolation="bicubic")
            axes.set_axis_off()
            figure.text(place + 0.055, 0.845, side, ha="center", color="#666666", size=9)
        middle = left + 0.1115
        figure.text(middle, 0.905, grade, ha="center", color=colour, size=15, weight="bold")
        figure.text(middle, 0.59, meaning, ha="center", va="top", color=DARK, size=10)
    figure.text(0.255, 0.965, "leaks: near or exact", ha="center", color=DARK, size=11)
    line = plt.Line2D((0.02, 0.488), (0.953, 0.953), color="#b3261e", linewidth=2)
    figure.add_artist(line)
    figure.text(0.745, 0.965, "not counted as leaks", ha="center", color=DARK, size=11)
    figure.add_artist(plt.Line2D((0.51, 0.978), (0.953, 0.953), color="#4a6d7c", linewidth=2))


def degrees(axes: Axes) -> None:
    """Draw the thresholds of the built-in encoder on the scale of similarity."""
    thresholds = load_encoder("builtin").thresholds
    assert thresholds is not None
    soft, hard = float(thresholds["soft"]), float(thresholds["hard"])
    for low, high, colour, name in (
        (0.4, soft, PALE, "no degree"),
        (soft, hard, "#f0c987", "soft"),
        (hard, 1.0, "#d9742b", "hard"),
    ):
        axes.barh(0, high - low, left=low, color=colour, height=0.5)
        axes.text((low + high) / 2, 0, name, ha="center", va="center", size=11, color=DARK)
    axes.set_xlim(0.4, 1.0)
    axes.set_ylim(-0.3, 0.3)
    axes.set_xticks((0.4, soft, hard, 1.0), ("0.4", f"{soft:.3f}", f"{hard:.3f}", "1"))
    axes.set_yticks(())
    axes.spines[["left", "right", "top"]].set_visible(False)
    axes.set_title("degree: similarity alone (built-in encoder)", size=11, color=DARK, pad=9)


def coverage(axes: Axes) -> None:
    """Draw the sets that a pair connects."""
    axes.set_xlim(0, 10)
    axes.set_ylim(0, 4)
    axes.set_axis_off()
    axes.set_title("coverage: the sets of the two images", size=11, color=DARK, pad=9)
    for x, width, name in ((0.1, 5.9, "dataset A"), (7.3, 2.6, "dataset B")):
        style = "round,pad=0,rounding_size=0.2"
        axes.add_patch(FancyBboxPatch((x, 0.2), width, 3.3, style, fc="white", ec="#888888"))
        axes.text(x + 0.2, 3.1, name, size=9, color="#666666", va="center")
    for x, name in ((0.7, "test"), (3.9, "train"), (7.8, "train")):
        axes.add_patch(FancyBboxPatch((x, 1.1), 1.6, 1.0, "round,pad=0", fc=PALE, ec=PALE))
        axes.text(x + 0.8, 1.6, name, ha="center", va="center", size=11, color=DARK)
    for start, end, bend, colour in (
        ((2.3, 1.75), (3.9, 1.75), 0.0, "#b3261e"),
        ((1.9, 1.1), (8.2, 1.1), 0.16, "#b3261e"),
        ((1.0, 2.1), (1.9, 2.1), -1.4, "#4a6d7c"),
    ):
        arrow = f"arc3,rad={bend}"
        axes.add_patch(
            FancyArrowPatch(
                start, end, connectionstyle=arrow, arrowstyle="<->", mutation_scale=11, color=colour
            )
        )
    axes.text(3.1, 1.95, "intra", ha="center", size=10, color="#b3261e")
    axes.text(6.65, 0.95, "inter", ha="center", size=10, color="#b3261e")
    axes.text(2.25, 2.5, "within: a repeat", size=10, color="#4a6d7c")


def main() -> None:
    """Write the figure."""
    mpl.use("Agg")
    figure = plt.figure(figsize=(9.6, 5.0), dpi=110, facecolor="white")
    grades(figure)
    degrees(figure.add_axes((0.04, 0.16, 0.42, 0.19)))
    coverage(figure.add_axes((0.53, 0.02, 0.45, 0.33)))
    figure.savefig(FIGURE)
    image = Image.open(FIGURE).convert("RGB")
    image.quantize(128, dither=Image.Dither.NONE).save(FIGURE, optimize=True)
    print(f"{FIGURE}: {FIGURE.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
