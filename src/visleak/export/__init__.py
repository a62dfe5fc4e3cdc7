"""What an audit found, as files that other tools read."""

from visleak.export.formats import FORMATS, export

__all__ = ["FORMATS", "export"]
