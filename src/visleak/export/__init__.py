"""The results of an audit as files that other tools read, and the pairs of one image."""

from visleak.export.formats import FORMATS, export
from visleak.export.image_pairs import ImagePairs, image_pairs

__all__ = ["FORMATS", "ImagePairs", "export", "image_pairs"]
