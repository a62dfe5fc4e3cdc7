"""``visleak find``: is this image in there?"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Final

import pyarrow as pa

from visleak import pipeline
from visleak.auditing import Audit, audit
from visleak.errors import UsageError
from visleak.formats import open_images
from visleak.formats.embeddings import MANIFEST, UNFINISHED, VECTORS
from visleak.formats.files import file_set
from visleak.formats.request import Request
from visleak.pipeline.candidates import BEST
from visleak.pipeline.encoded_set import CHANGED, GONE
from visleak.progress import Progress
from visleak.rates import chance
from visleak.records import GRADES, AnySet, ImageSet
from visleak.reporting import Document
from visleak.reporting.markup import Grid
from visleak.settings import Settings
from visleak.storage import AUDIT, IMAGES, read_table

ASKED: Final = "images asked for"  # name of the set of the images that are searched


@dataclass(frozen=True, slots=True)
class Match:
    """An image that may be the one that is searched."""

    set: str
    id: str
    locator: str | None
    similarity: float  # higher is more similar
    degree: str | None  # ``hard``, ``soft`` or ``None``
    grade: str | None  # of pixel verification; ``None`` if there are only embeddings
    probability: float | None
    reason: str | None

    @property
    def same(self) -> bool:
        """Whether it is the same image: near or exact, or of a degree if it was not verified."""
        return self.degree is not None if self.grade is None else self.grade in GRADES[:2]


@dataclass(frozen=True, slots=True)
class Found:
    """The result for one image."""

    image: str  # the file, as given
    unreadable: str | None  # why it could not be read, or ``None``
    matches: tuple[Match, ...]  # the closest images, most likely ones first
    # pixels or thresholds were available; otherwise only similarities are known
    decided: bool = True
    # unreadable images of the place, by reason; the image may be one of them
    unseen: Mapping[str, int] = field(default_factory=dict)

    @property
    def found(self) -> bool | None:
        """Whether the image was found; ``None`` if it is undecided."""
        if self.decided and any(match.same for match in self.matches):
            return True
        return None if self.unseen or self.unreadable or not self.decided else False

    @property
    def lost(self) -> int:
        """Images of the place that became unreadable during the run."""
        return sum(self.unseen.get(reason, 0) for reason in (GONE, CHANGED))

    def as_dict(self) -> dict[str, object]:
        """Return it as plain values."""
        plain = asdict(self)
        # the key that users have
        plain["told"] = plain.pop("decided")
        return {**plain, "matches": list(plain["matches"]), "found": self.found}


def find(
    images: Sequence[str | os.PathLike[str]],
    place: str | os.PathLike[str],
    *,
    encoder: str = "",
    k: int = 5,
    workers: int | None = None,
    cache: str | os.PathLike[str] | None = "default",
    progress: Progress = pipeline.silent,
) -> list[Found]:
    """Search images in a set, in a folder of embeddings, or in the sets of an audit.

    Args:
        images: image files.
        place: SOURCE, a folder that ``visleak encode`` wrote, or an audit folder.
        encoder: text of the encoder; by default that of the embeddings or of the audit.
        k: most matches per image.
        workers: processes; by default one per core.
        cache: folder of cached results; ``None`` for none.
        progress: called with the progress.

    Raises:
        UsageError: a file or the place does not exist, or ``k`` is out of range.
        VisleakError: no image can be read, or see the message.
    """
    if not 1 <= k <= BEST:
        raise UsageError(f"k must be from 1 to {BEST}; got {k}")
    asked = _asked(images)
    sets, settings = _places(os.fspath(place), encoder)
    result = audit(
        [asked], sets, settings=settings, workers=workers, cache=cache, progress=progress
    )
    problems = result.unreadable()
    gone = {problem.id: problem.reason for problem in problems if problem.set == ASKED}
    unseen = Counter(problem.reason for problem in problems if problem.set != ASKED)
    matches = _matches(result)
    limits = [getattr(result.summary.thresholds, name) is not None for name in ("hard", "soft")]
    found = []
    for image in asked.ids.to_pylist():
        own = tuple(matches.get(image, ())[:k])
        decided = any(limits) or any(match.grade is not None for match in own)
        found.append(Found(image, gone.get(image), own, decided, dict(unseen)))
    return found


def _asked(images: Sequence[str | os.PathLike[str]]) -> ImageSet:
    """Return the images that are searched as a set, each once; their ids are as given."""
    names = list(dict.fromkeys(os.fspath(image) for image in images))
    for name in names:
        if not Path(name).is_file():
            raise UsageError(f"image {name!r} is not a file")
    if not names:
        raise UsageError("give at least one image to look for")
    return file_set(Request(text="", path=Path(), name=ASKED, dataset=ASKED), Path(), names)


def _places(place: str, encoder: str) -> tuple[list[AnySet], Settings]:
    path = Path(place)
    plain = Settings(encoder=encoder, candidates="best", within=False)
    if (path / AUDIT).is_file():
        # with the encoder and thresholds of the audit
        known = Audit(path)
        limits, used = known.summary.thresholds, known.summary.settings
        if not encoder:
            plain = replace(plain, encoder=used.encoder, hard=limits.hard, soft=limits.soft)
        sets = [known.images_of(about.name) for about in known.summary.sets]
        return sets, replace(plain, near_at=used.near_at)
    if path.is_dir() and any((path / name).exists() for name in (MANIFEST, UNFINISHED, VECTORS)):
        place = f"emb:{place}"
    return [open_images(place)], plain


def _matches(result: Audit) -> dict[str, list[Match]]:
    """Return the pairs of each image, most likely the same first, closest first among equals."""
    rows = result.pairs().to_pylist()
    images: pa.Table = read_table(result.folder, IMAGES, ["set", "id", "locator"])
    sets, ids, locators = (images[name].to_pylist() for name in images.column_names)
    where = dict(zip(zip(sets, ids, strict=True), locators, strict=True))
    rank = {grade: place for place, grade in enumerate(GRADES)}
    rows.sort(
        key=lambda row: (
            rank.get(row["grade"], len(GRADES)),
            -(row["probability"] or 0.0),
            -row["similarity"],
            row["reference_set"],
            row["reference"],
        )
    )
    found: dict[str, list[Match]] = {}
    values = ("similarity", "degree", "grade", "probability", "reason")
    for row in rows:
        place = row["reference_set"], row["reference"]
        match = Match(*place, where.get(place), **{name: row[name] for name in values})
        found.setdefault(row["query"], []).append(match)
    return found


def documents(found: Sequence[Found]) -> list[Document]:
    """Return what was found, one document per image."""
    made = [
        Document("Search", f"{each.image}: {_verdict(each)}", tables=(_table(each),))
        for each in found
    ]
    if found and found[0].unseen:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in found[0].unseen.items())
        made.append(Document("Unreadable", f"unreadable, and not compared: {reasons}"))
    return made


def _verdict(each: Found) -> str:
    if each.unreadable is not None:
        return f"cannot be read ({each.unreadable})"
    absent = "not found among the images that could be read" if each.unseen else "not found"
    if not each.matches:
        return f"{absent}; no similar image"
    same = next((match for match in each.matches if match.same), None)
    nearest = f"the nearest has similarity {each.matches[0].similarity:.3f}"
    if same is None and not each.decided:
        return f"{nearest}; no thresholds are known for this encoder, so it is not decided"
    if same is None:
        return f"{absent}; {nearest}"
    # without pixel verification a degree is all there is
    sure = "found" if same.grade is not None else "likely match (similarity only)"
    return f"{sure}: {same.id} of {same.set} ({same.grade or same.degree})"


def _table(each: Found) -> Grid:
    rows = [
        [
            match.grade or match.degree or "-",
            match.set,
            match.id,
            match.reason or "",
            f"{match.similarity:.3f}",
            "-" if match.probability is None else chance(match.probability),
        ]
        for match in each.matches
    ]
    return Grid("matches", ["grade", "set", "image", "reason", "sim.", "prob."], rows, texts=4)
