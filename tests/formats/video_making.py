"""Videos whose frames carry their own numbers."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import av
import numpy as np

from visleak.records import Bytes8

BITS = 8


def numbered(number: int, height: int = 64, width: int = 128) -> Bytes8:
    """Return a frame that shows a number as a row of black and white blocks."""
    bits = [(number >> bit) & 1 for bit in range(BITS)]
    row = np.repeat(np.array(bits, np.uint8) * 200 + 25, width // BITS)
    return np.ascontiguousarray(np.broadcast_to(row[None, :, None], (height, width, 3)))


def number_of(frame: Bytes8) -> int:
    """Return the number that a decoded frame shows."""
    blocks = frame[:, :, 1].mean(axis=0).reshape(BITS, -1).mean(axis=1)
    return sum(1 << bit for bit, value in enumerate(blocks) if value > 125)


def write_video(
    path: Path,
    frames: Sequence[Bytes8],
    codec: str = "libx264",
    rate: int = 25,
    milliseconds: Sequence[int] = (),
    **options: str,
) -> Path:
    """Write a video, at a constant rate or with the times of its frames."""
    with av.open(str(path), "w") as container:
        stream = container.add_stream(codec, rate=rate, options=options)
        stream.height, stream.width = frames[0].shape[:2]
        stream.pix_fmt = "yuv420p"
        if milliseconds:
            stream.codec_context.time_base = Fraction(1, 1000)
        for at, pixels in enumerate(frames):
            frame = av.VideoFrame.from_ndarray(pixels, format="rgb24")
            if milliseconds:
                frame.pts, frame.time_base = milliseconds[at], Fraction(1, 1000)
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return path
