"""Which files of a source are pictures, and how many of each other kind there are."""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

from visleak.images.formats import SUFFIXES, recognise

#: Bytes of a file that tell whether it is a picture.
HEAD: Final = 256

#: A shorter file without a known ending is not taken for a picture.
SHORTEST: Final = 18

#: Formats whose first bytes hardly any other file begins with.
CERTAIN: Final = frozenset(
    ["JPEG", "PNG", "WebP", "GIF", "TIFF", "BMP", "AVIF", "HEIF", "JPEG 2000"]
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
        *(".dcm", ".dicom", ".nii", ".nii.gz", ".nrrd", ".mha", ".mhd", ".exr", ".hdr", ".svg"),
        *(".pdf", ".eps", ".ps", ".ai", ".mp4", ".avi", ".mov", ".mkv", ".webm", ".m4v", ".mpg"),
        *(".mpeg", ".wmv", ".flv", ".dng", ".nef", ".cr2", ".cr3", ".arw", ".raf", ".rw2", ".orf"),
        *(".pef", ".srw", ".raw", ".nrw", ".3fr", ".fff", ".iiq", ".rwl", ".kdc", ".dcr", ".k25"),
        *(".sr2", ".srf", ".erf", ".mef", ".mos", ".gpr", ".mrw", ".ptx", ".cap", ".eip", ".bay"),
        *(".svs", ".ndpi", ".mrxs", ".scn", ".vsi", ".czi", ".lif", ".bif", ".qptiff", ".xcf"),
        *(".zip", ".tar", ".gz", ".tgz", ".bz2", ".xz", ".7z", ".rar", ".tfrecord", ".lmdb"),
        *(".npy", ".npz", ".mat", ".h5", ".hdf5", ".parquet", ".arrow", ".pkl", ".pt", ".pth"),
    ]
)

#: How hidden images are counted.
HIDDEN: Final = "hidden"

#: How names begin that macOS adds beside files; these are no images.
ADDED: Final = "._"


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


def is_picture_name(name: str) -> bool:
    """Whether a file name says that the file is a picture: by its ending, and not hidden.

    >>> is_picture_name("cat.JPEG"), is_picture_name(".cat.jpg"), is_picture_name("notes.txt")
    (True, False, False)
    """
    return not is_hidden(name) and os.path.splitext(name)[1].lower() in SUFFIXES


def is_picture_file(path: str) -> bool:
    """Whether a file is listed as a picture: by its ending, else by its first bytes.

    Hidden files are not, nor is what has the ending of something else.
    """
    return is_picture(os.path.basename(path), lambda: _head(path))


def is_picture(name: str, head: Callable[[], bytes]) -> bool:
    """Whether a file or a member of an archive is a picture.

    Args:
        name: its last name.
        head: returns its first :data:`HEAD` bytes; called only where the ending tells nothing.
    """
    if is_hidden(name):
        return False
    ending = ending_of(name)
    if ending in SUFFIXES or ending in SIDE_ENDINGS or ending in OTHER_ENDINGS:
        return ending in SUFFIXES
    data = head()
    found = recognise(data) if len(data) >= SHORTEST else None
    return found is not None and found.name in CERTAIN


def _head(path: str) -> bytes:
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
    """Chooses the pictures among the files of a source, and counts the others.

    Attributes:
        skipped: number of files that are not listed, by ending; of hidden files only those with
            an image's ending, as :data:`HIDDEN`.
    """

    def __init__(self) -> None:
        self.skipped: Counter[str] = Counter()

    def takes_file(self, path: str) -> bool:
        """Whether the file at a path is a picture."""
        return self.takes(os.path.basename(path), lambda: _head(path))

    def takes(self, name: str, head: Callable[[], bytes] = bytes) -> bool:
        """Whether a file is a picture; see :func:`is_picture`."""
        if is_picture(name, head):
            return True
        if not is_hidden(name):
            self.skipped[ending_of(name)] += 1
        elif not name.startswith(ADDED) and is_picture_name(name[1:]):
            self.skipped[HIDDEN] += 1
        return False

    def why_empty(self, what: str) -> str:
        """Return why nothing is listed."""
        found = describe_skipped(self.skipped, side=True)
        return f"{what} is a picture{found and f'; skipped were {found}'}"


def describe_skipped(skipped: Mapping[str, int], *, side: bool = False) -> str:
    """Return the files that are not listed in words; empty if there are none.

    Args:
        skipped: number of files by ending.
        side: annotations, tables and programs count too.

    >>> describe_skipped({"": 9, ".dcm": 3, ".txt": 60})
    '12 files: 9 without extension, 3 .dcm'
    """
    shown = {kind: n for kind, n in skipped.items() if side or kind not in SIDE_ENDINGS}
    if not shown:
        return ""
    total = sum(shown.values())
    kinds = sorted(shown.items(), key=lambda item: (-item[1], item[0]))
    parts = [f"{count:,} {kind or 'without extension'}" for kind, count in kinds[:SHOWN]]
    if len(kinds) > SHOWN:
        parts.append(f"{sum(count for _, count in kinds[SHOWN:]):,} others")
    return f"{total:,} {'file' if total == 1 else 'files'}: {', '.join(parts)}"


#: Kinds of skipped files that are named.
SHOWN: Final = 5
