"""Which members of an archive stay: pictures that are kept, and what belongs to them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from visleak.images.archive import takes_member
from visleak.images.listing import Listing
from visleak.remedy.contents import Filled


@dataclass(frozen=True)
class Members:
    """The pictures of an archive.

    Attributes:
        all: their names, as the set's ids.
        kept: names of those that stay.
        kept_stems: their names without endings.
        removed_stems: those of pictures that go.
    """

    all: frozenset[str]
    kept: frozenset[str]
    kept_stems: frozenset[str]
    removed_stems: frozenset[str]

    @classmethod
    def of(cls, piece: Filled) -> Self:
        """Return those of a set whose ids are the names of its members."""
        kept = frozenset(str(id_) for id_ in piece.column("ids"))
        every = frozenset(piece.images.ids.to_pylist())
        return cls(every, kept, _stems(kept), _stems(every - kept))

    def is_picture(self, name: str) -> bool:
        """Whether a member is a picture: one of the set, or one that the set could not list."""
        return name in self.all or takes_member(Listing(), name, bytes)

    def is_side_file_of_removed(self, name: str) -> bool:
        """Whether a file belongs to pictures that go and to none that stays."""
        stem = _stem(name)
        return stem in self.removed_stems and stem not in self.kept_stems


def _stems(names: Iterable[str]) -> frozenset[str]:
    return frozenset(map(_stem, names))


def _stem(name: str) -> str:
    """Return a name without its ending.

    >>> _stem("a.b/1.png"), _stem("a.b/README")
    ('a.b/1', 'a.b/README')
    """
    folder, slash, last = name.rpartition("/")
    return folder + slash + (last.rpartition(".")[0] or last)
