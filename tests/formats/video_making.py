"""Videos whose frames carry their own numbers."""

from fractions import Fraction

import av
import numpy as np

BITS = 8


def numbered(number, height=64, width=128):
    """Return a frame that shows a number as a row of black and white blocks."""
    bits = [(number >> bit) & 1 for bit in range(BITS)]
    row = np.repeat(np.array(bits, np.uint8) * 200 + 25, width // BITS)
    return np.ascontiguousarray(np.broadcast_to(row[None, :, None], (height, width, 3)))


def number_of(frame):
    """Return the number that a decoded frame shows."""
    blocks = frame[:, :, 1].mean(axis=0).reshape(BITS, -1).mean(axis=1)
    return sum(1 << bit for bit, value in enumerate(blocks) if value > 125)


def write_video(
    path, frames, codec="libx264", rate=25, milliseconds=(), container_options=None, **options
):
    """Write a video, at a constant rate or with the times of its frames."""
    with av.open(str(path), "w", options=container_options or {}) as container:
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
