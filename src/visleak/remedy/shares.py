"""Names and shares of the parts that a split is to have."""

from __future__ import annotations

import math
from collections.abc import Mapping

from visleak.errors import UsageError


def shares_of(parts: str | Mapping[str, float]) -> dict[str, float]:
    """Return name and share of each part.

    Raises:
        UsageError: a share is none, they do not add up to 1, or a name is missing or there twice.

    >>> shares_of("train=80%,test=.2")
    {'train': 0.8, 'test': 0.2}
    """
    pairs = (
        [tuple(map(str.strip, each.partition("=")[::2])) for each in parts.split(",")]
        if isinstance(parts, str)
        else [(name, str(share)) for name, share in parts.items()]
    )
    result: dict[str, float] = {}
    for name, text in pairs:
        share = _share(text)
        if not name or share is None:
            raise UsageError(
                "parts are names with shares between 0 and 1, such as train=0.8,test=0.2; got"
                f" {name}={text}"
            )
        if name.startswith(".") or "/" in name:
            raise UsageError(f"part {name!r} cannot be the name of a folder; choose another")
        if name in result:
            raise UsageError(f"two parts are called {name!r}; names must differ")
        result[name] = share
    total = sum(result.values())
    if len(result) < 2 or not math.isclose(total, 1.0, abs_tol=1e-6):
        raise UsageError(
            f"parts must be two or more, and their shares add up to 1; got {len(result)} that add"
            f" up to {total:.6g}"
        )
    return result


def _share(text: str) -> float | None:
    """Return a share or percentage as a number between 0 and 1, ``None`` if it is none."""
    try:
        value = float(text.removesuffix("%")) / (100.0 if text.endswith("%") else 1.0)
    except ValueError:
        return None
    return value if 0.0 < value < 1.0 else None
