"""What settings of searches may be; said in one line each."""

from __future__ import annotations

from collections.abc import Mapping

from visleak.errors import UsageError


def refuse_below_one(settings: object, *names: str) -> None:
    """Refuse counts below 1; ``None`` passes.

    Raises:
        UsageError: one of them is.
    """
    for name in names:
        value = getattr(settings, name)
        if value is not None and value < 1:
            raise UsageError(f"{name} is at least 1; got {value}")


def refuse_temperature(temperature: float) -> None:
    """Refuse a K that nothing can be divided by.

    Raises:
        UsageError: it is not above 0.
    """
    if not temperature > 0:
        raise UsageError(f"temperature (K) is above 0; got {temperature}")


def refuse_others(settings: object, choices: Mapping[str, tuple[str, ...]]) -> None:
    """Refuse what is none of the choices of a setting.

    Raises:
        UsageError: one of them is not.
    """
    for name, allowed in choices.items():
        if getattr(settings, name) not in allowed:
            raise UsageError(
                f"{name} is one of {', '.join(allowed)}; got {getattr(settings, name)!r}"
            )
