"""The small convolutional networks that judge registered images, run by OpenCV."""

from __future__ import annotations

import hashlib
import threading
from functools import cache
from importlib import resources
from typing import Final

import cv2
import numpy as np

from visleak.records import Float32

#: The networks: files of this package.
ALTERATION: Final = "alteration.onnx"
LAID_OVER: Final = "laid_over.onnx"

# a network of OpenCV holds the state of one forward pass
_OF_THREAD = threading.local()


def answers(name: str, **planes: Float32) -> Float32:
    """Return what a network says of planes (number, h, w), by the name of the input."""
    networks: dict[str, cv2.dnn.Net] = vars(_OF_THREAD)
    if name not in networks:
        networks[name] = cv2.dnn.readNetFromONNX(np.frombuffer(_stored(name), np.uint8))
    network = networks[name]
    for given, values in planes.items():
        network.setInput(values[None], given)
    odds: Float32 = np.asarray(network.forward(), np.float32)[0]
    return odds


@cache
def _stored(name: str) -> bytes:
    return resources.files("visleak.verification").joinpath(name).read_bytes()


@cache
def networks_digest() -> str:
    """Return the digest of the networks, which evidence depends on."""
    stored = b"".join(_stored(name) for name in (ALTERATION, LAID_OVER))
    return hashlib.blake2b(stored, digest_size=16).hexdigest()
