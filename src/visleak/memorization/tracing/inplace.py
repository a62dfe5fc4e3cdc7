"""A second look at tiny pictures: do their colours agree where they lie?

Verification was fitted on photographs. Of drawings of 16 pixels it finds a relation under which
any two circles are near-duplicates: in a toy world of 6,012 training pictures it called 61 of 300
new ones near-duplicates of some training picture. A model that replays a picture replays it
upright, in place and in its colours, so tiny pictures count as copies only where these agree: of
the 61 that leaves 3, and of 95 damaged copies that were graded near it leaves all
(``benchmarks/layout_verdict.py``).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from visleak.auditing import Audit
from visleak.memorization.tracing.sources import Hit
from visleak.records import VIEWS, Bytes8
from visleak.verify import tiny
from visleak.verify.align import view_matrix

#: Mean correlation of the colours of tiny pictures in place from which they are copies.
COLOURS: Final = 0.75


def in_place(query: Bytes8, reference: Bytes8, view: str = "original") -> float:
    """Return the mean correlation of the colours of two pictures in place, -1 to 1.

    Args:
        query, reference: RGB ``uint8``.
        view: of the query that is compared.
    """
    if view == "inverted":
        query, view = 255 - query, "original"
    return tiny.compared(query, reference, view_matrix(VIEWS.index(view))).colour


def refusals(made: Audit, name: str, hits: Iterable[Hit]) -> list[Hit]:
    """Return hits, those of tiny pictures with why they are no copies where they are none.

    What people judged, and what is exact, is left as it is.

    Args:
        made: the audit that found them.
        name: of the set of generated images.
        hits: the hits.
    """
    listed = list(hits)
    doubtful = [h for h in listed if h.tiny and h.grade == "near" and h.judged != "human"]
    if not doubtful:
        return listed
    queries = made.pictures(name, {hit.image for hit in doubtful})
    references = {
        source: made.pictures(source, {h.reference for h in doubtful if h.source == source})
        for source in {hit.source for hit in doubtful}
    }
    refused: dict[Hit, str] = {}
    for hit in doubtful:
        one, other = queries.get(hit.image), references[hit.source].get(hit.reference)
        if one is None or other is None:
            refused[hit] = "its picture could not be read again"
            continue
        agreement = in_place(one, other, hit.view)
        if agreement < COLOURS:
            refused[hit] = (
                "no copy, though near: tiny pictures must agree in place and in colours;"
                f" correlation {agreement:.2f}, at least {COLOURS:.2f} is asked"
            )
    return [replace(hit, refused=refused.get(hit, "")) for hit in listed]
