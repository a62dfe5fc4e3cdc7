"""Settings of ``purge``, ``split`` and ``replace``, which are also options of the commands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from visleak.errors import UsageError
from visleak.options import (
    AUTO,
    METHOD,
    OUTPUT,
    SETS,
    Options,
    group_column,
    id_column,
    label_column,
    option,
    share,
)

FORMATS: Final = ("manifest", "link", "copy")

#: Grades that may count as duplicates.
GRADES: Final = ("exact", "near", "similar")

#: Panels of ``--help``.
NEW: Final = "A new split"
REPAIR: Final = "Repair a split"


def _format(default: str) -> str:
    made: str = option(
        default,
        "Lists of what is where; or the data set in its own layout, of symbolic links or of"
        " copies.",
        choices=FORMATS,
        panel=OUTPUT,
    )
    return made


def _yes() -> bool:
    return option(False, "Use the groups that --group auto finds without asking for confirmation.")


def _include_disputed() -> bool:
    return option(False, "Count pairs on which reviewers disagree, by their automatic grade.")


@dataclass(frozen=True)
class PurgeSettings(Options, panel=METHOD):
    """Which images are removed, and from which side."""

    remove_from: str = option(
        "test",
        "Side that images are removed from: the test image or the training image of a leaking"
        " pair. Needed, except with --undo.",
        choices=("test", "train"),
        hides_default=True,
    )
    grade: str | None = option(
        None,
        "Weakest grade of the pairs that count: near (the default) means near and exact. ciFAIR"
        " (Barz & Denzler 2020) counts similar and stronger: --grade similar.",
        choices=GRADES,
    )
    degree: str | None = option(
        None,
        "Weakest degree of the pairs that count, if there are no grades: soft means soft and hard.",
        choices=("hard", "soft"),
    )
    set_name: str | None = option(
        None, "The set to purge, if there are several.", "--set", metavar="NAME", panel=SETS
    )
    test_duplicates: str = option(
        "keep",
        "Test images that are duplicates of each other: keep all, or drop all but the first of"
        " each group.",
        choices=("keep", "drop"),
    )
    include_disputed: bool = _include_disputed()
    group: str | None = option(
        None,
        "auto: also remove images of groups that are on both sides, as the audit found them in"
        " names and confirmed them by the images.",
        choices=(AUTO,),
    )
    max_frame_gap: str | None = option(
        None,
        "With --group auto: remove only images of a recording that are within this number of frames"
        " (milliseconds if times are known) of an image of the other side; auto: up to half of the"
        " similarity of neighbouring frames. Default: all images of a group on both sides.",
        metavar="auto|N",
    )
    yes: bool = _yes()
    overlap: float | None = option(
        None,
        "Also remove test images of which at least this share is visible in overlapping images,"
        " such as 0.1 or 10%; from train, the images that show this share of a test image. Needs an"
        " audit with --overlap.",
        metavar="SHARE",
        parse=share,
        least=0,
        most=1,
    )
    format: str = _format("manifest")

    def __post_init__(self) -> None:
        super().__post_init__()
        gap = self.max_frame_gap
        if gap is not None and gap != AUTO and not gap.isdecimal():
            raise UsageError(f"--max-frame-gap must be auto or a whole number from 0, got {gap!r}")
        if gap is not None and self.group is None:
            raise UsageError("--max-frame-gap needs --group auto")
        if self.grade is not None and self.degree is not None:
            raise UsageError("give either --grade or --degree")
        if self.test_duplicates == "drop" and self.remove_from != "test":
            raise UsageError("--test-duplicates drop needs --remove-from test")

    @property
    def level(self) -> str:
        """The weakest grade or degree that counts."""
        return self.degree or self.grade or "near"

    def as_dict(self) -> dict[str, object]:
        """Return what ``purge --json`` and ``manifest.json`` contain."""
        chosen: dict[str, object] = {"group": self.group} if self.group else {}
        if self.max_frame_gap is not None:
            chosen["max_frame_gap"] = self.max_frame_gap
        if self.overlap is not None:
            chosen["overlap"] = self.overlap
        return chosen | {
            "from": self.remove_from,
            "grade": None if self.degree else self.level,
            "degree": self.degree,
            "set": self.set_name,
            "within": self.test_duplicates,
            "include_disputed": self.include_disputed,
        }


@dataclass(frozen=True)
class PartSettings(Options, panel=METHOD):
    """What keeps images together, and how the parts of a split are written."""

    group: str | None = group_column(METHOD)
    yes: bool = _yes()
    grade: str = option(
        "near",
        "Images of pairs of this grade or stronger stay together.",
        choices=GRADES,
    )
    seed: int = option(0, "Random seed for tie-breaking.", metavar="N", least=0)
    format: str = _format("manifest")


@dataclass(frozen=True)
class SplitSettings(PartSettings):
    """How a set is split."""

    stratify: str | None = option(
        None,
        "Keep the shares of classes: label uses those that the set has (folders, label columns),"
        " another word is their column.",
        metavar="label|COLUMN",
        panel=NEW,
    )
    tolerance: float = option(
        0.01,
        "Allowed deviation of sizes and class shares, such as 0.01 or 1%.",
        metavar="RATE",
        panel=NEW,
        parse=share,
        least=0,
        most=1,
    )
    allow_unbalanced: bool = option(
        False, "With --apply: also write a split that misses the tolerance.", panel=NEW
    )
    encoder: str = option("", "Encoder of the audit. Default: builtin.", metavar="NAME", panel=NEW)
    overlap: bool = option(
        False,
        "Also keep images together that overlap (tiles, crops, panoramas). An audit that is given"
        " must have measured it. Takes several times as long.",
        panel=NEW,
    )
    id: str | None = id_column(NEW)
    label: str | None = label_column(NEW)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.stratify not in (None, "label", self.label) and self.label is not None:
            raise UsageError(
                f"stratify {self.stratify!r} and label {self.label!r} name two columns; give one"
            )

    @property
    def label_source(self) -> str | None:
        """The column that labels come from; ``None`` for the usual one."""
        return self.label if self.stratify in (None, "label") else self.stratify


@dataclass(frozen=True)
class RepairSettings(PartSettings):
    """How an existing split is repaired."""

    keep_sizes: bool = option(
        False,
        "Move others back, or unite some the other way, so that sizes and classes stay.",
        panel=REPAIR,
    )


#: Default of the weakest grade of a duplicate; the paper has ``similar``.
GRADE: Final = "near"


@dataclass(frozen=True)
class SelectionSettings(Options, panel=METHOD):
    """For which test images replacements are selected, and in which order."""

    id: str | None = option(None, "Column of the pool with the ids.", metavar="COLUMN", panel=SETS)
    label: str | None = option(
        None, "Column of the pool with the labels.", metavar="COLUMN", panel=SETS
    )
    set_name: str | None = option(
        None, "The test set, if there are several.", "--set", metavar="NAME", panel=SETS
    )
    grade: str = option(
        GRADE,
        "Weakest grade of a duplicate; Barz & Denzler (2020) use similar.",
        choices=GRADES,
    )
    include_disputed: bool = _include_disputed()
    seed: int = option(0, "Seed of the order in which candidates are tried.", metavar="N")


@dataclass(frozen=True)
class ReplaceSettings(SelectionSettings):
    """How duplicates are replaced."""

    select: str = option(
        "approved",
        "approved: images that people approved in visleak review AUDIT_DIR --pool SOURCE; auto:"
        " without an approval, the first candidate of the class that is not a copy of its nearest"
        " neighbours, which no person has checked.",
        choices=("approved", "auto"),
    )
    format: str = _format("copy")
    allow_missing: bool = option(
        False,
        "Also write if some duplicates have no replacement; they stay and are listed.",
        panel=OUTPUT,
    )
