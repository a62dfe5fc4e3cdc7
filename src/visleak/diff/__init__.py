"""What changed between two audits."""

from visleak.diff.difference import Difference, diff
from visleak.diff.document import document, headlines, write_changes

__all__ = ["Difference", "diff", "document", "headlines", "write_changes"]
