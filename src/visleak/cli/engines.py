"""``--engine`` and ``--ray-address``: who carries the work out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from visleak.errors import UsageError

if TYPE_CHECKING:
    from visleak.pipeline.workplace import Engine


def engine_of(name: str, address: str | None) -> Engine:
    """Return who carries the work out; an address is that of a Ray cluster.

    Raises:
        UsageError: there is no such engine.
    """
    from visleak.pipeline.processes import Processes
    from visleak.pipeline.ray_engine import RayEngine

    if name not in ("local", "ray"):
        raise UsageError(f"engine must be one of local, ray; got {name!r}")
    return RayEngine(address) if name == "ray" or address else Processes
