"""A plan of parts: the part of each image, and how the parts are written and audited."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import visleak
from visleak.auditing import Audit, audit
from visleak.errors import UsageError, VisleakError
from visleak.formats import open_image_set
from visleak.formats.files import chosen
from visleak.formats.writing import OutputSource
from visleak.progress import Progress
from visleak.records import ImageSet, Int64, ends_of
from visleak.remedy.balance import Balance
from visleak.remedy.graph import NO_EDGES, Edges, Graph, refuse_ungraded, strong_pairs
from visleak.remedy.manifest import RemovedImage
from visleak.remedy.writing import Part, Piece, refuse_place, write
from visleak.settings import Settings
from visleak.storage import (
    AUDIT,
    IMAGES,
    UNREADABLE,
    read_problems,
    read_summary,
    read_table,
    write_csv,
    write_json,
)
from visleak.verdicts import Verdict, read_verdicts


@dataclass(frozen=True)
class Auditor:
    """Audits images with the settings and verdicts of a first audit."""

    first: Audit
    grade: str
    workers: int | None
    cache: str | os.PathLike[str] | None
    progress: Progress

    def __post_init__(self) -> None:
        refuse_ungraded(self.first.folder, self.first.summary)

    @cached_property
    def verdicts(self) -> tuple[Verdict, ...]:
        """Verdicts of the first audit."""
        return read_verdicts(self.first.folder)

    @cached_property
    def settings(self) -> Settings:
        """Settings of the first audit, for an audit of all images of two sides."""
        stored, limits = self.first.summary.settings, self.first.summary.thresholds
        return replace(
            stored,
            within=False,
            sample=0,
            candidates="auto" if stored.candidates == "nearest" else stored.candidates,
            hard=limits.hard,
            soft=limits.soft,
        )

    def audit_sets(
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
        """Return the edges between two selections of ascending rows, by an audit of these."""
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
        found = self.audit_sets(sides[0], sides[1])
        return graph.edges(found.folder, names, self.grade, self.verdicts)

    def between_parts(self, graph: Graph, part: Int64) -> Edges:
        """Return the edges between all parts, given the part of each image."""
        found = NO_EDGES
        for couple in itertools.combinations(np.unique(part).tolist(), 2):
            rows = sorted((np.flatnonzero(part == index) for index in couple), key=len)
            found += self.between(graph, *rows)
        return found

    def audit_parts(
        self, opened: Mapping[str, OutputSource], folder: Path, final: Path, out: Path
    ) -> Audit:
        """Audit written parts against each other, the largest last; blank images do not leak."""
        parts = []
        for name, source in opened.items():
            images = open_image_set(source.source(folder), name=name, **source.options)
            locators = pc.replace_substring(images.locators, str(folder), str(final))
            parts.append(replace(images, source=source.source(final), locators=locators))
        parts.sort(key=len)
        found = self.audit_sets(parts[:-1], parts[1:], out)
        blank = read_table(found.folder, IMAGES, ["set", "id"], pc.field("flat")).to_pylist()
        flat = {(row["set"], row["id"]) for row in blank}
        pairs = strong_pairs(found.folder, self.grade, self.verdicts).to_pylist()
        leaks = [ends for ends in map(ends_of, pairs) if not flat.intersection(ends)]
        if leaks:
            one, other = map("/".join, leaks[0])
            raise VisleakError(
                f"the audit of the parts still finds {len(leaks):,} pairs of grade {self.grade} or"
                f" stronger, such as {one} and {other}; nothing was written, {out} shows them"
            )
        return found


#: Schema of ``split.json``.
SCHEMA: Final = 1

SPLIT: Final = "split.json"
ASSIGNMENT: Final = "assignment.csv"
DATA: Final = "data"
PROOF: Final = "proof"
AUDITED: Final = "audit"

#: Most rounds of assigning and auditing.
ROUNDS: Final = 8

#: Values in ``split.json`` of a plan: rounds of assigning and auditing, pairs added by these
#: audits, the audit of the written parts, and the parts.
NOT_APPLIED: Final[Mapping[str, object]] = {
    "rounds": 0,
    "pairs_added": 0,
    "proof": None,
    "written": None,
}

_COLUMNS: Final = ("set", "id", "part", "component", "moved_from")


@dataclass(frozen=True)
class Plan:
    """The part of each image."""

    graph: Graph
    edges: Edges
    component: Int64  # (images,): connected component
    part: Int64  # (images,): index of the part
    after: Balance
    tolerance: float | None  # of the split; ``None`` for a repair
    before: Balance | None = None  # of a repair
    why: tuple[str, ...] = ()  # reasons why the tolerance is missed
    about: Mapping[str, object] = field(default_factory=dict)  # more values for ``split.json``

    def parts(self) -> tuple[Part, ...]:
        """Return the parts to write."""
        graph, parts = self.graph, []
        for index, name in enumerate(self.after.parts):
            pieces = []
            # images that were in the part before are first
            for owner in sorted(range(len(graph.sets)), key=lambda own: own != index):
                rows = np.flatnonzero((self.part == index) & (graph.owner == owner))
                if len(rows):
                    pieces.append(Piece(graph.sets[owner], graph.position[rows]))
            parts.append(Part(name, tuple(pieces)))
        return tuple(parts)

    def as_dict(self) -> dict[str, object]:
        """Return the content of ``split.json``."""
        counts = np.bincount(self.component)
        largest = int(np.argmax(counts))
        graph = self.graph
        result: dict[str, object] = {
            "schema": SCHEMA,
            "visleak": visleak.__version__,
            **self.about,
            "images": len(graph),
            "unreadable": graph.unreadable,
            "grouped": int((graph.group >= 0).sum()),
            "groups": len(np.unique(graph.group[graph.group >= 0])),
            "components": {
                "count": len(counts),
                "single": int((counts == 1).sum()),
                "largest": int(counts[largest]),
                "largest_is": graph.describe(np.flatnonzero(self.component == largest)),
            },
            "pairs": len(self.edges),
            "disputed": int(self.edges.doubtful.sum()),
            "parts": self.after.as_dict(),
        }
        if self.before is not None:
            result["before"] = self.before.as_dict()
        if self.tolerance is not None:
            result |= {
                "tolerance": self.tolerance,
                "largest_deviation": self.after.largest().as_dict(),
                "misses": [miss.as_dict() for miss in self.after.misses(self.tolerance)],
                "why": list(self.why),
            }
        return result

    def write(self, out: Path, outcome: Mapping[str, object]) -> dict[str, object]:
        """Write ``assignment.csv``, and ``split.json`` with the outcome; return its content."""
        out.mkdir(parents=True, exist_ok=True)
        content = self.as_dict() | dict(outcome)
        write_csv(out / ASSIGNMENT, _COLUMNS, self._rows())
        write_json(out / SPLIT, content)
        return content

    def _rows(self) -> Iterator[tuple[str, ...]]:
        graph, names = self.graph, self.after.parts
        for index, images in enumerate(graph.sets):
            rows = np.flatnonzero(graph.owner == index)
            ids = images.ids.take(pa.array(graph.position[rows])).to_pylist()
            own = zip(ids, self.part[rows].tolist(), self.component[rows].tolist(), strict=True)
            for id_, part, number in own:
                moved = self.before is not None and part != index
                yield images.name, id_, names[part], str(number), images.name if moved else ""


@dataclass(frozen=True)
class Split:
    """A planned or written split."""

    folder: Path  # of ``split.json``, ``assignment.csv`` and, once written, ``data`` and ``proof``
    content: Mapping[str, Any]  # of ``split.json``

    @property
    def sources(self) -> Mapping[str, str]:
        """SOURCE of each written part, by name."""
        written = self.content["written"]
        return dict(written["sources"]) if written else {}


class UnbalancedSplit(VisleakError):
    """The split misses its tolerance, so only the plan was written."""

    def __init__(self, message: str, content: dict[str, object]) -> None:
        super().__init__(message)
        self.content = content

    def __reduce__(self) -> tuple[type[UnbalancedSplit], tuple[str, dict[str, object]]]:
        return type(self), (str(self), self.content)


def refuse_output(out: Path, sets: Iterable[ImageSet], *, apply: bool) -> None:
    """Refuse an output folder that is in a set, or contains other files."""
    refuse_place(out, sets)
    if not out.exists():
        return
    own = {SPLIT, ASSIGNMENT, DATA, PROOF, AUDITED}
    if not out.is_dir():
        raise UsageError(f"the output {out} is a file; choose a folder with -o DIR")
    if not apply and (out / DATA).exists():
        raise UsageError(
            f"the output {out} holds a split that was written; choose a new folder with -o DIR"
        )
    other = next((e.name for e in out.iterdir() if e.name not in own and e.name[0] != "."), None)
    if other is not None:
        raise UsageError(
            f"the output {out} holds other files ({other}); choose a new folder with -o DIR"
        )


# -- applying ------------------------------------------------------------------------------------


def carry_out(
    solve: Callable[[Edges], Plan],
    edges: Edges,
    auditor: Auditor,
    out: Path,
    how: str | None,
    accept: Callable[[Plan], None] = lambda plan: None,
) -> Split:
    """Plan the parts; with ``how`` (``manifest``, ``link``, ``copy``) audit and write them too."""
    plan = solve(edges)
    outcome = dict(NOT_APPLIED)
    if how is not None:
        accept(plan)
        plan, rounds, added = _consensus(solve, edges, auditor)
        accept(plan)
        outcome |= {"rounds": rounds, "pairs_added": added} | _apply(plan, auditor, out, how)
    return Split(out, plan.write(out, outcome))


def _consensus(
    solve: Callable[[Edges], Plan], edges: Edges, auditor: Auditor
) -> tuple[Plan, int, int]:
    """Return a plan without pairs between its parts, the number of rounds, and of edges added.

    The first audit verified only the best candidates of each image, so an audit of the parts may
    find more pairs. They become edges, and the parts are assigned again.
    """
    known = edges
    for number in range(1, ROUNDS + 1):
        plan = solve(known)
        found = auditor.between_parts(plan.graph, plan.part)
        if not len(found):
            return plan, number, len(known) - len(edges)
        known += found
    raise VisleakError(
        f"after {ROUNDS} rounds there are still {len(found):,} pairs between the parts that no"
        " audit had listed before; nothing was written: try another seed"
    )


def _apply(plan: Plan, auditor: Auditor, out: Path, how: str) -> dict[str, object]:
    """Write the parts into ``data``, audit them into ``proof``, and keep them if nothing leaks."""
    data, proof = out / DATA, out / PROOF
    evidence: dict[str, object] = {"folder": None, "headline": None, "leaks": 0}

    def check(folder: Path, opened: Mapping[str, OutputSource]) -> None:
        if len(opened) > 1:
            found = auditor.audit_parts(opened, folder, data, proof)
            evidence.update(folder=str(proof), headline=found.headline)

    images = read_table(auditor.first.folder, IMAGES, ["set", "id", "digest"])
    names = {images.name for images in plan.graph.sets}
    unread = [p for p in read_problems(auditor.first.folder / UNREADABLE) if p.set in names]
    written = write(
        plan.parts(),
        data,
        how,
        # independent of the folder of the audit
        about={name: value for name, value in plan.about.items() if name != "audit"},
        removed=[RemovedImage.unreadable(problem) for problem in unread],
        known={
            name: images.filter(pc.equal(images["set"], name)).select(["id", "digest"])
            for name in pc.unique(images["set"]).to_pylist()
        },
        check=check,
        progress=auditor.progress,
    )
    if written.reused and (proof / AUDIT).is_file():
        evidence.update(folder=str(proof), headline=read_summary(proof).headline)
    content = written.as_dict()
    kept = {key: content[key] for key in ("folder", "as", "sources", "images")}
    return {"proof": evidence, "written": kept}
