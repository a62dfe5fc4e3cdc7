"""WebDataset: shards of tar archives in which members of one key are a sample.

A shard is listed in one pass, in which only headers and small side files are read. Images are read
forward too, so no shard needs random access.
"""

from __future__ import annotations

import json
import os
import re
import tarfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, pairwise
from pathlib import Path
from typing import Final, cast

import pyarrow as pa
import pyarrow.compute as pc

from visleak.errors import UsageError, VisleakError, one_line
from visleak.formats.archives import (
    DAMAGE,
    MemberSelection,
    TarOpener,
    TarStream,
    copy_tar,
    head_of,
    is_link,
    link_target,
    lists_member,
    members_of,
    tar_opener,
)
from visleak.formats.files import (
    TOGETHER,
    JoinedOpener,
    as_unreadable,
    joined_opener,
    remote_places,
)
from visleak.formats.folders import read_list
from visleak.formats.frames import read_frames
from visleak.formats.listing import Listing, ending_of, globbed, is_hidden, is_image
from visleak.formats.remote import StoreError, folder_of, is_address, redacted
from visleak.formats.request import Request, writable
from visleak.formats.sources import TARS, has_wildcards, locate, without_tar
from visleak.formats.writing import Destination, OutputPart, OutputSource, Selection, file_names
from visleak.images.encodings import SUFFIXES
from visleak.quantities import counted
from visleak.records import ImageSet, Problem

#: Extensions of side files with the caption of a sample.
CAPTIONS: Final = ("txt", "caption")
MAX_SIDE_BYTES: Final = 1 << 20  # a side file with more bytes is not read
#: Extensions of images, the usual ones first; of several in a sample the first is taken.
IMAGE_EXTENSIONS: Final = (
    *("jpg", "jpeg", "png", "webp"),
    *sorted({suffix[1:] for suffix in SUFFIXES} - {"jpg", "jpeg", "png", "webp"}),
)
#: Key and extension of a member, as the webdataset library parts them.
_MEMBER: Final = re.compile(r"((?:.*/|)[^.]+)[.]([^/]*)", re.DOTALL)
COLUMNS: Final = ("key", "id", "label", "caption", "group", "frame")  # what is known of a sample
MAX_SHARDS: Final = 1_000_000  # a pattern that stands for more shards is refused
_NUMBERS: Final = re.compile(r"(-?\d+)\.\.(-?\d+)")
_LETTERS: Final = re.compile(r"([A-Za-z])\.\.([A-Za-z])")


@dataclass
class Sample:
    """The members of one key."""

    key: str  # path up to the first dot of the file's name
    # extension, lower case, to offset and size
    places: dict[str, tuple[int, int]] = field(default_factory=dict)
    # content of the side files: cls, txt and caption as text, json parsed
    side: dict[str, object] = field(default_factory=dict)
    # the extensions of places that are images: by the extension, else by content
    images: list[str] = field(default_factory=list)

    def image(self, wanted: str | None) -> str | None:
        """Return the extension of the image: the chosen one, else the most usual."""
        if wanted is not None:
            wanted = wanted.lower().lstrip(".")
            return wanted if wanted in self.places else None
        usual = (ending for ending in IMAGE_EXTENSIONS if ending in self.places)
        ends = (e for e in self.images if e.rpartition(".")[2] in IMAGE_EXTENSIONS)
        return next(chain(usual, ends, self.images), None)

    def left_out(self, chosen: str) -> Iterator[str]:
        """Yield the endings of the members that are neither the chosen image nor side files."""
        for ending in self.places:
            if ending != chosen:
                yield f".{ending}" if ending in self.images else ending_of(f"x.{ending}")

    def columns(self, request: Request) -> dict[str, str | None]:
        """Return the content of the side files by the names of :data:`COLUMNS`."""
        about, wanted = self.side.get("json"), request.columns

        def stated(name: str) -> str | None:
            value = about.get(name) if isinstance(about, dict) else None
            if isinstance(value, bool) or not isinstance(value, str | int | float):
                return None
            # of floats, seconds are meant
            is_text = not isinstance(value, float) or name == wanted.get("frame")
            return writable(str(value)) if is_text else None

        def first(files: Sequence[str], fields: Sequence[str]) -> str | None:
            texts = (str(self.side[name]) for name in files if self.side.get(name))
            known = (text for name in fields if (text := stated(name)) is not None)
            return next(chain(texts, known), None)

        found = {option: stated(name) for option, name in wanted.items()}
        if request.label in (None, "cls"):
            fields = ("cls",) if request.label else ("label_name", "label", "cls")
            found["label"] = first(["cls"], fields)
        return {**found, "key": writable(self.key), "caption": first(CAPTIONS, ["caption"])}


@dataclass(frozen=True)
class Shard:
    """The samples of a shard."""

    name: str  # its path or address, without secrets
    # text columns key, id, label, caption, group, frame; one row per sample with an image, in the
    # order of the images' bytes
    table: pa.Table
    opener: TarOpener  # reads their images
    problems: tuple[Problem, ...]  # what cannot be used
    skipped: Mapping[str, int]  # number of members that are not listed, by ending

    def keys(self, name: str, mark: str) -> pa.StringArray:
        """Return the keys, each behind a name."""
        keys = self.table["key"].combine_chunks()
        return pc.binary_join_element_wise(name, keys, mark).cast(pa.string())


def is_shard_list(path: Path) -> bool:
    """Whether a text file names tar archives and nothing else."""
    if not path.is_file() or path.suffix.lower() != ".txt":
        return False
    names = read_list(path)
    return bool(names) and all(name.lower().endswith(TARS) for name in names)


def open_webdataset(request: Request) -> ImageSet:
    """List the samples of WebDataset shards: a brace pattern, a glob, a union, or one shard.

    Ids are the keys, with the shard's name before them where a key is in two shards. Labels
    come from ``.cls``, captions from ``.txt`` or ``.caption``, both else from ``.json``.
    ``?image=EXT`` chooses the image of samples that have several.
    """
    try:
        shards = shards_of_pattern(request.place)
    except StoreError as error:
        raise VisleakError(f"source {request.text!r} cannot be listed: {error}") from error
    return _shards_set(shards, request)


def open_shard_list(request: Request) -> ImageSet:
    """List the samples of the shards that a text file names, one a line, relative to its folder."""
    names, folder = read_list(request.place), folder_of(request.place)
    places = remote_places(request, names, folder)
    local = [os.path.join(folder, name) for name in names]
    return _shards_set(local if places is None else places.to_pylist(), request)


def write_webdataset(part: OutputPart, place: Destination) -> OutputSource:
    """Write the shards of a part under their names: all members of the samples that are kept."""
    (piece,) = part.pieces
    opener = cast(JoinedOpener, piece.images.opener)
    shards = cast("tuple[TarOpener, ...]", opener.parts)
    if len(shards) > 1 and re.search(r"[*?\[\]{}]", str(place.final)):
        raise UsageError(
            f"the output {place.final} has a name that a pattern of shards takes for wildcards;"
            " choose another -o DIR"
        )
    names = [place.below(part, name) for name in file_names([shard.path for shard in shards])]
    for number, (shard, name) in enumerate(zip(shards, names, strict=True)):
        start, end = int(opener.starts[number]), int(opener.starts[number + 1])
        choice = _sample_selection(piece, shard, start, end)
        copy_tar(shard.path, place.made(name), choice, place, f"{part.name} {number}")
    ending = next(end for end in sorted(TARS, key=len)[::-1] if names[0].lower().endswith(end))
    image = locate(piece.images.source).options.get("image")
    return OutputSource(
        names[0] if len(names) == 1 else place.below(part),
        before="wds:",
        after=(f"/*{ending}" if len(names) > 1 else "") + (f"?image={image}" if image else ""),
        options=piece.images.options,
        renamed=True,
    )


def collect(stream: TarStream, shown: str, samples: list[Sample], listing: Listing) -> None:
    """Append the samples of a shard, in which members of one key stand next to each other.

    Those before any damage are there when it raises.
    """
    files: dict[str, tuple[int, int]] = {}
    for member in members_of(stream, shown):
        if is_link(member):
            place = files.get(link_target(member))
        elif member.isreg() and not member.issparse():
            place = files[member.name] = (member.offset_data, member.size)
        else:
            place = None
        if place is None:
            continue
        key, ending = key_and_ending(member.name)
        if not key:
            if not _is_meta(member.name):
                lists_member(listing, member.name, bytes)
            continue
        if not samples or samples[-1].key != key:
            samples.append(Sample(key))
        sample = samples[-1]
        if ending in ("cls", "json", *CAPTIONS):
            if member.isreg() and member.size <= MAX_SIDE_BYTES:
                sample.side[ending] = _read_side(stream, member, ending)
        else:
            sample.places[ending] = place
            if is_image(f"x.{ending}", partial(head_of, stream, member)):
                sample.images.append(ending)


def key_and_ending(name: str) -> tuple[str, str]:
    """Return the key of a member and its ending, lower case; both empty for members of no sample.

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
    last = name.rpartition("/")[2]
    return last.startswith("__") and last.endswith("__")


def _read_side(stream: TarStream, member: tarfile.TarInfo, ending: str) -> object:
    """Return the content of a side file; ``None`` if it is neither text nor a JSON object."""
    stream.seek(member.offset_data)
    data = stream.read(member.size)
    try:
        if ending == "json":
            content = json.loads(data)
            return content if isinstance(content, dict) else None
        return writable(data.decode("utf-8").strip())
    except (ValueError, RecursionError):
        return None


def _shards_set(shards: Sequence[str], request: Request) -> ImageSet:
    request.refuse_split()
    request.refuse_options("image", "remote")
    if any(map(is_address, shards)):  # a store answers one late, but many at once
        with ThreadPoolExecutor(TOGETHER) as threads:
            listings = list(threads.map(partial(_list_shard, request=request), shards))
    else:
        listings = [_list_shard(shard, request) for shard in shards]
    problems = [problem for listing in listings for problem in listing.problems]
    kept = [listing for listing in listings if listing.table.num_rows]
    if not kept:
        request.refuse_empty(problems[0].detail if problems else "the shards are empty")
    table = pa.concat_tables([listing.table for listing in kept]).combine_chunks()
    for option, value in request.columns.items():
        nulls = table[option].null_count
        if nulls == table.num_rows or (option == "id" and nulls):
            some = f"{counted(nulls, 'sample', 'does', 'do')} not have"
            raise UsageError(
                f"{option} {value!r}: {'no sample has' if nulls == table.num_rows else some} this"
                f" in the .json beside the image of {request.text}"
            )
    # a column that is null throughout is unknown
    known = {
        name: table[name].combine_chunks()
        for name in ("label", "caption", "group", "frame")
        if table[name].null_count < table.num_rows
    }
    frames = known.pop("frame", None)
    what = f"{request.text}: field {request.frame!r}"
    return request.image_set(
        table["id"].combine_chunks() if request.id is not None else _unique_keys(kept),
        pa.concat_arrays([shard.keys(shard.name, "!") for shard in kept]),
        joined_opener([shard.opener for shard in kept], [len(shard.table) for shard in kept]),
        **{f"{name}s": column for name, column in known.items()},
        frames=None if frames is None else read_frames(frames, what),
        problems=problems,
        skipped=sum((Counter(each.skipped) for each in listings), Counter()),
    )


def _list_shard(shard: str, request: Request) -> Shard:
    """Return the samples of a shard; damage and a missing file are its problems."""
    shown = writable(redacted(shard))
    samples: list[Sample] = []
    problems: list[Problem] = []
    others = Listing()
    stamp: str | None = ""

    def report(key: str, reason: str, detail: str) -> None:
        name, locator = (writable(key), f"{shown}!{writable(key)}") if key else (shown, shown)
        problems.append(Problem(request.name, name, locator, reason, writable(detail)))

    try:
        with TarStream(shard) as stream:
            stamp = stream.stamp
            collect(stream, redacted(shard), samples, others)
    except (FileNotFoundError, PermissionError, IsADirectoryError, StoreError) as error:
        why = as_unreadable(error)
        report("", why.reason, f"the shard cannot be read: {why.detail}")
    except DAMAGE as error:
        kept = f"the {len(samples):,} samples before are kept"
        report("", "corrupt", f"the shard is damaged: {one_line(error)}; {kept}")
    wanted = request.options.get("image")
    found: dict[str, tuple[tuple[int, int], Sample]] = {}
    for sample in samples:
        chosen = sample.image(wanted)
        if chosen is None:
            has = ", ".join(map(writable, (*sample.places, *sample.side))) or "none"
            detail = f"the sample holds no {wanted or 'image'}; its members: {has}"
            report(sample.key, "missing", detail)
            continue
        if sample.key in found:
            raise VisleakError(
                f"shard {redacted(shard)} holds the key {writable(sample.key)!r} twice; the"
                " members of a sample must stand next to each other, and no two samples have one"
                " key"
            )
        found[sample.key] = sample.places[chosen], sample
        others.skipped.update(sample.left_out(chosen))
    # a link lies where its target lies; reading must stay ascending
    rows = sorted(found.values(), key=lambda row: row[0][0])
    table = pa.Table.from_pylist(
        [sample.columns(request) for _, sample in rows],
        pa.schema([(name, pa.string()) for name in COLUMNS]),
    )
    opener = tar_opener(shard, [place for place, _ in rows], stamp)
    return Shard(shown, table, opener, tuple(problems), others.skipped)


def _unique_keys(shards: Sequence[Shard]) -> pa.StringArray:
    """Return the keys; where a key is in two shards, with its shard's file, else path, before."""
    keys = pa.chunked_array([shard.table["key"].combine_chunks() for shard in shards])
    if pc.count_distinct(keys).as_py() == len(keys):
        return keys.combine_chunks()
    names = [without_tar(shard.name) for shard in shards]
    short = [name.rpartition("/")[2] for name in names]
    names = short if len(set(short)) == len(short) else names
    return pa.concat_arrays([s.keys(name, "/") for s, name in zip(shards, names, strict=True)])


def expanded(pattern: str) -> list[str]:
    """Return the expansion of a brace pattern, in the order of a shell.

    >>> expanded("{a,b}-{08..10}.tar")[:4]
    ['a-08.tar', 'a-09.tar', 'a-10.tar', 'b-08.tar']
    """
    texts = [""]
    for choices in _pieces(pattern):
        if len(texts) * len(choices) > MAX_SHARDS:
            raise _refusal(pattern, f"it stands for more than {MAX_SHARDS:,} shards")
        texts = [text + choice for text in texts for choice in choices]
    return texts


def _pieces(pattern: str) -> list[list[str]]:
    pieces: list[list[str]] = []
    depth, cuts = 0, [-1]  # where the text before a brace, or an alternative inside, begins
    for place, letter in enumerate(pattern):
        if letter == "{" and not depth:
            pieces.append([pattern[cuts[0] + 1 : place]])
            cuts = [place]
        elif letter == "}" and depth == 1:
            parts = [pattern[i + 1 : j] for i, j in pairwise([*cuts, place])]
            pieces.append(_choices(parts, pattern))
            cuts = [place]
        elif letter == "," and depth == 1:
            cuts.append(place)
        depth += (letter == "{") - (letter == "}")
        if depth < 0:
            raise _refusal(pattern, "a } has no {")
    if depth:
        raise _refusal(pattern, "a { has no }")
    return [*pieces, [pattern[cuts[0] + 1 :]]]


def _choices(parts: Sequence[str], pattern: str) -> list[str]:
    """Return the alternatives of a list or a range in braces."""
    if len(parts) > 1:
        return [text for part in parts for text in expanded(part)]
    (inside,) = parts
    if found := _LETTERS.fullmatch(inside):
        first, last = map(ord, found.groups())
        return [chr(code) for code in _span(first, last)]
    if not (found := _NUMBERS.fullmatch(inside)):
        raise _refusal(pattern, f"{{{inside}}} is neither a list {{a,b}} nor a range {{000..146}}")
    first, last = map(int, found.groups())
    if abs(last - first) >= MAX_SHARDS:
        raise _refusal(pattern, f"{{{inside}}} stands for more than {MAX_SHARDS:,} shards")
    padded = any(re.match(r"-?0\d", end) for end in found.groups())
    width = max(map(len, found.groups())) if padded else 0
    return [f"{number:0{width}d}" for number in _span(first, last)]


def _span(first: int, last: int) -> range:
    step = 1 if last >= first else -1
    return range(first, last + step, step)


def _refusal(whole: str, why: str) -> UsageError:
    return UsageError(f"pattern {redacted(whole)!r}: {why}")


def shards_of_pattern(text: str) -> list[str]:
    """Return the shards that a pattern names, in its order; what a glob finds is sorted.

    Shards that braces name need not exist; a glob finds what is there.
    """
    found: list[str] = []
    for part in text.split("::"):
        for name in [part] if os.path.exists(part) else expanded(part):
            magic = has_wildcards(name) and not os.path.exists(name)
            shards = globbed(name, *TARS) if magic else [name]
            if not shards:
                raise UsageError(f"source {redacted(name)!r}: no shard matches")
            found += shards
    twice = next((name for name, count in Counter(found).items() if count > 1), None)
    if twice is not None:
        raise UsageError(f"source {redacted(text)!r} names the shard {redacted(twice)} twice")
    return found


def _sample_selection(piece: Selection, shard: TarOpener, start: int, end: int) -> MemberSelection:
    """Return the selection in one shard, whose samples are those from ``start`` to ``end``."""
    prefix = len(f"{writable(redacted(shard.path))}!")
    keys = [text.as_py()[prefix:] for text in piece.images.locators[start:end]]
    staying = {int(at) for at in piece.keep if start <= at < end}
    removed = {key for at, key in enumerate(keys, start) if at not in staying}
    stands = {
        (int(shard.offsets[at - start]), keys[at - start]): stand.stored
        for at, stand in piece.instead.items()
        if start <= at < end
    }

    def key_of(member: tarfile.TarInfo) -> str:
        return writable(key_and_ending(member.name)[0])

    return MemberSelection(
        lambda member: key_of(member) not in removed,
        lambda member: cast("bytes | None", stands.get((member.offset_data, key_of(member)))),
    )
