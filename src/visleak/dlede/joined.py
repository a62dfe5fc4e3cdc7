"""Rows of two sets as one set: the training images that stay, and the test images that leaked."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from visleak.images.choosing import chosen
from visleak.images.joining import joined_opener
from visleak.records import ImageSet, Int64


def joined(train: ImageSet, kept: Int64, test: ImageSet, leaked: Int64) -> ImageSet:
    """Return the training images that stay, then the test images that leaked, as one set.

    Args:
        train, test: the original sets.
        kept, leaked: ``int64``, ascending rows of each.
    """
    parts = (chosen(train, kept, train.name), chosen(test, leaked, test.name))
    clash = pc.is_in(parts[1].ids, train.ids)
    foreign = pc.if_else(
        clash, pc.binary_join_element_wise(test.name, parts[1].ids, ":"), parts[1].ids
    )
    return replace(
        parts[0],
        ids=pa.concat_arrays([parts[0].ids, foreign]),
        locators=pa.concat_arrays([part.locators for part in parts]),
        opener=joined_opener([part.opener for part in parts], [len(part) for part in parts]),
        labels=_column(parts, "labels"),
        captions=_column(parts, "captions"),
        groups=_column(parts, "groups"),
        frames=_column(parts, "frames"),
        annotated=train.annotated and test.annotated,
    )


def _column(parts: tuple[ImageSet, ImageSet], name: str) -> Any:
    """Return a column of both parts; nulls where one has none, ``None`` where neither has any."""
    columns = [getattr(part, name) for part in parts]
    known = next((column for column in columns if column is not None), None)
    if known is None:
        return None
    filled = [
        pa.nulls(len(part), known.type) if column is None else column
        for part, column in zip(parts, columns, strict=True)
    ]
    return pa.concat_arrays(filled)
