"""What tracing finds, as a document and as files."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from visleak.memorization.extraction.similarity import recall_line, recall_of
from visleak.quantities import listed
from visleak.rates import Rate, chance, percent
from visleak.reporting import Column, Document, Figure, Table, markdown
from visleak.reporting.charts import Bar, bar_chart
from visleak.reporting.document import LONGEST
from visleak.reporting.drawing import cut
from visleak.storage import File, RunFolder

#: Verdict on a pair whose structure agrees after any recolouring, and whose colours do not.
LAYOUT: Final = "layout"

#: What a memorized image may show (Hong et al. 2024, section 4).
CATEGORIES: Final = ("commercial product", "human", "artwork", "other")


@dataclass(frozen=True, slots=True)
class Match:
    """The best source of one generated image."""

    image: str  #: id of the generated image, as in the audited set
    prompt: str
    size: int  #: images in its cluster
    source: str  #: name of the source that was searched
    reference: str | None  #: id of the source's image, or ``None`` where nothing was found
    similarity: float  #: of the two, by the similarity that the trace names
    #: ``exact``, ``near``, ``similar``, ``different``, ``layout`` (structure agrees after any
    #: recolouring, colours do not), or ``""`` where there were no images to verify
    grade: str
    #: that a careful person calls the pair near or exact; ``None`` without images
    probability: float | None
    #: whether it counts as memorized: near or exact, of the same layout, or so judged by a person
    verified: bool
    #: number of the memorized image: one for all matches whose references are the same image or of
    #: the same layout; ``None`` where it does not count
    memorized: int | None
    reason: str = ""  #: one line in words
    #: similarity to the most similar image of all sources that were compared, whichever the best
    #: match is; NaN where none was. M_tau = 1 where it is above tau
    nearest: float = float("nan")
    #: how far the structure of the two stands out, see
    #: :func:`visleak.verification.in_place.standing_out`; ``None`` if not measured
    structure: float | None = None
    #: mean difference of colours in place (CIE76); ``None`` if not measured
    colour: float | None = None
    judged: str = ""  #: ``human`` or ``disputed`` where people judged the pair, else empty


@dataclass(frozen=True, slots=True)
class Original:
    """One memorized image: a source image, with those that are the same or of its layout."""

    number: int  #: from 0, in the order of the matches
    source: str  #: name of the source of the first reference
    #: ids (SOURCE/id where there are several sources) that matches were verified against, the
    #: closest first
    references: tuple[str, ...]
    variants: int  #: different images of the sources that are the same or of the same layout
    matches: int  #: generated images that repeat it
    prompts: int  #: that made them
    layout: bool  #: it is repeated in other colours only
    category: str = ""  #: of :data:`CATEGORIES`, where the user said so


@dataclass(frozen=True, slots=True)
class Replication:
    """How often the images of one prompt replicate a training image."""

    prompt: str
    images: int  #: traced ones
    replicated: int  #: those with M_tau = 1
    share: float  #: of them
    low: float  #: (low, high) ends of its 95 % Wilson interval
    high: float
    trigger: bool  #: whether the share is above ``kappa_share``: the prompt is in D_mem


@dataclass(frozen=True)
class Trace:
    """What became of all generated images that were traced."""

    #: with ``trace.json``, ``trace.csv`` and the audit folder ``audit``, which ``visleak review``
    #: and ``visleak report`` open
    folder: Path
    about: dict[str, Any]  #: sources, similarity, tau and settings, as plain data
    matches: tuple[Match, ...]  #: one per generated image
    memorized: int  #: distinct memorized images among those verified
    tau: float  #: M_tau(x) = 1 if some training image has a similarity above tau (definition 1)
    #: of traced images with M_tau = 1, with ``low`` and ``high`` of its 95 % interval; NaN where no
    #: source could be compared
    share: tuple[float, float, float]
    originals: tuple[Original, ...] = ()  #: the memorized images
    #: shares by prompt, where all images were traced; else empty
    prompts: tuple[Replication, ...] = ()
    notes: tuple[str, ...] = ()  #: what a reader has to know beside
    key: str = ""  #: of everything in the request but verdicts; equal keys are equal requests

    @property
    def verified(self) -> tuple[Match, ...]:
        """The matches that count as memorized."""
        return tuple(match for match in self.matches if match.verified)

    @property
    def compared(self) -> bool:
        """Whether there was any training set; without one nothing is called memorized."""
        return bool(self.about.get("sets"))


@dataclass(frozen=True, slots=True)
class Hit:
    """A possible source of a generated image."""

    image: str  #: id of the generated image
    source: str  #: name of the set that has it
    reference: str  #: id there
    similarity: float  #: by the similarity of the trace; NaN where it was not measured
    grade: str = ""  #: of :data:`visleak.records.GRADES`, or ``layout``; empty without images
    probability: float | None = None  #: as in the audit; ``None`` without images
    reason: str = ""  #: one line in words
    judged: str = ""  #: ``human``, ``disputed`` or empty
    view: str = "original"  #: of the generated image that was compared
    tiny: bool = False  #: both are images of up to 48 pixels
    digest: str = ""  #: content digest of the source's image; empty where it is not known
    structure: float | None = None  #: (structure, colour) as in :class:`Match`
    colour: float | None = None
    refused: str = ""  #: why a grade of near does not count; empty where it does

    @property
    def copy(self) -> bool:
        """Whether it counts as a copy of the source's image."""
        return self.grade in ("exact", "near") and not self.refused


@dataclass(frozen=True)
class Answer:
    """What the sets hold of generated images."""

    hits: Sequence[Hit]  #: possible sources, in any order
    #: similarity to the most similar image of the source, by generated image; images that were not
    #: compared are left out
    nearest: Mapping[str, float]
    notes: tuple[str, ...] = ()  #: what a reader has to know, one line each


#: Files of a trace, and of its section among those of the audit.
CSV: Final = "trace.csv"
SUMMARY: Final = "trace.md"
SECTION: Final = "memorization.json"


def document(result: Trace) -> Document:
    """Return a trace as a document."""
    first, *lines = headlines(result)
    headings = ("M_tau = 1", "share", "95 % CI", "in D_mem")
    columns = (Column(heading="prompt"), *(Column(heading=h, number=True) for h in headings))
    rows = [
        (
            *(p.prompt, f"{p.replicated:,} of {p.images:,}", f"{percent(p.share)} %"),
            *(f"{percent(p.low)}-{percent(p.high)}", "yes" if p.trigger else "no"),
        )
        for p in result.prompts
    ]
    prompts = Table("Prompts by replicated share", columns, rows)
    figure = Figure("fates", "Grades of the generated images", fates(result))
    return Document(
        title="Memorization: sources of the generated images",
        headline=first,
        lines=(*lines, *cautions(result)),
        tables=(_originals(result), prompts, _matches(result)),
        figures=(figure,),
        notes=(*about(result), *result.notes),
        reading=tuple(reading(result)),
    )


def headlines(result: Trace) -> list[str]:
    """Return the sentences, the most important first."""
    return [headline(result), *_layouts(result), *_shares(result)]


def headline(result: Trace) -> str:
    """Return what was found as one line that can be repeated."""
    total, things = len(result.matches), what(result)
    if not total:
        return f"there are no {things} to trace"
    if not result.compared:
        return (
            f"{total:,} {_several(things, total)} {'are' if total != 1 else 'is'} candidates,"
            " unverified: there was no training set, and a result without one is never called"
            " memorized"
        )
    copies = [match for match in result.verified if match.grade != LAYOUT]
    images = len({match.memorized for match in copies})
    found = f"{len(copies):,} of {total:,} {_several(things, total)}"
    verb = "is a near-duplicate" if len(copies) == 1 else "are near-duplicates"
    if not copies:
        return f"{found} {verb} of images in {listed([each['name'] for each in _sets(result)])}"
    of = f"{images:,} training image{'s' * (images != 1)}"
    names = list(dict.fromkeys(match.source for match in copies))
    return f"{found} {verb} of {of} in {listed(names)}"


def what(result: Trace) -> str:
    """Return what was traced, as a plural."""
    return "clusters" if result.about.get("images") == "medoids" else "generated images"


def _sets(result: Trace) -> Sequence[dict[str, Any]]:
    return result.about.get("sets") or []


def _several(things: str, count: int) -> str:
    return things if count != 1 else things.removesuffix("s")


def _layouts(result: Trace) -> list[str]:
    same = [match for match in result.verified if match.grade == LAYOUT]
    if not same:
        return []
    count, images = len(same), len({match.memorized for match in same})
    verb = "repeat" if count != 1 else "repeats"
    return [
        f"{count:,} {'more ' if len(result.verified) > count else ''}{verb} the layout of"
        f" {images:,} training image{'s' * (images != 1)} in other colours"
    ]


def _shares(result: Trace) -> list[str]:
    share, low, high = result.share
    lines = []
    if not math.isnan(share):
        interval = f"95 % CI {percent(low)}-{percent(high)}" if not math.isnan(low) else "one group"
        lines.append(
            f"{percent(share)} % ({interval}) have M_tau = 1: similarity above tau ="
            f" {result.tau:g} by {result.about['similarity']}"
        )
    if result.prompts:
        triggers = sum(each.trigger for each in result.prompts)
        lines.append(
            f"{triggers:,} of {len(result.prompts):,} prompts are in D_mem: more than"
            f" {percent(float(result.about['kappa_share']))} % of their images have M_tau = 1"
        )
    return lines


def cautions(result: Trace) -> list[str]:
    """Return what must be known of images without a source, a line each."""
    if not compares_images(result):
        return []
    return [recall_line(str(result.about.get("similarity")), "trace")]


def compares_images(result: Trace) -> bool:
    """Whether any training set has images: published embeddings verify nothing."""
    return any(each["pictures"] for each in _sets(result))


def about(result: Trace) -> list[str]:
    """Return what was compared, a line each."""
    lines = [
        f"{each['name']}: {each['images']:,} {'images' if each['pictures'] else 'embeddings'}"
        f" ({cut(str(each['source']) or 'given in memory', LONGEST)})"
        for each in _sets(result)
    ]
    model = (result.about.get("origin") or {}).get("model", {})
    if isinstance(model, dict) and model.get("name"):
        lines.append(f"images of the model {cut(str(model['name']), LONGEST)}")
    if result.about.get("verdicts"):
        lines.append(f"verdicts of people that are counted: {result.about['verdicts']:,}")
    return lines


def reading(result: Trace) -> list[str]:
    """Return how to read the result, a line each."""
    lines = []
    if result.compared:
        lines += [
            "near-duplicate: verification, or a person, calls the closest training image the same"
            " shot; visleak review audit opens the pairs, and the next trace counts the verdicts",
            f"M_tau is about similarity alone (definition 1 of MemBench): tau = {result.tau:g}"
            f" belongs to {result.about['similarity']} and to no other similarity",
        ]
    if result.about.get("layouts") and result.compared:
        lines += [
            "images of one layout count as one memorized image; variants are the images of the"
            " source that are the same or of that layout",
            "layout detection finds 89 to 100 % of planted recolourings, and none of 31,125 pairs"
            " of different photographs (below 0.013 % with 95 % confidence); it never judges images"
            " of up to 48 pixels",
        ]
    return lines


def _originals(result: Trace) -> Table:
    known = any(each.category for each in result.originals)
    columns = (
        Column(heading="memorized image"),
        Column(heading="source"),
        *(Column(heading=name, number=True) for name in ("variants", "matches", "prompts")),
        Column(heading="how", number=True),
        Column(heading="category" if known else "", number=True),
    )
    rows = [
        (
            *(_named(each), each.source, each.variants, each.matches, each.prompts),
            *("layout in other colours" if each.layout else "copied", each.category),
        )
        for each in result.originals
    ]
    return Table("Memorized images", columns, rows, file=CSV)


def _named(each: Original) -> str:
    more = len(each.references) - 1
    return cut(each.references[0], 60) + (f" and {more:,} more" if more else "")


def _matches(result: Trace) -> Table:
    order = sorted(result.matches, key=lambda each: (not each.verified, each.memorized or 0))
    columns = (
        Column(heading="image"),
        Column(heading="prompt"),
        Column(heading="size", number=True),
        Column(heading="closest", number=True),
        Column(heading="similarity", show="{:.3f}".format, number=True),
        Column(heading="grade", number=True),
        Column(heading="prob.", show=chance, number=True),
        Column(heading="counts", number=True),
    )
    rows = [
        (
            *(each.image, each.prompt, each.size),
            None if each.reference is None else f"{each.source}/{each.reference}",
            each.similarity,
            None
            if each.reference is None
            else f"{each.grade or 'unverified'}{f' ({each.judged})' if each.judged else ''}",
            each.probability,
            None if each.memorized is None else f"memorized {each.memorized}",
        )
        for each in order
    ]
    return Table("Generated images", columns, rows, file=CSV)


def fates(result: Trace) -> dict[str, bytes]:
    """Return bars of how many images are copies, of the same layout, or neither."""
    total = len(result.matches)
    kinds = (
        ("near-duplicates", "near", ("exact", "near")),
        ("same layout, other colours", "soft", ("layout",)),
        ("not verified", "different", ()),
    )
    bars = []
    for name, colour, grades in kinds:
        count = sum(
            match.grade in grades if match.verified else not grades for match in result.matches
        )
        bars.append(Bar.of_rate(name, colour, Rate.of(count, total)))
    return bar_chart(bars, "trace", label="generated images, %")


def content(run: RunFolder, result: Trace) -> dict[str, object]:
    """Return the content of ``trace.json``."""
    similarity = str(result.about.get("similarity"))
    recall = recall_of(similarity, "trace") if compares_images(result) else None
    return run.document(headline(result), result, recall=recall)


def files(result: Trace) -> dict[str, File]:
    """Return the table and the page of a trace, by name of file."""
    return {CSV: table(result), SUMMARY: markdown(document(result))}


def table(result: Trace) -> pa.Table:
    """Return a row per generated image."""
    text, whole, real, flag = pa.string(), pa.int64(), pa.float64(), pa.bool_()
    schema = {
        "image": text, "prompt": text, "size": whole, "source": text, "reference": text,
        "similarity": real, "grade": text, "probability": real, "verified": flag,
        "memorized": whole, "layout_variants": whole, "category": text,
        "nearest_similarity": real, "structure": real, "colour_difference": real,
        "judged": text, "reason": text,
    }  # fmt: skip
    originals = {each.number: each for each in result.originals}
    rows = []
    for match in result.matches:
        original = None if match.memorized is None else originals.get(match.memorized)
        rows.append(
            (
                *(match.image, match.prompt, match.size, match.source, match.reference),
                *(match.similarity, match.grade, match.probability, match.verified),
                match.memorized,
                None if original is None else original.variants,
                None if original is None else original.category,
                *(match.nearest, match.structure, match.colour, match.judged, match.reason),
            )
        )
    columns = tuple(Column(name, kind) for name, kind in schema.items())
    return Table("Generated images", columns, rows, file=CSV).arrow()
