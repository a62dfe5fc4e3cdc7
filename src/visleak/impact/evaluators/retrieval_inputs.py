"""What image-to-text retrieval compares: captions of images, and existing vectors of both."""

from __future__ import annotations

import hashlib
import json
import re
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from visleak.errors import UsageError, VisleakError, explaining, one_line
from visleak.formats import open_images
from visleak.formats.embeddings import MANIFEST, Table
from visleak.formats.request import text_column
from visleak.formats.tables import read_csv, read_footer, read_tables
from visleak.records import Bool, EmbeddingSet, Float32, ImageSet
from visleak.vectors import check_digest, forget, unit_rows

FIRST: Final = "first"  # which of several captions of an image are used; or a number, from 1
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
        for pair in zip(self.ids, self.texts, strict=True):
            seen[pair[0]] += 1
            if seen[pair[0]] == number:
                kept.append(pair)
        if not kept:
            most = max(seen.values())
            raise VisleakError(
                f"--caption {which}: no image of {self.source} has as many captions; the most is"
                f" {most}"
            )
        ids, texts = zip(*kept, strict=True)
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
    if (reader := _READERS.get(path.suffix.lower())) is None:
        raise UsageError(f"--captions {path}: {path.name} has an unknown format; give {WRITTEN}")
    try:
        return _collected(reader(path), str(path))
    except (OSError, UnicodeDecodeError, RecursionError, json.JSONDecodeError) as error:
        raise VisleakError(
            f"--captions {path} cannot be read ({one_line(error, str(path))}); give {WRITTEN}"
        ) from error


def _collected(rows: Iterable[Row], source: str) -> Captions:
    ids, texts, empty = [], [], 0
    for number, (id_, text) in enumerate(rows, start=1):
        if not id_:
            raise VisleakError(f"captions of {source}: number {number} has no image id")
        if plain := " ".join((text or "").split()):
            ids.append(id_)
            texts.append(plain)
        else:
            empty += 1
    if not texts:
        raise VisleakError(f"captions of {source}: there are none; give {WRITTEN}")
    return Captions(tuple(ids), tuple(texts), empty, source)


def _of_table(path: Path) -> Iterable[Row]:
    table = read_csv(path) if path.suffix.lower() != ".parquet" else None
    schema = read_footer(path).schema.to_arrow_schema() if table is None else table.schema
    names, columns = schema.names, []
    for usual in (ID_COLUMNS, CAPTION_COLUMNS):
        found = next((name for name in usual if name in names), None)
        if found is None:
            raise VisleakError(
                f"--captions {path} has no column {usual[0]!r}; it has {', '.join(names)}"
            )
        columns.append(found)
    if table is None:
        table = read_tables([path], columns)
    ids, texts = text_column(table[columns[0]], columns[0]), table[columns[1]].combine_chunks()
    if pa.types.is_list(texts.type) or pa.types.is_large_list(texts.type):
        lengths = texts.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
        ids = ids.take(pa.array(np.repeat(np.arange(len(ids)), lengths)))
        texts = texts.flatten()
    return zip(ids.to_pylist(), text_column(texts, columns[1]).to_pylist(), strict=True)


def _of_token(path: Path) -> Iterable[Row]:
    for number, line in enumerate(path.read_text(encoding="utf-8-sig").splitlines(), start=1):
        if line.strip():
            if (found := _TOKEN.fullmatch(line)) is None:
                raise VisleakError(
                    f"--captions {path}, line {number}: it is not NAME#N<TAB>CAPTION"
                )
            yield found["id"], found["text"]


def _of_json(path: Path) -> Iterable[Row]:
    content = json.loads(path.read_text(encoding="utf-8-sig"))
    if not isinstance(content, Mapping):
        raise VisleakError(f"--captions {path} holds a list; give {WRITTEN}")
    try:
        if "annotations" in content:
            names = {image["id"]: str(image["file_name"]) for image in content["images"]}
            rows = content["annotations"]
            return [(names[row["image_id"]], str(row["caption"])) for row in rows]
        if "images" in content:
            return [
                (str(image["filename"]), str(sentence["raw"]))
                for image in content["images"]
                for sentence in image["sentences"]
            ]
        return [(id_, text) for id_, value in content.items() for text in _texts(value)]
    except (KeyError, TypeError) as error:
        raise VisleakError(
            f"--captions {path} is not understood ({type(error).__name__}: {error}); give {WRITTEN}"
        ) from error


def _texts(value: object) -> list[str]:
    given = value if isinstance(value, list) else [value]
    texts = [text for text in given if isinstance(text, str)]
    if len(texts) < len(given):
        raise TypeError(f"{str(value)[:60]!r} is not a caption")
    return texts


_READERS: Final[Mapping[str, Callable[[Path], Iterable[Row]]]] = {
    **dict.fromkeys((".csv", ".tsv", ".parquet"), _of_table),
    ".json": _of_json,
    **dict.fromkeys((".token", ".txt"), _of_token),
}

Matrix = npt.NDArray[np.floating]
ROWS: Final = 65_536  # rows that are normalised at a time
NPZ_IDS: Final = ("image_id", "id", "ids")  # names of the ids of images, the first that is there
NPZ_VECTORS: Final = ("vectors", "embeddings", "features")
TEXT_IDS: Final = ("image_id", "id")  # columns with the id of the image that a caption is of
VECTORS: Final = "emb:FOLDER, or a .npy, .npz or .parquet file"  # sources of vectors, for messages


@dataclass(frozen=True)
class StoredVectors:
    """Vectors and the images they are of."""

    ids: pa.StringArray  # (n,)
    matrix: Float32  # (n, d), unit rows; zero where a stored row has no direction
    usable: Bool  # (n,): the stored row has one
    source: str  # as given

    @property
    def digest(self) -> str:
        """Digest of ids and vectors."""
        hasher = hashlib.blake2b(digest_size=16)
        for id_ in self.ids.to_pylist():
            hasher.update(id_.encode("utf-8", "surrogateescape") + b"\0")
        hasher.update(np.ascontiguousarray(self.matrix).astype("<f4", copy=False).data)
        return hasher.hexdigest()


def read_image_vectors(text: str) -> StoredVectors:
    """Return the vectors of images; their ids are unique."""
    found = _stored(text, "--images")
    counts = found.ids.value_counts()
    if len(counts) < len(found.ids):
        twice = next(row["values"].as_py() for row in counts if row["counts"].as_py() > 1)
        raise VisleakError(
            f"--images {text}: id {twice!r} occurs more than once; give one vector per image"
        )
    return found


def read_caption_vectors(text: str) -> StoredVectors:
    """Return the vectors of captions, each with the id of the image it is of."""
    return _stored(text, "--texts")


def _stored(text: str, option: str) -> StoredVectors:
    return (_read_npz if text.lower().endswith(".npz") else _read_emb)(text, option)


def _read_npz(text: str, option: str) -> StoredVectors:
    path = Path(text.removeprefix("emb:"))
    if not path.is_file():
        raise UsageError(f"{option} {text}: there is no such file; give {VECTORS}")
    damage = (OSError, ValueError, EOFError, zipfile.BadZipFile)
    opened = explaining(f"{option} {text} cannot be read as .npz", *damage)
    with opened, np.load(path, allow_pickle=False) as held:
        names = list(held)
        ids = next((held[name] for name in NPZ_IDS if name in names), None)
        vectors = next((held[name] for name in NPZ_VECTORS if name in names), None)
    if ids is None or vectors is None:
        raise VisleakError(
            f"{option} {text} needs arrays {NPZ_IDS[1]} and {NPZ_VECTORS[0]}; it has"
            f" {', '.join(names) or 'none'}"
        )
    if vectors.ndim != 2 or vectors.dtype.kind != "f" or ids.shape != (len(vectors),):
        raise VisleakError(
            f"{option} {text}: vectors must be floats (n, width) with n ids; got {vectors.dtype}"
            f" {vectors.shape} and ids {ids.shape}"
        )
    if ids.dtype.kind not in "iuU":
        raise VisleakError(f"{option} {text}: ids must be text or whole numbers; got {ids.dtype}")
    return _unit(pa.array(ids.tolist()).cast(pa.string()), [vectors], len(vectors), text)


def _read_emb(text: str, option: str) -> StoredVectors:
    source = text if text.startswith("emb:") else f"emb:{text}"
    place, mark, _ = source.removeprefix("emb:").partition("?")
    if not Path(place).exists():
        raise UsageError(f"{option} {text}: there is no {place}; give {VECTORS}")
    if "encoder=" not in source and not (Path(place) / MANIFEST).is_file():
        # the model does not matter as long as both sides come from one
        source += f"{'&' if mark else '?'}encoder=unknown"
    images = cast(EmbeddingSet, open_images(source))
    about = getattr(images.partitions[0], "about", None)
    if option == "--texts" and isinstance(about, Table) and not about.is_text:
        # ids of the images that captions are of need not be unique
        names = read_footer(about.path).schema.to_arrow_schema().names
        column = next((name for name in TEXT_IDS if name in names), None)
        images = images if column is None else cast(EmbeddingSet, open_images(source, id=column))
    parts = images.partitions
    for part in parts:
        check_digest(part)
    ids = pa.concat_arrays([part.columns()["id"] for part in parts])
    if ids.null_count:
        raise VisleakError(f"{option} {text}: an id is null; every vector needs one")
    return _unit(ids, (part.matrix() for part in parts), len(images), text)


def _unit(ids: pa.StringArray, stored: Iterable[Matrix], rows: int, source: str) -> StoredVectors:
    """Return stored matrices, one after the other, as unit rows."""
    matrix: Float32 | None = None
    usable = np.zeros(rows, np.bool_)
    done = 0
    for given in stored:
        if matrix is None:
            matrix = np.empty((rows, given.shape[1]), np.float32)
        for start in range(0, len(given), ROWS):
            unit = unit_rows(given[start : start + ROWS])
            there = slice(done, done + len(unit.matrix))
            matrix[there] = unit.matrix
            usable[there] = ~unit.broken
            done = there.stop
        forget(given)
    if matrix is None or not usable.any():
        raise VisleakError(f"{source} holds no vector with a direction")
    return StoredVectors(ids, matrix, usable, source)


def about_vectors(vectors: StoredVectors) -> Mapping[str, object]:
    """Return what identifies stored vectors, as plain values."""
    return {
        "source": vectors.source,
        "rows": len(vectors.ids),
        "width": int(vectors.matrix.shape[1]),
        "digest": vectors.digest,
    }
