"""A plan of parts: which image goes where and why, as it is written and told."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import visleak
from visleak.errors import UsageError, VisleakError
from visleak.records import ImageSet, Int64
from visleak.remedy.balance import Balance
from visleak.remedy.graph import Graph, Ties
from visleak.remedy.manifest import Removed
from visleak.remedy.parts import Part, Piece
from visleak.remedy.staging import refuse_place
from visleak.remedy.writing import inputs_of
from visleak.storage import UNREADABLE, read_problems, write_csv, write_json

#: Version of the layout of ``split.json``.
SCHEMA: Final = 1

SPLIT: Final = "split.json"
ASSIGNMENT: Final = "assignment.csv"
DATA: Final = "data"
PROOF: Final = "proof"
AUDITED: Final = "audit"

#: What ``split.json`` says of a mere plan: rounds of assigning and auditing, ties that those
#: audits added, the audit of what was written, and that.
NOTHING_DONE: Final[Mapping[str, Any]] = {
    "rounds": 0,
    "pairs_added": 0,
    "proof": None,
    "written": None,
}

_COLUMNS: Final = ("set", "id", "part", "component", "moved_from")


@dataclass(frozen=True)
class Plan:
    """Which image goes to which part.

    Attributes:
        graph: the images.
        ties: that hold images together.
        component: ``int64`` (images,): which belong together.
        part: ``int64`` (images,): index of the part of each.
        before, after: sizes and class shares; ``before`` only where there were parts already.
        tolerance: that was asked for; ``None`` where parts are as they were, but for moves.
        why: why it is missed, one line each.
        about: what else is told: plain values.
    """

    graph: Graph
    ties: Ties
    component: Int64
    part: Int64
    after: Balance
    tolerance: float | None
    before: Balance | None = None
    why: tuple[str, ...] = ()
    about: dict[str, Any] = field(default_factory=dict)

    @property
    def moved(self) -> Int64:
        """Rows of the images that leave their part; none where there were no parts."""
        if self.before is None:
            return np.empty(0, np.int64)
        return np.flatnonzero(self.part != self.graph.owner)

    def parts(self) -> tuple[Part, ...]:
        """Return what is to be written."""
        return tuple(
            Part(name, tuple(self._pieces(index))) for index, name in enumerate(self.after.parts)
        )

    def _pieces(self, index: int) -> Iterator[Piece]:
        graph = self.graph
        own = range(len(graph.sets))
        # what a part has of its own set comes first
        for owner in sorted(own, key=lambda each: (each != index, each)):
            rows = np.flatnonzero((self.part == index) & (graph.owner == owner))
            if len(rows):
                yield Piece(graph.sets[owner], graph.position[rows])

    def as_dict(self) -> dict[str, Any]:
        """Return what ``split.json`` says."""
        counts = np.bincount(self.component)
        big = int(np.argmax(counts))
        result: dict[str, Any] = {
            "schema": SCHEMA,
            "visleak": visleak.__version__,
            **self.about,
            "images": len(self.graph),
            "unreadable": self.graph.unreadable,
            "grouped": int((self.graph.group >= 0).sum()),
            "groups": len(np.unique(self.graph.group[self.graph.group >= 0])),
            "components": {
                "count": len(counts),
                "single": int((counts == 1).sum()),
                "largest": int(counts[big]),
                "largest_is": self.graph.called(np.flatnonzero(self.component == big)),
            },
            "pairs": len(self.ties),
            "disputed": self.ties.disputed,
            "parts": self.after.as_dict(),
        }
        if self.before is not None:
            result["before"] = self.before.as_dict()
        if self.tolerance is not None:
            result |= {
                "tolerance": self.tolerance,
                "largest_deviation": _deviation(self.after.largest()),
                "misses": [_deviation(miss) for miss in self.after.misses(self.tolerance)],
                "why": list(self.why),
            }
        return result

    def write(self, out: Path, outcome: Mapping[str, Any]) -> dict[str, Any]:
        """Write ``assignment.csv`` and ``split.json``; return what the latter says.

        Args:
            out: the output folder, made if need be.
            outcome: what was done, as :data:`NOTHING_DONE`.
        """
        out.mkdir(parents=True, exist_ok=True)
        content = self.as_dict() | dict(outcome)
        write_csv(out / ASSIGNMENT, _COLUMNS, self._rows())
        write_json(out / SPLIT, content)
        return content

    def _rows(self) -> Iterator[tuple[str, ...]]:
        graph = self.graph
        names = self.after.parts
        for index, images in enumerate(graph.sets):
            rows = np.flatnonzero(graph.owner == index)
            ids = images.ids.take(pa.array(graph.position[rows])).to_pylist()
            for id_, part, number in zip(
                ids, self.part[rows].tolist(), self.component[rows].tolist(), strict=True
            ):
                left = images.name if self.before is not None and part != index else ""
                yield images.name, id_, names[part], str(number), left

    def left_out(self, folder: Path) -> tuple[Removed, ...]:
        """Return the images that are in no part, for nobody could read them.

        Args:
            folder: the audit.
        """
        names = {images.name for images in self.graph.sets}
        return tuple(
            Removed(p.set, p.id, locator=p.locator, why=f"unreadable: {p.reason}")
            for p in read_problems(folder / UNREADABLE)
            if p.set in names
        )


@dataclass(frozen=True)
class Split:
    """A split that was planned, and written if that was asked for.

    Attributes:
        folder: with ``split.json``, ``assignment.csv`` and, once written, ``data`` and ``proof``.
        content: of ``split.json``.
    """

    folder: Path
    content: Mapping[str, Any]

    @property
    def sources(self) -> Mapping[str, str]:
        """SOURCE of each part that was written, by name."""
        written = self.content["written"]
        return dict(written["sources"]) if written else {}


class Unbalanced(VisleakError):
    """A split misses its tolerance, so it was planned and not written.

    Attributes:
        content: of ``split.json``.
    """

    def __init__(self, message: str, content: dict[str, Any]) -> None:
        super().__init__(message)
        self.content = content

    def __reduce__(self) -> tuple[type[Unbalanced], tuple[str, dict[str, Any]]]:
        return type(self), (str(self), self.content)


def counted(part: Int64, parts: int, label: Int64, classes: int) -> Int64:
    """Return images by part and class, (parts, classes)."""
    flat = np.bincount(part * classes + label, minlength=parts * classes)
    return flat.reshape(parts, classes).astype(np.int64)


def refuse_output(out: Path, sets: Iterable[ImageSet], *, apply: bool) -> None:
    """Refuse an output folder that lies in a set, or holds something else.

    Args:
        out: the folder.
        sets: that are split.
        apply: parts are to be written; else those that are there would be belied by a mere plan.

    Raises:
        UsageError: it does.
    """
    refuse_place(out, [path for images in sets for path in inputs_of(images)])
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
            f"the output {out} holds something else ({other}); choose a new folder with -o DIR"
        )


def known_digests(images: pa.Table) -> dict[str, pa.Table]:
    """Return ids and digests of an audit's images by set, as writers take them."""
    return {
        name: images.filter(pc.equal(images["set"], name)).select(["id", "digest"])
        for name in pc.unique(images["set"]).to_pylist()
    }


def _deviation(found: Any) -> dict[str, Any]:
    return {
        "part": found.part,
        "class": found.class_,
        "points": found.points,
        "images": found.images,
        "words": str(found),
    }
