"""Formats of data sets: one module per format lists it, reads it and writes it.

``open_images(SOURCE)`` finds the format in the table of ``registry`` and returns a set: ids,
labels, groups and a picklable reader, but no pixels (``visleak.images`` decodes them).

Formats: ``folders`` (folders, globs, lists of files), ``tables`` (CSV and Parquet files that name
images), ``parquet`` (Parquet files that hold images), ``zips``, ``tars``, ``webdataset``,
``cifar``, ``coco``, ``yolo``, ``kitti``, ``hub`` (Hugging Face), ``embeddings``, and ``memory``
(objects of a Python program). Shared by them: ``sources`` and ``request`` (what the caller named),
``addresses`` and ``remote`` (remote stores), ``listing`` and ``files``, ``archives``, ``boxes``,
``frames``, and ``writing``.
"""

from visleak.formats.boxes import Boxes
from visleak.formats.opening import boxes_of, open_image_set, open_images, open_splits
from visleak.formats.sources import parse_set

__all__ = ["Boxes", "boxes_of", "open_image_set", "open_images", "open_splits", "parse_set"]
