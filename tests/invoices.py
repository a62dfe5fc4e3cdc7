"""Drawn invoices of which one field is changed, and an audit of them."""

import cv2
import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFont

import visleak

Pixels = npt.NDArray[np.uint8]

WIDTH, HEIGHT = 600, 800
LINES = (
    "Meridian Systems",
    "Invoice 2024-118",
    "Market Road 64, Malmo",
    "Bracket valve          9.37",
    "Hosting repair       7.74",
    "Paper, 500 sheets   12.05",
    "Freight              30.00",
    "VAT 19 %             11.24",
    "Total              148.20 EUR",
    "Payable within 32 days",
)
#: What ``changed.png`` says instead of its total.
OTHER = "Total              763.95 EUR"


def invoice(number=0, **fields):
    """Return an invoice, RGB: its number decides layout and words, fields as ``line_8`` aside."""
    rng = np.random.default_rng(number)
    image = Image.new("RGB", (WIDTH, HEIGHT), (252, 250, 245))
    draw = ImageDraw.Draw(image)
    draw.rectangle((30, 20, 90, 60), fill=tuple(int(c) for c in rng.integers(20, 200, 3)))
    left, step = 40 + 29 * number, 70 - 7 * number
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz0123456789"))
    for place, line in enumerate(LINES):
        own = line if number == 0 else "".join(rng.choice(letters, len(line)))
        text = fields.get(f"line_{place}", own)
        draw.text((left, 80 + step * place), text, (25, 25, 30), ImageFont.load_default(size=26))
        if number % 2 == 0:
            draw.line((40, 122 + step * place, 560, 122 + step * place), (150, 150, 150))
    return np.asarray(image)


def difference_box(one, other):
    """Return left, top, right and bottom of the pixels that differ, in unit coordinates."""
    rows, columns = np.nonzero((one != other).any(axis=2))
    height, width = one.shape[:2]
    left, right = columns.min() / width, (columns.max() + 1) / width
    return float(left), float(rows.min() / height), float(right), float((rows.max() + 1) / height)


def covered(truth, marks):
    """Return the share of a box that marks (left, top, width, height) cover."""
    left, top, right, bottom = truth
    area = 0.0
    for x, y, width, height in marks:
        across = min(right, x + width) - max(left, x)
        down = min(bottom, y + height) - max(top, y)
        area += max(0.0, across) * max(0.0, down)
    return area / ((right - left) * (bottom - top))


def audited(folder):
    """Audit invoices (another total, turned or not, and a copy against the originals)."""
    test = {
        "changed.png": invoice(0, line_8=OTHER),
        "turned.png": np.rot90(invoice(1, line_8=OTHER), 2),
        "copy.png": cv2.convertScaleAbs(invoice(2), alpha=0.9),
    }
    train = {f"original-{number}.png": invoice(number) for number in range(3)}
    for side, pictures in (("test", test), ("train", train)):
        (folder / side).mkdir(parents=True)
        for name, pixels in pictures.items():
            Image.fromarray(np.ascontiguousarray(pixels)).save(folder / side / name)
    out = folder / "audit"
    visleak.audit(str(folder / "test"), str(folder / "train"), out=out, workers=1, cache=None)
    return out
