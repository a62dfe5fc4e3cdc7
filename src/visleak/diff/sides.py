"""The two audits of a diff as numbers: images by row, pairs by the rows of their images."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from visleak.errors import VisleakError
from visleak.groups import image_rows, is_word, scale_codes
from visleak.records import DEGREES, GRADES, Bool, Float32, Int8, Int64
from visleak.storage import IMAGES, PAIRS, UNREADABLE, AuditSummary, read_problems, read_table
from visleak.verdicts import judged_pairs, judged_summary
from visleak.verdicts.level import alone

#: Place on a scale of what has no grade or degree; weaker than every other.
NOTHING: Final = 99

#: Who spoke of a pair.
HUMAN, DISPUTED = 1, 2

_COLUMNS: Final = (
    *("query_set", "query", "reference_set", "reference", "similarity", "coverage"),
    *("grade", "degree", "machine_grade", "judged"),
)


@dataclass(frozen=True)
class Listed:
    """Pairs of an audit, blank images left out. All arrays are of one length."""

    query: Int64
    reference: Int64
    grade: Int8
    degree: Int8
    machine_grade: Int8
    judged: Int8  # `HUMAN`, `DISPUTED` or 0
    similarity: Float32  # NaN if it was not measured
    within: Bool

    def __len__(self) -> int:
        return len(self.query)

    def take(self, rows: Int64) -> Listed:
        """Return some of the pairs."""
        return Listed(**{name: column[rows] for name, column in vars(self).items()})


class Side:
    """One audit of a diff.

    Attributes:
        summary: its ``audit.json``, verdicts of people counted.
        images: ``set``, ``id``, ``digest``, ``flat``; about 100 bytes an image.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.summary: AuditSummary = judged_summary(folder)
        self.images = read_table(folder, IMAGES, ["set", "id", "digest", "flat"]).combine_chunks()

    @cached_property
    def rows(self) -> Mapping[str, Int64]:
        """Rows of the images of each set; a set without readable images has none."""
        sets = self.images["set"]
        names = [each.name for each in self.summary.sets]
        return {name: np.flatnonzero(is_word(sets, name)) for name in names}

    @cached_property
    def set_of(self) -> Int64:
        """For each image the place of its set in ``summary["sets"]``."""
        result = np.full(self.images.num_rows, -1, np.int64)
        for place, rows in enumerate(self.rows.values()):
            result[rows] = place
        return result

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the sets, in their order."""
        return tuple(self.rows)

    @cached_property
    def unreadable(self) -> frozenset[tuple[str, str]]:
        """Set and id of what could not be read."""
        return frozenset((p.set, p.id) for p in read_problems(self.folder / UNREADABLE))

    def column(self, name: str, rows: Int64) -> pa.Array:
        """Return a column of some images."""
        return self.images[name].combine_chunks().take(pa.array(rows))

    def partly_listed(self, name: str) -> bool:
        """Whether images of a set may be missing here only because they were not compared."""
        about = next(each for each in self.summary.sets if each.name == name)
        sampled = bool(self.summary.settings.sample) and about.side == "query"
        # embeddings that passed by: only those in a pair are listed
        return sampled or (about.listed is not None and about.distinct is None)

    def alone(self, name: str) -> bool:
        """Whether a query set was compared with itself only."""
        return alone(self.summary, name)

    @cached_property
    def listed(self) -> Listed:
        """All pairs of the audit as numbers; 40 bytes a pair."""
        table = judged_pairs(self.folder, _COLUMNS)
        query, reference = (image_rows(table, s, self.images) for s in ("query", "reference"))
        if (query < 0).any() or (reference < 0).any():
            raise VisleakError(
                f"{self.folder}: {PAIRS} names images that {IMAGES} does not; run the audit again"
            )
        blank = pc.fill_null(self.images["flat"], False).to_numpy()
        found = Listed(
            query,
            reference,
            grade=scale_codes(table["grade"], GRADES, NOTHING),
            degree=scale_codes(table["degree"], DEGREES, NOTHING),
            machine_grade=scale_codes(table["machine_grade"], GRADES, NOTHING),
            judged=scale_codes(table["judged"], ("", "human", "disputed"), 0),
            similarity=table["similarity"].to_numpy().astype(np.float32),
            within=is_word(table["coverage"], "within"),
        )
        return found.take(np.flatnonzero(~blank[found.query]))
