"""What predictions were made of: the set, and versions that may change an answer."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

from visleak.images.addresses import redacted
from visleak.records import ImageSet

#: Whose versions may change an answer.
LIBRARIES: Final = (
    *("torch", "transformers", "timm", "open_clip_torch", "onnxruntime", "torchmetrics"),
    *("numpy", "Pillow", "opencv-python-headless"),
)


def about_set(images: ImageSet, read: int, unreadable: int) -> dict[str, Any]:
    """Return what tells a set from others, as plain values.

    Args:
        images: the set.
        read: images with a prediction.
        unreadable: images without one.
    """
    return {
        "name": images.name,
        "dataset": images.dataset,
        "source": redacted(images.source),
        "options": dict(images.options),
        "images": read,
        "unreadable": unreadable,
    }


def versions() -> dict[str, str]:
    """Return the versions of what is installed of :data:`LIBRARIES`."""
    found = {"python": platform.python_version()}
    for name in LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
