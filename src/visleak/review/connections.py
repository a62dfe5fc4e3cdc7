"""Connections of clients that never send the rest of a request: they are closed after a while."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

#: Seconds for a whole request to come; the largest is a verdict of a few kilobytes.
PATIENCE: Final = 20.0


class PatientProtocol(H11Protocol):
    """HTTP as uvicorn speaks it, with an end to waiting for the rest of a request.

    Attributes:
        patience: seconds for a request to come.
    """

    patience: float = PATIENCE
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no longer."""
        super().connection_lost(exc)
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Take a part of a request."""
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        """Begin to wait for the next request."""
        super().on_response_complete()
        self._watch()

    def _watch(self) -> None:
        """Set the deadline where a request is to come, and lift it once it is whole."""
        waiting = not self.transport.is_closing() and self.conn.their_state in (
            h11.IDLE,
            h11.SEND_BODY,
        )
        if waiting and self._deadline is None:
            self._deadline = self.loop.call_later(self.patience, self.transport.close)
        elif not waiting and self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
