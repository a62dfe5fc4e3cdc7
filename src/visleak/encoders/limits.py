"""Thresholds as whoever made an encoder states them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def stated_thresholds(value: object) -> Mapping[str, Any] | None:
    """Return stated thresholds as plain values, ``None`` for none.

    Raises:
        ValueError: they cannot be, or nobody says where they come from.

    >>> stated_thresholds({"hard": 1, "soft": 0.5, "provenance": "measured"})
    {'hard': 1.0, 'soft': 0.5, 'provenance': 'measured'}
    """
    if value is None:
        return None
    found: Mapping[str, Any] = value if isinstance(value, Mapping) else {}
    told = found.get("provenance")
    stated = [found.get(key) for key in ("hard", "soft")]
    numbers = [float(n) for n in stated if isinstance(n, int | float)]
    if len(numbers) != 2 or not -1 <= numbers[1] <= numbers[0] <= 1 or not isinstance(told, str):
        raise ValueError(
            "thresholds must hold hard and soft, similarities with -1 <= soft <= hard <= 1, and"
            f" provenance, a text; got {value!r}"
        )
    return {"hard": numbers[0], "soft": numbers[1], "provenance": told}
