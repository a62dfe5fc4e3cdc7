"""Settings of the choice of replacements, which are also options of ``replace``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from visleak.options import METHOD, SETS, Options, option

#: The weakest grade that makes a duplicate by default; ``similar`` is that of the paper.
GRADE: Final = "near"


@dataclass(frozen=True)
class SelectionSettings(Options):
    """For which test images replacements are chosen, and in which order."""

    id: str | None = option(None, "Column of the pool with the ids.", metavar="COLUMN", panel=SETS)
    label: str | None = option(
        None, "Column of the pool with the labels.", metavar="COLUMN", panel=SETS
    )
    set_name: str | None = option(
        None, "The test set, if there are several.", "--set", metavar="NAME", panel=SETS
    )
    grade: str = option(
        GRADE,
        "Weakest grade of a pair that makes a duplicate; that of Barz & Denzler (2020) is similar.",
        choices=("exact", "near", "similar"),
        panel=METHOD,
    )
    include_disputed: bool = option(
        False,
        "Count pairs on which reviewers disagree, by their automatic grade.",
        panel=METHOD,
    )
    seed: int = option(
        0, "Seed of the order in which candidates are tried.", metavar="N", panel=METHOD
    )
