"""Image sets: listing the pictures of any source, reading them and decoding them."""

from visleak.images.decoding import DECODING, content_digest, decode
from visleak.images.sources import open_images, open_pictures, parse_set
from visleak.images.splits import open_splits

__all__ = [
    "DECODING",
    "content_digest",
    "decode",
    "open_images",
    "open_pictures",
    "open_splits",
    "parse_set",
]
