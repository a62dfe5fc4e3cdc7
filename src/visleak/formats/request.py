"""A request for a set: SOURCE and columns; from a listing or a table to an image set."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NoReturn, Self

import pyarrow as pa
import pyarrow.compute as pc

from visleak.errors import UsageError, VisleakError, did_you_mean
from visleak.formats.frames import Frames, read_frames
from visleak.formats.remote import redacted
from visleak.formats.sources import SourceParts, locate
from visleak.options import AUTO
from visleak.records import AnySet, ImageSet, Opener, Problem

#: Columns that name an image, in order of preference.
ID_COLUMNS: Final = ("id", "image_id", "index")
#: What the parts of a data set are called, and what they may be called.
SPLITS: Final[Mapping[str, tuple[str, ...]]] = {
    "train": ("train", "training"),
    "val": ("val", "valid", "validation"),
    "test": ("test", "testing"),
}
#: Columns that may hold the images, in order of preference.
IMAGE_COLUMNS: Final = ("image", "img", "picture", "jpg", "png", "webp", "bytes")


#: Columns with a meaning of their own.
_USUAL: Final = (*ID_COLUMNS, "label", "label_name", "caption", "group", "frame", "split")
#: Share of different values up to which a column may name groups.
SHARE: Final = 0.7


def writable(text: str) -> str:
    r"""Return a text from an untrusted file as one that can be written as UTF-8.

    >>> writable("caf\u00e9" + chr(0xD800)) == "caf\u00e9" + r"\ud800"
    True
    """
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode("utf-8")


@dataclass(frozen=True)
class Request:
    """A SOURCE, taken apart, and the columns to use."""

    text: str  # the SOURCE as the caller gave it
    path: Path  # its file or folder (or glob pattern)
    # where it is, as text: the path, an address or a pattern. An address may hold a password: only
    # shown goes into messages and locators
    place: str = ""
    split: str = ""  # what stands after #, else empty
    options: Mapping[str, str] = field(default_factory=dict)  # what stands after ?, by name
    name: str = ""  # for the set
    dataset: str = ""
    roles: tuple[str, ...] = ()
    id: str | None = None  # column names; group and frame may be /regex/ on the id
    label: str | None = None
    group: str | None = None
    frame: str | None = None
    root: str | None = None  # where the files of a list are, see visleak.formats.files

    @classmethod
    def at(cls, text: str, located: SourceParts | None = None, **fields: Any) -> Self:
        """Return the request for a SOURCE, taken apart."""
        found = located or locate(text)
        return cls(
            redacted(text), Path(found.place), found.place, found.split, found.options, **fields
        )

    @property
    def shown(self) -> str:
        """The place without secrets."""
        return redacted(self.place or str(self.path))

    def pattern(self, option: str) -> re.Pattern[str] | None:
        """Return the regular expression of ``group`` or ``frame``, ``None`` where it is none."""
        return pattern_of(option, getattr(self, option))

    @property
    def wanted(self) -> dict[str, str]:
        """The values of ``id``, ``label``, ``group``, ``frame`` and ``root`` that were given."""
        names = ("id", "label", "group", "frame", "root")
        return {name: value for name in names if (value := getattr(self, name)) is not None}

    @property
    def columns(self) -> dict[str, str]:
        """The columns that were given, by option; without patterns."""
        groups = self.group == AUTO or self.pattern("group")
        searched = {"group": groups, "frame": self.pattern("frame"), "root": self.root}
        return {o: value for o, value in self.wanted.items() if not searched.get(o)}

    def refuse_columns(self, what: str) -> None:
        """Refuse columns for a source that has none; patterns are searched in the ids."""
        for option, value in self.columns.items():
            hint = f"; {option} may be /regex/ on the id" if option in ("group", "frame") else ""
            raise UsageError(f"{option} {value!r}: {what} {self.text} has no columns{hint}")

    def refuse_columns_and_split(self, what: str) -> None:
        """Refuse columns and ``#split`` for a source that has neither."""
        self.refuse_columns(what)
        self.refuse_split()

    def refuse_options(self, *known: str) -> None:
        """Refuse unknown options after ``?``."""
        for option in self.options:
            if option not in known:
                allowed = f"; known are {', '.join(known)}" if known else "; it has none"
                hint = did_you_mean(option, known)
                raise self.refusal(f"?{option}= is not an option of it{allowed}{hint}")

    def refuse_split(self) -> None:
        """Refuse ``#split`` for a source that has no splits."""
        if self.split:
            raise self.refusal(
                f"#{self.split} chooses a split of a manifest or Parquet with a `split` column, of"
                " cifar:, yolo:, kitti: or hf:; this source has none"
            )

    def refusal(self, why: str) -> UsageError:
        """Return the error for a SOURCE that cannot be opened."""
        return UsageError(f"source {self.text!r}: {why}")

    def choice(self, option: str, allowed: Sequence[str], default: str) -> str:
        """Return the value of an option after ``?`` with a few allowed values."""
        value = self.options.get(option, default)
        if value not in allowed:
            raise self.refusal(f"{option} must be one of {', '.join(allowed)}; got {value!r}")
        return value

    def whole(self, option: str, default: int, least: int = 0) -> int:
        """Return the value of an option after ``?`` that is a whole number."""
        text = self.options.get(option)
        if text is None:
            return default
        if not re.fullmatch(r"[0-9]{1,9}", text) or int(text) < least:
            raise self.refusal(f"{option} must be a whole number from {least}; got {text!r}")
        return int(text)

    def refuse_empty(self, detail: str = "") -> NoReturn:
        """Refuse an empty set."""
        name = self.text or f"set {self.name!r}"
        raise VisleakError(f"{name} holds no images{detail and f' ({detail})'}")

    def image_set(
        self,
        ids: pa.StringArray,
        locators: pa.StringArray,
        opener: Opener,
        *,
        groups: pa.StringArray | None = None,
        frames: Frames | None = None,
        problems: Sequence[Problem] = (),
        skipped: Mapping[str, int] | None = None,
        **fields: Any,
    ) -> ImageSet:
        """Return the set of a finished listing; ``fields`` are others of :class:`ImageSet`."""
        if not len(ids):
            self.refuse_empty()

        def found(pattern: re.Pattern[str]) -> pa.StringArray:
            return pa.array((captured(pattern, id_) for id_ in ids.to_pylist()), pa.string())

        if (pattern := self.pattern("group")) is not None:
            groups = found(pattern)
        if (pattern := self.pattern("frame")) is not None:
            frames = read_frames(found(pattern), f"what frame {self.frame!r} finds in the ids")
        if frames is not None:
            fields |= {"frames": frames.values, "timed": frames.timed, "stamps": frames.stamps}
        return ImageSet(
            self.name,
            ids,
            locators,
            opener,
            groups=groups,
            dataset=self.dataset,
            roles=self.roles,
            source=self.text,
            problems=tuple(problems),
            skipped=dict(skipped or {}),
            options=self.wanted,
            **fields,
        )


def pattern_of(option: str, value: str | None) -> re.Pattern[str] | None:
    """Return the regular expression of ``/regex/``, ``None`` for a column or nothing."""
    if value is None or len(value) < 3 or not (value[0] == value[-1] == "/"):
        return None
    try:
        return re.compile(value[1:-1])
    except re.error as error:
        raise UsageError(f"{option} {value!r} is not a regular expression: {error}") from error


def captured(pattern: re.Pattern[str], id_: str) -> str | None:
    """Return the match of a pattern's first group, or of the pattern, in an id."""
    found = pattern.search(id_)
    return found[1 if pattern.groups else 0] if found else None


def check_pattern(sets: Sequence[AnySet], option: str, value: str | None) -> None:
    """Refuse a ``/regex/`` of ``group`` or ``frame`` that matches no id of any set.

    Sets of embeddings are not checked: they list no ids here.
    """
    listed = [images for images in sets if isinstance(images, ImageSet) and len(images)]
    if pattern_of(option, value) is None or len(listed) < len(sets) or not listed:
        return
    columns = [getattr(images, f"{option}s") for images in listed]
    if all(known is None or known.null_count == len(known) for known in columns):
        raise UsageError(
            f"{option} {value!r} matches no id, such as {listed[0].ids[0].as_py()!r} of set"
            f" {listed[0].name!r}; the pattern is searched anywhere in the id"
        )


def canonical_split(name: str) -> str:
    """Return ``train``, ``val`` or ``test`` for any of their names, else the name, lower case.

    >>> canonical_split("Validation")
    'val'
    """
    lower = name.strip().lower()
    return next((split for split, names in SPLITS.items() if lower in names), lower)


def wanted_columns(names: Sequence[str], request: Request) -> list[str]:
    """Return the columns of a table that describe the images."""
    for option, value in request.columns.items():
        if value not in names:
            raise UsageError(
                f"{option} {value!r}: {request.text} has no such column; it has {', '.join(names)}"
            )
    chosen = {*_USUAL, *request.columns.values()}
    return [name for name in names if name in chosen]


def repeating(table: pa.Table, request: Request) -> dict[str, pa.StringArray]:
    """Return the columns of a table that may be groups.

    They hold two or more different texts or whole numbers, and some of them repeatedly.
    """
    known = {*_USUAL, *request.columns.values(), "path"}
    found = {}
    for name in table.column_names:
        if name in known or table.column_names.count(name) > 1:
            continue
        if holds_names(table.schema.field(name).type):
            with contextlib.suppress(VisleakError):  # of a column that no option names
                values = text_column(table[name], name)
                if 1 < pc.count_distinct(values).as_py() <= SHARE * len(values):
                    found[name] = values
    return found


def holds_names(kind: pa.DataType) -> bool:
    """Whether values of a type are texts or whole numbers."""
    types = pa.types
    kind = kind.value_type if types.is_dictionary(kind) else kind
    return bool(types.is_integer(kind) or types.is_string(kind) or types.is_large_string(kind))


def describe(
    table: pa.Table,
    request: Request,
    paths: pa.StringArray | None,
    class_names: Mapping[str, Sequence[str]] | None = None,
) -> tuple[pa.StringArray, dict[str, Any]]:
    """Return the ids of a table's images, and the other columns that a set takes."""
    there = table.column_names

    def optional(name: str) -> pa.StringArray | None:
        return text_column(table[name], name) if name in there else None

    label = request.label or next((name for name in ("label_name", "label") if name in there), None)
    frame = request.frame or "frame"
    columns: dict[str, Any] = {
        "labels": label and _labels(table, label, (class_names or {}).get(label)),
        "captions": optional("caption"),
        "columns": repeating(table, request),
    }
    if request.pattern("group") is None:
        columns["groups"] = optional("group" if request.group in (None, AUTO) else request.group)
    if request.pattern("frame") is None and frame in there:
        columns["frames"] = read_frames(table[frame], f"{request.text}: column {frame!r}")
    return _ids(table, request, paths), columns


def _ids(table: pa.Table, request: Request, paths: pa.StringArray | None) -> pa.StringArray:
    if request.id is not None:
        return text_column(table[request.id], request.id)
    for name in ID_COLUMNS:
        if name in table.column_names and can_identify(table[name]):
            return text_column(table[name], name)
    if paths is not None and can_identify(paths):
        return paths
    return row_numbers(table.num_rows)


def row_numbers(count: int) -> pa.StringArray:
    """Return the numbers of some rows, from 0, as text."""
    return pa.array(range(count), pa.int64()).cast(pa.string())


def can_identify(column: pa.Array | pa.ChunkedArray) -> bool:
    """Whether a column can be the ids: text or whole numbers, no null, all different."""
    plain = holds_names(column.type) and not pa.types.is_dictionary(column.type)
    return plain and not column.null_count and pc.count_distinct(column).as_py() == len(column)


def text_column(column: pa.Array | pa.ChunkedArray, name: str) -> pa.StringArray:
    """Return a column as one Arrow string array; numbers in decimal, nulls kept."""
    try:
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        text = column.cast(pa.string())
        text.validate(full=True)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise VisleakError(
            f"column {name!r} of type {column.type} holds something that is not text"
        ) from error
    return text.combine_chunks() if isinstance(text, pa.ChunkedArray) else text


def _labels(table: pa.Table, name: str, names: Sequence[str] | None) -> pa.StringArray:
    column = table[name]
    if not names or not pa.types.is_integer(column.type):
        return text_column(column, name)
    # Hubs write -1 for "no label"; it stays -1.
    known = pc.and_(pc.greater_equal(column, 0), pc.less(column, len(names)))
    inside = pc.if_else(known, column, None)
    taken = pc.take(pa.array(names, pa.string()), inside)
    return text_column(pc.coalesce(taken, column.cast(pa.string())), name)


def rows_of_split(table: pa.Table, request: Request) -> pa.Array | None:
    """Return the row numbers of the split after ``#``; ``None`` for all rows."""
    if not request.split:
        return None
    if "split" not in table.column_names:
        raise request.refusal(f"#{request.split} needs a `split` column; there is none")
    texts = text_column(table["split"], "split").to_pylist()
    found, wanted = [canonical_split(text or "") for text in texts], canonical_split(request.split)
    if wanted not in found:
        there = ", ".join(sorted(set(filter(None, found))))
        raise request.refusal(f"no split {request.split!r}; there are {there}")
    return pa.array((row for row, split in enumerate(found) if split == wanted), pa.int64())


def class_names_of(schema: pa.Schema) -> dict[str, Sequence[str]]:
    """Return the class names that the Hugging Face metadata of a Parquet schema give, by column."""
    try:
        features: Any = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"]
        return {
            str(column): [writable(str(name)) for name in feature["names"]]
            for column, feature in features.items()
            if isinstance(feature, dict) and isinstance(feature.get("names"), list)
        }
    except (KeyError, TypeError, ValueError, AttributeError):
        return {}
