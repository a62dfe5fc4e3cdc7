"""Fingerprinting rate of photographs on one core, relative to a full decode by OpenCV.

usage: VISLEAK_DATA=FOLDER python benchmarks/decode_rate.py

Both read the same bytes from memory in one process with one thread, alternately; medians of the
rounds.
"""

from __future__ import annotations

import statistics
import time

import cv2
import numpy as np
from record import Bar, data_folder, write
from threadpoolctl import threadpool_limits

from visleak.encoders import load_encoder
from visleak.images import decode
from visleak.records import Unreadable

ROUNDS = 5

#: Images per call of the encoder, as in an audit.
BATCH = 512


def decoded_in(files: list[bytes]) -> float:
    """Return the seconds of a full decode."""
    begun = time.perf_counter()
    for data in files:
        cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)
    return time.perf_counter() - begun


def fingerprinted_in(files: list[bytes]) -> tuple[float, float]:
    """Return the seconds of decoding as far as needed, and of encoding."""
    encoder = load_encoder()
    decoding = encoding = 0.0
    for start in range(0, len(files), BATCH):
        begun = time.perf_counter()
        seen = [decode(data, enough=encoder.enough) for data in files[start : start + BATCH]]
        pictures = [picture for picture in seen if not isinstance(picture, Unreadable)]
        decoding += time.perf_counter() - begun
        begun = time.perf_counter()
        encoder.encode(pictures)
        encoding += time.perf_counter() - begun
    return decoding, encoding


def main() -> None:
    """Measure, print and store."""
    folder = data_folder("photos") / "photos"
    files = [path.read_bytes() for path in sorted(folder.glob("*.jpg"))]
    cv2.setNumThreads(1)
    with threadpool_limits(1):
        fingerprinted_in(files[:64])  # builds cached tables
        rounds = [(decoded_in(files), *fingerprinted_in(files)) for _ in range(ROUNDS)]
    full = statistics.median(r[0] for r in rounds)
    decoding = statistics.median(r[1] for r in rounds)
    encoding = statistics.median(r[2] for r in rounds)
    ours = statistics.median(r[1] + r[2] for r in rounds)
    figures = {
        "photographs": len(files),
        "cv2_images_per_second": round(len(files) / full, 1),
        "fingerprints_per_second": round(len(files) / ours, 1),
        "decode_ms": round(1000 * decoding / len(files), 3),
        "encode_ms": round(1000 * encoding / len(files), 3),
    }
    write(
        __file__, [Bar("fingerprints / cv2 full decodes", full / ours, 0.35, most=False)], figures
    )


if __name__ == "__main__":
    main()
