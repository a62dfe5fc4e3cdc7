"""The page of an audit: one HTML file that opens anywhere, offline, and explains itself."""

from visleak.report.document import document
from visleak.report.page import (
    build,
    is_private,
    reader_for_page,
    renew_report,
    save_report,
    show_in_report,
    write_report,
)

__all__ = ["build", "document", "is_private", "reader_for_page", "renew_report", "save_report"]
__all__ += ["show_in_report", "write_report"]
