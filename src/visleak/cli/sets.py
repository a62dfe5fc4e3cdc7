"""Former place of :mod:`visleak.images.sides`, for commands that are not converted yet."""

from visleak.images.sides import Named as Asked
from visleak.images.sides import distinct_names as named
from visleak.images.sides import open_set as one
from visleak.options import Columns

__all__ = ["Asked", "Columns", "named", "one"]
