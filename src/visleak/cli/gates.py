"""Former place of :func:`visleak.options.share_of`, for commands that are not converted yet."""

from visleak.options import share_of

__all__ = ["share_of"]
