"""Draw docs/leaks.png: four test images of CIFAR-10 beside the training images they repeat.

usage: VISLEAK_DATA=FOLDER python docs/leaks_figure.py
"""

import io
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image, ImageDraw, ImageFont

FIGURE = Path(__file__).with_name("leaks.png")
#: What was done to the image, and the rows of the test and the training image. People judged all
#: four near-duplicates: the mirrored pair in this project, the others in the list of Barz and
#: Denzler (2020).
LEAKS = (
    ("mirrored", 4838, 29986),
    ("another crop", 2786, 11129),
    ("other colours", 4362, 45515),
    ("scaled and encoded again", 6880, 35230),
)
TITLE = "Test images of CIFAR-10 and the training images that they repeat"
SIDE, GAP, BETWEEN, TOP, LABEL, COLOURS = 112, 4, 26, 30, 44, 256


def image_of(table: pa.Table, row: int) -> Image.Image:
    """Return an image of a table, enlarged."""
    stored = table.column("image")[row].as_py()
    content = stored["bytes"] if isinstance(stored, dict) else stored
    return Image.open(io.BytesIO(content)).convert("RGB").resize((SIDE, SIDE), 3)


def main() -> None:
    """Write the figure, with few colours so that it is small."""
    data = Path(os.environ["VISLEAK_DATA"]) / "cifar10"
    test, train = (pq.read_table(data / f"{name}.parquet") for name in ("test", "train"))
    width = 2 * SIDE + GAP
    figure = Image.new("RGB", (4 * width + 3 * BETWEEN, TOP + SIDE + LABEL), "white")
    draw = ImageDraw.Draw(figure)
    font, small = ImageFont.load_default(15), ImageFont.load_default(12)
    draw.text((0, 2), TITLE, "black", ImageFont.load_default(18))
    for number, (change, query, reference) in enumerate(LEAKS):
        left = number * (width + BETWEEN)
        for offset, table, row, side in ((0, test, query, "test"), (1, train, reference, "train")):
            place = left + offset * (SIDE + GAP)
            figure.paste(image_of(table, row), (place, TOP))
            draw.text((place, TOP + SIDE + 3), f"{side} {row}", "#666666", small)
        draw.text((left, TOP + SIDE + 20), change, "black", font)
    figure.quantize(COLOURS, dither=Image.Dither.NONE).save(FIGURE, optimize=True)
    print(f"{FIGURE}: {figure.width} x {figure.height}, {FIGURE.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
