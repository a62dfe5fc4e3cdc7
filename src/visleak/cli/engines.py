"""Former place of :func:`visleak.pipeline.engines.engine_of`, for commands not converted yet."""

from visleak.pipeline.engines import engine_of

__all__ = ["engine_of"]
