"""The page of an audit: one HTML file that opens anywhere, offline, and explains itself."""

from visleak.report.document import document
from visleak.report.page import build, is_private, write_report

__all__ = ["build", "document", "is_private", "write_report"]
