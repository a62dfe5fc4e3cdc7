"""Non-verbatim reproductions of photographs that the built-in similarity recognizes.

A model rarely reproduces a training image byte for byte. The photographs that were not used for
fitting are reproduced twice each with different random numbers: cropped, in other colours, blurred,
noisy, warped, with a part of another photograph painted in, redrawn in flat areas, and with several
of these changes. For each kind of reproduction:

- ``extract``: the share of pairs of two reproductions of one photograph that are neighbours in
  clustering (``--similarity builtin``, default ``--eps``), and the number of such pairs of
  different photographs;
- ``trace``: the share of reproductions that are verified as copies of their original among the
  photographs (default options), and the share that count as copies of another photograph.

Photographs that are painted in are not among the references, where they would be found. Needs
VISLEAK_DATA. About ten minutes on two cores.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import cv2
import numpy as np
import numpy.typing as npt
from changes import cropped, generator, hue_turned, noisy, relit
from PIL import Image
from record import Bar, data_folder, write

from visleak.memorization.extraction import load_similarity
from visleak.memorization.tracing import trace
from visleak.rates import Rate

Pixels = npt.NDArray[np.uint8]

#: A reproduction of a photograph; the second one is painted into parts of the first.
Reproduction = Callable[[Pixels, Pixels, np.random.Generator], Pixels]

#: Long side of all images, and photographs that are reproduced.
SIDE: Final = 256
PHOTOGRAPHS: Final = 60

#: Of this number of photographs one is painted into others, and is not a reference.
DONORS: Final = 8


def warped(pixels: Pixels, rng: np.random.Generator, most: float) -> Pixels:
    """Return an image displaced smoothly by up to a share of its long side."""
    height, width = pixels.shape[:2]
    coarse = rng.uniform(-1, 1, (5, 5, 2)).astype(np.float32)
    field = cv2.resize(coarse, (width, height), interpolation=cv2.INTER_CUBIC)
    field *= most * max(height, width) / np.abs(field).max()
    y, x = np.mgrid[0:height, 0:width].astype(np.float32)
    made = cv2.remap(
        pixels,
        x + field[..., 0],
        y + field[..., 1],
        cv2.INTER_LINEAR,
        borderMode=cv2.BORDER_REFLECT,
    )
    return np.asarray(made, np.uint8)


def painted_in(pixels: Pixels, other: Pixels, rng: np.random.Generator, area: float) -> Pixels:
    """Return an image with another one on a share of its area, with soft edges."""
    height, width = pixels.shape[:2]
    mask = np.zeros((height, width), np.float32)
    half = (int(width * np.sqrt(area / np.pi)), int(height * np.sqrt(area / np.pi)))
    centre = (int(rng.integers(width)), int(rng.integers(height)))
    # complete ellipses, so that the share of the area is exact
    centre = tuple(
        int(np.clip(c, h, s - h)) for c, h, s in zip(centre, half, (width, height), strict=True)
    )
    cv2.ellipse(mask, centre, half, 0, 0, 360, 1.0, -1)
    mask = cv2.GaussianBlur(mask, (0, 0), 0.02 * max(height, width))[..., None]
    inside = cv2.resize(other, (width, height), interpolation=cv2.INTER_AREA)
    return np.rint(pixels * (1 - mask) + inside * mask).astype(np.uint8)


def redrawn(pixels: Pixels, other: Pixels, rng: np.random.Generator) -> Pixels:
    """Return an image in flat areas without texture, as a painting of it."""
    made = cv2.stylization(pixels, sigma_s=30, sigma_r=0.35)
    return noisy(np.asarray(made, np.uint8), rng, 4.0)


def several(pixels: Pixels, other: Pixels, rng: np.random.Generator) -> Pixels:
    """Return an image warped, cropped, in other colours, with a part painted in, and blurred."""
    made = painted_in(warped(pixels, rng, 0.01), other, rng, 0.1)
    made = cropped(made, float(rng.uniform(0.85, 0.95)), rng)
    made = coloured(made, other, rng)
    return np.asarray(cv2.GaussianBlur(made, (0, 0), 1.0), np.uint8)


def coloured(pixels: Pixels, other: Pixels, rng: np.random.Generator) -> Pixels:
    """Return an image with hues turned by up to 40 degrees, other contrast and brightness."""
    turned = hue_turned(pixels, float(rng.uniform(-40, 40)))
    return relit(turned, float(rng.uniform(0.75, 1.25)), float(rng.uniform(-25, 25)))


#: Kinds of reproduction, from the mildest.
KINDS: Final[Mapping[str, Reproduction]] = {
    "noise 15": lambda p, o, rng: noisy(p, rng, 15.0),
    "blur 2": lambda p, o, rng: np.asarray(
        cv2.GaussianBlur(p, (0, 0), float(rng.uniform(1.5, 2.5))), np.uint8
    ),
    "crop to 80 %": lambda p, o, rng: cropped(p, 0.8, rng),
    "crop to 60 %": lambda p, o, rng: cropped(p, 0.6, rng),
    "other colours": coloured,
    "warp 1 %": lambda p, o, rng: warped(p, rng, 0.01),
    "warp 3 %": lambda p, o, rng: warped(p, rng, 0.03),
    "10 % painted in": lambda p, o, rng: painted_in(p, o, rng, 0.1),
    "25 % painted in": lambda p, o, rng: painted_in(p, o, rng, 0.25),
    "redrawn": redrawn,
    "mirrored": lambda p, o, rng: p[:, ::-1].copy() if rng.random() < 0.5 else p,
    "several at once": several,
}


def photographs(folder: Path) -> list[Pixels]:
    """Return all photographs, with their long side reduced, by name."""
    found = []
    for path in sorted(folder.glob("*.jpg")):
        with Image.open(path) as opened:
            picture = opened.convert("RGB")
        picture.thumbnail((SIDE, SIDE))
        found.append(np.asarray(picture))
    return found


def reproduced(pictures: list[Pixels], rows: list[int], kind: str, draw: int) -> list[Pixels]:
    """Return a reproduction of each photograph, determined by kind, row and draw."""
    made, donors = [], pictures[::DONORS]
    for row in rows:
        rng = generator("reproductions", kind, row, draw)
        other = donors[int(rng.integers(len(donors)))]
        made.append(KINDS[kind](pictures[row], other, rng))
    return made


def share(count: int, total: int) -> dict[str, Any]:
    """Return a share with its 95 % interval."""
    rate = Rate.of(count, total)
    return {
        "count": count, "total": total, "share": rate.share, "low": rate.low, "high": rate.high,
    }  # fmt: skip


def neighbours(pictures: list[Pixels], rows: list[int]) -> dict[str, Any]:
    """Return the pairs of reproductions that are neighbours, by kind."""
    similarity = load_similarity("builtin")
    assert similarity.eps is not None
    found: dict[str, Any] = {"by kind": {}}
    same = different = 0
    for kind in KINDS:
        one, other = (reproduced(pictures, rows, kind, draw) for draw in (0, 1))
        linked = similarity.between(one, other) >= 1 - similarity.eps
        own = int(np.trace(linked))
        same, different = same + own, different + int(linked.sum()) - own
        found["by kind"][kind] = share(own, len(rows))
        print("extract", kind, own, flush=True)
    total = len(KINDS) * len(rows)
    found["all kinds"] = share(same, total)
    found["pairs of different photographs"] = share(different, total * (len(rows) - 1))
    return found


def copies(pictures: list[Pixels], rows: list[int]) -> dict[str, Any]:
    """Return the reproductions that are verified as copies of their original, by kind."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for side in ("train", "made"):
            (folder / side).mkdir()
        for row, pixels in enumerate(pictures):
            if row % DONORS:
                Image.fromarray(pixels).save(folder / "train" / f"{row:03d}.png")
        for at, kind in enumerate(KINDS):
            for row, pixels in zip(rows, reproduced(pictures, rows, kind, 0), strict=True):
                Image.fromarray(pixels).save(folder / "made" / f"{at:02d}-{row:03d}.png")
        result = trace(folder / "made", [folder / "train"], folder / "out", cache=None, workers=2)
    own = dict.fromkeys(KINDS, 0)
    wrong = 0
    for match in result.verified:
        at, row = Path(match.image).stem.split("-")
        right = match.reference is not None and Path(match.reference).stem == row
        own[list(KINDS)[int(at)]] += right
        wrong += not right
    total = len(KINDS) * len(rows)
    return {
        "by kind": {kind: share(count, len(rows)) for kind, count in own.items()},
        "all kinds": share(sum(own.values()), total),
        "copies of another photograph": share(wrong, total),
    }


def main() -> None:
    """Measure, and write ``reproductions.json``."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--photographs", type=int, default=PHOTOGRAPHS)
    count = parser.parse_args().photographs
    pictures = photographs(data_folder("photos") / "photos")
    # the grader was fitted on positions 0 and 1 modulo 4
    reported = [row for row in range(len(pictures)) if row % 4 >= 2]
    rows = reported[:: max(1, len(reported) // count)][:count]
    figures = {
        "photographs": len(rows),
        "references": len(pictures) - len(pictures[::DONORS]),
        "long side": SIDE,
        "extract": neighbours(pictures, rows),
        "trace": copies(pictures, rows),
    }
    bars = [
        Bar(
            "extract: pairs of different photographs that are neighbours",
            figures["extract"]["pairs of different photographs"]["count"], 2,
        ),
        Bar(
            "trace: reproductions that count as copies of another photograph",
            figures["trace"]["copies of another photograph"]["count"], 2,
        ),
    ]  # fmt: skip
    write(__file__, bars, figures)


if __name__ == "__main__":
    main()
