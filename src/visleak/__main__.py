"""``python -m visleak`` and ``visleak``: the command line as a program of its own."""

import atexit
import os
import signal
import sys
from types import FrameType
from typing import NoReturn

#: The exit code, once the run is over.
_ended: list[int] = []


def _stop(number: int, frame: FrameType | None) -> NoReturn:
    """End a program whose work has not begun, or is over."""
    if _ended:
        os._exit(_ended[0])
    word = "terminated" if number == signal.SIGTERM else "interrupted"
    os.write(2, f"visleak: {word}\n".encode())
    os._exit(128 + number)


@atexit.register
def _finish() -> None:
    """End at once: what Python does after this would listen to signals in its own way."""
    if _ended:
        os._exit(_ended[0])


def main() -> NoReturn:
    """Run the command line of this process, and end it with its exit code."""
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _stop)
    from visleak.cli.app import run

    try:
        _ended.append(run(sys.argv[1:]))
    except KeyboardInterrupt as error:  # it came while an error was told
        _stop(signal.SIGINT if type(error) is KeyboardInterrupt else signal.SIGTERM, None)
    sys.exit(_ended[0])


if __name__ == "__main__":
    main()
