"""Former place of :mod:`visleak.images.sides`, for commands that are not converted yet."""

from __future__ import annotations

from collections.abc import Sequence

from visleak.images.sides import Named as Asked
from visleak.images.sides import OpenSides, open_sides
from visleak.images.sides import distinct_names as named
from visleak.images.sides import open_set as one
from visleak.settings import SideColumns, Sides
from visleak.settings import SideColumns as Columns

__all__ = ["Asked", "Columns", "from_folder", "from_options", "named", "one"]


def from_folder(folder: str, columns: SideColumns) -> OpenSides:
    """Open the splits of a data set."""
    return open_sides(Sides(folder, columns=columns))


def from_options(
    test: Sequence[str], train: Sequence[str], sets: Sequence[str], columns: SideColumns
) -> OpenSides:
    """Open the sets given one by one."""
    return open_sides(Sides(None, tuple(test), tuple(train), tuple(sets), columns))
