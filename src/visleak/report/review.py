"""What people judged, as a section of the page: who, what it changed, and the counts after it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from visleak.counts import Counts, Example, count
from visleak.counts.figures import classes_figure, types_figure
from visleak.gallery import Card, PixelReader, data_uri, decoded, drawn
from visleak.storage import read_summary
from visleak.verdicts import Verdict

#: Most disputed pairs that the page names.
MOST_DISPUTES: Final = 50
SVG: Final = "image/svg+xml"


@dataclass(frozen=True, slots=True)
class Reviewed:
    """The section.

    Attributes:
        counts: duplicates before and after.
        machine: the headline without verdicts.
        types: pairs of each kind by type, drawn.
        classes: a test set each: its name, and its images with a duplicate by class, drawn.
        examples: pairs of each type, with their images where these are at hand.
    """

    counts: Counts
    machine: str
    types: str
    classes: tuple[tuple[str, str], ...]
    examples: tuple[tuple[Example, Card | None], ...]

    @property
    def names(self) -> str:
        """The reviewers, with how many pairs each judged."""
        review = self.counts.review
        named = review.agreement.reviewers.items() if review is not None else ()
        return ", ".join(f"{name} ({number:,})" for name, number in named)


def read(folder: Path, said: Sequence[Verdict], pictures: PixelReader | None) -> Reviewed:
    """Count the duplicates of an audit that people judged, and draw them.

    Args:
        folder: the audit folder.
        said: the verdicts, in order of time.
        images: as for the page.

    Raises:
        VisleakError: a file of the folder is damaged.
    """
    counts = count(folder, verdicts=said)
    examples = [example for own in counts.sets for example in own.examples]
    pixels = decoded([example.pair for example in examples], pictures) if pictures else {}
    drawings = [(own.query_set, classes_figure(own)) for own in counts.sets]
    return Reviewed(
        counts=counts,
        machine=read_summary(folder).headline,
        types=data_uri(types_figure(counts), SVG),
        classes=tuple((name, data_uri(drawing, SVG)) for name, drawing in drawings if drawing),
        examples=tuple((example, drawn(example.pair, pixels)) for example in examples),
    )
