"""Formats of data sets: one module per format lists it, reads it and writes it.

``open_images(SOURCE)`` finds the format in the table of ``sources`` and returns a set: ids, labels,
groups and a picklable reader, but no pixels (``visleak.images`` decodes them).
"""

from visleak.formats.boxes import Boxes
from visleak.formats.opening import boxes_of, open_image_set, open_images, open_splits
from visleak.formats.sources import parse_set

__all__ = ["Boxes", "boxes_of", "open_image_set", "open_images", "open_splits", "parse_set"]
