"""Records of verification: whether a prompt is a verified trigger, and who says so."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from visleak.errors import VisleakError
from visleak.memorization.prompt_files.cells import label_of

#: Columns of the record of verification.
VERIFIED: Final = "verified"
VERIFIED_BY: Final = "verified_by"
RECORD: Final = (VERIFIED, VERIFIED_BY)

#: How the name of a trace begins, where one verified a prompt.
TRACE: Final = "trace in "


def of_a_person(by: str) -> bool:
    """Return whether a record names somebody who verified a prompt, and no trace.

    >>> of_a_person("Ann"), of_a_person("trace in train: near"), of_a_person("")
    (True, False, False)
    """
    return bool(by) and not by.startswith(TRACE)


def stronger(one: Mapping[str, str], other: Mapping[str, str]) -> dict[str, str]:
    """Return that of two records of one prompt that counts, whole, in whatever order they come.

    Verified counts before not verified, and that before nothing said; of two that verify, the one
    that names a person, then the one that names a trace.

    >>> stronger({"verified": "false"}, {"verified": "1", "verified_by": "Ann"})
    {'verified': '1', 'verified_by': 'Ann'}
    """
    best = max(one, other, key=_strength)
    return {name: best.get(name, "") for name in RECORD}


def _strength(record: Mapping[str, str]) -> tuple[int, bool, bool, str, str]:
    said, by = record.get(VERIFIED, ""), record.get(VERIFIED_BY, "")
    try:
        place = {None: 0, False: 1, True: 2}[label_of(said, VERIFIED)]
    except VisleakError:
        # no answer at all: it stays, and who needs the record tells of it
        place = 3
    return place, of_a_person(by), bool(by), by, said
