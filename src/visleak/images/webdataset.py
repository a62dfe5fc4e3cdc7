"""WebDataset: shards of tar archives in which the members of one basename are one sample.

Listed in one pass a shard, in which only headers and small side files are read; what is packed
or remote is streamed. Reading goes forward, too, so no shard ever needs random access.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from visleak.errors import UsageError, VisleakError
from visleak.images.addresses import folder_of, is_address, redacted
from visleak.images.archive import DAMAGE, TARS, said
from visleak.images.archive_tar import TarOpener, TarStream
from visleak.images.fetching import TOGETHER, remote_places
from visleak.images.folder import why_not
from visleak.images.frames import read_frames
from visleak.images.joining import joined_opener
from visleak.images.listing import Listing
from visleak.images.lists import read_list
from visleak.images.patterns import shards_of_pattern
from visleak.images.request import Request, writable
from visleak.images.samples import Sample, caption_of, collect, field_of, label_of
from visleak.images.stores import StoreError
from visleak.records import ImageSet, Problem


@dataclass(frozen=True)
class Shard:
    """What a shard holds.

    Attributes:
        place: its path or address.
        keys, labels, captions, groups, frames, ids: Arrow string arrays, a row a sample with a
            picture.
        opener: reads their pictures.
        problems: (key or empty, reason, detail) of what cannot be used.
        skipped: number of members that are not listed, by ending.
    """

    place: str
    keys: pa.StringArray
    labels: pa.StringArray
    captions: pa.StringArray
    groups: pa.StringArray
    frames: pa.StringArray
    ids: pa.StringArray
    opener: TarOpener
    problems: tuple[tuple[str, str, str], ...]
    skipped: Mapping[str, int]


def open_webdataset(request: Request) -> ImageSet:
    """List the samples of WebDataset shards: a brace pattern, a glob, a union, or one shard.

    Ids are the keys, with the shard's name before them where a key is in two shards. Labels
    come from ``.cls``, captions from ``.txt`` or ``.caption``, both else from ``.json``.
    ``?image=EXT`` chooses the picture of samples that have several.

    Raises:
        UsageError: the pattern is none, matches nothing or names a shard twice.
        VisleakError: no shard holds a picture, or one holds a key twice.
    """
    try:
        shards = shards_of_pattern(request.place)
    except StoreError as error:
        raise VisleakError(f"source {request.text!r} cannot be listed: {error}") from error
    return _set_of(shards, request)


def open_shard_list(request: Request) -> ImageSet:
    """List the samples of the shards that a text file names, one a line, relative to its folder.

    Raises:
        VisleakError, UsageError: see :func:`open_webdataset`.
    """
    names, folder = read_list(request.place), folder_of(request.place)
    places = remote_places(request, names, folder)
    if places is None:
        return _set_of([os.path.join(folder, name) for name in names], request)
    return _set_of(places.to_pylist(), request)


def _set_of(shards: Sequence[str], request: Request) -> ImageSet:
    request.refuse_split()
    request.refuse_options("image", "remote")
    if any(map(is_address, shards)):  # a store answers one late, but many at once
        with ThreadPoolExecutor(TOGETHER) as threads:
            listings = list(threads.map(partial(list_shard, request=request), shards))
    else:
        listings = [list_shard(shard, request) for shard in shards]
    problems = [p for listing in listings for p in _problems(listing, request)]
    kept = [listing for listing in listings if len(listing.keys)]
    if not kept:
        request.no_pictures(problems[0].detail if problems else "the shards are empty")
    _refuse_missing_columns(kept, request)
    stamps = _column([listing.frames for listing in kept])
    what = f"{request.text}: field {request.frame!r}"
    return request.image_set(
        _ids(kept, request),
        pa.concat_arrays([_locators(listing) for listing in kept]),
        joined_opener([listing.opener for listing in kept], [len(each.keys) for each in kept]),
        labels=_column([listing.labels for listing in kept]),
        captions=_column([listing.captions for listing in kept]),
        groups=_column([listing.groups for listing in kept]),
        frames=None if stamps is None else read_frames(stamps, what),
        problems=problems,
        skipped=sum((Counter(each.skipped) for each in listings), Counter()),
    )


def list_shard(shard: str, request: Request) -> Shard:
    """Return what a shard holds; a shard that is not there or damaged becomes a problem of it."""
    samples: list[Sample] = []
    problems: list[tuple[str, str, str]] = []
    others = Listing()
    stamp: str | None = ""
    try:
        with TarStream(shard) as stream:
            stamp = stream.stamp
            collect(stream, redacted(shard), samples, others)
    except (FileNotFoundError, PermissionError, IsADirectoryError, StoreError) as error:
        why = why_not(error)
        problems.append(("", why.reason, f"the shard cannot be read: {why.detail}"))
    except DAMAGE as error:
        kept = f"the {len(samples):,} samples before are kept"
        problems.append(("", "corrupt", f"the shard is damaged: {said(error)}; {kept}"))
    wanted = request.options.get("image")
    found: list[tuple[Sample, tuple[int, int]]] = []
    for sample in samples:
        chosen = sample.picture(wanted)
        if chosen is None:
            has = ", ".join(writable(ending) for ending in (*sample.places, *sample.side)) or "none"
            detail = f"the sample holds no {wanted or 'picture'}; its members: {has}"
            problems.append((sample.key, "missing", detail))
        else:
            found.append((sample, sample.places[chosen]))
            others.skipped.update(sample.left_out(chosen))
    _refuse_repeats([sample.key for sample, _ in found], shard)
    return _contents(shard, found, request, stamp, problems, others.skipped)


def _contents(
    shard: str,
    found: Sequence[tuple[Sample, tuple[int, int]]],
    request: Request,
    stamp: str | None,
    problems: Sequence[tuple[str, str, str]],
    skipped: Mapping[str, int],
) -> Shard:
    where = np.array([place for _, place in found], dtype=np.int64).reshape(-1, 2)
    # a link lies where its target lies; reading must stay ascending
    order = np.lexsort((np.arange(len(found)), where[:, 0]))
    where, samples = where[order], [found[at][0] for at in order]
    group, frame = request.columns.get("group"), request.columns.get("frame")

    def texts(make: Any) -> pa.StringArray:
        return pa.array((make(sample.side) for sample in samples), pa.string())

    return Shard(
        shard,
        pa.array((writable(sample.key) for sample in samples), pa.string()),
        texts(lambda side: label_of(side, request.label)),
        texts(caption_of),
        texts(lambda side: field_of(side, group) if group else None),
        texts(lambda side: _frame_of(side, frame) if frame else None),
        texts(lambda side: field_of(side, request.id) if request.id else None),
        TarOpener(shard, where[:, 0].copy(), where[:, 1].copy(), stamp),
        tuple(problems),
        skipped,
    )


def _frame_of(side: Mapping[str, Any], name: str) -> str | None:
    """Return a frame number or time of the JSON side file as text; seconds may be a float."""
    value = (side.get("json") or {}).get(name)
    return str(value) if isinstance(value, float) else field_of(side, name)


def _refuse_repeats(keys: Sequence[str], shard: str) -> None:
    seen: set[str] = set()
    for key in keys:
        if key in seen:
            raise VisleakError(
                f"shard {redacted(shard)} holds the key {writable(key)!r} twice; the members of a"
                " sample must stand next to each other, and no two samples have one key"
            )
        seen.add(key)


def _refuse_missing_columns(listings: Sequence[Shard], request: Request) -> None:
    """Refuse a column that no sample has, and an id that one has not."""
    for option, value in request.columns.items():
        columns = [getattr(listing, f"{option}s") for listing in listings]
        nulls = sum(column.null_count for column in columns)
        count = sum(len(column) for column in columns)
        if nulls == count or (option == "id" and nulls):
            which = "no sample has" if nulls == count else f"{nulls:,} samples do not have"
            raise UsageError(
                f"{option} {value!r}: {which} this in the .json beside the picture of"
                f" {request.text}"
            )


def _ids(listings: Sequence[Shard], request: Request) -> pa.StringArray:
    """Return the keys; with the shard's name before them where a key is in two shards."""
    if request.id is not None:
        return pa.concat_arrays([listing.ids for listing in listings])
    keys = pa.concat_arrays([listing.keys for listing in listings])
    if pc.count_distinct(keys).as_py() == len(keys):
        return keys
    names = shard_names([listing.place for listing in listings])
    return pa.concat_arrays(
        pc.binary_join_element_wise(name, listing.keys, "/")
        for name, listing in zip(names, listings, strict=True)
    )


def shard_names(shards: Sequence[str]) -> list[str]:
    """Return a short name for each shard: that of its file, or its path where two are alike.

    >>> shard_names(["a/00.tar", "a/01.tar.gz"]), shard_names(["a/0.tar", "b/0.tar"])
    (['00', '01'], ['a/0', 'b/0'])
    """
    plain = []
    for shard in map(redacted, shards):
        ending = next((e for e in sorted(TARS, key=len)[::-1] if shard.lower().endswith(e)), "")
        plain.append(writable(shard[: len(shard) - len(ending)]))
    short = [name.rpartition("/")[2] for name in plain]
    return short if len(set(short)) == len(short) else plain


def _locators(listing: Shard) -> pa.StringArray:
    return pc.binary_join_element_wise(writable(redacted(listing.place)), listing.keys, "!").cast(
        pa.string()
    )


def _column(parts: Sequence[pa.StringArray]) -> pa.StringArray | None:
    column = pa.concat_arrays(list(parts))
    return None if column.null_count == len(column) else column


def _problems(listing: Shard, request: Request) -> Iterator[Problem]:
    shard = writable(redacted(listing.place))
    for key, reason, detail in listing.problems:
        name = writable(key)
        locator = f"{shard}!{name}" if key else shard
        yield Problem(request.name, name or shard, locator, reason, writable(detail))
