"""What ``visleak memorization`` is for, said once to each user."""

from __future__ import annotations

from typing import Final

from visleak.cache import default_folder
from visleak.cli import edges

NOTICE: Final = (
    "visleak memorization is for auditing models that you may audit, and for testing what is done"
    " against replaying. What comes out may be other people's pictures, likenesses or brands:"
    " keep it private, do not publish or train on it, and respect the licences of models and lists"
    " of prompts (docs/memorization.md, Responsible use). This is said once."
)


def say_once() -> None:
    """Say it, unless it has been said to this user before, as a file of the cache folder tells."""
    folder = default_folder()
    said = folder / "memorization-notice-1" if folder else None
    if said is not None and said.exists():
        return
    edges.note(NOTICE)
    if said is None:
        return
    try:
        said.parent.mkdir(parents=True, exist_ok=True)
        said.touch()
    except OSError:
        return  # a folder that cannot be written: it is said again
