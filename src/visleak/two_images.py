"""Whether two images are the same image, without an audit folder."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from visleak.auditing import audit
from visleak.errors import UsageError, VisleakError
from visleak.rates import chance
from visleak.reporting import Document
from visleak.settings import Settings

#: What one of the two images may be: a file, or pixels.
Image = str | os.PathLike[str] | object


@dataclass(frozen=True, slots=True)
class Same:
    """How two images compare."""

    grade: str  # ``exact``, ``near``, ``similar`` or ``different``
    probability: float  # that a careful person calls them near or exact
    similarity: float  # of their fingerprints, from -1 to 1
    transform: str  # what was done to one of them, such as ``mirrored``; empty where nothing was
    reason: str  # for the grade


def same(first: Image, second: Image, *, settings: Settings | None = None) -> Same:
    """Compare two images.

    Args:
        first, second: files, or images as :func:`visleak.audit` takes them in a list.
        settings: as of an audit.

    Returns:
        The grade of the pair, as an audit gives it: it depends on the pair alone.

    Raises:
        UsageError: a file does not exist.
        VisleakError: an image cannot be read, or is blank.

    >>> import visleak
    >>> visleak.same("a.jpg", "copy.png").grade  # doctest: +SKIP
    'near'
    """
    chosen = settings or Settings()
    found = audit(_one(first), _one(second), settings=chosen, within=False, cache=None, workers=1)
    rows = found.pairs().to_pylist()
    if not rows:
        if any(each.flat for each in found.summary.sets):
            raise VisleakError("one of the two images is blank; blank images have no grade")
        nearest = found.images()["nearest_similarity"].drop_null()
        similarity = float(nearest[0].as_py()) if len(nearest) else 0.0
        return Same("different", 0.0, similarity, "", "not similar")
    row = rows[0]
    grade = row["grade"] or "different"
    reason, transform = row["reason"] or "", row["transform"] or ""
    return Same(grade, row["probability"] or 0.0, row["similarity"], transform, reason)


def document(found: Same) -> Document:
    """Return the comparison for people."""
    done = f", {found.transform}" if found.transform else ""
    numbers = f"probability {chance(found.probability)}, similarity {found.similarity:.3f}"
    return Document("Two images", f"{found.grade}{done}: {found.reason}", lines=(numbers,))


def _one(image: Image) -> Sequence[object]:
    if isinstance(image, str | os.PathLike):
        path = Path(image)
        if not path.is_file():
            raise UsageError(f"{path} is not a file; give two images")
        return [str(path)]
    return [image]
