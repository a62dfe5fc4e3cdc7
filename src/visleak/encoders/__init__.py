"""Encoders: what turns a picture into a fingerprint."""

from __future__ import annotations

from importlib import import_module
from typing import Final

from visleak.errors import UsageError
from visleak.records import Encoder

#: Name on the command line -> class, imported on use.
ENCODERS: Final = {"builtin": "visleak.encoders.builtin:BuiltinEncoder"}

#: What an encoder object must have.
_PARTS: Final = (
    *("name", "digest", "width", "enough", "views", "thresholds", "cohort"),
    *("encode", "view"),
)


def load_encoder(encoder: str | Encoder = "builtin") -> Encoder:
    """Return the encoder of a name, or the given object if it is one.

    Raises:
        UsageError: there is no encoder of that name, or the object lacks a part.

    >>> load_encoder("builtin").width
    560
    """
    if not isinstance(encoder, str):
        missing = [part for part in _PARTS if not hasattr(encoder, part)]
        if missing:
            raise UsageError(f"the encoder object lacks {', '.join(missing)}")
        return encoder
    if encoder not in ENCODERS:
        raise UsageError(f"encoder must be one of {', '.join(ENCODERS)}; got {encoder!r}")
    module, _, name = ENCODERS[encoder].partition(":")
    made: Encoder = getattr(import_module(module), name)()
    return made
