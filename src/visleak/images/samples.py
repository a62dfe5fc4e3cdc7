"""The samples of one WebDataset shard: which members belong together, and what they say."""

from __future__ import annotations

import json
import re
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Any, Final

from visleak.images.archive import takes_member
from visleak.images.archive_tar import TarStream, head_of, link_target, members_of
from visleak.images.formats import SUFFIXES
from visleak.images.listing import Listing, ending_of, is_hidden, is_picture
from visleak.images.request import writable

#: Side files that say something of a sample, by the end of their extension.
CAPTIONS: Final = ("txt", "caption")

#: A side file with more bytes is not read.
MAX_SIDE_BYTES: Final = 1 << 20

#: Extensions of pictures, the usual ones first; of several in a sample the first is taken.
PICTURES: Final = (
    *("jpg", "jpeg", "png", "webp"),
    *sorted({suffix[1:] for suffix in SUFFIXES} - {"jpg", "jpeg", "png", "webp"}),
)

#: Key and extension of a member, as the webdataset library parts them.
_MEMBER: Final = re.compile(r"((?:.*/|)[^.]+)[.]([^/]*)", re.DOTALL)


@dataclass
class Sample:
    """The members of one key.

    Attributes:
        key: path up to the first dot of the file's name.
        places: extension, lower case, to offset and size.
        side: what the side files say: ``cls``, ``txt`` and ``caption`` as text, ``json`` parsed.
        images: the extensions of ``places`` that are images: by the extension, else by content.
    """

    key: str
    places: dict[str, tuple[int, int]] = field(default_factory=dict)
    side: dict[str, Any] = field(default_factory=dict)
    images: list[str] = field(default_factory=list)

    def picture(self, wanted: str | None) -> str | None:
        """Return the extension of the picture: the wanted one, else the likeliest."""
        if wanted is not None:
            wanted = wanted.lower().lstrip(".")
            return wanted if wanted in self.places else None
        usual = (ending for ending in PICTURES if ending in self.places)
        ends = (e for e in self.images if e.rpartition(".")[2] in PICTURES)
        return next(chain(usual, ends, self.images), None)

    def left_out(self, chosen: str) -> Iterator[str]:
        """Yield the kinds of the members that are not the chosen image and say nothing of it."""
        for ending in self.places:
            if ending != chosen:
                yield f".{ending}" if ending in self.images else ending_of(f"x.{ending}")


def collect(stream: TarStream, shown: str, samples: list[Sample], listing: Listing) -> None:
    """Append the samples of a shard, in which members of one key stand next to each other.

    Those before any damage are there when it raises.

    Args:
        stream: the shard.
        shown: how messages call it.
        samples: is appended to.
        listing: counts what is in no sample: hidden images and members without an extension.
    """
    regular: dict[str, tuple[int, int]] = {}
    for member in members_of(stream, shown):
        place = _place(member, regular)
        if place is None:
            continue
        key, ending = key_and_ending(member.name)
        if not key:
            if not _is_meta(member.name):
                takes_member(listing, member.name, bytes)
            continue
        if not samples or samples[-1].key != key:
            samples.append(Sample(key))
        sample = samples[-1]
        if ending in ("cls", "json", *CAPTIONS):
            if member.isreg() and member.size <= MAX_SIDE_BYTES:
                sample.side[ending] = _read_side(stream, member, ending)
        else:
            sample.places[ending] = place
            if is_picture(f"x.{ending}", partial(head_of, stream, member)):
                sample.images.append(ending)


def key_and_ending(name: str) -> tuple[str, str]:
    """Return the key of a member and its ending, lower case; both empty for what is no sample's.

    >>> key_and_ending("a/00.seg.PNG"), key_and_ending("__index__")
    (('a/00', 'seg.png'), ('', ''))
    >>> key_and_ending("a/._00.png")
    ('', '')
    """
    parted = _MEMBER.fullmatch(name)
    hidden = any(is_hidden(part) for part in name.split("/") if part not in ("", ".", ".."))
    if parted is None or hidden or _is_meta(name):
        return "", ""
    return parted[1], parted[2].lower()


def _is_meta(name: str) -> bool:
    """Whether a member says something of the shard."""
    last = name.rpartition("/")[2]
    return last.startswith("__") and last.endswith("__")


def _place(member: tarfile.TarInfo, regular: dict[str, tuple[int, int]]) -> tuple[int, int] | None:
    """Return where a member's bytes lie; ``None`` for what is no file."""
    if member.islnk() or member.issym():
        return regular.get(link_target(member))
    if not member.isreg() or member.issparse():
        return None
    place = (member.offset_data, member.size)
    regular[member.name] = place
    return place


def _read_side(stream: TarStream, member: tarfile.TarInfo, ending: str) -> Any:
    """Return what a side file says; ``None`` where it is no text or no JSON object."""
    stream.seek(member.offset_data)
    data = stream.read(member.size)
    try:
        if ending == "json":
            content = json.loads(data)
            return content if isinstance(content, dict) else None
        return writable(data.decode("utf-8").strip())
    except (ValueError, RecursionError):
        return None


def field_of(side: Mapping[str, Any], name: str) -> str | None:
    """Return a field of the JSON side file as text."""
    value = (side.get("json") or {}).get(name)
    if isinstance(value, bool) or not isinstance(value, str | int):
        return None
    return writable(str(value))


def label_of(side: Mapping[str, Any], wanted: str | None) -> str | None:
    """Return the label: the wanted field, else ``.cls``, else the usual fields of ``.json``."""
    if wanted is not None and wanted != "cls":
        return field_of(side, wanted)
    if side.get("cls"):
        return str(side["cls"])
    names = ("cls",) if wanted else ("label_name", "label", "cls")
    return next((text for name in names if (text := field_of(side, name)) is not None), None)


def caption_of(side: Mapping[str, Any]) -> str | None:
    """Return the caption: ``.txt`` or ``.caption``, else the field of ``.json``."""
    text = next((str(side[name]) for name in CAPTIONS if side.get(name)), None)
    return field_of(side, "caption") if text is None else text
