"""What tracing finds, as a document and as files."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from visleak.memorization.extraction.similarity import recall_line, recall_of
from visleak.quantities import counted, listed
from visleak.rates import Rate, chance, percent
from visleak.reporting import Document, Figure, Table, markdown
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
    probability: float | None  #: that a careful person calls the pair near or exact
    verified: bool  #: it counts as memorized: near or exact, of the same layout, or judged so
    memorized: int | None  #: number of the memorized image; ``None`` where it does not count
    reason: str = ""  #: one line in words
    #: similarity to the most similar image of all sources that were compared, whichever the best
    #: match is; NaN where none was. M_tau = 1 where it is above tau
    nearest: float = float("nan")
    #: how far the structure of the two stands out, see
    #: :func:`visleak.verification.in_place.layout_agreement`; ``None`` if not measured
    structure: float | None = None
    colour: float | None = None  #: mean difference of colours in place (CIE76), if measured
    judged: str = ""  #: ``human`` or ``disputed`` where people judged the pair, else empty


@dataclass(frozen=True, slots=True)
class Original:
    """One memorized image: a source image, with those that are the same or of its layout."""

    number: int  #: from 0, in the order of the matches
    source: str  #: name of the source of the first reference
    references: tuple[str, ...]  #: ids, or SOURCE/id of several sources, the closest first
    variants: int  #: different images of the sources that are the same or of the same layout
    matches: int  #: generated images that repeat it
    prompts: int  #: that made them
    layout: bool  #: it is repeated in other colours only
    category: str = ""  #: of :data:`CATEGORIES`, where the user gave one


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
    prompts: tuple[Replication, ...] = ()  #: where all images were traced; else empty
    notes: tuple[str, ...] = ()  #: what a reader must know, one line each
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
class Findings:
    """What a search of the sets for generated images found."""

    hits: Sequence[Hit]  #: possible sources, in any order
    nearest: Mapping[str, float]  #: similarity to the most similar image, by generated image
    notes: tuple[str, ...] = ()  #: what a reader must know, one line each


#: Files of a trace, and of its section among those of the audit.
CSV: Final = "trace.csv"
SUMMARY: Final = "trace.md"
SECTION: Final = "memorization.json"


def document(result: Trace) -> Document:
    """Return a trace as a document."""
    first, *lines = headlines(result)
    if compares_images(result):
        lines.append(recall_line(str(result.about.get("similarity")), "trace"))
    headings = ("prompt", "M_tau = 1", "share", "95 % CI", "in D_mem")
    rows = [
        (
            *(p.prompt, f"{p.replicated:,} of {p.images:,}", f"{percent(p.share)} %"),
            *(f"{percent(p.low)}-{percent(p.high)}", "yes" if p.trigger else "no"),
        )
        for p in result.prompts
    ]
    prompts = Table.of("Prompts by replicated share", headings, rows)
    return Document(
        title="Memorization: sources of the generated images",
        headline=first,
        lines=tuple(lines),
        tables=(_originals(result), prompts, _matches(result)),
        figures=(Figure("fates", "Grades of the generated images", grade_bars(result)),),
        notes=(*about(result), *result.notes),
        reading=tuple(reading(result)),
    )


def headlines(result: Trace) -> list[str]:
    """Return the sentences, the most important first."""
    return [headline(result), *_further(result)]


def headline(result: Trace) -> str:
    """Return what was found as one line that can be repeated."""
    total, copies = len(result.matches), [m for m in result.verified if m.grade != LAYOUT]
    thing = "cluster" if result.about.get("images") == "medoids" else "generated image"
    if not total:
        return f"there are no {thing}s to trace"
    if not result.compared:
        return (
            f"{counted(total, thing, 'is', 'are')} candidates, unverified: there was no training"
            " set, and a result without one is never called memorized"
        )
    verb = "is a near-duplicate" if len(copies) == 1 else "are near-duplicates"
    found = f"{len(copies):,} of {counted(total, thing)} {verb} of"
    if not copies:
        return f"{found} images in {listed([each['name'] for each in _sets(result)])}"
    images = counted(len({match.memorized for match in copies}), "training image")
    return f"{found} {images} in {listed(dict.fromkeys(match.source for match in copies))}"


def _sets(result: Trace) -> Sequence[dict[str, Any]]:
    return result.about.get("sets") or []


def _further(result: Trace) -> Iterator[str]:
    same = [match for match in result.verified if match.grade == LAYOUT]
    if same:
        more = " more" if len(result.verified) > len(same) else ""
        images = counted(len({match.memorized for match in same}), "training image")
        yield (
            f"{len(same):,}{more} {'repeat' if len(same) != 1 else 'repeats'} the layout of"
            f" {images} in other colours"
        )
    share, low, high = result.share
    if not math.isnan(share):
        interval = f"95 % CI {percent(low)}-{percent(high)}" if not math.isnan(low) else "one group"
        yield (
            f"{percent(share)} % ({interval}) have M_tau = 1: similarity above tau ="
            f" {result.tau:g} by {result.about['similarity']}"
        )
    if result.prompts:
        triggers = sum(each.trigger for each in result.prompts)
        yield (
            f"{triggers:,} of {len(result.prompts):,} prompts are in D_mem: more than"
            f" {percent(float(result.about['kappa_share']))} % of their images have M_tau = 1"
        )


def compares_images(result: Trace) -> bool:
    """Whether any training set has images: published embeddings verify nothing."""
    return any(each["pictures"] for each in _sets(result))


def about(result: Trace) -> Iterator[str]:
    """Yield what was compared, one line each."""
    for each in _sets(result):
        what = "images" if each["pictures"] else "embeddings"
        place = cut(str(each["source"]) or "given in memory", LONGEST)
        yield f"{each['name']}: {each['images']:,} {what} ({place})"
    model = (result.about.get("origin") or {}).get("model", {})
    if isinstance(model, dict) and model.get("name"):
        yield f"images of the model {cut(str(model['name']), LONGEST)}"
    if result.about.get("verdicts"):
        yield f"verdicts of people that are counted: {result.about['verdicts']:,}"


def reading(result: Trace) -> Iterator[str]:
    """Yield how to read the result, one line each."""
    if not result.compared:
        return
    yield (
        "near-duplicate: verification, or a person, calls the closest training image the same"
        " shot; visleak review audit opens the pairs, and the next trace counts the verdicts"
    )
    yield (
        f"M_tau is about similarity alone (definition 1 of MemBench): tau = {result.tau:g}"
        f" belongs to {result.about['similarity']} and to no other similarity"
    )
    if result.about.get("layouts"):
        yield (
            "images of one layout count as one memorized image; variants are the images of the"
            " source that are the same or of that layout"
        )
        yield (
            "layout detection finds 89 to 100 % of planted recolourings, and none of 31,125 pairs"
            " of different photographs (below 0.013 % with 95 % confidence); it never judges images"
            " of up to 48 pixels"
        )


def _originals(result: Trace) -> Table:
    known = any(each.category for each in result.originals)
    names = ("memorized image", "source", "variants", "matches", "prompts", "how", "category")
    rows = []
    for each in result.originals:
        more = len(each.references) - 1
        name = cut(each.references[0], 60) + (f" and {more:,} more" if more else "")
        how = "layout in other colours" if each.layout else "copied"
        counts = (each.variants, each.matches, each.prompts)
        rows.append((name, each.source, *counts, how, each.category))
    hidden = () if known else ("category",)
    return Table.of("Memorized images", names, rows, 2, hidden=hidden, file=CSV)


def _matches(result: Trace) -> Table:
    names = ("image", "prompt", "size", "closest", "similarity", "grade", "prob.", "counts")
    rows = []
    for each in sorted(result.matches, key=lambda m: (not m.verified, m.memorized or 0)):
        closest = grade = None
        if each.reference is not None:
            closest = f"{each.source}/{each.reference}"
            grade = (each.grade or "unverified") + (f" ({each.judged})" if each.judged else "")
        counts = None if each.memorized is None else f"memorized {each.memorized}"
        found = (closest, each.similarity, grade, each.probability, counts)
        rows.append((each.image, each.prompt, each.size, *found))
    show = {"similarity": "{:.3f}".format, "prob.": chance}
    return Table.of("Generated images", names, rows, 2, show=show, file=CSV)


def grade_bars(result: Trace) -> dict[str, bytes]:
    """Return bars of how many images are copies, of the same layout, or neither."""
    grades = [match.grade if match.verified else "" for match in result.matches]
    kinds = (
        ("near-duplicates", "near", ("exact", "near")),
        ("same layout, other colours", "soft", (LAYOUT,)),
        ("not verified", "different", ("",)),
    )
    bars = [
        Bar.of_rate(name, colour, Rate.of(sum(map(kind.__contains__, grades)), len(grades)))
        for name, colour, kind in kinds
    ]
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
    originals: dict[int | None, Original] = {each.number: each for each in result.originals}
    rows = []
    for match in result.matches:
        row = {name: getattr(match, name, None) for name in schema}
        row |= {"nearest_similarity": match.nearest, "colour_difference": match.colour}
        if (original := originals.get(match.memorized)) is not None:
            row |= {"layout_variants": original.variants, "category": original.category}
        rows.append(row)
    return pa.Table.from_pylist(rows, schema=pa.schema(list(schema.items())))
