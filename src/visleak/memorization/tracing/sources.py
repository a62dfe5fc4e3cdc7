"""What is traced, and the sources it is compared with: one audit, and a search for layouts."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from visleak.auditing import Audit, audit
from visleak.documents import read_document
from visleak.errors import UsageError, VisleakError
from visleak.formats import open_image_set, open_images
from visleak.formats.opening import distinct_names, named_sets
from visleak.memorization.extraction.images import INDEX
from visleak.memorization.settings import TraceSettings
from visleak.memorization.tracing.document import LAYOUT, Findings, Hit
from visleak.pipeline.embeddings import encoder_for
from visleak.progress import Progress
from visleak.quantities import counted
from visleak.records import AnySet, Bytes8, EmbeddingSet, Encoder, ImageSet
from visleak.reporting.gallery import decoded
from visleak.settings import Settings
from visleak.storage import IMAGES, PAIRS, read_table
from visleak.verdicts import judged_pairs
from visleak.verification.in_place import (
    COLOURS,
    OTHER_COLOURS,
    TINY,
    LayoutEncoder,
    colour_correlation,
    colour_difference,
    edge_orientations,
    is_tiny,
    layout_agreement,
    same_layout,
)

#: Name of the set of generated images in the audit, folders of the audit and of the search for
#: layouts in that of the trace, and images whose references are held in memory at a time.
GENERATED: Final = "generated"
AUDIT_FOLDER: Final = "audit"
LAYOUT_FOLDER: Final = "layouts"
BLOCK: Final = 64
#: Files of an extraction's folder, and the kind that ``extract.json`` states.
EXTRACTION: Final = "extract.json"
KIND: Final = "visleak memorization extract"
OTHER_KIND: Final = re.compile(rb'"kind": "visleak memorization ([a-z]{1,20})"')
MEDOIDS: Final = "medoids.parquet"
EVERY: Final = "generated.parquet"
_AGAIN: Final = "run visleak memorization extract again"


@dataclass(frozen=True)
class Queries:
    """Generated images and their origin."""

    images: ImageSet | None  #: the set; ``None`` where there are none to trace
    prompts: tuple[str, ...]  #: by image, in the order of the set; empty texts if unknown
    sizes: tuple[int, ...]  #: images in the cluster of each
    every: bool = False  #: all images of the prompts, not one per cluster
    clusters: bool = False  #: each image stands for a cluster
    origin: Mapping[str, object] = field(default_factory=dict)  #: by ``extract.json``


def open_queries(target: str | os.PathLike[str], *, every: bool = False) -> Queries:
    """Open what is to be traced."""
    folder = Path(target)
    if (folder / EXTRACTION).is_file():
        return _extracted(folder, every=every)
    # its figures would be taken for generated images
    for path in sorted(folder.glob("*.json")) if folder.is_dir() else ():
        with path.open("rb") as file:
            found = OTHER_KIND.search(file.read(1000))
        if found:
            raise UsageError(
                f"{folder} is a result of visleak memorization {found[1].decode()}, not of extract;"
                " make images of its prompts first (visleak memorization extract), or name a SOURCE"
                " of images"
            )
    if (folder / INDEX).is_file():
        raise VisleakError(f"{folder} holds an unfinished extraction; {_AGAIN}, it resumes")
    if every:
        raise UsageError(
            f"--all is for a folder of visleak memorization extract; {os.fspath(target)} has no"
            f" {EXTRACTION}, and of a SOURCE all images are traced anyway"
        )
    images = open_image_set(target, name=GENERATED, roles=("benchmark",))
    captions = [] if images.captions is None else images.captions.to_pylist()
    prompts = tuple(caption or "" for caption in captions) or ("",) * len(images)
    return Queries(images, prompts, (1,) * len(images))


def _extracted(folder: Path, *, every: bool) -> Queries:
    content = read_document(
        folder / EXTRACTION, KIND, 1, "it is not a result of visleak memorization extract"
    )
    about = content.get("about")
    origin = about if isinstance(about, dict) else {}
    path = folder / (EVERY if every else MEDOIDS)
    try:
        table = pq.read_table(path, columns=["prompt", "path"] if every else ["prompt", "size"])
        prompts = tuple(map(str, table["prompt"].to_pylist()))
        # an image that came twice is one file: then its path names no single row
        named = every and len(pc.unique(table["path"])) == len(table)
        sizes = (1,) * len(table) if every else tuple(table["size"].to_pylist())
    except (OSError, pa.ArrowException, KeyError) as error:
        raise VisleakError(f"{path} cannot be read ({error}); {_AGAIN}") from error
    if not prompts:
        return Queries(None, (), (), every, not every, origin)
    images = open_image_set(
        str(path), name=GENERATED, roles=("benchmark",), id="path" if named else None
    )
    if len(images) != len(prompts):
        raise VisleakError(f"{path} lists files that cannot be; {_AGAIN}")
    return Queries(images, prompts, sizes, every, not every, origin)


def refusals(made: Audit, name: str, hits: Iterable[Hit]) -> list[Hit]:
    """Return hits, with the reason why tiny near ones are not copies; people are believed."""
    listed = list(hits)
    doubtful = [h for h in listed if h.tiny and h.grade == "near" and h.judged != "human"]
    if not doubtful:
        return listed
    queries = made.decoded_images(name, {hit.image for hit in doubtful}, complete=True)
    references = _decoded(made, ((hit.source, hit.reference) for hit in doubtful))
    refused: dict[Hit, str] = {}
    for hit in doubtful:
        one, other = queries[hit.image], references[hit.source, hit.reference]
        agreement = colour_correlation(one, other, hit.view)
        if agreement < COLOURS:
            refused[hit] = (
                "no copy, though near: tiny images must agree in place and in colours;"
                f" correlation {agreement:.2f}, at least {COLOURS:.2f} is needed"
            )
    return [replace(hit, refused=refused.get(hit, "")) for hit in listed]


def _decoded(made: Audit, places: Iterable[Place]) -> dict[Place, Bytes8]:
    return decoded((), partial(made.decoded_images, complete=True), places)


#: An image by the name of its set and its id; digest, width and height of images by these.
Place = tuple[str, str]
Sides = Mapping[Place, Any]
#: Why two sides cannot be verified.
NO_IMAGES: Final = "published fingerprints: there is no image to verify with"
_COLUMNS: Final = (
    *("query", "reference_set", "reference", "similarity", "view"),
    *("grade", "probability", "reason", "judged"),
)


class Sets:
    """Sets as sources, compared in one audit."""

    def __init__(
        self,
        references: Sequence[AnySet],
        folder: Path,
        traced: TraceSettings,
        *,
        device: str = "cpu",
        command: str | None = None,
        **options: Any,  # workers, cache, force: as of :func:`visleak.audit`
    ) -> None:
        self.references, self.folder, self.traced = tuple(references), folder, traced
        self.device, self.command, self.options = device, command, options
        where = {} if device == "cpu" else {"device": device}
        self.encoder: Encoder = encoder_for(self.references, traced.similarity, where)
        self.audited: Audit | None = None

    @property
    def settings(self) -> Settings:
        """The settings of the audit: every pair above tau is listed."""
        soft = (self.encoder.thresholds or {}).get("soft")
        tau = self.traced.tau
        return Settings(
            encoder=self.encoder.name,
            soft=tau if soft is None or tau < float(soft) else None,
            views=self.traced.views,
            # embeddings that pass by are listed by thresholds alone by default
            candidates=(
                "best" if any(isinstance(s, EmbeddingSet) for s in self.references) else "auto"
            ),
            within=False,
        )

    def about(self) -> list[dict[str, object]]:
        """Return names, sources and sizes of the sets."""
        return [
            {
                "name": each.name,
                "source": each.source,
                "images": len(each),
                "pictures": not isinstance(each, EmbeddingSet),
            }
            for each in self.references
        ]

    def find(self, queries: Queries, progress: Progress) -> Findings:
        """Audit the generated images against the sets, with what people judged laid over."""
        if queries.images is None:
            return Findings((), {})
        name = queries.images.name
        made = self.audited = audit(
            queries.images,
            self.references,
            settings=self.settings,
            encoder=self.encoder,
            out=self.folder / AUDIT_FOLDER,
            progress=progress,
            device=self.device,
            command=self.command,
            **self.options,
        )
        if made.unfinished:
            raise VisleakError(
                f"the audit {made.folder} is unfinished: {counted(made.unfinished, 'image')} could"
                " be read at first, and not again; run the command again when the source is whole"
            )
        sides = _sides_of(made)
        hits = refusals(made, name, _hits(made, name, sides))
        if self.traced.layouts:
            hits = self._with_layouts(made, sides, queries, hits, progress)
        table = read_table(made.folder, IMAGES, ["set", "id", "nearest_similarity"])
        table = table.filter(pc.equal(table["set"], name)).drop_null()
        columns = (table[column].to_pylist() for column in ("id", "nearest_similarity"))
        unread = tuple(
            f"{each.unreadable:,} of {each.images:,} images of {each.name} could not be read"
            for each in made.summary.sets
            if each.unreadable
        )
        return Findings(hits, dict(zip(*columns, strict=True)), unread)

    def _with_layouts(
        self, made: Audit, sides: Sides, queries: Queries, hits: list[Hit], progress: Progress
    ) -> list[Hit]:
        """Return hits, with those of the same layout graded so and added."""
        images = queries.images
        pictured = [s for s in self.references if isinstance(s, ImageSet) and s.has_pixels]
        if images is None or not pictured:
            return hits
        # where all images of the prompts are traced, those that have a copy are left out
        found = {hit.image for hit in hits if hit.copy} if queries.every else frozenset[str]()
        wanted = [
            name
            for name in images.ids.to_pylist()
            if name not in found and (images.name, name) in sides
        ]
        known = {(hit.image, hit.source, hit.reference): hit for hit in hits}
        named = {each.name for each in pictured}
        pairs = {name: dict[Place, None]() for name in wanted}
        for image, source, reference in (*known, *self._listed(sides, images, pictured, progress)):
            if image in pairs and source in named:
                pairs[image][source, reference] = None
        result = dict(known)
        for start in range(0, len(wanted), BLOCK):
            progress("comparing layouts", start, len(wanted))
            block = {name: tuple(pairs[name]) for name in wanted[start : start + BLOCK]}
            for hit in _measured(made, sides, images.name, block, known):
                result[hit.image, hit.source, hit.reference] = hit
        progress("comparing layouts", len(wanted), len(wanted))
        return list(result.values())

    def _listed(
        self, sides: Sides, images: ImageSet, pictured: Sequence[AnySet], progress: Progress
    ) -> list[tuple[str, str, str]]:
        found = audit(
            images,
            pictured,
            settings=Settings(within=False, verify=False, views="none", local=False),
            encoder=LayoutEncoder(),
            out=self.folder / LAYOUT_FOLDER,
            progress=progress,
            **self.options,
        )
        _refuse_others(sides, _sides_of(found), [each.name for each in found.summary.sets])
        table = read_table(found.folder, PAIRS, ["query", "reference_set", "reference"])
        return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def _sides_of(made: Audit) -> Sides:
    table = read_table(made.folder, IMAGES, ["set", "id", "digest", "width", "height"])
    return {(row["set"], row["id"]): row for row in table.to_pylist()}


def _refuse_others(sides: Sides, again: Sides, names: Sequence[str]) -> None:
    """Refuse images that were lost, found or changed since they were audited."""
    for name in names:
        before, now = (
            {id_: row["digest"] for (own, id_), row in each.items() if own == name}
            for each in (sides, again)
        )
        for what, count in (
            ("could be read at first, and not again", len(before.keys() - now.keys())),
            ("could be read again, and not at first", len(now.keys() - before.keys())),
            ("changed meanwhile", sum(now.get(id_, own) != own for id_, own in before.items())),
        ):
            if count:
                raise VisleakError(
                    f"images of set {name!r} {what} ({count:,}); run the command again when the"
                    " source is whole"
                )


def _measured(
    made: Audit,
    sides: Sides,
    name: str,
    block: Mapping[str, Sequence[Place]],
    known: Mapping[tuple[str, str, str], Hit],
) -> Iterator[Hit]:
    queries = made.decoded_images(name, block, complete=True)
    references = _decoded(made, chain.from_iterable(block.values()))
    drawn = {
        place: edge_orientations(pixels)
        for place, pixels in references.items()
        if not is_tiny(pixels)
    }
    for image, pairs in block.items():
        if is_tiny(queries[image]):
            continue
        own = edge_orientations(queries[image])
        for place in (each for each in pairs if each in drawn):
            agreement, score = layout_agreement(own, drawn[place])
            colour = colour_difference(queries[image], references[place])
            digest = sides.get(place, {}).get("digest") or ""
            hit = known.get((image, *place)) or Hit(image, *place, math.nan, digest=digest)
            hit = replace(hit, structure=score, colour=colour)
            same = same_layout(agreement, score) and colour >= OTHER_COLOURS
            if same and not hit.copy and hit.judged != "human":
                reason = (
                    f"the same layout in other colours: edges in place stand out by {score:.1f}"
                    f" standard deviations, colours differ by {colour:.0f}"
                )
                hit = replace(hit, grade=LAYOUT, reason=reason, refused="")
            if same or (image, *place) in known:
                yield hit


def _hits(made: Audit, name: str, sides: Sides) -> Iterator[Hit]:
    for row in judged_pairs(made.folder, list(_COLUMNS)).to_pylist():
        one = sides.get((name, row["query"]), {})
        other = sides.get((row["reference_set"], row["reference"]), {})
        longest = [max(s.get("width") or 0, s.get("height") or 0) for s in (one, other)]
        yield Hit(
            image=row["query"],
            source=row["reference_set"],
            reference=row["reference"],
            similarity=math.nan if row["similarity"] is None else row["similarity"],
            grade=row["grade"] or "",
            probability=row["probability"],
            reason=row["reason"] if row["grade"] else NO_IMAGES,
            judged=row["judged"] or "",
            view=row["view"] or "original",
            tiny=all(0 < side <= TINY for side in longest),
            digest=other.get("digest") or "",
        )


def training_sets(texts: Sequence[str]) -> list[AnySet]:
    """Open training images by ``[NAME=]SOURCE``; one alone is called train unless it is named."""
    named = named_sets("--source", "training", "train", texts)
    return [
        open_images(each.source, name=name, dataset=each.dataset, roles=(each.role,))
        for each, name in zip(named, distinct_names(named), strict=True)
    ]
