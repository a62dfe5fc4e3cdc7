"""The command line: commands parse options, call a function, render its result and exit."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NoReturn

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run a command line and exit with its code.

    Args:
        arguments: without the program's name; by default those of this process.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    # imported here, for an interrupt may come while it is
    from visleak.cli.app import run

    sys.exit(run(given))
