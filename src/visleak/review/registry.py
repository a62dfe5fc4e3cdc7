"""Images for the pages: read by position, checked by content, cached, and encoded.

The address of an image contains a keyed hash only. Its meaning was stored when a page was created,
so nothing that a client sends reaches a disk.
"""

from __future__ import annotations

import hashlib
import html
import io
import secrets
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from PIL import Image

from visleak.errors import VisleakError
from visleak.images import content_digest, decode
from visleak.records import AnySet, Bytes8, EmbeddingSet, ImageSet, Unreadable
from visleak.reporting.gallery import Kind, Marks, difference, laid_over, marks, shrink

#: Long side of the images of a pair, of one laid over the other, of differences, and of
#: thumbnails, in pixels.
LONG: Final = 1600
LAID: Final = 1000
DIFFERENCE: Final = 800
SMALL: Final = 240

#: Bytes of decoded images that are kept.
BUDGET: Final = 256 * 1024 * 1024

#: Addresses that are remembered.
ADDRESSES: Final = 50_000

#: Reading ahead begins when one of this many images that are wanted next is missing. Then all
#: that are wanted are read in one pass, because a pass through a stream is dear.
SOON: Final = 12

#: Images of at most this many pixels are sent without loss.
LOSSLESS: Final = 256 * 256
QUALITY: Final = 95

Name = tuple[str, str]


@dataclass(frozen=True, slots=True)
class ShownImage:
    """A decoded image, no larger than can be shown, and how large it really is."""

    pixels: Bytes8
    width: int
    height: int


@dataclass(frozen=True, slots=True)
class ImageView:
    """The meaning of an address."""

    # ``whole`` or ``small`` of one image; ``plain``, ``aligned`` or ``laid`` of two: their
    # difference as they are, their difference once the query is laid over the reference, and the
    # query laid over the reference. ``marks`` of two: boxes, not an image.
    kind: str
    images: tuple[Name, ...]
    # nine floats, query to reference in unit coordinates; ``None`` for none
    matrix: tuple[float, ...] | None = None
    marked: Kind = "places"


class ImageRegistry:
    """The images of some sets. Safe for several threads."""

    def __init__(
        self,
        opened: Callable[[str], AnySet],
        # hex; a verdict on another content than that of the audit would be wrong
        digest_of: Callable[[str, str], str | None],
        budget: int = BUDGET,
    ) -> None:
        self._opened = opened
        self._digest_of = digest_of
        self._budget = budget
        self._secret = secrets.token_bytes(32)
        self._views: OrderedDict[str, ImageView] = OrderedDict()
        self._kept: OrderedDict[Name, ShownImage] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()
        self._reading: dict[str, threading.Lock] = {}
        self._waiting: Counter[str] = Counter()
        self._wanted: list[Name] = []
        self._wake = threading.Condition()
        self._closed = False
        self._reader = threading.Thread(target=self._read_ahead, daemon=True)
        self._reader.start()

    # -- addresses --------------------------------------------------------------------------------

    def url(self, set_name: str, image: str) -> str:
        """Return the address of an image."""
        return self.address(ImageView("whole", ((set_name, image),)))

    def small(self, set_name: str, image: str) -> str:
        """Return the address of a thumbnail."""
        return self.address(ImageView("small", ((set_name, image),)))

    def address(self, view: ImageView) -> str:
        """Return the address under which something can be seen while the server runs."""
        key = hashlib.blake2b(repr(view).encode("utf-8", "backslashreplace"), key=self._secret)
        name = key.hexdigest()[:32]
        with self._lock:
            self._views[name] = view
            self._views.move_to_end(name)
            while len(self._views) > ADDRESSES:
                self._views.popitem(last=False)
        return f"/{'marks' if view.kind == 'marks' else 'image'}/{name}"

    def view(self, name: str) -> ImageView | None:
        """Return the meaning of the last part of an address, or ``None``."""
        with self._lock:
            return self._views.get(name)

    def encoded(self, view: ImageView) -> tuple[bytes, str]:
        """Return something to see as a file, and its media type; a placeholder says why not."""
        pixels = []
        for name in view.images:
            found = self.image(*name)
            if isinstance(found, Unreadable):
                return placeholder(found), "image/svg+xml"
            pixels.append(found.pixels)
        return encode(_seen(view, pixels))

    def marks(self, view: ImageView) -> Marks | None:
        """Return where two images differ; ``None`` if one of them cannot be read."""
        query, reference = (self.image(*name) for name in view.images)
        if isinstance(query, Unreadable) or isinstance(reference, Unreadable):
            return None
        matrix = np.reshape(view.matrix or np.eye(3), (3, 3))
        return marks(query.pixels, reference.pixels, matrix, view.marked)

    # -- reading ----------------------------------------------------------------------------------

    def image(self, set_name: str, image: str) -> ShownImage | Unreadable:
        """Return an image, at most :data:`LONG` pixels wide and high, or why there is none."""
        return self._images(set_name, [image])[image]

    def ahead(self, names: Iterable[Name]) -> None:
        """Set the images that will be needed next, in place of earlier ones."""
        wanted = list(dict.fromkeys(names))
        with self._lock:
            here = all(name in self._kept for name in wanted[:SOON])
        with self._wake:
            self._wanted = [] if here else wanted
            self._wake.notify()

    def close(self) -> None:
        """End reading ahead."""
        with self._wake:
            self._closed = True
            self._wake.notify()
        self._reader.join(timeout=5)

    def _read_ahead(self) -> None:
        while True:
            with self._wake:
                while not (self._wanted or self._closed):
                    self._wake.wait()
                if self._closed:
                    return
                batch, self._wanted = self._wanted, []
            for set_name in dict.fromkeys(name for name, _ in batch):
                images = [image for name, image in batch if name == set_name]
                self._images(set_name, images, patient=True)

    def _images(
        self, set_name: str, images: Sequence[str], *, patient: bool = False
    ) -> dict[str, ShownImage | Unreadable]:
        """Return images of one set, read in one pass; a patient call stops for others."""
        found: dict[str, ShownImage | Unreadable] = {}
        with self._lock:
            reading = self._reading.setdefault(set_name, threading.Lock())
        if self._take(set_name, images, found):
            return found
        with self._lock:
            self._waiting[set_name] += not patient
        # openers read for one caller at a time
        with reading:
            with self._lock:
                self._waiting[set_name] -= not patient
            if not self._take(set_name, images, found):
                missing = [image for image in images if image not in found]
                for image, shown in self._read(set_name, missing):
                    found[image] = shown
                    if isinstance(shown, ShownImage):
                        self._keep((set_name, image), shown)
                    if patient and (self._waiting[set_name] or self._closed):
                        break
        return found

    def _take(
        self, set_name: str, images: Sequence[str], found: dict[str, ShownImage | Unreadable]
    ) -> bool:
        """Take what is kept; return whether that is all."""
        with self._lock:
            for image in images:
                kept = self._kept.get((set_name, image))
                if kept is not None:
                    self._kept.move_to_end((set_name, image))
                    found[image] = kept
        return all(image in found for image in images)

    def _keep(self, name: Name, shown: ShownImage) -> None:
        with self._lock:
            self._kept[name] = shown
            self._bytes += shown.pixels.nbytes
            while self._bytes > self._budget and len(self._kept) > 1:
                _, old = self._kept.popitem(last=False)
                self._bytes -= old.pixels.nbytes

    def _read(
        self, set_name: str, images: Sequence[str]
    ) -> Iterator[tuple[str, ShownImage | Unreadable]]:
        """Yield images of a set, in the order in which they are stored."""
        left = dict.fromkeys(images)
        try:
            opened = self._opened(set_name)
            if isinstance(opened, EmbeddingSet):
                raise VisleakError("the set holds embeddings only")
            places = dict(sorted(_places(opened, images).items(), key=itemgetter(1)))
            data = opened.opener.read(list(places.values()))
            for image, stored in zip(places, data, strict=True):
                del left[image]
                yield image, self._shown(stored, self._digest_of(set_name, image))
            lost = Unreadable("missing", "it is no longer in the set")
        except (VisleakError, OSError) as error:
            lost = Unreadable("io-error", str(error))
        for image in left:
            yield image, lost

    @staticmethod
    def _shown(stored: bytes | Bytes8 | Unreadable, digest: str | None) -> ShownImage | Unreadable:
        if isinstance(stored, Unreadable):
            return stored
        if digest is not None and content_digest(stored).hex() != digest:
            return Unreadable(
                "missing", "its content has changed since the audit; run the audit again"
            )
        image = decode(stored, enough=LONG // 2)
        if isinstance(image, Unreadable):
            return image
        return ShownImage(shrink(image.pixels, LONG), image.width, image.height)


def _places(images: ImageSet, wanted: Sequence[str]) -> dict[str, int]:
    """Return where images are in a set; those that it does not have are left out."""
    if len(wanted) > 4:
        found = pc.fill_null(pc.index_in(pa.array(wanted, pa.string()), images.ids), -1).to_pylist()
    else:
        # for few ids a scan is cheaper than an index of all
        found = [pc.index(images.ids, image).as_py() for image in wanted]
    return {image: place for image, place in zip(wanted, found, strict=True) if place >= 0}


def _seen(view: ImageView, pixels: Sequence[Bytes8]) -> Bytes8:
    if view.kind == "whole":
        return pixels[0]
    if view.kind == "small":
        return shrink(pixels[0], SMALL)
    query, reference = pixels
    if view.kind == "laid":
        return laid_over(query, shrink(reference, LAID), view.matrix)
    matrix = view.matrix if view.kind == "aligned" else None
    return difference(query, reference, matrix, fit=view.kind == "aligned", side=DIFFERENCE)


def encode(pixels: Bytes8) -> tuple[bytes, str]:
    """Return pixels as a file, and its media type: small ones as PNG, others as JPEG."""
    out = io.BytesIO()
    kind = "PNG" if pixels.shape[0] * pixels.shape[1] <= LOSSLESS else "JPEG"
    image = Image.fromarray(np.ascontiguousarray(pixels))
    image.save(out, kind, quality=QUALITY, subsampling=0)
    return out.getvalue(), f"image/{kind.lower()}"


def placeholder(lost: Unreadable) -> bytes:
    """Return a placeholder with the reason why there is no image."""
    words = f"{lost.reason}: {lost.detail}" if lost.detail else lost.reason
    lines = [words[start : start + 34] for start in range(0, min(len(words), 34 * 5), 34)]
    spans = "".join(
        f'<text x="120" y="{96 + 18 * row}">{html.escape(line)}</text>'
        for row, line in enumerate(lines)
    )
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 240 240" width="240" height="240">'
        '<rect width="240" height="240" fill="#7d848d"/><g fill="#fff" text-anchor="middle"'
        ' font-family="sans-serif" font-size="12"><text x="120" y="66" font-size="15"'
        f' font-weight="bold">no image</text>{spans}</g></svg>'
    ).encode("utf-8", "backslashreplace")
