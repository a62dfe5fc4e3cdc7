"""Groups, frames and times that names state, believed where the images confirm them."""

from visleak.grouping.document import document, facts, options
from visleak.grouping.inference import Found, GroupableSet, Sets, infer, rows, summarised

__all__ = ["Found", "GroupableSet", "Sets", "document", "facts", "infer", "options", "rows"]
__all__ += ["summarised"]
