"""Captions of images, of a set itself or of a file; several per image."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from visleak.errors import UsageError, VisleakError, one_line
from visleak.formats.request import text_column
from visleak.formats.tables import read_csv, read_footer, read_tables
from visleak.records import ImageSet

#: Which of several captions of an image are used; or its number, from 1.
FIRST: Final = "first"
ALL: Final = "all"

#: Columns with the id of an image and with a caption, in order of preference.
ID_COLUMNS: Final = ("id", "image_id", "image", "filename", "file_name", "image_name", "path")
CAPTION_COLUMNS: Final = ("caption", "text", "sentence", "raw", "comment")

#: How a file of captions is written, for messages.
WRITTEN: Final = (
    "a .csv, .tsv or .parquet with columns id and caption, a .json (Karpathy's split, COCO, or"
    " {ID: CAPTION}), or Flickr30k's .token (NAME#N<TAB>CAPTION)"
)

#: A line of Flickr30k's own file: the image, the number of the caption, the caption.
_TOKEN: Final = re.compile(r"(?P<id>.+)#\d+\t(?P<text>.*)")

Row = tuple[str | None, str | None]


@dataclass(frozen=True)
class Captions:
    """Captions and the images they are of."""

    ids: tuple[str, ...]  # of the images; as often as there are captions of one
    texts: tuple[str, ...]  # the captions, in the order of the file
    empty: int  # captions without any text, which are ignored
    source: str  # where they come from, in words

    def __post_init__(self) -> None:
        if len(self.ids) != len(self.texts):
            raise ValueError("each caption must be of one image")

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def digest(self) -> str:
        """Digest of ids and texts in their order."""
        hasher = hashlib.blake2b(digest_size=16)
        for pair in zip(self.ids, self.texts, strict=True):
            hasher.update(json.dumps(pair).encode())
        return hasher.hexdigest()

    @property
    def repeated(self) -> int:
        """How many captions have the same text as one of another image."""
        owners: dict[str, set[str]] = {}
        for id_, text in zip(self.ids, self.texts, strict=True):
            owners.setdefault(text, set()).add(id_)
        return sum(len(owners[text]) > 1 for text in self.texts)

    def chosen(self, which: str) -> Captions:
        """Return those captions that are used."""
        if which == ALL:
            return self
        digits = which.isascii() and which.isdecimal() and len(which) < 6
        number = 1 if which == FIRST else int(which) if digits else 0
        if number < 1:
            raise UsageError(f"--caption must be {FIRST}, {ALL} or a number from 1; got {which!r}")
        seen: Counter[str] = Counter()
        kept = []
        for place, id_ in enumerate(self.ids):
            seen[id_] += 1
            if seen[id_] == number:
                kept.append(place)
        if not kept:
            most = max(seen.values())
            raise VisleakError(
                f"--caption {which}: no image of {self.source} has as many captions; the most is"
                f" {most}"
            )
        ids, texts = (tuple(column[place] for place in kept) for column in (self.ids, self.texts))
        return Captions(ids, texts, self.empty, self.source)


def captions_of(images: ImageSet) -> Captions:
    """Return the captions of a set, one per image."""
    if images.captions is None or images.captions.null_count == len(images):
        raise UsageError(
            f"set {images.name!r} has no captions; give them with --captions FILE: {WRITTEN}"
        )
    rows = zip(images.ids.to_pylist(), images.captions.to_pylist(), strict=True)
    # an image without a caption is not an empty caption
    given = ((id_, text) for id_, text in rows if text is not None)
    return _collected(given, f"set {images.name!r}")


def read_captions(path: Path) -> Captions:
    """Return the captions of a file."""
    if not path.is_file():
        raise UsageError(f"--captions {path}: there is no such file; give {WRITTEN}")
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        raise UsageError(f"--captions {path}: {path.name} has an unknown format; give {WRITTEN}")
    try:
        return _collected(reader(path), str(path))
    except (OSError, UnicodeDecodeError, RecursionError, json.JSONDecodeError) as error:
        raise VisleakError(
            f"--captions {path} cannot be read ({one_line(error)}); give {WRITTEN}"
        ) from error


def _collected(rows: Iterable[Row], source: str) -> Captions:
    ids, texts, empty = [], [], 0
    for number, (id_, text) in enumerate(rows, start=1):
        if not id_:
            raise VisleakError(f"captions of {source}: number {number} has no image id")
        plain = " ".join((text or "").split())
        if plain:
            ids.append(id_)
            texts.append(plain)
        else:
            empty += 1
    if not texts:
        raise VisleakError(f"captions of {source}: there are none; give {WRITTEN}")
    return Captions(tuple(ids), tuple(texts), empty, source)


def _of_csv(path: Path) -> Iterable[Row]:
    return _of_columns(path, read_csv(path))


def _of_parquet(path: Path) -> Iterable[Row]:
    names = read_footer(path).schema.to_arrow_schema().names
    wanted = [_column(path, names, usual) for usual in (ID_COLUMNS, CAPTION_COLUMNS)]
    return _of_columns(path, read_tables([path], wanted))


def _of_columns(path: Path, table: pa.Table) -> Iterable[Row]:
    names = [_column(path, table.column_names, usual) for usual in (ID_COLUMNS, CAPTION_COLUMNS)]
    ids, texts = text_column(table[names[0]], names[0]), table[names[1]].combine_chunks()
    if pa.types.is_list(texts.type) or pa.types.is_large_list(texts.type):
        lengths = texts.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
        ids = ids.take(pa.array(np.repeat(np.arange(len(ids)), lengths)))
        texts = texts.flatten()
    return zip(ids.to_pylist(), text_column(texts, names[1]).to_pylist(), strict=True)


def _column(path: Path, names: Sequence[str], usual: tuple[str, ...]) -> str:
    found = next((name for name in usual if name in names), None)
    if found is None:
        raise VisleakError(
            f"--captions {path} has no column {usual[0]!r}; it has {', '.join(names)}"
        )
    return found


def _of_token(path: Path) -> Iterable[Row]:
    for number, line in enumerate(path.read_text(encoding="utf-8-sig").splitlines(), start=1):
        if not line.strip():
            continue
        found = _TOKEN.fullmatch(line)
        if found is None:
            raise VisleakError(f"--captions {path}, line {number}: it is not NAME#N<TAB>CAPTION")
        yield found["id"], found["text"]


def _of_json(path: Path) -> Iterable[Row]:
    content = json.loads(path.read_text(encoding="utf-8-sig"))
    try:
        if isinstance(content, Mapping) and "annotations" in content:
            return _of_coco(content)
        if isinstance(content, Mapping) and "images" in content:
            return [
                (str(image["filename"]), str(sentence["raw"]))
                for image in content["images"]
                for sentence in image["sentences"]
            ]
        if isinstance(content, Mapping):
            return [(id_, text) for id_, value in content.items() for text in _texts(value)]
    except (KeyError, TypeError) as error:
        raise VisleakError(
            f"--captions {path} is not understood ({type(error).__name__}: {error}); give {WRITTEN}"
        ) from error
    raise VisleakError(f"--captions {path} holds a list; give {WRITTEN}")


def _of_coco(content: Mapping[str, list[dict[str, object]]]) -> list[Row]:
    names = {image["id"]: str(image["file_name"]) for image in content["images"]}
    return [(names[row["image_id"]], str(row["caption"])) for row in content["annotations"]]


def _texts(value: object) -> list[str]:
    given = value if isinstance(value, list) else [value]
    texts = [text for text in given if isinstance(text, str)]
    if len(texts) < len(given):
        raise TypeError(f"{str(value)[:60]!r} is not a caption")
    return texts


#: Ending of a file -> what reads it.
_READERS: Final[Mapping[str, Callable[[Path], Iterable[Row]]]] = {
    ".csv": _of_csv,
    ".tsv": _of_csv,
    ".parquet": _of_parquet,
    ".json": _of_json,
    ".token": _of_token,
    ".txt": _of_token,
}
