"""Render a driving data set with boxes, without a download and with the same bytes everywhere.

usage: python benchmarks/dlede/road.py FOLDER [--sequences 12] [--frames 50] [--size 128x96]
           [--seed 2025] [--sheet FILE]

FOLDER becomes a YOLO data set: ``images/SEQ/FRAME.png``, ``labels/SEQ/FRAME.txt`` and
``data.yaml``. Ids are ``SEQ/FRAME.png``, so ``--group '/^([^/]+)//'`` finds the recordings.
``--sheet`` draws frames with their boxes side by side.
"""

from __future__ import annotations

import argparse
import struct
import zlib
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
from road_picture import CLASSES, Frame, render
from road_scene import Recording

SEQUENCES, FRAMES, SIZE, SEED = 12, 50, (128, 96), 2025

#: Colours of the classes' boxes on the sheet.
INKS = ((255, 210, 0), (255, 90, 60), (60, 230, 120), (80, 170, 255))


def sequence_name(number: int) -> str:
    """Return the name of a sequence, such as ``seq-03``.

    >>> sequence_name(2)
    'seq-03'
    """
    return f"seq-{number + 1:02d}"


def png(pixels: npt.NDArray[np.uint8]) -> bytes:
    """Return an uncompressed PNG, because compressors differ between machines.

    Args:
        pixels: ``uint8`` (height, width, 3).
    """
    height, width = pixels.shape[:2]
    lines = np.zeros((height, 1 + 3 * width), np.uint8)
    lines[:, 1:] = pixels.reshape(height, -1)
    raw = lines.tobytes()
    stored = bytearray(b"\x78\x01")
    for start in range(0, len(raw), 65535):
        block = raw[start : start + 65535]
        last = start + len(block) == len(raw)
        stored += struct.pack("<BHH", last, len(block), len(block) ^ 0xFFFF) + block
    stored += struct.pack(">I", zlib.adler32(raw))

    def chunk(kind: bytes, content: bytes) -> bytes:
        checksum = zlib.crc32(kind + content)
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", checksum)

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = (chunk(b"IHDR", header), chunk(b"IDAT", bytes(stored)), chunk(b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def label_lines(frame: Frame) -> str:
    """Return the boxes of a frame for YOLO: class, middle and sides as shares."""
    height, width = frame.pixels.shape[:2]
    return "".join(
        f"{box.label} {(box.left + box.right) / 2 / width:.6f}"
        f" {(box.top + box.bottom) / 2 / height:.6f}"
        f" {(box.right - box.left) / width:.6f} {(box.bottom - box.top) / height:.6f}\n"
        for box in frame.boxes
    )


def write_sequence(folder: Path, frames: int, size: tuple[int, int], seed: int, number: int) -> int:
    """Render one sequence into a folder; return the number of annotated objects."""
    recording = Recording(seed, number, frames)
    places = [folder / kind / sequence_name(number) for kind in ("images", "labels")]
    for place in places:
        place.mkdir(parents=True, exist_ok=True)
    objects = 0
    for index in range(frames):
        frame = render(recording, index, *size)
        objects += len(frame.boxes)
        (places[0] / f"{index:03d}.png").write_bytes(png(frame.pixels))
        (places[1] / f"{index:03d}.txt").write_text(label_lines(frame))
    return objects


def write_road(
    folder: Path,
    sequences: int = SEQUENCES,
    frames: int = FRAMES,
    size: tuple[int, int] = SIZE,
    seed: int = SEED,
    workers: int = 2,
) -> int:
    """Render the data set into a folder; return the number of annotated objects.

    ``data.yaml`` has one split, ``train``, with all images.
    """
    write = partial(write_sequence, folder, frames, size, seed)
    with ProcessPoolExecutor(workers) as pool:
        objects = sum(pool.map(write, range(sequences)))
    names = "".join(f"  {number}: {name}\n" for number, name in enumerate(CLASSES))
    (folder / "data.yaml").write_text(f"path: .\ntrain: images\nval: images\nnames:\n{names}")
    return objects


def sheet(
    file: Path, frames: Sequence[int], sequences: int, total: int, size: tuple[int, int], seed: int
) -> None:
    """Draw some frames of each sequence with their boxes, one row per sequence."""
    from PIL import Image, ImageDraw

    scale, (width, height) = 2, size
    whole = Image.new("RGB", (len(frames) * width * scale, sequences * height * scale))
    for number in range(sequences):
        recording = Recording(seed, number, total)
        for place, index in enumerate(frames):
            frame = render(recording, index, width, height)
            picture = Image.fromarray(frame.pixels)
            picture = picture.resize((width * scale, height * scale), Image.Resampling.NEAREST)
            draw = ImageDraw.Draw(picture)
            for box in frame.boxes:
                corners = [scale * edge for edge in (box.left, box.top, box.right, box.bottom)]
                draw.rectangle(
                    [*corners[:2], corners[2] - 1, corners[3] - 1], None, INKS[box.label]
                )
            whole.paste(picture, (place * width * scale, number * height * scale))
    whole.save(file)


def main() -> None:
    """Render a data set from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--sequences", type=int, default=SEQUENCES)
    parser.add_argument("--frames", type=int, default=FRAMES)
    parser.add_argument("--size", default="x".join(map(str, SIZE)), help="WIDTHxHEIGHT, pixels")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--sheet", type=Path)
    given = parser.parse_args()
    width, _, height = given.size.partition("x")
    size = (int(width), int(height))
    if given.sheet:
        shown = (0, 1, given.frames // 3, 2 * given.frames // 3, given.frames - 1)
        sheet(given.sheet, shown, given.sequences, given.frames, size, given.seed)
    objects = write_road(given.folder, given.sequences, given.frames, size, given.seed)
    print(f"{given.sequences * given.frames} pictures, {objects} objects -> {given.folder}")


if __name__ == "__main__":
    main()
