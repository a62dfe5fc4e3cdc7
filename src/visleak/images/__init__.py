"""Encoded images: from bytes to pixels, or to the reason why there are none."""

from visleak.images.decoding import DECODING, content_digest, decode, grey

__all__ = ["DECODING", "content_digest", "decode", "grey"]
