"""The review app: a person judges the pairs of an audit in a browser.

The server is reachable from this machine only. Verdicts are stored in the audit folder one by one,
before the next page is shown; nothing else in the folder changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from visleak.lazy import on_use

if TYPE_CHECKING:
    from visleak.review.serving import review

__all__ = ["review"]

__getattr__, __dir__ = on_use(__name__)
