"""Options of ``review``; this module imports nothing heavy."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from visleak.options import Options, option


@dataclass(frozen=True)
class Review(Options):
    """Options of ``review``."""

    reviewer: str | None = option(
        None, "Name of the reviewer. Default: the system's user.", metavar="NAME"
    )
    candidates: str = option(
        "listed",
        "Every pair of the audit, or each test image's one nearest without a threshold (the list of"
        " Barz & Denzler 2020).",
        choices=("listed", "nearest"),
    )
    grade: str | None = option(
        None,
        "Begin with pairs of this automatic grade or stronger; with --pool also the weakest grade"
        " that makes a duplicate (default near; that of Barz & Denzler 2020 is similar).",
        metavar="GRADE",
    )
    port: int = option(0, "Port of 127.0.0.1; 0 takes one that is free.", metavar="N")
    pool: str | None = option(
        None,
        "Choose replacements for duplicates from these images, on a page of its own.",
        metavar="SOURCE",
    )
    label: str | None = option(None, "Column of the pool with the labels.", metavar="COLUMN")
    instructions: Path | None = option(
        None,
        "What an image of each class must be like, shown beside a replacement: a JSON object, or a"
        " text with a line ## CLASS above each.",
        metavar="FILE",
    )
    blind: bool = option(
        False, "Hide the automatic grade, and all that led to it, until a pair is judged."
    )
    overlap: float | None = option(
        None,
        "Divide the pairs among reviewers; this share of them is judged by all, for Cohen's kappa.",
        metavar="SHARE",
    )
    miss_rate: float = option(
        0.05,
        "Offer to stop when an estimated share of at most this many near pairs has no verdict.",
        metavar="SHARE",
    )
    browser: bool = option(True, "Print the address and open no browser.", "--no-browser")
