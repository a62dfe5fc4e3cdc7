"""Settings of ``impact``, which are also options of the command."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from visleak.options import METHOD, Options, option

PathText = str | os.PathLike[str]

#: Panels of ``--help``.
FILES: Final = "Predictions"
LEAKS: Final = "Leaks"


@dataclass(frozen=True)
class ImpactSettings(Options):
    """How an impact is measured."""

    metrics: tuple[str, ...] = option(
        (),
        "Metric to measure. Default: all in the files. May be repeated.",
        "--metric",
        metavar="METRIC",
        panel=FILES,
    )
    lower_is_better: tuple[str, ...] = option(
        (),
        "Metric of which lower is better, such as loss. May be repeated.",
        metavar="METRIC",
        panel=FILES,
    )
    allow_partial: bool = option(
        False, "Allow predictions that cover less than 95 % of the images.", panel=FILES
    )
    test_set: str | None = option(
        None, "The test set, if the audit has several.", "--set", metavar="NAME", panel=LEAKS
    )
    references: tuple[str, ...] = option(
        (),
        "Training set whose leaks count. Default: all. May be repeated.",
        "--reference",
        metavar="NAME",
        panel=LEAKS,
    )
    reviewed_only: bool = option(False, "Count reviewed pairs only.", panel=LEAKS)
    by_label: bool | None = option(
        None,
        "Separate leaked images whose copy has the same label from the others. Default: where"
        " labels are known.",
        "--by-label/--no-by-label",
        panel=LEAKS,
    )
    difficulty: str | None = option(
        None,
        "Also compare leaked images with others of the same class and difficulty: a number per"
        " image that does not depend on any copy (larger is harder), or the built-in probe on"
        " fingerprints of the test images.",
        metavar="probe|FILE[#COLUMN]",
        panel=LEAKS,
    )
    draws: int = option(
        1000,
        "Number of draws of random and class-matched images.",
        metavar="N",
        panel=METHOD,
        least=2,
    )
    size: int | None = option(
        None,
        "Draw N images of every part (Ramos et al., table 4: --size 200 --draws 10).",
        metavar="N",
        panel=METHOD,
        least=1,
    )
    exact_p: bool = option(
        False,
        "Plain p-values of permutation tests, which are conservative, instead of mid-p.",
        panel=METHOD,
    )
    seed: int = option(0, "Random seed of all draws.", metavar="N", panel=METHOD, least=0)
    # name to a text file with one id per line: leaked images of another source
    subsets: Mapping[str, PathText] = field(default_factory=dict)
