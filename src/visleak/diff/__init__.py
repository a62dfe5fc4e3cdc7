"""What changed between two audits."""

from visleak.diff.difference import Difference, diff
from visleak.diff.telling import headlines, told
from visleak.diff.writing import write_changes

__all__ = ["Difference", "diff", "headlines", "told", "write_changes"]
