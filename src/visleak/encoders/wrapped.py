"""A Python object with one method, ``encode``, made into an encoder.

``encode`` takes a list of pictures, ``uint8`` arrays (height, width, 3) in RGB, and returns an
array of floats (n, width). It runs in the process that began the run and never travels.
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

from visleak.encoders.flatness import flat
from visleak.encoders.limits import stated_thresholds
from visleak.errors import UsageError, VisleakError
from visleak.records import Bool, Bytes8, DecodedImage, Float32

#: Pictures a call, where the object does not say.
BATCH: Final = 32

#: Side of the grey picture that tells the width of the vectors.
TRIED: Final = 224


class ObjectEncoder:
    """An encoder around an object; see :class:`visleak.records.BatchEncoder`.

    The object may also have ``name``, ``digest``, ``width``, ``thresholds``, ``batch`` and
    ``enough``, which mean what they mean for any encoder.

    Args:
        thing: the object.

    Attributes:
        lasting: the digest will be that of the same object in another run; without it nothing is
            cached and no audit is reused.

    Raises:
        UsageError: one of its attributes is not what it must be.
        VisleakError: its ``encode`` does not return vectors.
    """

    views = 1
    cohort: Float32 | None = None
    precision = ""
    device = "its device"

    def __init__(self, thing: Any) -> None:
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

    def encode(self, pictures: Sequence[DecodedImage]) -> tuple[Float32, Bool]:
        """Return unit vectors (n, width) and whether each picture is flat (n,)."""
        vectors = np.empty((len(pictures), self.width), np.float32)
        for start in range(0, len(pictures), self.batch):
            part = slice(start, start + self.batch)
            vectors[part] = self.forward([all_pixels(picture) for picture in pictures[part]])
        return vectors, flat(pictures)

    def forward(self, prepared: Sequence[npt.NDArray[Any]]) -> Float32:
        """Return unit vectors (n, width) of pictures, NaN where there are no numbers.

        Raises:
            VisleakError: the object returned something else than vectors.
        """
        made = self._asked(prepared)
        if made.shape[1] != self.width:
            raise VisleakError(
                f"encode of {self.name} returned vectors of {made.shape[1]} numbers; they must be"
                f" of {self.width}, as before"
            )
        norms = np.sqrt(np.einsum("ij,ij->i", made, made))
        # what has no direction has no similarity either
        norms[norms == 0] = np.nan
        with np.errstate(invalid="ignore"):
            return np.asarray(made / norms[:, None], np.float32)

    def view(self, vectors: Float32, view: int) -> Float32:
        """Return the vectors as they are: there is no view but the original."""
        return vectors

    def _asked(self, pictures: Sequence[npt.NDArray[Any]]) -> npt.NDArray[np.float64]:
        """Return what the object makes of pictures, ``float64`` (n, any width above 0)."""
        made = np.asarray(self._thing.encode(list(pictures)))
        if made.dtype.kind != "f":
            raise VisleakError(
                f"encode of {self.name} returned {made.dtype}; it must return an array of floats,"
                " one row a picture"
            )
        if made.ndim != 2 or len(made) != len(pictures) or not made.shape[1]:
            raise VisleakError(
                f"encode of {self.name} returned an array {made.shape} for {len(pictures)}"
                f" pictures; it must be ({len(pictures)}, width)"
            )
        return made.astype(np.float64)

    def _tried(self) -> int:
        """Return the width of the vectors, by asking for one."""
        grey = np.full((TRIED, TRIED, 3), 128, np.uint8)
        try:
            return int(self._asked([grey]).shape[1])
        except VisleakError:
            raise
        except Exception as error:
            said = " ".join(str(error).split())[:300]
            raise VisleakError(
                f"encode of {self.name} failed on a grey picture of {TRIED} x {TRIED} pixels"
                f" ({type(error).__name__}: {said})"
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


def all_pixels(picture: DecodedImage) -> Bytes8:
    """Return a picture's pixels: the preparation where there is none."""
    return np.ascontiguousarray(picture.pixels)


def wrapped(thing: Any) -> ObjectEncoder:
    """Return the encoder of an object with a method ``encode``.

    Raises:
        UsageError, VisleakError: as :class:`ObjectEncoder`.
    """
    if isinstance(thing, type):
        raise UsageError(f"the encoder is the class {thing.__name__}; give an object of it")
    if not callable(getattr(thing, "encode", None)):
        raise UsageError(
            f"the encoder object lacks encode, the method from pictures to vectors; got a"
            f" {type(thing).__name__}"
        )
    return ObjectEncoder(thing)


def _digest(thing: object) -> str | None:
    """Return a digest of an object's data and of its classes' sources, if both can be had."""
    sink = _Sink()
    try:
        pickle.Pickler(sink, pickle.DEFAULT_PROTOCOL).dump(thing)
        for kind in type(thing).__mro__[:-1]:
            sink.write(inspect.getsource(kind).encode())
    except Exception:  # whatever its own pickling raises: there is no such digest then
        return None
    return sink.hasher.hexdigest()


class _Sink:
    """A file that keeps a digest of what is written to it."""

    def __init__(self) -> None:
        self.hasher = hashlib.blake2b(b"object 1", digest_size=16)

    def write(self, data: Any) -> int:
        """Take note of bytes."""
        self.hasher.update(data)
        return memoryview(data).nbytes
