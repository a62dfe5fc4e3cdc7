"""Groups that were found unasked, as ``audit.json`` holds them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

#: Columns of ``groups.csv``.
GROUP_COLUMNS: Final = (
    *("set", "id", "scheme", "group", "unit", "frame"),
    *("reference_set", "nearest", "distance"),
)


@dataclass(frozen=True, slots=True)
class GroupEvidence:
    """Whether images that a scheme puts together are more similar than others of their class."""

    pairs: int = 0  # that were compared
    # how often such a pair is more similar than one that is not put together; 0.5 by chance
    auc: float = math.nan
    p: float = math.nan  # of a permutation test
    # how often the most similar image is one that belongs to it, by chance, and of how many images
    nearest: float = math.nan
    chance: float = math.nan
    asked: int = 0
    by: str = "content"  # what was compared: content or colour


@dataclass(frozen=True, slots=True)
class Decay:
    """Similarity of frames up to a distance."""

    up_to: int = 0  # the largest distance of a bar
    similarity: float = 0.0  # mean of its pairs
    pairs: int = 0


@dataclass(frozen=True, slots=True)
class SideGroups:
    """The groups in a set."""

    set: str = ""
    images: int = 0  # readable ones
    covered: int = 0  # of which the group is known
    groups: int = 0
    units: int = 0  # independent ones: groups, or shots without a gap between them
    # from the first to the last frame of each group, added up; None without frames
    span: int | None = None


@dataclass(frozen=True, slots=True)
class SharedGroups:
    """The groups that two sets share."""

    query_set: str = ""
    reference_set: str = ""
    groups: int = 0  # in both
    units: int = 0  # units of the query set that have images in the reference set, or next to them
    queries: int = 0  # query images in a shared group
    close: int | None = None  # query images within the gap of a reference image
    # distance to the nearest reference image of the group, of query images in a shared group
    least: int | None = None
    median: int | None = None
    named: tuple[tuple[str, int], ...] = ()  # the first groups and their query images


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """What may put images together, why, and whether it is believed."""

    kind: str = ""  # recordings, shots, copies, subjects, tiles, places or bursts
    words: str = ""  # such as <recording>_<frame>
    # where it was read: names, EXIF, XMP, GPS, a column, or source, which has groups itself
    source: str = "names"
    group: str = ""  # patterns for --group and --frame; empty where there is none
    frame: str = ""
    believed: bool = False
    why: str = ""  # it is believed or not
    images: int = 0  # readable ones of all sets, and those of which the group is known
    covered: int = 0
    groups: int = 0
    largest: int = 0  # images of the largest group
    unit: str | None = None  # of frames: frames or ms
    step: int | None = None  # the most common distance of successive frames
    gap: int | None = None  # distance up to which frames are much more similar than chance
    evidence: GroupEvidence | None = None
    decay: tuple[Decay, ...] = ()
    base: float | None = None  # similarity of frames of one sequence, wherever they lie
    sides: tuple[SideGroups, ...] = ()
    shared: tuple[SharedGroups, ...] = ()


@dataclass(frozen=True, slots=True)
class GroupingSummary:
    """Groups that were found unasked."""

    used: bool = False  # as --group auto
    hypotheses: tuple[Hypothesis, ...] = ()

    @property
    def believed(self) -> tuple[Hypothesis, ...]:
        """Those that the images confirm."""
        return tuple(each for each in self.hypotheses if each.believed)
