"""What a caller asks of a source, and the common last step from a listing to an image set."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

import pyarrow as pa

from visleak.errors import UsageError, VisleakError
from visleak.images.addresses import redacted
from visleak.images.frames import Frames, read_frames
from visleak.records import AnySet, ImageSet, Opener, Problem


def writable(text: str) -> str:
    r"""Return a text from an untrusted file as one that can be written as UTF-8.

    >>> writable("caf\u00e9" + chr(0xD800)) == "caf\u00e9" + r"\ud800"
    True
    """
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode("utf-8")


@dataclass(frozen=True)
class Request:
    """A source and the wishes that come with it.

    Attributes:
        text: the SOURCE as the caller gave it.
        path: its file or folder (or glob pattern).
        place: where it is, as text: the path, an address or a pattern. An address may hold a
            password: only :attr:`shown` goes into messages and locators.
        split: what stands after ``#``, else empty.
        options: what stands after ``?``, by name.
        name, dataset, roles: for the set.
        id, label, group, frame: column names; ``group`` and ``frame`` may be ``/regex/`` on the
            id.
    """

    text: str
    path: Path
    place: str = ""
    split: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    name: str = ""
    dataset: str = ""
    roles: tuple[str, ...] = ()
    id: str | None = None
    label: str | None = None
    group: str | None = None
    frame: str | None = None

    @property
    def shown(self) -> str:
        """The place without secrets."""
        return redacted(self.place or str(self.path))

    @property
    def group_pattern(self) -> re.Pattern[str] | None:
        """The regular expression of ``group="/regex/"``, else ``None``."""
        return pattern_of("group", self.group)

    @property
    def frame_pattern(self) -> re.Pattern[str] | None:
        """The regular expression of ``frame="/regex/"``, else ``None``."""
        return pattern_of("frame", self.frame)

    @property
    def columns(self) -> dict[str, str]:
        """The columns that were asked for, by what they are to say; patterns are none."""
        wishes = {"id": self.id, "label": self.label, "group": self.group, "frame": self.frame}
        searched = {"group": self.group_pattern, "frame": self.frame_pattern}
        return {
            option: value
            for option, value in wishes.items()
            if value is not None and searched.get(option) is None
        }

    def refuse_columns(self, what: str) -> None:
        """Refuse columns for a source that has none; patterns are searched in the ids.

        Raises:
            UsageError: one of them was given.
        """
        for option, value in self.columns.items():
            hint = f"; {option} may be /regex/ on the id" if option in ("group", "frame") else ""
            raise UsageError(f"{option} {value!r}: {what} {self.text} has no columns{hint}")

    def refuse_options(self, *known: str) -> None:
        """Refuse what stands after ``?`` and is not known."""
        for option in self.options:
            if option not in known:
                allowed = f"; known are {', '.join(known)}" if known else "; it has none"
                raise UsageError(f"source {self.text!r}: ?{option}= is no option of it{allowed}")

    def refuse_split(self) -> None:
        """Refuse ``#split`` for a source that has no splits."""
        if self.split:
            raise UsageError(
                f"source {self.text!r}: #{self.split} chooses a split of a manifest or Parquet with"
                " a `split` column, of cifar:, yolo:, kitti: or hf:; this source has none"
            )

    def no_pictures(self, detail: str = "") -> NoReturn:
        """Refuse an empty set."""
        name = self.text or f"set {self.name!r}"
        raise VisleakError(f"{name} holds no pictures{detail and f' ({detail})'}")

    def image_set(
        self,
        ids: pa.StringArray,
        locators: pa.StringArray,
        opener: Opener,
        *,
        labels: pa.StringArray | None = None,
        captions: pa.StringArray | None = None,
        groups: pa.StringArray | None = None,
        frames: Frames | None = None,
        annotated: bool = False,
        problems: Sequence[Problem] = (),
        skipped: Mapping[str, int] | None = None,
    ) -> ImageSet:
        """Return the set of a finished listing.

        Raises:
            VisleakError: nothing was listed, or an id occurs twice.
        """
        if not len(ids):
            self.no_pictures()
        pattern = self.group_pattern
        if pattern is not None:
            groups = pa.array((captured(pattern, id_) for id_ in ids.to_pylist()), pa.string())
        pattern = self.frame_pattern
        if pattern is not None:
            found = pa.array((captured(pattern, id_) for id_ in ids.to_pylist()), pa.string())
            frames = read_frames(found, f"what frame {self.frame!r} finds in the ids")
        return ImageSet(
            name=self.name,
            ids=ids,
            locators=locators,
            opener=opener,
            labels=labels,
            captions=captions,
            groups=groups,
            frames=frames and frames.values,
            timed=frames is not None and frames.timed,
            stamps=frames.stamps if frames is not None else "",
            dataset=self.dataset,
            roles=self.roles,
            annotated=annotated,
            source=self.text,
            problems=tuple(problems),
            skipped=dict(skipped or {}),
            options={
                option: value
                for option, value in (
                    ("id", self.id),
                    ("label", self.label),
                    ("group", self.group),
                    ("frame", self.frame),
                )
                if value is not None
            },
        )


def pattern_of(option: str, value: str | None) -> re.Pattern[str] | None:
    """Return the regular expression of ``/regex/``, ``None`` for a column or nothing.

    Raises:
        UsageError: it is none.
    """
    if value is None or len(value) < 3 or not (value[0] == value[-1] == "/"):
        return None
    try:
        return re.compile(value[1:-1])
    except re.error as error:
        raise UsageError(f"{option} {value!r} is no regular expression: {error}") from error


def captured(pattern: re.Pattern[str], id_: str) -> str | None:
    """Return what a pattern's first group, or the pattern, finds in an id."""
    found = pattern.search(id_)
    return found[1 if pattern.groups else 0] if found else None


def check_groups(sets: Sequence[AnySet], group: str | None) -> None:
    """Refuse a ``/regex/`` for groups that finds none in the ids of any set.

    Args:
        sets: as opened with ``group``; sets of embeddings list no ids here, so they are believed.
        group: as given.

    Raises:
        UsageError: no id matches.
    """
    _check_found(sets, "group", group, "groups")


def check_frames(sets: Sequence[AnySet], frame: str | None) -> None:
    """Refuse a ``/regex/`` for frames that finds none in the ids of any set.

    Args:
        sets: as opened with ``frame``.
        frame: as given.

    Raises:
        UsageError: no id matches.
    """
    _check_found(sets, "frame", frame, "frames")


def _check_found(sets: Sequence[AnySet], option: str, value: str | None, column: str) -> None:
    pictured = [images for images in sets if isinstance(images, ImageSet) and len(images)]
    if pattern_of(option, value) is None or len(pictured) < len(sets) or not pictured:
        return
    columns = [getattr(images, column) for images in pictured]
    if all(known is None or known.null_count == len(known) for known in columns):
        first = pictured[0]
        raise UsageError(
            f"{option} {value!r} matches no id, such as {first.ids[0].as_py()!r} of set"
            f" {first.name!r}; the pattern is searched anywhere in the id"
        )
