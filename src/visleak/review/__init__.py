"""The review app: a person judges the pairs of an audit in a browser.

The server is reachable from this machine only. Verdicts are stored in the audit folder one by one,
before the next page is shown; nothing else in the folder changes.
"""

from visleak.review.serving import review

__all__ = ["review"]
