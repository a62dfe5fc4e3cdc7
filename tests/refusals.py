"""The one line with which a call is refused."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from visleak.formats import open_images


def refusal(kind: type[Exception], function: Callable[..., object], *args: Any, **more: Any) -> str:
    """Return the message of the error that a call raises."""
    with pytest.raises(kind) as caught:
        function(*args, **more)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def refused(
    kind: type[Exception],
    words: str,
    source: Any,
    by: Callable[..., object] = open_images,
    **options: Any,
) -> None:
    """Check that a source is refused in one line, in which a pattern is found."""
    message = refusal(kind, by, source, **options)
    assert re.search(words, message), message
