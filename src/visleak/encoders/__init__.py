"""Encoders: from images to embeddings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from visleak.encoders.request import Request, parse
from visleak.errors import UsageError, not_one_of
from visleak.lazy import load
from visleak.records import Encoder, Encodes

__all__ = ["ENCODERS", "known_request", "load_encoder"]

__dir__ = __all__.copy


#: Name on the command line -> function from a request to the encoder, imported on use.
ENCODERS: Final = {
    "builtin": "visleak.encoders.builtin:builtin_encoder",
    "clip": "visleak.encoders.clip:clip_encoder",
    "dinov2": "visleak.encoders.huggingface:dinov2_encoder",
    "resnet152": "visleak.encoders.huggingface:resnet152_encoder",
    "sscd": "visleak.encoders.network:sscd_encoder",
    "hf": "visleak.encoders.huggingface:hf_encoder",
    "timm": "visleak.encoders.huggingface:timm_encoder",
    "onnx": "visleak.encoders.onnx:onnx_encoder",
    "phash": "visleak.encoders.hashes:phash_encoder",
    "pdq": "visleak.encoders.hashes:pdq_encoder",
}
#: What an encoder object must have.
_PARTS: Final = (
    *("name", "digest", "width", "enough", "views", "thresholds", "cohort"),
    *("encode", "view"),
)
#: Parts that distinguish an object with every part from one that has only ``encode``.
_FULL: Final = ("view", "views", "cohort")


def load_encoder(encoder: str | Encoder | Encodes = "builtin", **options: object) -> Encoder:
    """Return the encoder of a text, or the given object if it is one.

    Args:
        encoder: ``NAME[:ARGUMENT][?OPTION=VALUE&...]``, an encoder, or an object that has one
            method: ``encode``, from a list of images (``uint8``, height x width x 3, RGB) to an
            array of floats (n, width).
        options: more options, by name; they take precedence over those in the text.

    Raises:
        UsageError: there is no encoder of that name, an option is invalid, or the object lacks a
            part.
        MissingExtra: it needs a package that is not installed.
        VisleakError: its weights could not be loaded.

    >>> load_encoder("builtin").width
    560
    """
    if not isinstance(encoder, str):
        if options:
            given = ", ".join(sorted(options))
            raise UsageError(f"an encoder object takes no options here; got {given}")
        return _checked(encoder)
    request = known_request(encoder).updated(options)
    make: Callable[[Request], Encoder] = load(ENCODERS[request.name])
    return make(request)


def known_request(encoder: str) -> Request:
    """Parse the text of an encoder; nothing is loaded."""
    request = parse(encoder)
    if request.name not in ENCODERS:
        raise not_one_of("encoder", encoder, ENCODERS)
    return request


def _checked(encoder: Any) -> Encoder:
    """Return an encoder object that has every part, or one around an object with ``encode``."""
    if isinstance(encoder, type) or not any(hasattr(encoder, part) for part in _FULL):
        from visleak.encoders.network import ObjectEncoder

        return ObjectEncoder(encoder)
    missing = [part for part in _PARTS if not hasattr(encoder, part)]
    if missing:
        raise UsageError(f"the encoder object lacks {', '.join(missing)}")
    made: Encoder = encoder
    return made
