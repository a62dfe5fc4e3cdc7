"""Random block mosaics: images that share only a regular grid of edges.

Each image is a grid of 4 to 32 random colours, or shades of grey, per side, enlarged without
interpolation to 32 to 256 pixels, as PNG or JPEG. All pairs of two mosaics are different, but the
borders of their blocks coincide, and with few blocks some colours agree by chance. An audit of 100
test images with 150 training images counts the test images that are graded near or exact, which
must be none. Copies of every tenth training image (JPEG 50, resized to 70 %, crop of 70 % of the
area) must be found. The grader is fitted on other mosaics of :mod:`tiny_sets`.

About half an hour on one core.
"""

from __future__ import annotations

import resource
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from changes import generator
from PIL import Image
from record import Bar, write
from tiny_sets import mosaic

import visleak

#: Images of each side, and which training images have copies.
TEST, TRAIN, EVERY = 100, 150, 10

#: Copies of an image.
COPIES: Final = ("JPEG 50", "resized 70 %", "crop 70 %")


@dataclass(frozen=True)
class Kind:
    """A set of mosaics.

    Attributes:
        blocks: numbers per side, one of which is drawn for each image.
        sides: of the images in pixels, drawn in the same way.
        colour: whether blocks have colours or shades of grey.
        ending: format of the files.
    """

    blocks: tuple[int, ...]
    sides: tuple[int, ...]
    colour: bool = True
    ending: str = "png"


KINDS: Final = (
    *(Kind((4,), (side,)) for side in (32, 64, 128, 256)),
    *(Kind((8,), (side,)) for side in (32, 64, 128, 256)),
    *(Kind((16,), (side,)) for side in (64, 128)),
    Kind((32,), (256,)),
    Kind((8,), (64, 128, 192, 256)),
    Kind((4,), (64,), colour=False),
    Kind((8,), (64, 128, 256), colour=False),
    Kind((16,), (128,), colour=False, ending="jpg"),
    Kind((4, 8, 16), (64, 128), ending="jpg"),
)


def drawn(kind: Kind, rng: np.random.Generator) -> Image.Image:
    """Return one image of a kind."""
    blocks, side = (int(rng.choice(choices)) for choices in (kind.blocks, kind.sides))
    image = Image.fromarray(mosaic((blocks, blocks), 3 if kind.colour else 1, rng))
    return image.resize((side, side), Image.Resampling.NEAREST)


def copies(image: Image.Image) -> Iterator[tuple[str, Image.Image, int]]:
    """Yield copies of an image: name, pixels, and quality of the JPEG."""
    small = round(0.7 * image.width)
    edge = round(image.width * (1 - 0.7**0.5) / 2)
    yield COPIES[0], image, 50
    yield COPIES[1], image.resize((small, small), Image.Resampling.LANCZOS), 90
    yield COPIES[2], image.crop((edge, edge, image.width - edge, image.height - edge)), 90


def measured(kind: Kind, folder: Path) -> dict[str, Any]:
    """Return the wrong pairs of a kind, the copies found, and CPU seconds."""
    rng = generator("mosaics", str(kind))
    for side, count in (("test", TEST), ("train", TRAIN), ("copies", 0)):
        (folder / side).mkdir()
        for number in range(count):
            drawn(kind, rng).save(folder / side / f"{number:03}.{kind.ending}")
    for path in sorted((folder / "train").iterdir())[::EVERY]:
        with Image.open(path) as file:
            for name, image, quality in copies(file.convert("RGB")):
                image.save(folder / "copies" / f"{path.stem} {name}.jpg", quality=quality)
    before = _cpu_seconds()
    wrong = [row["query"] for row in near_pairs(folder, "test")]
    seconds = _cpu_seconds() - before
    pairs = near_pairs(folder, "copies")
    found = {row["query"] for row in pairs if row["query"][:3] == row["reference"][:3]}
    return {
        **asdict(kind),
        "wrong": len(set(wrong)),
        "found": {name: sum(query[4:-4] == name for query in found) for name in COPIES},
        "wrong pairs of copies": len(pairs) - len(found),
        "cpu_seconds": round(seconds, 1),
    }


def near_pairs(folder: Path, side: str) -> Sequence[dict[str, Any]]:
    """Return the rows of pairs that are near or exact."""
    settings = visleak.Settings(within=False)
    audit = visleak.audit(folder / side, folder / "train", cache=None, settings=settings)
    return [row for row in audit.pairs().to_pylist() if row["grade"] in ("exact", "near")]


def _cpu_seconds() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def main() -> None:
    """Measure, print a line for each kind, and write the JSON file."""
    table = []
    for kind in KINDS:
        with tempfile.TemporaryDirectory() as folder:
            table.append(measured(kind, Path(folder)))
        print(table[-1], flush=True)
    least = min(min(row["found"].values()) for row in table)
    bars = [
        Bar("test images wrongly near", sum(row["wrong"] for row in table), 0),
        Bar("wrong pairs of copies", sum(row["wrong pairs of copies"] for row in table), 0),
        Bar(f"copies found of {TRAIN // EVERY}, least column", least, TRAIN // EVERY, most=False),
    ]
    write(__file__, bars, {"kinds": table})


if __name__ == "__main__":
    main()
