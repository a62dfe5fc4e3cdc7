"""Openers made of openers: several in a row, and some images of one."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from visleak.records import Bytes8, ImageSet, Int64, Opener, Unreadable


@dataclass
class JoinedOpener:
    """Reads shards one after the other; only the last one read stays open."""

    parts: tuple[Opener, ...]  # the openers
    starts: Int64  # int64 (parts + 1,): the position at which each begins, and the end
    _last: int = field(default=-1, repr=False, compare=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return JoinedOpener, (self.parts, self.starts)

    @property
    def stamp(self) -> str | None:
        """Text that changes when a remote shard does; ``None`` where one cannot be told."""
        stamps = [getattr(part, "stamp", "") for part in self.parts]
        return None if None in stamps else "\n".join(stamps)

    def read(self, positions: Sequence[int]) -> Iterator[bytes | Bytes8 | Unreadable]:
        """Yield the images at the positions, see :class:`visleak.records.Opener`."""
        wanted = np.asarray(positions, dtype=np.int64)
        owners = np.searchsorted(self.starts, wanted, side="right") - 1
        for owner, members in itertools.groupby(
            zip(owners.tolist(), wanted.tolist(), strict=True), key=lambda pair: pair[0]
        ):
            if self._last not in (-1, owner):
                _close(self.parts[self._last])
            self._last = owner
            yield from self.parts[owner].read([at - int(self.starts[owner]) for _, at in members])


def joined_opener(parts: Sequence[Opener], sizes: Sequence[int]) -> JoinedOpener:
    """Return the opener of shards that hold ``sizes`` images each."""
    starts = np.concatenate(([0], np.cumsum(np.asarray(sizes, np.int64)))).astype(np.int64)
    return JoinedOpener(tuple(parts), starts)


def _close(opener: Opener) -> None:
    close = getattr(opener, "close", None)
    if close is not None:
        close()


@dataclass(frozen=True)
class ChosenOpener:
    """Reads some images of another opener."""

    opener: Opener  # the other one
    rows: Int64  # int64, ascending: which of its positions

    def read(self, positions: Sequence[int]) -> Iterator[bytes | Bytes8 | Unreadable]:
        """Yield the images at the positions, see :class:`visleak.records.Opener`."""
        return self.opener.read(self.rows[np.asarray(positions, np.int64)].tolist())


def chosen(images: ImageSet, positions: Int64, name: str) -> ImageSet:
    """Return some images of a set as a set of its own, kept in memory only."""
    rows = pa.array(positions, pa.int64())

    def taken(values: Any) -> Any:
        return None if values is None else values.take(rows)

    return replace(
        images,
        name=name,
        ids=taken(images.ids),
        locators=taken(images.locators),
        opener=ChosenOpener(images.opener, positions),
        labels=taken(images.labels),
        captions=taken(images.captions),
        groups=taken(images.groups),
        frames=taken(images.frames),
        problems=(),
        source="",
        options={},
    )
