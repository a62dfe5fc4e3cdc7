"""Opening sets: ``open_images``, ``open_splits``, ``boxes_of``, the sides of an audit."""

from __future__ import annotations

import glob
import os
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any, Final, TypeGuard, cast

import pyarrow.compute as pc

from visleak.errors import UsageError, not_one_of
from visleak.formats.boxes import Boxes
from visleak.formats.files import FileOpener, Root
from visleak.formats.remote import redacted
from visleak.formats.request import SPLITS, Request, canonical_split, check_pattern, writable
from visleak.formats.sources import (
    PREFIXED,
    TABLE,
    TARS,
    Layout,
    announce,
    announce_folders,
    beside,
    derived_name,
    locate,
    parse_set,
    refuse_closed,
    split_prefix,
)
from visleak.groups import both_have
from visleak.options import Columns
from visleak.records import AnySet, EmbeddingSet, ImageSet, Source
from visleak.settings import Sides

_NO_COLUMNS: Final = Columns()
#: What of images may be listed in their place.
OBJECTS: Final = "boxes"
#: Images of a set, and share of them in groups of one image, from which groups are doubted.
MANY: Final = 20
NEARLY_ALL: Final = 0.9
#: How near frames leak: fields of the settings.
FRAME_BOUNDS: Final = frozenset({"within_frames", "within_seconds"})


def open_images(
    source: Source,
    *,
    name: str | None = None,
    dataset: str = "",
    roles: Iterable[str] = (),
    id: str | None = None,
    label: str | None = None,
    group: str | None = None,
    frame: str | None = None,
    root: str | None = None,
    objects: str | None = None,
) -> AnySet:
    """List the images of a source; no pixel is read.

    Args:
        source: SOURCE text or a path: a folder (sub-folders are labels), a ``.txt`` list, a glob,
            a ``.csv`` or ``.parquet`` manifest, Parquet with image bytes, a ``.zip`` or ``.tar``
            archive, WebDataset shards (``train-{000..146}.tar``, a glob, a union ``A::B``,
            ``wds:FILE``), any of these in a remote store (``https://``, ``s3://``, ``gs://``),
            ``hf:NAME#split``, ``cifar:FOLDER#test``, ``coco:FILE``, ``yolo:data.yaml#val``,
            ``kitti:FOLDER``, or embeddings
            (``emb:FOLDER?encoder=clip``), which make an :class:`EmbeddingSet`; or a list of
            shards or of image paths; or a Hugging Face ``Dataset`` or ``IterableDataset``; or a
            data frame of pandas or polars, or an Arrow table, with a column ``path`` or ``image``;
            or a sequence of Pillow images, arrays or tensors, of (image, label), or of mappings
            with ``image`` or ``path``, such as a data set of torch; or a mapping with one of
            these; or a set, which is returned.
        name: name of the set; by default after the source.
        dataset: sets of one dataset leak *intra*, of two *inter*.
        roles: what the set is used for, some of ``benchmark``, ``training``, ``pretraining``.
        id, label, group, frame: columns to take these from; ``group`` and ``frame`` may be
            ``/regex/``, whose first group is searched in the id. Frames are frame numbers, or
            times: seconds, or dates as of ISO 8601.
        root: where the files that a table or list names are: a folder for relative names, or
            ``OLD=NEW`` to replace what names begin with.
        objects: ``boxes`` lists the annotated objects instead, each as an image of its own whose
            id is that of the image with ``#`` and the number of the box.

    Raises:
        UsageError: the source is of no known kind or does not exist, a column does not, or it has
            no boxes.
        VisleakError: it holds no images, or cannot be read as what it seems.
    """
    if isinstance(source, Mapping) and len(source) == 1:  # such as a DatasetDict of one split
        source = next(iter(source.values()))
    if isinstance(source, ImageSet | EmbeddingSet):
        return source
    if objects not in (None, OBJECTS):
        raise not_one_of("objects", objects, (OBJECTS,))
    wanted: dict[str, Any] = {
        **{"dataset": dataset, "roles": tuple(roles), "root": root and Root.parse(root).text},
        **{"id": id, "label": label, "group": group, "frame": frame},
    }
    if not isinstance(source, str | os.PathLike):
        from visleak.formats.memory import plain

        source = plain(source)
        names = _names_in(source)
        if not names or not all(map(_is_shard, names)):
            if objects is not None:
                raise UsageError(
                    "objects needs a coco:, yolo: or kitti: source with annotated boxes"
                )
            request = Request("", Path(), name=name or "images", **wanted)
            return _open_paths(names, request) if names else _open_object(source, request)
        source = "wds:" + "::".join(names)
    text = os.fspath(cast(str, source))
    announce(text)
    found = locate(text, plain=not isinstance(source, str))
    opened = cast(
        AnySet,
        found.format.open(Request.at(text, found, name=name or derived_name(text), **wanted)),
    )
    if isinstance(opened, ImageSet) and isinstance(opened.opener, FileOpener):
        announce_folders(text, opened.opener.folders)
    if objects is None:
        return opened
    if isinstance(opened, EmbeddingSet):
        raise UsageError(f"objects needs images; {opened.source} is a set of embeddings")
    from visleak.formats.boxes import object_set

    return object_set(opened, boxes_of(opened))


def open_image_set(source: Source, **options: Any) -> ImageSet:
    """As :func:`open_images`, for operations that need pixels.

    Raises:
        UsageError: also where the source is a set of embeddings.
    """
    images = open_images(source, **options)
    if isinstance(images, EmbeddingSet):
        raise UsageError(
            f"{images.source or images.name} is a set of embeddings: there are no pixels to verify;"
            " give the images that they were made of"
        )
    return images


def boxes_of(images: ImageSet) -> Boxes | None:
    """Return the annotated objects of a set, read from where it was opened.

    An image without annotations is an image without objects. Corners are as the files have them:
    pixels of COCO and KITTI, shares of width and height of YOLO.

    Args:
        images: as opened from ``coco:``, ``yolo:`` or ``kitti:``.

    Returns:
        ``None`` where the source is of another kind or has no boxes at all.

    Raises:
        VisleakError: an annotation file cannot be read, or a row of it is damaged; the error
            names it, and what is allowed.
    """
    source = images.source
    if "objects" in images.options:  # its images are boxes themselves
        return None
    if split_prefix(source)[0] not in PREFIXED or Path(source).exists():
        return None
    found = locate(source)
    return cast("Boxes | None", found.format.read_boxes(images, Request.at(source, found)))


def layout_of(images: ImageSet) -> Layout:
    """Return the layout of a set."""
    if not images.source:
        raise UsageError(
            f"set {images.name!r} was given in memory; a clean copy needs a source on disk"
        )
    if "objects" in images.options:
        raise UsageError(
            f"set {images.name!r} holds the boxes of images; write the lists alone with --format"
            " manifest"
        )
    layout = locate(images.source).format.layout
    if layout is None:
        raise UsageError(
            f"set {images.name!r}: {images.source} is of a kind that is not written; write the"
            " lists alone with --format manifest"
        )
    if layout.writes == "tables:write_parquet":
        from visleak.formats.tables import ParquetOpener

        return layout if isinstance(images.opener, ParquetOpener) else TABLE  # it names files
    return layout


def open_split_sides(source: object) -> OpenSides | None:
    """Open the splits of a source, table or mapping as the sides of an audit, if it has two."""
    if isinstance(source, str | os.PathLike):
        path, sources = _split_sources(os.fspath(source))
        return _split_sides(_opened_splits(path, sources)) if len(sources) > 1 else None
    from visleak.formats.memory import is_rows, plain, split_rows

    splits = split_rows(rows) if is_rows(rows := plain(source)) else source
    if not isinstance(splits, Mapping):
        return None
    opened: dict[str, AnySet] = {}
    for split in sorted(splits, key=lambda name: _rank(canonical_split(name))):
        name = canonical_split(split)
        if name in opened:
            raise UsageError(f"source holds the split {name} twice; give the sets one by one")
        role = "training" if name == "train" else "benchmark"
        opened[name] = open_images(splits[split], name=name, dataset="dataset", roles=(role,))
    if len(opened) < 2:
        return None
    if not {"train", "val"} & opened.keys():
        raise UsageError(
            f"source holds the splits {', '.join(opened)}; one must be train or val, which the"
            " others are compared with"
        )
    return _split_sides(opened)


def _split_sides(splits: Mapping[str, AnySet]) -> OpenSides:
    side = "train" if "train" in splits else "val"
    queries = tuple(images for name, images in splits.items() if name != side)
    return OpenSides(queries, (splits[side],))


def open_splits(
    source: str | os.PathLike[str],
    *,
    dataset: str = "",
    id: str | None = None,
    label: str | None = None,
    group: str | None = None,
    frame: str | None = None,
    root: str | None = None,
    objects: str | None = None,
) -> dict[str, ImageSet]:
    """Open every split of a source as a set of its own.

    Args:
        source: a folder with ``train``, ``val`` and ``test`` folders (or ``images/train`` ...) or
            with ``train*.parquet`` ... files; a manifest or Parquet file with a ``split`` column;
            a YOLO ``data.yaml``; ``cifar:FOLDER``.
        dataset: name of the data set; by default the folder's.
        id, label, group, frame, root, objects: as for
            :func:`visleak.formats.open_image_set`.

    Returns:
        The sets by split, ``train``, ``val`` and ``test`` first. ``train`` has the role
        ``training``, every other one ``benchmark``.

    Raises:
        UsageError: the source does not exist, or holds fewer than two splits.
    """
    text = os.fspath(source)
    path, sources = _split_sources(text)
    if not path.exists():
        raise UsageError(f"source {text!r} does not exist{beside(path)}")
    if len(sources) < 2:
        found = f"only {next(iter(sources))}" if sources else "none"
        raise UsageError(
            f"source {text!r} does not hold two splits (found {found}): it must be a folder with"
            " train, val or test folders or Parquet files, a table with a `split` column, or a"
            " YOLO data.yaml; or give the sets one by one (--test S --train S), or one to look for"
            " repeats in it (--set S)"
        )
    columns = {"id": id, "label": label, "group": group, "frame": frame, "root": root}
    return _opened_splits(path, sources, dataset, objects=objects, **columns)


def _split_sources(text: str) -> tuple[Path, dict[str, str]]:
    prefix, rest = ("", text) if Path(text).exists() else split_prefix(text)
    path = Path(rest)
    refuse_closed(path, text)
    finder = _finder(prefix, path) if path.exists() else None
    return path, {} if finder is None else finder(path)


def _opened_splits(
    path: Path, sources: Mapping[str, str], dataset: str = "", **columns: str | None
) -> dict[str, ImageSet]:
    folder = path if path.is_dir() else path.resolve().parent
    return {
        split: open_image_set(
            sources[split],
            name=split,
            dataset=dataset or folder.resolve().name,
            roles=("training",) if split == "train" else ("benchmark",),
            **columns,
        )
        for split in sorted(sources, key=_rank)
    }


def _names_in(source: object) -> list[str]:
    """Return a list of paths as texts; empty for another object."""
    paths = isinstance(source, list | tuple) and all(
        isinstance(item, str | os.PathLike) for item in source
    )
    return list(map(os.fspath, cast(Sequence[str], source))) if paths else []


def _open_object(source: object, request: Request) -> ImageSet:
    # by name, so that no object makes a heavy package load
    if any(base.__module__.partition(".")[0] == "datasets" for base in type(source).__mro__):
        from visleak.formats.hub import open_object

        return open_object(source, request)
    from visleak.formats.memory import is_rows, open_mapped, open_rows

    return open_rows(source, request) if is_rows(source) else open_mapped(source, request)


def _is_shard(name: str) -> bool:
    return name.partition("?")[0].lower().endswith(TARS)


def _open_paths(names: Sequence[str], request: Request) -> ImageSet:
    """Open a list of image files, relative to the working folder; ids are the paths as given."""
    request.refuse_columns_and_split("a list of paths")
    other = next((name for name in names if _is_shard(name) or os.path.isdir(name)), None)
    if other is not None:
        raise UsageError(
            "a list of names must be one of image files, or one of .tar shards; got"
            f" {redacted(other)!r}: give other sources one by one"
        )
    from visleak.formats.folders import listed_files

    return listed_files(request, names, os.getcwd())


def _rank(split: str) -> tuple[int, str]:
    order = list(SPLITS)
    return (order.index(split) if split in order else len(order), split)


def _finder(prefix: str, path: Path) -> Callable[[Path], dict[str, str]] | None:
    ending = path.suffix.lower()
    if prefix == "cifar":
        return lambda folder: {split: f"cifar:{folder}#{split}" for split in ("train", "test")}
    if path.is_file() and (prefix == "yolo" or ending in (".yaml", ".yml")):
        return _yolo_splits
    if path.is_file() and ending in (".csv", ".tsv", ".parquet"):
        return _table_splits
    return _folder_splits if path.is_dir() and not prefix else None


def _named(names: Iterable[tuple[str, str]], where: Path) -> dict[str, str]:
    """Return the sources that are named like a split, by split."""
    found: dict[str, str] = {}
    for name, source in sorted(names):
        split = canonical_split(name)
        if split not in SPLITS:
            continue
        if found.setdefault(split, source) != source:
            raise UsageError(
                f"{where} holds the split {split} twice: {found[split]} and {source}; give the"
                " sets one by one"
            )
    return found


def _folder_splits(path: Path) -> dict[str, str]:
    file = path / "data.yaml"
    # so the boxes are known to be part of the sets, which the folders alone do not tell
    if file.is_file() and len(found := _yolo_splits(file, complete=True)) > 1:
        return found
    for place in (path, path / "images"):
        if place.is_dir() and len(found := _subfolders(place)) > 1:
            return found
    for place in (path, path / "data"):
        if len(found := _shards(place)) > 1:
            return found
    return _subfolders(path)


def _subfolders(place: Path) -> dict[str, str]:
    return _named([(entry.name, str(entry)) for entry in place.iterdir() if entry.is_dir()], place)


def _shards(place: Path) -> dict[str, str]:
    """Return a glob for each split that ``train-00000-of-00002.parquet`` and the like name."""
    words: dict[str, list[str]] = {}
    for file in sorted(place.glob("*.parquet")):
        if found := re.match(r"[A-Za-z]+(?=[-_.])", file.name):
            words.setdefault(found[0], []).append(str(file))
    pattern = glob.escape(str(place))
    return _named(
        [
            (word, files[0] if len(files) == 1 else f"{pattern}/{word}*.parquet")
            for word, files in words.items()
        ],
        place,
    )


def _table_splits(path: Path) -> dict[str, str]:
    from visleak.formats.tables import read_csv, read_footer, read_tables

    if path.suffix.lower() != ".parquet":
        table = read_csv(path)
    elif "split" in read_footer(path).schema.to_arrow_schema().names:
        table = read_tables([path], ["split"])
    else:
        return {}
    if "split" not in table.column_names:
        return {}
    values = {canonical_split(str(value)) for value in table["split"].unique().to_pylist() if value}
    return {split: f"{path}#{split}" for split in values}


def _yolo_splits(file: Path, complete: bool = False) -> dict[str, str]:
    """Return the splits of a ``data.yaml``; with ``complete``, none if a folder is missing."""
    from visleak.formats.yolo import yolo_base, yolo_content, yolo_splits

    content = yolo_content(file, str(file))
    base = yolo_base(file, content)
    splits = yolo_splits(content, base)
    named = (base / entry for entries in splits.values() for entry in entries)
    if complete and not all(entry.exists() for entry in named):
        return {}
    return {split: f"yolo:{file}#{split}" for split in splits}


@dataclass(frozen=True, slots=True)
class SetArgument:
    """One set as a text names it."""

    option: str  # that it came with
    role: str  # of the set, empty for none
    dataset: str  # as given, or empty
    source: str  # SOURCE
    names: tuple[str, ...]  # that it may have, best first; one only where it was named


@dataclass(frozen=True, slots=True)
class OpenSides:
    """The two sides of an audit, opened."""

    queries: tuple[AnySet, ...]
    references: tuple[AnySet, ...]


def open_sides(sides: Sides) -> OpenSides:
    """Open the sets that an audit compares."""
    _refuse_mixtures(sides)
    columns = asdict(sides.columns)
    if sides.folder:
        opened = _split_sides(open_splits(sides.folder, **columns))
    else:
        arguments = [
            *named_sets("--test", "benchmark", "test", sides.test),
            *named_sets("--train", "training", "train", sides.train),
            *named_sets("--set", "", "", sides.sets),
        ]
        sets = tuple(
            open_images(
                each.source,
                name=name,
                dataset=each.dataset,
                roles=(each.role,) if each.role else (),
                **columns,
            )
            for each, name in zip(arguments, distinct_names(arguments), strict=True)
        )
        first = len(sides.test)
        alone = OpenSides(sets, sets if len(sets) > 1 else ())
        opened = alone if sides.sets else OpenSides(sets[:first], sets[first:])
    for option in ("group", "frame"):
        check_pattern((*opened.queries, *opened.references), option, columns[option])
    return opened


def open_set(text: str, columns: Columns = _NO_COLUMNS) -> ImageSet:
    """Open one set: ``[DATASET:]NAME=SOURCE`` or ``SOURCE``."""
    dataset, name, source = parse_set(text)
    return open_image_set(source, name=writable(name), dataset=writable(dataset), **asdict(columns))


def frame_notes(sides: OpenSides, given: Collection[str]) -> Iterator[str]:
    """Yield a line for each option on frames that has no effect, and for numbers taken as times."""
    framed = [images for images in _image_sets(sides) if images.frames is not None]
    for unit in dict.fromkeys(images.stamps for images in framed if images.stamps):
        names = ", ".join(images.name for images in framed if images.stamps == unit)
        yield f"frames of {names}: their whole numbers are taken for {unit} since 1970, as times"
    if "frame" in given and not both_have(("groups",), sides.queries, sides.references):
        yield "--frame is not used: no recordings are known on both sides; give --group"
    for field, option, timed, other, kind in (
        ("within_frames", "--max-frame-gap", False, "--max-time-gap", "times"),
        ("within_seconds", "--max-time-gap", True, "--max-frame-gap", "numbers"),
    ):
        if field in given and all(images.timed != timed for images in framed):
            why = f"the frames are {kind}; use {other}" if framed else "no frames; give --frame"
            yield f"{option} is not used: {why}"


def _image_sets(sides: OpenSides) -> list[ImageSet]:
    both = {id(images): images for images in (*sides.queries, *sides.references)}
    return [images for images in both.values() if isinstance(images, ImageSet)]


def group_notes(sides: OpenSides) -> Iterator[str]:
    """Yield how many groups there are per side, and whether nearly every image is one."""
    counts = [
        (images.name, images.groups, pc.count_distinct(images.groups).as_py())
        for images in _image_sets(sides)
        if images.groups is not None
    ]
    if counts:
        each = (f"{count:,} in {len(groups):,} images of {name}" for name, groups, count in counts)
        yield f"groups: {', '.join(each)}"
    for name, groups, count in counts:
        if len(groups) >= MANY and count > NEARLY_ALL * len(groups):
            yield (
                f"nearly every image of {name} is a group of its own, such as"
                f" {groups[0].as_py()!r}; is it the column or pattern of the groups?"
            )


def shared_files(sides: OpenSides) -> Iterator[str]:
    """Yield a line for each two sets of both sides that have the same files, as by mistake."""
    for query, other in product(sides.queries, sides.references):
        if query is other or not (_are_files(query) and _are_files(other)):
            continue
        shared = pc.is_in(query.locators, value_set=other.locators).true_count
        if shared:
            yield (
                f"{shared:,} of {len(query):,} images of {query.name} are the very files of"
                f" images of {other.name}: they leak as a matter of course; check that no"
                " source stands for another"
            )


def _are_files(images: AnySet) -> TypeGuard[ImageSet]:
    """Whether the images of a set are files, or in files."""
    if not isinstance(images, ImageSet) or not len(images):
        return False
    return os.path.exists(str(images.locators[0]).partition("!")[0])


def _refuse_mixtures(sides: Sides) -> None:
    ways = [bool(sides.folder), bool(sides.test or sides.train), bool(sides.sets)]
    if sum(ways) == 0:
        raise UsageError(
            "nothing to compare: give a folder with train and test in it, or --test S and"
            " --train S, or --set S to search for duplicates inside one set"
        )
    if sum(ways) > 1:
        raise UsageError("give either DIR, or --test and --train, or --set; not two of them")
    if bool(sides.test) != bool(sides.train):
        there, missing = ("--test", "--train") if sides.test else ("--train", "--test")
        raise UsageError(
            f"{there} needs {missing} to compare with; for duplicates inside one set use --set S"
        )


def named_sets(option: str, role: str, alone: str, texts: Sequence[str]) -> list[SetArgument]:
    """Return the sets that the values of one option name.

    A set without a name is called after its side if it is alone there, else after its source.
    """
    result = []
    for text in texts:
        dataset, name, source = parse_set(text)
        names: tuple[str, ...] = (name,)
        if source == text:
            parent = Path(redacted(source).partition("#")[0]).resolve().parent.name
            names = (derived_name(source), f"{parent}/{derived_name(source)}")
            names = (alone, *names) if alone and len(texts) == 1 else names
        names = tuple(writable(name) for name in names)
        result.append(SetArgument(option, role, writable(dataset), source, names))
    return result


def distinct_names(arguments: Sequence[SetArgument]) -> list[str]:
    """Return a name for every set, all different.

    >>> def unnamed(*names): return SetArgument("--train", "training", "", "x", names)
    >>> distinct_names([unnamed("a", "one/a"), unnamed("a", "two/a"), unnamed("b")])
    ['one/a', 'two/a', 'b']
    """
    level = [0] * len(arguments)
    while True:
        names = [each.names[at] for each, at in zip(arguments, level, strict=True)]
        counts = Counter(names)
        twice = [row for row, name in enumerate(names) if counts[name] > 1]
        if not twice:
            return names
        moved = [row for row in twice if level[row] + 1 < len(arguments[row].names)]
        if not moved:
            first = arguments[twice[0]]
            raise UsageError(
                f"two sets are called {names[twice[0]]!r}; names must differ:"
                f" {first.option} NAME={redacted(first.source)}"
            )
        for row in moved:
            level[row] += 1
