"""How an audit of generated images is made."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Asking:
    """How an audit of generated images is made.

    Attributes:
        similarity: text of the encoder; empty takes that of fingerprints, or ``builtin``.
        tau: below which no pair is listed for its similarity alone.
        views: of the generated images that are compared: ``none``, ``mirror`` or ``all``.
        layouts: also look for copies in other colours.
        workers, cache, device: as of :func:`visleak.auditing.audit`.
        force: replace another audit.
        command: to note in the audit.
    """

    similarity: str
    tau: float
    views: str
    layouts: bool
    workers: int | None
    cache: str | Path | None
    device: str
    force: bool
    command: str | None
