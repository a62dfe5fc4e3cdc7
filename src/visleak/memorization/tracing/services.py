"""Reverse image search as a plug-in: an object that the user names, and nothing by default.

What comes back is text of strangers: it is kept as text, bounded, escaped wherever it is shown,
and never fetched. An address without its picture verifies nothing.
"""

from __future__ import annotations

import importlib
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from PIL import Image

from visleak.errors import UsageError, VisleakError
from visleak.images import decode
from visleak.images.request import writable
from visleak.memorization.tracing.queries import Queries
from visleak.memorization.tracing.sources import Answer, Hit
from visleak.pipeline.workplace import Progress
from visleak.records import Bytes8, ImageSet, Unreadable

#: Most results of one image that are kept, and characters of each.
MOST: Final = 20
LONGEST: Final = 2000

#: What is said of a result.
REASON: Final = "found by a search service; its picture was not fetched, so nothing is verified"


class Service:
    """A search service of the user.

    The object has ``name``; ``sends``, one line that says what goes where; and ``find``, which
    takes a list of PNG files as bytes and returns, for each, a sequence of results: addresses, or
    mappings with ``url`` and perhaps ``similarity``.

    Args:
        thing: the object.
        named: how the user named it, for messages.

    Raises:
        UsageError: the object lacks one of these.
    """

    training = False

    def __init__(self, thing: Any, named: str) -> None:
        self._thing, self._named = thing, named
        self.name = self._line("name", 100)
        self.sends = self._line("sends", 300)
        if not callable(getattr(thing, "find", None)):
            raise UsageError(
                f"--service {named}: the object lacks find, the method from PNG files to results;"
                f" it is a {type(thing).__name__}"
            )

    def about(self) -> Mapping[str, object]:
        """Return how it is called and what it is sent."""
        return {"name": self.name, "service": self._named, "sends": self.sends}

    def find(self, queries: Queries, images: Sequence[str], progress: Progress) -> Answer:
        """Send pictures and return the addresses that come back.

        Raises:
            VisleakError: the service fails, or answers something else.
        """
        if queries.images is None or not images:
            return Answer((), {})
        files, gone = _files(queries.images, images)
        hits = []
        for done, (image, file) in enumerate(files.items()):
            progress(f"asking {self.name}", done, len(files))
            hits += [
                Hit(image, self.name, url, similarity, reason=REASON)
                for url, similarity in self._asked(file)
            ]
        progress(f"asking {self.name}", len(files), len(files))
        notes = (f"{gone:,} images could not be read and were not sent to {self.name}",)
        return Answer(hits, {}, notes if gone else ())

    def _asked(self, file: bytes) -> Iterable[tuple[str, float]]:
        try:
            answers = list(self._thing.find([file]))
            results = list(answers[0]) if len(answers) == 1 else None
        except Exception as error:
            said = " ".join(str(error).split())[:200]
            raise VisleakError(
                f"--service {self._named} failed ({type(error).__name__}: {said})"
            ) from error
        if results is None:
            raise VisleakError(
                f"--service {self._named} answered {len(answers)} lists of results for 1 picture"
            )
        return [self._result(each) for each in results[:MOST]]

    def _result(self, each: Any) -> tuple[str, float]:
        url = each.get("url") if isinstance(each, Mapping) else each
        if not isinstance(url, str) or not url.strip():
            raise VisleakError(
                f"--service {self._named} returned a result without an address: {each!r:.80}"
            )
        told = each.get("similarity") if isinstance(each, Mapping) else None
        number = isinstance(told, int | float) and not isinstance(told, bool)
        similarity = float(told) if number and told is not None else math.nan
        shown = "".join(c if c.isprintable() else " " for c in url.strip())[:LONGEST]
        return writable(shown), similarity if math.isfinite(similarity) else math.nan

    def _line(self, attribute: str, longest: int) -> str:
        text = getattr(self._thing, attribute, None)
        if not isinstance(text, str) or not text.strip() or not text.isprintable():
            raise UsageError(
                f"--service {self._named}: the object needs {attribute}, one line of text; got"
                f" {text!r:.80}"
            )
        return text.strip()[:longest]


def load_service(text: str) -> Service:
    """Return the service that ``package.module:object`` names; a class is called without arguments.

    Raises:
        UsageError: there is no such object, or it is no service.
    """
    module, _, path = text.partition(":")
    if not module or not path:
        raise UsageError(f"--service is package.module:object; got {text!r}")
    try:
        thing: Any = importlib.import_module(module)
        for part in path.split("."):
            thing = getattr(thing, part)
        made = thing() if isinstance(thing, type) else thing
    except Exception as error:  # whatever the user's module raises
        said = " ".join(str(error).split())[:200]
        raise UsageError(
            f"--service {text} cannot be loaded ({type(error).__name__}: {said})"
        ) from error
    return Service(made, text)


def _files(images: ImageSet, wanted: Sequence[str]) -> tuple[dict[str, bytes], int]:
    """Return pictures as PNG, encoded anew so that nothing but pixels leaves, and how many lack."""
    ids = images.ids.to_pylist()
    place = {name: at for at, name in enumerate(ids)}
    positions = sorted(place[name] for name in wanted)
    found: dict[str, bytes] = {}
    for at, stored in zip(positions, images.opener.read(positions), strict=True):
        picture = stored if isinstance(stored, Unreadable) else decode(stored)
        if not isinstance(picture, Unreadable):
            found[ids[at]] = _png(picture.pixels)
    return found, len(positions) - len(found)


def _png(pixels: Bytes8) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()
