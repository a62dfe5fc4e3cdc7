"""The similarities there are, by name."""

from __future__ import annotations

from visleak.encoders import ENCODERS, load_encoder
from visleak.errors import UsageError
from visleak.memorization.extraction.similarity import (
    CopySimilarity,
    EncoderSimilarity,
    PixelSimilarity,
)
from visleak.memorization.extraction.verified import VerifiedSimilarity


def load_similarity(text: str = "builtin") -> CopySimilarity:
    """Return the similarity of a text.

    Args:
        text: ``builtin`` (fingerprint and verification), ``pixels``, or any encoder of
            :func:`visleak.encoders.load_encoder`, such as ``sscd:FILE``, which MemBench uses.

    Raises:
        UsageError: there is no similarity of that name.
        VisleakError: the encoder's weights cannot be had.
    """
    if text == "pixels":
        return PixelSimilarity()
    if text == "builtin":
        return VerifiedSimilarity()
    name = text.partition(":")[0].partition("?")[0]
    if name not in ENCODERS or name == "builtin":
        others = ", ".join(each for each in ENCODERS if each != "builtin")
        raise UsageError(
            f"similarity is builtin, pixels, sscd:FILE or another encoder ({others}); got {text!r}"
        )
    return EncoderSimilarity(load_encoder(text))
