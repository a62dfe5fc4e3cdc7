"""The machine's word on a candidate: is it the same picture as one of its nearest neighbours?"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass

import numpy as np

from visleak.grading import grade, load_grader
from visleak.pipeline.candidates import Side
from visleak.pipeline.material import Material
from visleak.pipeline.verification import equal_bytes, verify
from visleak.pipeline.workplace import Workplace
from visleak.pipeline.yardstick import measured
from visleak.records import GRADES, Encoder, Pairs
from visleak.replacements.neighbours import Neighbour


@dataclass(frozen=True, slots=True)
class Look:
    """What the machine says of a candidate and a neighbour.

    Attributes:
        grade: of the pair; ``None`` where a picture could not be read any more.
        probability: that a careful person calls the pair near or exact; ``None`` likewise.
        reason: in words.
    """

    grade: str | None
    probability: float | None
    reason: str


class Checker:
    """Verifies pairs of a candidate and a neighbour as an audit does; each pair once.

    Args:
        material: the sets of the audit and the pool, by name.
        sides: the same with backgrounds.
        pool: name of the pool.
        encoder: made the fingerprints.
        views: choice of the views, as in the settings.
        near_at: probability from which a pair is ``near``, as in the audit.
        workplace: makes a place to work in for one call; its cache knows what was verified before.
    """

    def __init__(
        self,
        material: Mapping[str, Material],
        sides: Mapping[str, Side],
        pool: str,
        encoder: Encoder,
        views: str,
        near_at: float,
        workplace: Callable[[], AbstractContextManager[Workplace]],
    ) -> None:
        self._material = material
        self._sides = sides
        self._pool = pool
        self._encoder = encoder
        self._views = views
        self._workplace = workplace
        self._grader = load_grader(near_at=near_at)
        self._looks: dict[tuple[int, str, int], Look] = {}

    def look(self, couples: Iterable[tuple[int, Neighbour]]) -> dict[tuple[int, str, int], Look]:
        """Return what is said of couples, by row of the pool, set and row of the neighbour.

        Args:
            couples: row of the pool and neighbour.
        """
        wanted = {(row, near.set, near.row): near for row, near in couples}
        fresh: dict[str, list[tuple[int, Neighbour]]] = {}
        for key, near in wanted.items():
            if key not in self._looks:
                fresh.setdefault(near.set, []).append((key[0], near))
        if fresh:
            self._verify([self._pairs(name, each) for name, each in fresh.items()])
        return {key: self._looks[key] for key in wanted}

    def _pairs(self, name: str, couples: list[tuple[int, Neighbour]]) -> Pairs:
        query = np.array([row for row, _ in couples], np.int64)
        reference = np.array([near.row for _, near in couples], np.int64)
        backgrounds = (
            self._sides[self._pool].background[query] + self._sides[name].background[reference]
        )
        return Pairs(
            query_set=self._pool,
            reference_set=name,
            query=query,
            reference=reference,
            similarity=np.array([near.similarity for _, near in couples], np.float32),
            background=(backgrounds / 2).astype(np.float32),
            view=np.array([near.view for _, near in couples], np.int8),
            total=np.zeros(len(self._material[self._pool].prints), np.int64),
        )

    def _verify(self, found: list[Pairs]) -> None:
        with self._workplace() as place:
            gauged = measured(found, self._material, self._encoder, self._views, place)
            evidence = verify(gauged, self._material, place)
        for pairs, own in zip(gauged, evidence, strict=True):
            grades = grade(
                pairs.similarity,
                pairs.background,
                own,
                equal_bytes=equal_bytes(pairs, self._material),
                flat=self._material[self._pool].prints.flat[pairs.query],
                grader=self._grader,
            )
            for i, (row, other) in enumerate(zip(pairs.query, pairs.reference, strict=True)):
                seen = grades.grade[i] >= 0
                self._looks[int(row), pairs.reference_set, int(other)] = Look(
                    grade=GRADES[grades.grade[i]] if seen else None,
                    probability=float(grades.probability[i]) if seen else None,
                    reason=grades.reason[i],
                )
