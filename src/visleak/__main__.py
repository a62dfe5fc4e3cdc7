"""``python -m visleak``: the command line."""

from visleak.cli import main

if __name__ == "__main__":
    main()
