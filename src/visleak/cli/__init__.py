"""The command line: one module a verb. A verb parses, calls a function, renders and exits."""

from visleak.cli.app import main

__all__ = ["main"]
