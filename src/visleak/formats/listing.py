"""Which files of a source are images, how many others there are, and which are missing."""

from __future__ import annotations

import fnmatch
import glob
import os
import re
import stat
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Final

import pyarrow as pa

from visleak.formats.remote import is_address, listed
from visleak.images.encodings import SUFFIXES, recognise
from visleak.quantities import counted
from visleak.records import MISSING_LISTED, FileCount

#: Data sets of the hub have a hash behind the number of files.
_NAME: Final = re.compile(r"(.*?)(\d+)(?:(-of-(\d+))(?:-[0-9a-f]+)?)?(\.\w+)", re.ASCII)
HEAD: Final = 256  # bytes of a file that tell whether it is an image
SHORTEST: Final = 18  # a shorter file without a known ending is not taken for an image
#: Formats whose first bytes hardly any other file begins with.
CERTAIN: Final = frozenset(
    ["JPEG", "PNG", "WebP", "GIF", "TIFF", "BMP", "AVIF", "HEIF", "JPEG 2000", "DICOM"]
)
#: Endings of annotations, tables and programs: these lie beside images in most sets.
SIDE_ENDINGS: Final = frozenset(
    [
        *(".txt", ".csv", ".tsv", ".json", ".jsonl", ".geojson", ".xml", ".yaml", ".yml", ".toml"),
        *(".md", ".rst", ".html", ".htm", ".ini", ".cfg", ".log", ".cache", ".db", ".xlsx", ".xls"),
        *(".py", ".ipynb", ".sh", ".js", ".css", ".onnx", ".safetensors", ".cls", ".caption"),
        *(".sha256", ".md5", ".idx", ".sqlite"),
    ]
)
#: Endings of images in a format that is not read, and of files that may hold images. Some of
#: them (raw files of cameras, slides of microscopes) begin as TIFF does.
OTHER_ENDINGS: Final = frozenset(
    [
        *(".nii", ".nii.gz", ".nrrd", ".mha", ".mhd", ".exr", ".hdr", ".svg"),
        *(".pdf", ".eps", ".ps", ".ai", ".mp4", ".avi", ".mov", ".mkv", ".webm", ".m4v", ".mpg"),
        *(".mpeg", ".wmv", ".flv", ".dng", ".nef", ".cr2", ".cr3", ".arw", ".raf", ".rw2", ".orf"),
        *(".pef", ".srw", ".raw", ".nrw", ".3fr", ".fff", ".iiq", ".rwl", ".kdc", ".dcr", ".k25"),
        *(".sr2", ".srf", ".erf", ".mef", ".mos", ".gpr", ".mrw", ".ptx", ".cap", ".eip", ".bay"),
        *(".svs", ".ndpi", ".mrxs", ".scn", ".vsi", ".czi", ".lif", ".bif", ".qptiff", ".xcf"),
        *(".zip", ".tar", ".gz", ".tgz", ".bz2", ".xz", ".7z", ".rar", ".tfrecord", ".lmdb"),
        *(".npy", ".npz", ".mat", ".h5", ".hdf5", ".parquet", ".arrow", ".pkl", ".pt", ".pth"),
    ]
)
HIDDEN: Final = "hidden"  # how hidden images are counted
ADDED: Final = "._"  # how names begin that macOS adds beside files; these are not images
SHOWN: Final = 5  # kinds of skipped files that are named


@dataclass(frozen=True, slots=True)
class FileSequence:
    """Names of one form and their numbers."""

    before: str  # text around the number
    after: str
    digits: int  # number of digits that shorter numbers are filled up to with zeros
    numbers: frozenset[int]  # that are present
    total: int  # of the sequence as the names state it (-of-00400), 0 where they do not

    def span(self, known: Iterable[int] = (), total: int = 0) -> range:
        """Return the numbers that the sequence must have."""
        numbers = self.numbers.union(known)
        least, most, total = min(numbers), max(numbers), total or self.total
        if total:
            start = 1 if least > 0 and most == total else 0
            return range(start, start + total)
        return range(least, most + 1)

    def absent(self, span: range) -> Iterator[str]:
        """Yield the names of the files of a span that are not present."""
        for number in span:
            if number not in self.numbers:
                yield f"{self.before}{number:0{self.digits}d}{self.after}"


def count_files(
    files: Sequence[Path], companions: Iterable[int] = (), expected: int = 0
) -> FileCount:
    """Return how many files of numbered sequences are present, and which are known to be missing.

    A number between others is missing, and so is one that another file of the set has. Sequences
    begin with 0 or 1; one that begins later is taken for a chosen part, as long as
    the number of files is not stated. Other files beside a sequence change nothing.

    >>> print(count_files([Path("e_0.npy"), Path("e_1.npy"), Path("e_3.npy"), Path("mean.npy")]))
    4 of 5 files; e_2.npy is missing
    >>> print(count_files([Path("e_0.npy"), Path("e_1.npy")], expected=4))
    2 of 4 files; e_2.npy, e_3.npy are missing
    >>> print(count_files([Path("t-00001-of-00003-5c1e.parquet")]))
    1 of 3 files; t-00000-of-00003.parquet, t-00002-of-00003.parquet are missing
    """
    found = sequences(files)
    if not found:
        return FileCount(len(files), expected or len(files))
    own, *others = found
    beside = len(files) - len(own.numbers)
    spans = [(own, own.span(companions, max(expected - beside, 0)))]
    spans += [(other, other.span()) for other in others]
    if not expected:
        # dates, or other numbers that do not count files, begin late and are few of their span
        known = [(seq, span, len(seq.numbers.union(companions))) for seq, span in spans]
        spans = [(s, r) for s, r, n in known if s.total or r.start <= 1 or len(r) <= 2 * n]
    lacking = sum(len(span) - sum(n in span for n in seq.numbers) for seq, span in spans)
    names = chain.from_iterable(seq.absent(span) for seq, span in spans)
    return FileCount(len(files), len(files) + lacking, tuple(islice(names, MISSING_LISTED)))


def sequences(files: Sequence[Path]) -> list[FileSequence]:
    """Return the sequences that the names of files are, those with the most files first."""
    forms = defaultdict(list)
    for file in files:
        if found := _NAME.fullmatch(file.name):
            start, number, stated, of, ending = found.groups(default="")
            forms[start, stated + ending, int(of or 0)].append(number)
    result = []
    for (before, after, total), texts in forms.items():
        numbers = frozenset(map(int, texts))
        if len(numbers) == len(texts):
            # shorter numbers are filled up if all have one length and one has zeros
            lengths = set(map(len, texts))
            filled = len(lengths) == 1 and any(text.startswith("0") for text in texts)
            digits = lengths.pop() if filled else 1
            result.append(FileSequence(before, after, digits, numbers, total))
    return sorted(result, key=lambda found: (-len(found.numbers), found.before, found.after))


def ending_of(name: str) -> str:
    """Return the ending of a file name in lower case, with its dot.

    >>> ending_of("a/CT.NII.GZ"), ending_of("a.b/scan"), ending_of("x.jpg_large")
    ('.nii.gz', '', '.jpg_large')
    """
    stem, ending = os.path.splitext(name.lower())
    return f".nii{ending}" if ending == ".gz" and stem.endswith(".nii") else ending


def is_hidden(name: str) -> bool:
    """Whether files of this name, and those in folders of this name, are not listed.

    >>> is_hidden(".cat.jpg"), is_hidden("__MACOSX"), is_hidden("cat.jpg")
    (True, True, False)
    """
    return name.startswith(".") or name == "__MACOSX"


def is_image_file(path: str) -> bool:
    """Whether a file is listed as an image: by its ending, else by its first bytes.

    Hidden files are not, nor is what has the ending of something else.
    """
    return is_image(os.path.basename(path), lambda: head_of(path))


def is_image(name: str, head: Callable[[], bytes]) -> bool:
    """Whether a file or a member of an archive is an image."""
    if is_hidden(name):
        return False
    ending = ending_of(name)
    if ending in SUFFIXES or ending in SIDE_ENDINGS or ending in OTHER_ENDINGS:
        return ending in SUFFIXES
    data = head()
    found = recognise(data) if len(data) >= SHORTEST else None
    return found is not None and found.name in CERTAIN


def head_of(path: str) -> bytes:
    """Return the first bytes of a regular file; nothing where it cannot be read."""
    with suppress(OSError, ValueError):
        # not blocking, so that a pipe without a writer cannot stop the run
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
        try:
            return os.read(handle, HEAD) if stat.S_ISREG(os.fstat(handle).st_mode) else b""
        finally:
            os.close(handle)
    return b""


class Listing:
    """Chooses the images among the files of a source, and counts the others."""

    def __init__(self) -> None:
        self.skipped: Counter[str] = Counter()

    def takes_file(self, path: str) -> bool:
        """Whether the file at a path is an image."""
        return self.takes(os.path.basename(path), lambda: head_of(path))

    def takes(self, name: str, head: Callable[[], bytes] = bytes) -> bool:
        """Whether a file is an image; see :func:`is_image`."""
        if is_image(name, head):
            return True
        if not is_hidden(name):
            self.skipped[ending_of(name)] += 1
        elif not name.startswith(ADDED) and not is_hidden(name[1:]) and ending_of(name) in SUFFIXES:
            self.skipped[HIDDEN] += 1
        return False

    def why_empty(self, what: str) -> str:
        """Return why nothing is listed."""
        found = describe_skipped(self.skipped, side=True)
        return f"{what} is an image{found and f'; skipped were {found}'}"


def describe_skipped(skipped: Mapping[str, int], *, side: bool = False) -> str:
    """Return the files that are not listed in words; empty if there are none.

    >>> describe_skipped({"": 9, ".dcm": 3, ".txt": 60})
    '12 files: 9 without extension, 3 .dcm'
    """
    shown = {kind: n for kind, n in skipped.items() if side or kind not in SIDE_ENDINGS}
    if not shown:
        return ""
    kinds = sorted(shown.items(), key=lambda item: (-item[1], item[0]))
    parts = [f"{count:,} {kind or 'without extension'}" for kind, count in kinds[:SHOWN]]
    if rest := sum(count for _, count in kinds[SHOWN:]):
        parts.append(counted(rest, "other"))
    return f"{counted(sum(shown.values()), 'file')}: {', '.join(parts)}"


def name_text(name: str) -> str:
    r"""Return a file name as text that can be written; bytes that are not UTF-8 as ``\xNN``."""
    return name if name.isascii() else os.fsencode(name).decode("utf-8", "backslashreplace")


@dataclass
class Walk:
    """The files below a folder, by default its images.

    Real folders are walked before folders that symbolic links lead to, and no folder is walked
    twice: loops end, and an image has one id however many links lead to it.
    """

    root: str  # where the walk begins
    keep: Callable[[str], bool] = is_image_file  # which files, by their path

    def __post_init__(self) -> None:
        self.problems: list[tuple[str, OSError]] = []
        self._seen: set[tuple[int, int]] = set()

    def names(self) -> Iterator[str]:
        """Yield the names relative to the root, with ``/``, in no particular order."""
        pending, linked = [""], list[str]()
        while pending or linked:
            if not pending:
                linked.sort()
                pending.append(linked.pop(0))
            folder = pending.pop()
            for entry in self._entries(folder):
                name = f"{folder}/{entry.name}" if folder else entry.name
                is_folder = False
                with suppress(OSError):  # a link that leads to itself
                    is_folder = entry.is_dir()
                if is_folder and not is_hidden(entry.name):
                    (linked if entry.is_symlink() else pending).append(name)
                elif not is_folder and self.keep(entry.path):
                    yield name

    def _entries(self, folder: str) -> list[os.DirEntry[str]]:
        path = os.path.join(self.root, folder) if folder else self.root
        try:
            status = os.stat(path)
            if (status.st_dev, status.st_ino) in self._seen:
                return []
            self._seen.add((status.st_dev, status.st_ino))
            with os.scandir(path) as entries:
                return list(entries)
        except OSError as error:
            self.problems.append((folder, error))
            return []


def first_folder(name: str) -> str | None:
    """Return the first path component of a file in a sub-folder: its label.

    >>> first_folder("cats/tabby/1.png"), first_folder("1.png"), first_folder("../dogs/2.png")
    ('cats', None, 'dogs')
    """
    return next((part for part in name.split("/")[:-1] if part not in ("", ".", "..")), None)


def labels_of(names: Iterable[str]) -> pa.StringArray | None:
    """Return each name's first folder; ``None`` where no image is in a folder."""
    labels = pa.array(map(first_folder, names), pa.string())
    return None if labels.null_count == len(labels) else labels


def split_glob(pattern: str) -> tuple[str, str]:
    """Return the folder before the first wildcard, and the rest.

    >>> split_glob("data/train/**/*.png")
    ('data/train', '**/*.png')
    """
    parts = pattern.split("/")
    first = next((i for i, part in enumerate(parts) if glob.has_magic(part)), len(parts) - 1)
    root = "/".join(parts[:first])
    return root or ("/" if pattern.startswith("/") else "."), "/".join(parts[first:])


def glob_names(root: str, pattern: str, keep: Callable[[str], bool]) -> Iterator[str]:
    """Yield the names of files below ``root`` that match, relative to it."""
    parts = pattern.split("/")
    if "**" in parts:
        # Python's own recursive glob follows links in circles.
        names = Walk(root, lambda path: not is_hidden(os.path.basename(path))).names()
        found: Iterator[str] = (name for name in names if matches(name.split("/"), parts))
    else:
        found = glob.iglob(pattern, root_dir=root)
    for name in found:
        path = os.path.join(root, name)
        if not os.path.isdir(path) and keep(path):
            yield name


def matches(name: Sequence[str], pattern: Sequence[str]) -> bool:
    """Whether the parts of a name match the parts of a pattern.

    >>> matches(["a", "b", "1.png"], ["**", "*.png"]), matches(["a", "1.png"], ["*.png"])
    (True, False)
    """
    if not pattern or not name:
        return not pattern and not name
    first, *others = pattern
    if first != "**":
        return fnmatch.fnmatchcase(name[0], first) and matches(name[1:], others)
    return not others or any(matches(name[skip:], others) for skip in range(len(name)))


def globbed(pattern: str, *endings: str) -> list[str]:
    """Return the files or objects that match a glob and have one of the endings, sorted."""
    root, rest = split_glob(pattern)
    if is_address(pattern):
        parts, start = rest.split("/"), len(root) + 1
        return sorted(
            place
            for place, _ in listed(root)
            if place.lower().endswith(endings) and matches(place[start:].split("/"), parts)
        )

    def keep(path: str) -> bool:
        return path.lower().endswith(endings) and not os.path.basename(path).startswith(".")

    return sorted(str(Path(root, name)) for name in glob_names(root, rest, keep))
