"""Two small convolutional networks that classify cells of registered images, run by OpenCV."""

from __future__ import annotations

import hashlib
import threading
from functools import cache
from importlib import resources
from typing import Final

import cv2
import numpy as np

from visleak.records import Float32

#: Files of the networks, in this package.
ALTERATION: Final = "alteration.onnx"
LAID_OVER: Final = "laid_over.onnx"

# each thread has its own: a network of OpenCV holds the state of one forward pass
_NETWORKS = threading.local()


def run_network(name: str, **planes: Float32) -> Float32:
    """Return the output of a network for planes (number, h, w), by name of the input."""
    networks: dict[str, cv2.dnn.Net] = vars(_NETWORKS)
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
    """Return the digest of the files of both networks."""
    stored = b"".join(_stored(name) for name in (ALTERATION, LAID_OVER))
    return hashlib.blake2b(stored, digest_size=16).hexdigest()
