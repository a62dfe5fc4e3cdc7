"""Detection of copies of 16-bit images that use fewer bits.

X-rays and grey photographs are stored as 16-bit PNG and TIFF with 16 down to 10 bits, right aligned
and with various exposures. Copies of them are 8-bit renderings (of the stored range, or of the
range of the image), which are compressed, resized, cropped or brightened, and 16-bit files of other
bits. An audit of the PNG files counts the copies and the other pairs that are graded near or exact;
the TIFF files must decode to the same pixels.

Needs VISLEAK_DATA. About ten minutes on one core.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
from changes import generator
from PIL import Image
from record import Bar, data_folder, write

import visleak
from visleak.images import decode
from visleak.records import DecodedImage

Grey = npt.NDArray[np.float64]
Bytes = npt.NDArray[np.uint8]

#: Images of each kind, their long side, and their folders.
IMAGES, SIDE = 12, 256
KINDS = {"X-rays": "domains/xray/*/*.jpg", "photographs": "photos/*.jpg"}

BITS = (16, 15, 14, 13, 12, 11, 10)

#: Folders and formats of the 16-bit files.
PLACES = (("originals", ".png"), ("others", ".tif"))

#: Lower limit of the brightest value of an image, as a share of the range.
DARKEST = 0.6


def originals(data: Path, kind: str) -> list[Grey]:
    """Return images of a kind as shares of the range.

    They are reduced in floating point, so that more than 8 bits are used.
    """
    paths = sorted(data.glob(KINDS[kind]))
    rng = generator("sixteen bit", kind)
    found = []
    for place in np.linspace(0, len(paths) - 1, IMAGES).astype(int):
        with Image.open(paths[place]) as file:
            levels = np.asarray(file.convert("L"), np.float64)
        scale = min(1.0, SIDE / max(levels.shape))
        size = (round(levels.shape[1] * scale), round(levels.shape[0] * scale))
        levels = cv2.resize(levels, size, interpolation=cv2.INTER_AREA)
        found.append(levels / levels.max() * rng.uniform(DARKEST, 1))
    return found


def stored(image: Grey, bits: int) -> npt.NDArray[np.uint16]:
    """Return an image with this number of bits, right aligned in 16."""
    return np.rint(image * (2**bits - 1)).astype(np.uint16)


def rendered(image: Grey) -> Bytes:
    """Return the stored range as 8 bits."""
    return np.rint(image * 255).astype(np.uint8)


_of = Image.fromarray


def _own_range(image: Grey, _: int) -> Image.Image:
    least, most = image.min(), image.max()
    return Image.fromarray(rendered((image - least) / (most - least)))


def _reduced(image: Grey, _: int) -> Image.Image:
    whole = Image.fromarray(rendered(image))
    return whole.resize((round(whole.width * 0.7), round(whole.height * 0.7)))


def _cropped(image: Grey, _: int) -> Image.Image:
    return Image.fromarray(rendered(_middle(image)))


def _brighter(image: Grey, _: int) -> Image.Image:
    return Image.fromarray(rendered(np.clip(image * 1.25 + 0.05, 0, 1)))


def _middle(image: Grey) -> Grey:
    top, left = (round(side * (1 - 0.7**0.5) / 2) for side in image.shape)
    return image[top:-top, left:-left]


#: Copies of an image, given its number of bits, and how they are saved.
COPIES: Mapping[str, tuple[Callable[[Grey, int], Image.Image], str, Mapping[str, Any]]] = {
    "8 bits": (lambda image, _: _of(rendered(image)), "png", {}),
    "8 bits, own range": (_own_range, "png", {}),
    "JPEG 50 at 70 %": (_reduced, "jpg", {"quality": 50}),
    "crop 70 %": (_cropped, "jpg", {"quality": 90}),
    "brighter": (_brighter, "jpg", {"quality": 90}),
    "crop, same bits": (lambda image, bits: _of(stored(_middle(image), bits)), "tif", {}),
    "all 16 bits": (lambda image, _: _of(stored(image, 16)), "png", {}),
}


def measured(images: list[Grey], bits: int, folder: Path) -> dict[str, Any]:
    """Return the copies found by change, the wrong pairs, blank images and equal TIFF files."""
    for side in ("copies", "originals", "others"):
        (folder / side).mkdir(parents=True)
    equal = 0
    for number, image in enumerate(images):
        files = [folder / place / f"{number:02}{end}" for place, end in PLACES]
        for file in files:
            Image.fromarray(stored(image, bits)).save(file)
        equal += _decoded_alike(*files)
        for change, (make, ending, options) in COPIES.items():
            make(image, bits).save(folder / "copies" / f"{number:02} {change}.{ending}", **options)
    sides = folder / "copies", folder / "originals"
    audit = visleak.audit(*sides, cache=None, settings=visleak.Settings(within=False))
    found = dict.fromkeys(COPIES, 0)
    wrong = []
    for row in audit.pairs().to_pylist():
        if row["grade"] in ("exact", "near"):
            if row["query"][:2] == row["reference"][:2]:
                found[row["query"][3:].rpartition(".")[0]] += 1
            else:
                wrong.append(f"{row['query']} - {row['reference']}")
    blank = sum(each.flat or 0 for each in audit.summary.sets)
    return {"found": found, "wrong": wrong, "blank": blank, "TIFF as PNG": equal}


def _decoded_alike(one: Path, other: Path) -> bool:
    pixels = [decode(file.read_bytes()) for file in (one, other)]
    return all(isinstance(each, DecodedImage) for each in pixels) and bool(
        (pixels[0].pixels == pixels[1].pixels).all()
    )


def main() -> None:
    """Measure, print the table, and write the JSON file."""
    data = data_folder("domains", "photos")
    figures: dict[str, Any] = {}
    bars = []
    for kind in KINDS:
        images = originals(data, kind)
        table = {}
        for bits in BITS:
            with tempfile.TemporaryDirectory() as folder:
                table[f"{bits} bits"] = measured(images, bits, Path(folder))
            _show(kind, bits, table[f"{bits} bits"])
        figures[kind] = table
        least = min(min(each["found"].values()) for each in table.values())
        equal = min(each["TIFF as PNG"] for each in table.values())
        bars += [
            Bar(f"{kind}: TIFF files with the pixels of the PNG", equal, IMAGES, most=False),
            Bar(f"{kind}: copies found of {IMAGES}, least column", least, IMAGES, most=False),
            Bar(f"{kind}: wrong pairs", sum(len(each["wrong"]) for each in table.values()), 0),
        ]
    write(__file__, bars, figures)


def _show(kind: str, bits: int, found: Mapping[str, Any]) -> None:
    columns = (f"{change} {count}" for change, count in found["found"].items())
    print(
        f"{kind}, {bits} bits: {'; '.join(columns)}; wrong {len(found['wrong'])};"
        f" blank {found['blank']}",
        flush=True,
    )


if __name__ == "__main__":
    main()
