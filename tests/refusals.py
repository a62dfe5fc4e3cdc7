"""The one line with which a call is refused."""

import re

import pytest

from visleak.formats import open_images


def refusal(kind, function, *args, **more):
    """Return the message of the error that a call raises."""
    with pytest.raises(kind) as caught:
        function(*args, **more)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def refused(kind, words, source, by=open_images, **options):
    """Check that a source is refused in one line, in which a pattern is found."""
    message = refusal(kind, by, source, **options)
    assert re.search(words, message), message
