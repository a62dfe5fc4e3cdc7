"""The samples of one WebDataset shard: which members belong together, and what they say."""

from __future__ import annotations

import json
import re
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from visleak.images.archive_tar import TarStream, link_target, members_of
from visleak.images.formats import SUFFIXES
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
    """

    key: str
    places: dict[str, tuple[int, int]] = field(default_factory=dict)
    side: dict[str, Any] = field(default_factory=dict)

    def picture(self, wanted: str | None) -> tuple[int, int] | None:
        """Return where the picture lies: the wanted extension's, else the likeliest."""
        if wanted is not None:
            return self.places.get(wanted.lower().lstrip("."))
        for ending in PICTURES:
            if ending in self.places:
                return self.places[ending]
        ends = (e for e in self.places if e.rpartition(".")[2] in PICTURES)
        first = next(ends, None)
        return None if first is None else self.places[first]


def collect(stream: TarStream, shown: str, samples: list[Sample]) -> None:
    """Append the samples of a shard, in which members of one key stand next to each other.

    Those before any damage are there when it raises.
    """
    regular: dict[str, tuple[int, int]] = {}
    for member in members_of(stream, shown):
        key, ending = key_and_ending(member.name)
        place = _place(member, regular) if key else None
        if place is None:
            continue
        if not samples or samples[-1].key != key:
            samples.append(Sample(key))
        sample = samples[-1]
        if ending in ("cls", "json", *CAPTIONS):
            if member.isreg() and member.size <= MAX_SIDE_BYTES:
                sample.side[ending] = _read_side(stream, member, ending)
        else:
            sample.places[ending] = place


def key_and_ending(name: str) -> tuple[str, str]:
    """Return the key of a member and its ending, lower case; both empty for what is no sample's.

    >>> key_and_ending("a/00.seg.PNG"), key_and_ending("__index__")
    (('a/00', 'seg.png'), ('', ''))
    """
    parted = _MEMBER.fullmatch(name)
    last = name.rpartition("/")[2]
    if parted is None or (last.startswith("__") and last.endswith("__")):
        return "", ""
    return parted[1], parted[2].lower()


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
