"""Looking for the layout of generated images in sets of pictures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from visleak.auditing import Audit, audit
from visleak.memorization.inplace import is_tiny
from visleak.memorization.tracing.asking import Asking
from visleak.memorization.tracing.layout import (
    OTHER_COLOURS,
    LayoutPrints,
    colour_difference,
    edges,
    same_layout,
    standing_out,
)
from visleak.memorization.tracing.queries import Queries
from visleak.memorization.tracing.records import LAYOUT
from visleak.memorization.tracing.sources import Hit
from visleak.pipeline.workplace import Progress
from visleak.records import AnySet, Bytes8, ImageSet
from visleak.settings import Settings
from visleak.store import PAIRS, read_table

#: Folder of the search in that of the trace.
LAYOUT_FOLDER: Final = "layouts"

#: Pictures whose references are held in memory at a time.
BLOCK: Final = 64

STEP: Final = "comparing layouts"


class Layouts:
    """The search for layouts beside an audit.

    Candidates are the pairs that the audit lists and the twenty best by layout.

    Args:
        references: the sources; those with pictures are searched.
        folder: of the trace.
        asking: how the audit was made.
        made: the audit.
        sides: rows of its ``images.parquet`` by set and id.
    """

    def __init__(
        self,
        references: Sequence[AnySet],
        folder: Path,
        asking: Asking,
        made: Audit,
        sides: Mapping[tuple[str, str], Any],
    ) -> None:
        self.folder, self.asking, self.made, self.sides = folder, asking, made, sides
        self._pictured = tuple(
            each for each in references if isinstance(each, ImageSet) and each.pictures
        )

    def added(self, queries: Queries, hits: Sequence[Hit], progress: Progress) -> list[Hit]:
        """Return hits, with those of the same layout graded so and added.

        Where all images of the prompts are traced, those that have a copy are left out: variants
        of their originals are then counted among copies only.
        """
        images = queries.images
        if images is None or not self._pictured:
            return list(hits)
        found = {hit.image for hit in hits if hit.copy} if queries.every else frozenset[str]()
        wanted = [name for name in images.ids.to_pylist() if name not in found]
        known = {(hit.image, hit.source, hit.reference): hit for hit in hits}
        named = {each.name for each in self._pictured}
        pairs = {name: dict[tuple[str, str], None]() for name in wanted}
        for image, source, reference in (*known, *self._listed(images, progress)):
            if image in pairs and source in named:
                pairs[image][source, reference] = None
        result = dict(known)
        for start in range(0, len(wanted), BLOCK):
            progress(STEP, start, len(wanted))
            block = {name: tuple(pairs[name]) for name in wanted[start : start + BLOCK]}
            for hit in self._measured(images.name, block, known):
                result[hit.image, hit.source, hit.reference] = hit
        progress(STEP, len(wanted), len(wanted))
        return list(result.values())

    def _listed(self, images: ImageSet, progress: Progress) -> list[tuple[str, str, str]]:
        """Return the best pairs by layout."""
        asking = self.asking
        found = audit(
            images,
            self._pictured,
            settings=Settings(within=False, verify=False, views="none", local=False),
            encoder=LayoutPrints(),
            out=self.folder / LAYOUT_FOLDER,
            workers=asking.workers,
            cache=asking.cache,
            progress=progress,
            force=asking.force,
        )
        table = read_table(found.folder, PAIRS, ["query", "reference_set", "reference"])
        columns = (table[name].to_pylist() for name in table.column_names)
        return list(zip(*columns, strict=True))

    def _measured(
        self,
        name: str,
        block: Mapping[str, Sequence[tuple[str, str]]],
        known: Mapping[tuple[str, str, str], Hit],
    ) -> Iterator[Hit]:
        queries = self.made.pictures(name, block, complete=True)
        references: dict[tuple[str, str], Bytes8] = {}
        for each in self._pictured:
            ids = {ref for pairs in block.values() for source, ref in pairs if source == each.name}
            pictures = self.made.pictures(each.name, ids, complete=True)
            references |= {(each.name, name): pixels for name, pixels in pictures.items()}
        drawn = {
            place: edges(pixels) for place, pixels in references.items() if not is_tiny(pixels)
        }
        for image, pairs in block.items():
            if is_tiny(queries[image]):
                continue
            own = edges(queries[image])
            for place in (each for each in pairs if each in drawn):
                agreement, score = standing_out(own, drawn[place])
                colour = colour_difference(queries[image], references[place])
                hit = known.get((image, *place)) or self._unlisted(image, place)
                hit = replace(hit, structure=score, colour=colour)
                alike = same_layout(agreement, score) and colour >= OTHER_COLOURS
                if alike and not hit.copy and hit.judged != "human":
                    hit = replace(hit, grade=LAYOUT, reason=_reason(score, colour), refused="")
                if alike or (image, *place) in known:
                    yield hit

    def _unlisted(self, image: str, place: tuple[str, str]) -> Hit:
        about = self.sides.get(place, {})
        return Hit(image, *place, float("nan"), digest=about.get("digest") or "")


def _reason(score: float, colour: float) -> str:
    return (
        f"the same layout in other colours: edges in place stand out by {score:.1f} standard"
        f" deviations, colours differ by {colour:.0f}"
    )
