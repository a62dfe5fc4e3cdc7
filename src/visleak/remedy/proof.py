"""Audits of parts against each other: the pairs that still leak between them."""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from visleak.auditing import Audit, audit
from visleak.errors import VisleakError
from visleak.formats import open_image_set
from visleak.formats.files import chosen
from visleak.formats.writing import OutputSource
from visleak.pipeline.context import Progress, silent
from visleak.records import ImageSet, Int64, ends_of
from visleak.remedy.graph import NO_EDGES, Edges, Graph
from visleak.settings import Settings
from visleak.storage import IMAGES, AuditSummary, read_table
from visleak.verdicts import Verdict, judged_pairs, read_verdicts
from visleak.verdicts.level import Level


@dataclass(frozen=True)
class Auditor:
    """Audits images with the settings of a first audit."""

    settings: Settings
    grade: str
    verdicts: tuple[Verdict, ...] = ()
    workers: int | None = None
    cache: str | os.PathLike[str] | None = "default"
    progress: Progress = silent

    @classmethod
    def of(
        cls,
        first: Audit,
        grade: str,
        workers: int | None,
        cache: str | os.PathLike[str] | None,
        progress: Progress,
    ) -> Auditor:
        """Return an auditor with the settings and verdicts of a first audit."""
        refuse_ungraded(first.folder, first.summary)
        settings, verdicts = settings_of(first.summary), read_verdicts(first.folder)
        return cls(settings, grade, verdicts, workers, cache, progress)

    def audited(
        self, queries: Sequence[ImageSet], references: Sequence[ImageSet], out: Path | None = None
    ) -> Audit:
        """Compare some sets with others; an earlier audit in ``out`` is replaced."""
        found = audit(
            tuple(queries),
            tuple(references),
            settings=self.settings,
            out=out,
            workers=self.workers,
            cache=self.cache,
            progress=self.progress,
            force=out is not None,
        )
        for problem in found.unreadable():
            raise VisleakError(
                f"image {problem.id!r} ({problem.locator}) can no longer be read"
                f" ({problem.reason}), so the parts cannot be compared; nothing was written, repeat"
                " the command when the source is complete"
            )
        return found

    def between(self, graph: Graph, first: Int64, second: Int64) -> Edges:
        """Return the edges between two selections of ascending rows, by an audit of them only."""
        if not len(first) or not len(second):
            return NO_EDGES
        sides, names = [], {}
        for rows, word in ((first, "first"), (second, "second")):
            side = []
            for index in np.unique(graph.owner[rows]).tolist():
                images = graph.sets[index]
                positions = graph.position[rows[graph.owner[rows] == index]]
                side.append(chosen(images, positions, f"{images.name}, {word} part"))
                names[side[-1].name] = index
            sides.append(side)
        found = self.audited(sides[0], sides[1])
        return graph.edges(found.folder, names, self.grade, self.verdicts)

    def between_parts(self, graph: Graph, part: Int64) -> Edges:
        """Return the edges between all parts, given the part of each image."""
        found = NO_EDGES
        for couple in itertools.combinations(np.unique(part).tolist(), 2):
            rows = sorted((np.flatnonzero(part == index) for index in couple), key=len)
            found += self.between(graph, *rows)
        return found

    def proven(
        self, opened: Mapping[str, OutputSource], folder: Path, final: Path, out: Path
    ) -> Audit:
        """Audit written parts against each other, the largest last."""
        parts = sorted((_reopened(*each, folder, final) for each in opened.items()), key=len)
        found = self.audited(parts[:-1], parts[1:], out)
        leaks = self._leaks(found.folder)
        if leaks:
            raise VisleakError(
                f"the audit of the parts still finds {len(leaks):,} pairs of grade {self.grade} or"
                f" stronger, such as {leaks[0]}; nothing was written, {out} shows them"
            )
        return found

    def _leaks(self, folder: Path) -> list[str]:
        """Return the leaks of an audit by the names of their images, except of blank images."""
        blank = read_table(folder, IMAGES, ["set", "id"], pc.field("flat"))
        flat = set(zip(*(blank[name].to_pylist() for name in ("set", "id")), strict=True))
        columns = ["query_set", "query", "reference_set", "reference", "grade"]
        pairs = judged_pairs(folder, columns, self.verdicts)
        pairs = pairs.filter(pc.is_in(pairs["grade"], pa.array(Level(self.grade).names)))
        found = []
        for row in pairs.to_pylist():
            one, other = ends_of(row)
            if not {one, other} & flat:
                found.append(f"{'/'.join(one)} and {'/'.join(other)}")
        return found


def _reopened(name: str, opened: OutputSource, folder: Path, final: Path) -> ImageSet:
    images = open_image_set(opened.source(folder), name=name, **opened.options)
    return replace(
        images,
        source=opened.source(final),
        locators=pc.replace_substring(images.locators, str(folder), str(final)),
    )


def settings_of(summary: AuditSummary) -> Settings:
    """Return the settings that repeat an audit between other selections of its images."""
    stored = summary.settings
    return replace(
        stored,
        within=False,
        sample=0,
        candidates="auto" if stored.candidates == "nearest" else stored.candidates,
        hard=summary.thresholds.hard,
        soft=summary.thresholds.soft,
    )


def refuse_ungraded(folder: Path, summary: AuditSummary) -> None:
    """Refuse an audit that did not verify pairs, or that used a sample."""
    if summary.settings.sample:
        raise VisleakError(
            f"{folder} is an audit of a sample of {summary.settings.sample:,} images; an audit of"
            " all images is needed: run `visleak audit` without --sample"
        )
    if summary.grader is None:
        raise VisleakError(
            f"{folder} has no grades, because its pairs were not verified; run `visleak audit` on"
            " images and without --no-verify"
        )
