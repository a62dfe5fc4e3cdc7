"""Asking a trained network about pictures that it did not learn from."""

from __future__ import annotations

from typing import Final

import numpy as np

from visleak.records import Int64
from visleak.stats import Rate
from visleak.training.learnt import Learnt, Told
from visleak.training.lessons import Lessons
from visleak.training.scores import NEIGHBOURS, agreeing, by_neighbours, twins_found

#: Pictures asked about by two views, and pictures that may vote, at most.
TWINS: Final = 2_000
VOTERS: Final = 50_000


def asked_about(learnt: Learnt, lessons: Lessons, told: Told) -> dict[str, Rate]:
    """Ask a network about the pictures of the questions.

    Args:
        learnt: the network.
        lessons: what it has learnt from, and the questions.
        told: is told how many pictures are looked at.

    Returns:
        ``accuracy`` where classes were learnt. Else ``views``: how often the other view of a
        picture is the most alike of all; and, where classes are known, the accuracy of the
        nearest pictures that were learnt from. Nothing where nothing could be held out.
    """
    asked = lessons.questions
    if not len(asked.rows):
        return {}
    if lessons.by_class and asked.classes is not None:
        found = learnt.classes(asked.pictures, asked.rows, told)
        return {"accuracy": agreeing(found, asked.classes)}
    some = asked.rows[:: max(1, len(asked.rows) // TWINS)][:TWINS]
    views = (learnt.views(asked.pictures, some, number) for number in (0, 1))
    scores = {"views": twins_found(*views)}
    voters = _voters(lessons)
    if asked.classes is not None and lessons.classes is not None and len(voters):
        reference = learnt.vectors(lessons.pictures, lessons.rows[voters], told)
        query = learnt.vectors(asked.pictures, asked.rows)
        found = by_neighbours(query, reference, lessons.classes[voters])
        scores[f"{NEIGHBOURS} nearest"] = agreeing(found, asked.classes)
    return scores


def _voters(lessons: Lessons) -> Int64:
    """Return places of the lessons whose class is known, spread over them."""
    if lessons.classes is None:
        return np.empty(0, np.int64)
    known = np.flatnonzero(lessons.classes >= 0)
    return known[:: -(-len(known) // VOTERS) or 1]
