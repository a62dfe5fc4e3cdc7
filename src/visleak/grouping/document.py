"""The groups that an audit inferred, as a document."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import Final

from visleak.quantities import counted
from visleak.reporting import Document, Figure
from visleak.reporting.charts import decay_chart
from visleak.reporting.document import Fact, Table
from visleak.storage.audit_folder import GroupingSummary, Hypothesis, SharedGroups, SideGroups

#: Frames per second with which a span of frames is put in seconds: that of most video.
RATE: Final = 30
#: Groups that are named in a line.
SOME: Final = 3
#: One and several of what a kind puts together.
NOUNS: Final = {
    "recordings": ("recording", "recordings"),
    "shots": ("series of shots", "series of shots"),
    "copies": ("original", "originals"),
    "subjects": ("subject", "subjects"),
    "tiles": ("scene", "scenes"),
    "places": ("place", "places"),
    "bursts": ("burst", "bursts"),
}
#: What images of a test set are to a training set, by kind.
_RELATIONS: Final = {
    "recordings": "are of recordings that are also in",
    "shots": "were taken next to an image of",
    "copies": "are copies of images that also have copies in",
    "subjects": "are of subjects that are also in",
    "tiles": "are of scenes that are also in",
    "places": "were taken at places of images of",
    "bursts": "are of bursts that are also in",
}
_READING: Final = (
    "A pattern is believed only if the images confirm it: images that it puts together must be"
    " more similar than others of their class. The p-value is that of a permutation test.",
    "An independent unit is a group, or a stretch of shots of a camera without a gap. Results on"
    " images of few units vary more than their number of images suggests.",
    "No gate and no remedy uses these groups unless it is given --group auto.",
)


def document(found: GroupingSummary, folder: str = "", *, repairs: bool = True) -> Document:
    """Return what groups were found, why they are believed, and what they mean.

    Args:
        found: the summary of an audit.
        folder: the audit folder, for commands.
        repairs: the split that was audited can be repaired.
    """
    statements = tuple(line for each in found.believed for line in sentences(each))
    given = enumerate(commands(found, folder, repairs=repairs))
    return Document(
        "Groups found unasked",
        headline(found),
        lines=statements,
        tables=(_hypotheses(found.hypotheses), _sides(found.believed), _shared(found.believed)),
        figures=tuple(decay_figures(found)),
        facts=tuple(Fact("" if number else "next", command) for number, command in given),
        reading=_READING if statements else (),
    )


def headline(found: GroupingSummary) -> str:
    """Return what groups mean for the test sets, in one line.

    >>> one = SharedGroups("val", "train", groups=1, queries=9)
    >>> side = SideGroups("val", 10, 10, 1, 1)
    >>> headline(GroupingSummary(hypotheses=(Hypothesis(
    ...     "recordings", believed=True, sides=(side,), shared=(one,)),)))
    '9 of 10 val images are of recordings that are also in train'
    """
    parts = [
        f"{_reached(each, one):,} of {_side_of(each, one).images:,} {one.query_set} images"
        f" {_RELATIONS[each.kind]} {one.reference_set}"
        for each in found.believed
        for one in each.shared
        if _reached(each, one)
    ]
    if parts:
        return "; ".join(parts)
    if not found.believed:
        return "names state no groups that the images confirm"
    if any(each.shared for each in found.believed):
        return "no group of a test set is in a training set"
    return "; ".join(belief(each) for each in found.believed)


def _reached(each: Hypothesis, one: SharedGroups) -> int:
    """Return the query images with a training image of their group."""
    return (one.close or 0) if each.kind == "shots" else one.queries


def _side_of(each: Hypothesis, one: SharedGroups) -> SideGroups:
    return next(side for side in each.sides if side.set == one.query_set)


def facts(found: GroupingSummary) -> Iterator[Fact]:
    """Yield the lines of the summary of an audit."""
    for each in found.believed:
        if each.source == "source":
            continue  # groups that are given have lines of their own
        for number, line in enumerate(sentences(each)):
            leaks = any(one.queries for one in each.shared)
            yield Fact("" if number else f"found {each.kind}", line, "caution" if leaks else "")


def belief(each: Hypothesis) -> str:
    """Return what a hypothesis states.

    >>> belief(Hypothesis("recordings", "<recording>_<frame>", groups=5, unit="frames", step=30))
    '<recording>_<frame>: 5 recordings, frames 30 apart'
    """
    one, several = NOUNS.get(each.kind, ("group", "groups"))
    text = f"{each.words}: {each.groups:,} {one if each.groups == 1 else several}"
    if each.kind == "recordings" and each.step is not None:
        text += f", frames {span(each.step, each.unit)} apart"
    return text


def sentences(each: Hypothesis) -> Iterator[str]:
    """Yield what a believed hypothesis means, one line for each query set first."""
    shared = {one.query_set for one in each.shared}
    for one in each.shared:
        side = _side_of(each, one)
        yield f"{_units(each, side)}{_leak(each, one)}"
    for side in each.sides:
        if side.set not in shared and not each.shared:
            yield _units(each, side)
    yield f"believed: {belief(each)}; {each.why}"


def _units(each: Hypothesis, side: SideGroups) -> str:
    one, several = NOUNS[each.kind]
    noun = one if side.groups == 1 else several
    text = f"{side.set}: {counted(side.covered, 'image')} of {side.groups:,} {noun}"
    if each.kind == "recordings" and side.groups == 1 and side.span:
        text += f", {_spanned(side.span, each.unit)}"
    if each.kind == "shots":
        text = f"{side.set}: {counted(side.covered, 'image')} with the number of a camera"
    return f"{text}; {counted(side.units, 'independent unit')}"


def _spanned(value: int, unit: str | None) -> str:
    """Return a span from the first to the last frame in words.

    >>> _spanned(200, "frames"), _spanned(6_700, "ms")
    ('201 frames long (6.7 s at 30 frames per second)', '6.7 s long')
    """
    if unit == "ms":
        return f"{span(value, unit)} long"
    return f"{value + 1:,} frames long ({value / RATE:,.1f} s at {RATE} frames per second)"


def span(value: int, unit: str | None) -> str:
    """Return a distance of frames in words.

    >>> span(30, "frames"), span(1500, "ms")
    ('30', '1.5 s')
    """
    return f"{value / 1000:,.10g} s" if unit == "ms" else f"{value:,}"


def _leak(each: Hypothesis, one: SharedGroups) -> str:
    side = _side_of(each, one)
    if not one.queries:
        return f"; none is in {one.reference_set}"
    if each.kind == "shots":
        gap = span(each.gap or 0, each.unit)
        return (
            f"; {one.close or 0:,} of {side.images:,} images were taken next to an image of"
            f" {one.reference_set} (at most {gap} apart)"
        )
    what = NOUNS[each.kind][one.groups != 1]
    verb = "is" if one.groups == 1 else "are"
    named = ", ".join(name or "(all)" for name, _ in one.named[:SOME])
    more = f" and {one.groups - SOME:,} more" if one.groups > SOME else ""
    text = (
        f"; {one.groups:,} {what} ({named}{more}) {verb} also in {one.reference_set}:"
        f" {one.queries:,} of {side.images:,} {one.query_set} images"
    )
    if one.least is not None and one.median is not None:
        least, median = span(one.least, each.unit), span(one.median, each.unit)
        text += f", the nearest frames {least} apart (median {median})"
    return text


def options(each: Hypothesis) -> str:
    """Return the options that repeat a hypothesis, as they may be pasted into a shell."""
    if each.source == "column" and not each.words.startswith("column DICOM"):
        return shlex.join(["--group", each.words.removeprefix("column ")])
    if not each.group:
        return ""
    given = ["--group", f"/{each.group}/"]
    if each.frame:
        given += ["--frame", f"/{each.frame}/"]
    if each.gap is not None and each.unit == "frames":
        given += ["--max-frame-gap", str(each.gap)]
    elif each.gap is not None:
        given += ["--max-time-gap", f"{each.gap / 1000:g}"]
    return shlex.join(given)


def commands(found: GroupingSummary, folder: str, *, repairs: bool) -> Iterator[str]:
    """Yield commands that use the groups."""
    if not found.believed or not folder:
        return
    place = shlex.quote(folder)
    if repairs and any(one.queries for each in found.believed for one in each.shared):
        yield f"visleak split --repair {place} --group auto --yes"
    yield from (f"audit with {text}" for each in found.believed if (text := options(each)))


# -- tables and figures ---------------------------------------------------------------------------


def _hypotheses(found: Sequence[Hypothesis]) -> Table:
    rows = []
    for each in found:
        believed = ("yes", each.why) if each.believed else ("no", each.why)
        shown = options(each) if each.believed else ""
        rows.append((each.kind, each.words, *believed, each.covered, each.groups, shown))
    headings = ("what", "pattern", "believed", "why", "images", "groups", "options")
    title = "What names may mean, and whether the images confirm it"
    return Table.of(title, headings, rows, 5, show={"why": str, "options": str})


def _sides(found: Sequence[Hypothesis]) -> Table:
    headings = ("set", "what", "images", "in groups", "groups", "independent units")
    rows = [
        (side.set, each.kind, side.images, side.covered, side.groups, side.units)
        for each in found
        for side in each.sides
    ]
    return Table.of("Groups and independent units by set", headings, rows, 2)


def _shared(found: Sequence[Hypothesis]) -> Table:
    rows = [
        (f"{one.query_set} and {one.reference_set}", name or "(all)", count)
        for each in found
        for one in each.shared
        for name, count in one.named
    ]
    title = "Groups in both sets, those with the most images first"
    return Table.of(title, ("sets", "group", "query images"), rows, 2)


def decay_figures(found: GroupingSummary | None) -> Iterator[Figure]:
    """Yield how similarity decays over the distance of frames, and the distance that is chosen."""
    for number, each in enumerate(found.believed if found is not None else ()):
        if len(each.decay) > 1 and each.gap is not None and each.base is not None:
            bars = [(bar.up_to, bar.similarity) for bar in each.decay]
            axis = "milliseconds between frames" if each.unit == "ms" else "frames between images"
            title = (
                f"Similarity over the distance of frames; half of its excess is left at"
                f" {span(each.gap, each.unit)}"
            )
            files = decay_chart(bars, each.base, each.gap, axis, f"decay {number}")
            yield Figure(f"decay-{number}", title, files)
