"""The execution backends by name."""

from __future__ import annotations

from visleak.errors import UsageError
from visleak.pipeline.context import Engine
from visleak.pipeline.processes import Processes
from visleak.pipeline.ray_engine import RayEngine


def engine_of(name: str, address: str | None = None) -> Engine:
    """Return an execution backend; an address is that of a Ray cluster.

    Raises:
        UsageError: there is no such backend.
    """
    if name not in ("local", "ray"):
        raise UsageError(f"engine must be one of local, ray; got {name!r}")
    return RayEngine(address) if name == "ray" or address else Processes
