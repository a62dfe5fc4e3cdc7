"""A Python object with one method, ``encode``, as an encoder.

``encode`` takes a list of images, ``uint8`` arrays (height, width, 3) in RGB, and returns an array
of floats (n, width). It runs in the process that began the run and is never sent to another.
"""

from __future__ import annotations

import hashlib
import inspect
import pickle
import uuid
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from visleak.encoders.network import BatchedEncoder
from visleak.encoders.request import stated_thresholds
from visleak.errors import UsageError, VisleakError, said
from visleak.records import Bytes8, DecodedImage

BATCH: Final = 32  # images per call if the object does not state it
TRIED: Final = 224  # side of the grey image by which the width of the vectors is found


class ObjectEncoder(BatchedEncoder):
    """An encoder around an object with a method ``encode``.

    The object may also have ``name``, ``digest``, ``width``, ``thresholds``, ``batch`` and
    ``enough``, which mean what they mean for any encoder.
    """

    precision = ""
    device = "its device"

    def __init__(self, thing: Any) -> None:
        if isinstance(thing, type):
            raise UsageError(f"the encoder is the class {thing.__name__}; give an object of it")
        if not callable(getattr(thing, "encode", None)):
            raise UsageError(
                f"the encoder object lacks encode, the method from images to vectors; got a"
                f" {type(thing).__name__}"
            )
        self.name = str(getattr(thing, "name", type(thing).__name__))
        self._thing = thing
        try:
            self.thresholds = stated_thresholds(getattr(thing, "thresholds", None))
        except ValueError as error:
            raise UsageError(f"encoder {self.name}: {error}") from error
        self.batch = self._number("batch", 1, BATCH)
        self.enough = self._number("enough", 0, 0)
        self.digest, self.lasting = self._identity()
        self.preparation = all_pixels
        self.width = self._number("width", 1, 0) or self._tried()

    def outputs(self, prepared: Sequence[npt.NDArray[np.generic]]) -> npt.NDArray[np.float64]:
        """Return what the object makes of images, (n, width)."""
        made = self._encoded(prepared)
        if made.shape[1] != self.width:
            raise VisleakError(
                f"encode of {self.name} returned vectors of {made.shape[1]} numbers; they must be"
                f" of {self.width}, as before"
            )
        return made

    def _encoded(self, images: Sequence[npt.NDArray[np.generic]]) -> npt.NDArray[np.float64]:
        """Return what the object makes of images, ``float64`` (n, any width above 0)."""
        made = np.asarray(self._thing.encode(list(images)))
        if made.dtype.kind != "f":
            raise VisleakError(
                f"encode of {self.name} returned {made.dtype}; it must return an array of floats,"
                " one row per image"
            )
        if made.ndim != 2 or len(made) != len(images) or not made.shape[1]:
            raise VisleakError(
                f"encode of {self.name} returned an array {made.shape} for {len(images)}"
                f" images; it must be ({len(images)}, width)"
            )
        return made.astype(np.float64)

    def _tried(self) -> int:
        """Return the width of the vectors, by encoding a grey image."""
        grey = np.full((TRIED, TRIED, 3), 128, np.uint8)
        try:
            return int(self._encoded([grey]).shape[1])
        except VisleakError:
            raise
        except Exception as error:
            raise VisleakError(
                f"encode of {self.name} failed on a grey image of {TRIED} x {TRIED} pixels"
                f" ({said(error, 300)})"
            ) from error

    def _number(self, attribute: str, least: int, default: int) -> int:
        value = getattr(self._thing, attribute, None)
        if value is None:
            return default
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise UsageError(
                f"encoder {self.name}: {attribute} must be a whole number, {least} or more;"
                f" got {value!r}"
            )
        return value

    def _identity(self) -> tuple[str, bool]:
        """Return the digest, and whether another run would find the same."""
        own = getattr(self._thing, "digest", None)
        if own is not None:
            if not isinstance(own, str) or not own:
                raise UsageError(f"encoder {self.name}: digest must be a text; got {own!r}")
            return own, True
        made = _digest(self._thing)
        return (made, True) if made else (f"this run only {uuid.uuid4().hex}", False)


def all_pixels(image: DecodedImage) -> Bytes8:
    """Return the pixels of an image: the preparation of an object."""
    return np.ascontiguousarray(image.pixels)


def _digest(thing: object) -> str | None:
    """Return a digest of an object's data and of its classes' sources, if both are available."""
    sink = _Sink()
    try:
        pickle.Pickler(sink, pickle.DEFAULT_PROTOCOL).dump(thing)
        for kind in type(thing).__mro__[:-1]:
            sink.write(inspect.getsource(kind).encode())
    except Exception:  # its own pickling may raise anything: there is no such digest then
        return None
    return sink.hasher.hexdigest()


class _Sink:
    """A file that keeps only a digest of what is written to it."""

    def __init__(self) -> None:
        self.hasher = hashlib.blake2b(b"object 1", digest_size=16)

    def write(self, data: bytes) -> int:
        """Add bytes to the digest."""
        self.hasher.update(data)
        return memoryview(data).nbytes
