"""The one line with which a call is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


def refusal(kind: type[Exception], function: Callable[..., object], *args: Any, **more: Any) -> str:
    """Return the message of the error that a call raises."""
    with pytest.raises(kind) as caught:
        function(*args, **more)
    assert "\n" not in str(caught.value)
    return str(caught.value)
