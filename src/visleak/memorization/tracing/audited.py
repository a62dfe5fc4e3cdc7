"""Sets of pictures and published fingerprints as sources: all in one audit."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow.compute as pc

from visleak.auditing import Audit, audit
from visleak.memorization.inplace import TINY
from visleak.memorization.tracing.asking import Asking
from visleak.memorization.tracing.layouts import Layouts
from visleak.memorization.tracing.queries import Queries
from visleak.memorization.tracing.refusing import refusals
from visleak.memorization.tracing.sources import Answer, Hit
from visleak.pipeline.stored_encoder import encoder_for
from visleak.pipeline.workplace import Progress
from visleak.records import AnySet, EmbeddingSet, Encoder
from visleak.settings import Settings
from visleak.store import IMAGES, read_table
from visleak.verdicts import judged_pairs

#: Folder of the audit in that of the trace.
AUDIT_FOLDER: Final = "audit"

#: Why two sides cannot be verified.
NO_PICTURES: Final = "published fingerprints: there is no picture to verify with"

_COLUMNS: Final = (
    "query",
    "reference_set",
    "reference",
    "similarity",
    "view",
    "grade",
    "probability",
    "reason",
    "judged",
)


class Sets:
    """Sets as sources.

    Args:
        references: the sets, pictures or embeddings.
        folder: of the trace; the audit goes into its ``audit``.
        asking: how.

    Attributes:
        encoder: that similarities are of.
        audited: the audit, once :meth:`find` was called.
    """

    name = "sets"
    training = True

    def __init__(self, references: Sequence[AnySet], folder: Path, asking: Asking) -> None:
        self.references, self.folder, self.asking = tuple(references), folder, asking
        options = {} if asking.device == "cpu" else {"device": asking.device}
        self.encoder: Encoder = encoder_for(self.references, asking.similarity, options)
        self.audited: Audit | None = None

    @property
    def settings(self) -> Settings:
        """The settings of the audit: every pair above tau is listed."""
        soft = (self.encoder.thresholds or {}).get("soft")
        lowest = self.asking.tau if soft is None else min(float(soft), self.asking.tau)
        # embeddings that pass by are listed by thresholds alone, unless asked
        rule = "best" if any(isinstance(s, EmbeddingSet) for s in self.references) else "auto"
        return Settings(
            encoder=self.encoder.name,
            soft=None if soft is not None and lowest == soft else lowest,
            views=self.asking.views,
            candidates=rule,
            within=False,
        )

    def about(self) -> Mapping[str, object]:
        """Return names, sources and sizes of the sets."""
        return {
            "sets": [
                {
                    "name": each.name,
                    "source": each.source,
                    "images": len(each),
                    "pictures": not isinstance(each, EmbeddingSet),
                }
                for each in self.references
            ]
        }

    def find(self, queries: Queries, images: Sequence[str], progress: Progress) -> Answer:
        """Audit the generated images against the sets, with what people judged laid over."""
        if queries.images is None:
            return Answer((), {})
        asking = self.asking
        made = audit(
            queries.images,
            self.references,
            settings=self.settings,
            encoder=self.encoder,
            out=self.folder / AUDIT_FOLDER,
            workers=asking.workers,
            cache=asking.cache,
            progress=progress,
            device=asking.device,
            force=asking.force,
            command=asking.command,
        )
        self.audited = made
        table = read_table(made.folder, IMAGES, ["set", "id", "digest", "width", "height"])
        sides = {(r["set"], r["id"]): r for r in table.to_pylist()}
        hits = asked(_hits(made, queries.images.name, sides), images)
        hits = refusals(made, queries.images.name, hits)
        if asking.layouts:
            search = Layouts(self.references, self.folder, self.asking, made, sides)
            hits = search.added(queries, hits, progress)
        return Answer(hits, _nearest(made, queries.images.name), _unread(made))


def asked(hits: Iterable[Hit], images: Sequence[str]) -> list[Hit]:
    """Return the hits of the images that are asked about."""
    # all images of an extraction may be many, and have many hits
    wanted = frozenset(images)
    return [each for each in hits if each.image in wanted]


def _hits(made: Audit, name: str, sides: Mapping[tuple[str, str], Any]) -> Iterator[Hit]:
    """Yield every pair that the audit lists, verdicts laid over."""
    table = judged_pairs(made.folder, list(_COLUMNS))
    for row in table.to_pylist():
        one = sides.get((name, row["query"]), {})
        other = sides.get((row["reference_set"], row["reference"]), {})
        longest = [max(s.get("width") or 0, s.get("height") or 0) for s in (one, other)]
        similarity = row["similarity"]
        yield Hit(
            image=row["query"],
            source=row["reference_set"],
            reference=row["reference"],
            similarity=math.nan if similarity is None else float(similarity),
            grade=row["grade"] or "",
            probability=None if row["probability"] is None else float(row["probability"]),
            reason=row["reason"] if row["grade"] else NO_PICTURES,
            judged=row["judged"] or "",
            view=row["view"] or "original",
            tiny=0 < longest[0] <= TINY and 0 < longest[1] <= TINY,
            digest=other.get("digest") or "",
        )


def _nearest(made: Audit, name: str) -> dict[str, float]:
    """Return the similarity to the nearest image of all sets, by generated image."""
    table = read_table(made.folder, IMAGES, ["set", "id", "nearest_similarity"])
    table = table.filter(pc.equal(table["set"], name))
    return {
        row["id"]: float(row["nearest_similarity"])
        for row in table.to_pylist()
        if row["nearest_similarity"] is not None
    }


def _unread(made: Audit) -> tuple[str, ...]:
    lines = []
    for each in made.summary["sets"]:
        if each.get("unreadable"):
            lines.append(
                f"{each['unreadable']:,} of {each['images']:,} images of {each['name']}"
                " could not be read"
            )
    return tuple(lines)
