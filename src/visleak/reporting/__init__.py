"""One document for every capability, and its renderers."""

from visleak.reporting.document import Column, Document, Fact, Figure, Table
from visleak.reporting.rendering import latex, markdown, page, section, terminal

__all__ = ["Column", "Document", "Fact", "Figure", "Table"]
__all__ += ["latex", "markdown", "page", "section", "terminal"]
