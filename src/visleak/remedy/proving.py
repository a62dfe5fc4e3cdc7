"""Audits of parts against each other: what still leaks between them."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from visleak.auditing import Audit, audit
from visleak.errors import VisleakError
from visleak.formats.openers import chosen
from visleak.pipeline import silent
from visleak.pipeline.context import Progress
from visleak.records import AnySet, ImageSet, Int64
from visleak.remedy.graph import NO_TIES, Graph, Ties
from visleak.settings import Settings
from visleak.storage import AuditSummary
from visleak.verdicts import Verdict


@dataclass(frozen=True)
class Examiner:
    """Audits images with the settings of a first audit.

    Attributes:
        settings: of that audit; repeats within sets are not looked for.
        grade: pairs of this grade or stronger count.
        verdicts: of people on pairs, laid over.
        workers, cache, progress: as in :func:`visleak.audit`.
    """

    settings: Settings
    grade: str
    verdicts: tuple[Verdict, ...] = ()
    workers: int | None = None
    cache: str | os.PathLike[str] | None = "default"
    progress: Progress = silent

    def audited(
        self,
        queries: Sequence[AnySet],
        references: Sequence[AnySet],
        out: Path | None = None,
        *,
        force: bool = False,
    ) -> Audit:
        """Compare some sets with others.

        Raises:
            VisleakError: an image of them can no longer be read, so that nothing is proven.
        """
        found = audit(
            tuple(queries),
            tuple(references),
            settings=self.settings,
            out=out,
            workers=self.workers,
            cache=self.cache,
            progress=self.progress,
            force=force,
        )
        for problem in found.unreadable():
            raise VisleakError(
                f"image {problem.id!r} ({problem.locator}) can no longer be read"
                f" ({problem.reason}), so that the parts cannot be compared; nothing was written,"
                " run the command again when the source is whole"
            )
        return found

    def between(self, graph: Graph, first: Int64, second: Int64) -> Ties:
        """Return the ties between two choices of rows, found by an audit of them alone.

        Args:
            graph: the images.
            first, second: ``int64``, ascending rows.
        """
        if not len(first) or not len(second):
            return NO_TIES
        left, right = dict(_pieces(graph, first, "first")), dict(_pieces(graph, second, "second"))
        names = {images.name: i for side in (left, right) for i, images in side.items()}
        found = self.audited(tuple(left.values()), tuple(right.values()))
        return graph.ties(found.folder, names, self.grade, self.verdicts)


def settings_of(summary: AuditSummary) -> Settings:
    """Return the settings that repeat an audit between other choices of its images."""
    stored = summary.settings
    return replace(
        stored,
        within=False,
        sample=0,
        candidates="auto" if stored.candidates == "nearest" else stored.candidates,
        hard=summary.thresholds.hard,
        soft=summary.thresholds.soft,
    )


def leaks_between(examiner: Examiner, graph: Graph, part: Int64) -> Ties:
    """Return the ties between all parts.

    Args:
        examiner: audits them.
        graph: the images.
        part: ``int64`` (images,): index of each image's part.
    """
    found = NO_TIES
    for one, other in itertools.combinations(np.unique(part).tolist(), 2):
        rows = [np.flatnonzero(part == index) for index in (one, other)]
        rows.sort(key=len)
        found += examiner.between(graph, rows[0], rows[1])
    return found


def _pieces(graph: Graph, rows: Int64, word: str) -> Iterator[tuple[int, ImageSet]]:
    """Yield index and images of each set that some rows are of."""
    for index in np.unique(graph.owner[rows]).tolist():
        positions = graph.position[rows[graph.owner[rows] == index]]
        yield index, chosen(graph.sets[index], positions, f"{graph.sets[index].name}, {word} part")


def refuse_ungraded(folder: Path, summary: AuditSummary) -> None:
    """Refuse an audit that looked at no pictures, or at some queries only.

    Raises:
        VisleakError: it is such.
    """
    if summary.settings.sample:
        raise VisleakError(
            f"{folder} is an audit of a sample of {summary.settings.sample:,} images; all"
            " must have been looked at: run `visleak audit` without --sample"
        )
    if summary.grader is None:
        raise VisleakError(
            f"{folder} has no grades, for nobody looked at the pictures; run `visleak audit` on"
            " pictures and without --no-verify"
        )
