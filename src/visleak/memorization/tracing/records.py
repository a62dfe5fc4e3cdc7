"""What tracing finds: which image, if any, a generated image is a copy of.

What memorized images show, as a person wrote it down.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from visleak.delimited import opened_table
from visleak.errors import UsageError, VisleakError
from visleak.storage import csv_text

#: Verdict on a pair whose structure agrees after any recolouring, and whose colours do not.
LAYOUT: Final = "layout"

#: What a memorized image may show (Hong et al. 2024, section 4).
CATEGORIES: Final = ("commercial product", "human", "artwork", "other")


@dataclass(frozen=True, slots=True)
class Match:
    """The best source of one generated image.

    Attributes:
        image: id of the generated image, as in the audited set.
        prompt: that made it.
        size: images in its cluster.
        source: name of the source that was asked.
        reference: id of the source's image, or ``None`` where nothing was found.
        similarity: of the two, by the similarity that the trace names.
        grade: ``exact``, ``near``, ``similar``, ``different``, ``layout`` (structure agrees after
            any recolouring, colours do not), or ``""`` where there were no images to verify.
        probability: that a careful person calls the pair near or exact; ``None`` without images.
        verified: whether it counts as memorized: near or exact, of the same layout, or so judged
            by a person.
        memorized: number of the memorized image: one for all matches whose references are the same
            image or of the same layout; ``None`` where it does not count.
        reason: one line in words.
        nearest: similarity to the most similar image of all sources that were compared, whichever
            the best match is; NaN where none was. M_tau = 1 where it is above tau.
        structure: how far the structure of the two stands out, see
            :func:`visleak.memorization.tracing.layout.standing_out`; ``None`` if not measured.
        colour: mean difference of colours in place (CIE76); ``None`` if not measured.
        judged: ``human`` or ``disputed`` where people judged the pair, else empty.
    """

    image: str
    prompt: str
    size: int
    source: str
    reference: str | None
    similarity: float
    grade: str
    probability: float | None
    verified: bool
    memorized: int | None
    reason: str = ""
    nearest: float = float("nan")
    structure: float | None = None
    colour: float | None = None
    judged: str = ""


@dataclass(frozen=True, slots=True)
class Original:
    """One memorized image: a source image, with those that are the same or of its layout.

    Attributes:
        number: from 0, in the order of the matches.
        source: name of the source of the first reference.
        references: ids (SOURCE/id where there are several sources) that matches were verified
            against, the closest first.
        variants: different images of the sources that are the same or of the same layout.
        matches: generated images that repeat it.
        prompts: that made them.
        layout: it is repeated in other colours only.
        category: of :data:`CATEGORIES`, where the user said so.
    """

    number: int
    source: str
    references: tuple[str, ...]
    variants: int
    matches: int
    prompts: int
    layout: bool
    category: str = ""


@dataclass(frozen=True, slots=True)
class Replication:
    """How often the images of one prompt replicate a training image.

    Attributes:
        prompt: its text.
        images: traced ones.
        replicated: those with M_tau = 1.
        share: of them.
        low, high: ends of its 95 % Wilson interval.
        trigger: whether the share is above ``kappa_share``: the prompt is in D_mem.
    """

    prompt: str
    images: int
    replicated: int
    share: float
    low: float
    high: float
    trigger: bool


@dataclass(frozen=True)
class Trace:
    """What became of all generated images that were traced.

    Attributes:
        folder: with ``trace.json``, ``trace.csv`` and the audit folder ``audit``, which
            ``visleak review`` and ``visleak report`` open.
        about: sources, similarity, tau and settings, as plain data.
        matches: one per generated image.
        memorized: distinct memorized images among those verified.
        tau: M_tau(x) = 1 if some training image has a similarity above tau (definition 1).
        share: of traced images with M_tau = 1, with ``low`` and ``high`` of its 95 % interval;
            NaN where no source could be compared.
        originals: the memorized images.
        prompts: shares by prompt, where all images were traced; else empty.
        notes: what a reader has to know beside.
        key: of everything that was asked but verdicts; equal keys are equal requests.
    """

    folder: Path
    about: dict[str, Any]
    matches: tuple[Match, ...]
    memorized: int
    tau: float
    share: tuple[float, float, float]
    originals: tuple[Original, ...] = ()
    prompts: tuple[Replication, ...] = ()
    notes: tuple[str, ...] = ()
    key: str = ""

    @property
    def verified(self) -> tuple[Match, ...]:
        """The matches that count as memorized."""
        return tuple(match for match in self.matches if match.verified)

    @property
    def asked(self) -> bool:
        """Whether any training set was asked; without one nothing is called memorized."""
        return bool(self.about.get("sets"))


@dataclass(frozen=True, slots=True)
class Hit:
    """A possible source of a generated image.

    Attributes:
        image: id of the generated image.
        source: name of the set that has it.
        reference: id there.
        similarity: by the similarity of the trace; NaN where it was not measured.
        grade: of :data:`visleak.records.GRADES`, or ``layout``; empty without images.
        probability: as in the audit; ``None`` without images.
        reason: one line in words.
        judged: ``human``, ``disputed`` or empty.
        view: of the generated image that was compared.
        tiny: both are images of up to 48 pixels.
        digest: content digest of the source's image; empty where it is not known.
        structure, colour: as in :class:`Match`.
        refused: why a grade of near does not count; empty where it does.
    """

    image: str
    source: str
    reference: str
    similarity: float
    grade: str = ""
    probability: float | None = None
    reason: str = ""
    judged: str = ""
    view: str = "original"
    tiny: bool = False
    digest: str = ""
    structure: float | None = None
    colour: float | None = None
    refused: str = ""

    @property
    def copy(self) -> bool:
        """Whether it counts as a copy of the source's image."""
        return self.grade in ("exact", "near") and not self.refused


@dataclass(frozen=True)
class Answer:
    """What the sets say of generated images.

    Attributes:
        hits: possible sources, in any order.
        nearest: similarity to the most similar image of the source, by generated image; images
            that were not compared are left out.
        notes: what a reader has to know, one line each.
    """

    hits: Sequence[Hit]
    nearest: Mapping[str, float]
    notes: tuple[str, ...] = ()


#: Columns by which a row may name what it is about, the first that is there.
KEYS: Final = ("reference", "image", "prompt")


@dataclass(frozen=True)
class Categories:
    """Categories by reference, generated image or prompt.

    Attributes:
        key: one of :data:`KEYS`.
        words: category of each, of :data:`visleak.memorization.tracing.records.CATEGORIES`.
        origin: file they were read from.
    """

    key: str
    words: Mapping[str, str]
    origin: str

    def told(self, trace: Trace) -> Trace:
        """Return a trace whose memorized images have their category.

        Where rows disagree on one memorized image, the first match with a category decides, and a
        note says so. Rows about nothing that was verified are counted in a note.
        """
        used: set[str] = set()
        notes = list(trace.notes)
        found = []
        for each in trace.originals:
            words = self._of(each, trace.matches, used)
            if len(set(words)) > 1:
                notes.append(
                    f"memorized image {each.number} has several categories in {self.origin}:"
                    f" {', '.join(dict.fromkeys(words))}; the first is taken"
                )
            found.append(replace(each, category=words[0] if words else ""))
        unused = len(self.words) - len(used)
        if unused:
            notes.append(f"{unused:,} rows of {self.origin} are about no memorized image")
        return replace(trace, originals=tuple(found), notes=tuple(notes))

    def _of(self, original: Original, matches: tuple[Match, ...], used: set[str]) -> list[str]:
        names = [
            str(getattr(match, self.key)) for match in matches if match.memorized == original.number
        ]
        names = [name for name in names if name in self.words]
        used.update(names)
        return [self.words[name] for name in names]


def read_categories(path: str | os.PathLike[str]) -> Categories:
    """Read a CSV file of categories.

    Raises:
        UsageError: there is no such file.
        VisleakError: it lacks a column, or a category is none of the four.
    """
    file = Path(path)
    if not file.is_file():
        raise UsageError(f"categories {file} is not a file; give a CSV file")
    try:
        with opened_table(file) as (lines, delimiter):
            reader = csv.DictReader(lines, delimiter=delimiter)
            names = reader.fieldnames or ()
            key = next((name for name in KEYS if name in names), None)
            if key is None or "category" not in names:
                raise VisleakError(
                    f"{file} needs the column category, and one of {', '.join(KEYS)}; it has"
                    f" {', '.join(names) or 'none'}"
                )
            words = {}
            for row in reader:
                word = (row["category"] or "").strip().lower()
                if word and word not in CATEGORIES:
                    raise VisleakError(
                        f"{file}, line {reader.line_num}: category is one of"
                        f" {', '.join(CATEGORIES)}; got {word!r:.60}"
                    )
                if word and row[key]:
                    words[csv_text(row[key])] = word
    except (OSError, ValueError, csv.Error) as error:
        raise VisleakError(f"{file} cannot be read as CSV ({error})") from error
    return Categories(key, words, file.name)
