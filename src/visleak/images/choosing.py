"""Some images of a set, as a set of its own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa

from visleak.images.mapped import ChosenOpener
from visleak.records import ImageSet, Int64


def chosen(images: ImageSet, positions: Int64, name: str) -> ImageSet:
    """Return some images of a set as a set of its own, kept in memory only.

    Args:
        images: the set.
        positions: ``int64``, ascending positions in it.
        name: of the new set; its source is empty, for no text reproduces it.
    """
    rows = pa.array(positions, pa.int64())

    def taken(values: Any) -> Any:
        return None if values is None else values.take(rows)

    return replace(
        images,
        name=name,
        ids=taken(images.ids),
        locators=taken(images.locators),
        opener=ChosenOpener(images.opener, positions),
        labels=taken(images.labels),
        captions=taken(images.captions),
        groups=taken(images.groups),
        frames=taken(images.frames),
        problems=(),
        source="",
        options={},
    )
