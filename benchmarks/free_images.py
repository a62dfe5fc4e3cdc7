"""Grades of drawn images that nothing was fitted on: icons, flags, figures and objects.

usage: python benchmarks/free_images.py [FOLDER]

The images are those of four Debian packages, which have no part in any fit: tango-icon-theme,
iso-flags-png-320x240, wesnoth-1.16-data and tuxpaint-stamps-default. FOLDER holds the unpacked
packages (``dpkg-deb -x``); by default it is the root of this machine. Sets that are missing are
left out, with a message. As in ``domains.py``, all pairs within a set and one copy of each image of
the reported half are graded. Images of a set that hardly differ in any view, such as the flags of
France and of its overseas departments, are copies of each other. Writes ``free_images.json``.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from domains import bars_of, on_set
from families import differ
from record import Bar, write
from tiny_sets import Drawn

from visleak.images import decode
from visleak.pipeline import RunContext
from visleak.records import DecodedImage
from visleak.verification.frame import bounded

Pixels = npt.NDArray[np.uint8]

WESNOTH = "usr/share/games/wesnoth/1.16/data/core/images"

#: Folder, pattern and side (pixels) of each set.
SETS = {
    "icons, 32 pixels": ("usr/share/icons/Tango/32x32", "**/*.png", 32),
    "flags, 48 pixels": ("usr/share/iso-flags-png-320x240", "*.png", 48),
    "flags, 320 pixels": ("usr/share/iso-flags-png-320x240", "*.png", 320),
    "weapons, 60 pixels": (f"{WESNOTH}/attacks", "*.png", 60),
    "figures, 72 pixels": (f"{WESNOTH}/units", "**/[a-z]*.png", 72),
    "objects, up to 400 pixels": ("usr/share/tuxpaint/stamps", "**/*.png", 400),
}

#: Most images of a set; marks in the names of frames of one movement.
MOST, MOVEMENT = 260, set("-+")


def images_of(folder: Path, pattern: str, side: int) -> dict[str, Pixels]:
    """Return a sample of the images below a folder by name, on white, without equal ones."""
    paths = [
        path
        for path in sorted(folder.glob(pattern))
        if not path.is_symlink()
        and "_mirror" not in path.stem
        and not ("units" in path.parts and MOVEMENT & set(path.stem))
    ]
    drawn = np.random.default_rng(0).permutation(len(paths))[:MOST]
    found: dict[str, Pixels] = {}
    known = set()
    for path in (paths[number] for number in sorted(drawn.tolist())):
        image = decode(path.read_bytes())
        assert isinstance(image, DecodedImage)
        pixels = bounded(image.pixels, side)
        if pixels.tobytes() not in known and min(pixels.shape[:2]) >= 8:
            known.add(pixels.tobytes())
            found[path.relative_to(folder).as_posix()] = pixels
    return found


def grouped(images: Mapping[str, Pixels]) -> tuple[str, ...]:
    """Return the group of each image: the name of the first one from which it hardly differs."""
    firsts: dict[str, Pixels] = {}
    groups = []
    for name, pixels in images.items():
        same = (own for own, other in firsts.items() if not differ(pixels, other))
        groups.append(next(same, name))
        firsts.setdefault(groups[-1], pixels)
    return tuple(groups)


def main(root: Path) -> None:
    """Measure the sets that are below a folder."""
    figures: dict[str, Any] = {}
    bars: list[Bar] = []
    for name, (folder, pattern, side) in SETS.items():
        images = images_of(root / folder, pattern, side)
        if not images:
            print(f"{name}: left out, no images below {root / folder}", flush=True)
            continue
        drawn = Drawn(name, Path(), tuple(images), grouped(images), tuple(images.values()))
        with RunContext.at(None, 2, None) as place, tempfile.TemporaryDirectory() as temporary:
            own = figures[name] = on_set(drawn, Path(temporary), place)
        print(name, own, flush=True)
        bars += bars_of(name, own)
        write(__file__, bars, figures)


if __name__ == "__main__":
    main(Path(sys.argv[1] if sys.argv[1:] else "/"))
