"""Which near pairs of tiny pictures are no copies: those that do not agree in place."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from visleak.auditing import Audit
from visleak.memorization.inplace import COLOURS, in_place
from visleak.memorization.tracing.sources import Hit


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
    queries = made.pictures(name, {hit.image for hit in doubtful}, complete=True)
    references = {
        source: made.pictures(
            source, {h.reference for h in doubtful if h.source == source}, complete=True
        )
        for source in {hit.source for hit in doubtful}
    }
    refused: dict[Hit, str] = {}
    for hit in doubtful:
        one, other = queries[hit.image], references[hit.source][hit.reference]
        agreement = in_place(one, other, hit.view)
        if agreement < COLOURS:
            refused[hit] = (
                "no copy, though near: tiny pictures must agree in place and in colours;"
                f" correlation {agreement:.2f}, at least {COLOURS:.2f} is asked"
            )
    return [replace(hit, refused=refused.get(hit, "")) for hit in listed]
