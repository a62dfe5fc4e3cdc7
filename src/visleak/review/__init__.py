"""The review app: a person looks at the pairs of an audit in a browser and says what they are.

A server on this machine alone. Verdicts go to the audit folder's ledger one by one, before the
page moves on; nothing else of the folder changes.
"""

from visleak.review.serving import review

__all__ = ["review"]
