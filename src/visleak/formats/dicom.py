"""DICOM files: images of patients, under pseudonyms.

The group of an image is its patient, or its study or series. Ids are made of digests of the
patient, the series and the file's name, so that no tag and no name is in a result. A guess of
a name can be confirmed by its digest. ``#names=yes`` keeps the names of the files.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import BinaryIO, Final

from visleak.formats.files import read_file
from visleak.formats.listing import HEAD, ending_of, head_of, is_image_file
from visleak.formats.request import Request
from visleak.formats.stacks import (
    Contents,
    check_size,
    files_of,
    library_failure,
    only_holds,
    stack_set,
)
from visleak.images.decoding import QUIET
from visleak.images.dicom import check_unpacked, dicom_frames, is_dicom, read_header, unlogged
from visleak.images.encodings import SUFFIXES
from visleak.images.pixels import rgb_of_array
from visleak.lazy import library
from visleak.records import Bytes8, ImageSet, Refused, Unreadable

_ENDINGS: Final = (".dcm", ".dicom")
#: What can be a group, and its element.
_GROUPS: Final = {
    "patient": "PatientID",
    "study": "StudyInstanceUID",
    "series": "SeriesInstanceUID",
}
_TAGS: Final = (
    *(*_GROUPS.values(), "InstanceNumber", "NumberOfFrames", "Rows", "Columns"),
    "TransferSyntaxUID",
)
_WHOLE: Final = -1  # number of the image of a file that holds one


def is_dicom_folder(path: Path) -> bool:
    """Whether a folder has DICOM files, and no images of another kind."""
    return only_holds(path, _takes)


def open_dicom(request: Request) -> ImageSet:
    """List the images of a DICOM file or of those of a folder: ``dicom:FOLDER#group=series``."""
    request.refuse_options("group", "names")
    by = request.choice("group", tuple(_GROUPS), "patient")
    hides = request.choice("names", ("yes", "no"), "no") == "no"
    files = files_of(request, _takes, "a DICOM file")
    if hides:
        files = replace(files, hidden=pseudonym)
    listed = partial(contents, by=by, hides=hides)
    return stack_set(request, files, listed, DicomFile, by_file=False)


def pseudonym(text: str) -> str:
    """Return a text in place of one that may name a person: the same for the same text.

    >>> pseudonym("DOE^JANE")
    'e73ba10aaaa1'
    """
    return hashlib.blake2b(os.fsencode(text), digest_size=6).hexdigest()


def _takes(path: str) -> bool:
    """Whether a file is DICOM, by its ending or its first bytes; a DICOMDIR is not."""
    ending = ending_of(path)
    if ending in _ENDINGS:
        return True
    if ending in SUFFIXES or os.path.basename(path).upper() == "DICOMDIR":
        return False
    return is_image_file(path) and is_dicom(head_of(path))


def contents(path: str, by: str, hides: bool) -> Contents:
    """Return the frames of a file and where they belong."""
    library("pydicom", "medical", "reading DICOM")
    with _without_values():
        return _contents(path, by, hides)


@contextmanager
def _without_values() -> Iterator[None]:
    """Replace the messages of library errors, which may quote values of tags."""
    try:
        with QUIET, unlogged():
            yield
    except (Refused, OSError):
        raise
    except Exception as error:
        reason = library_failure(error).reason
        name = type(error).__name__
        raise Refused(reason, f"DICOM that pydicom does not read ({name})") from None


def _contents(path: str, by: str, hides: bool) -> Contents:
    with open(path, "rb") as file:
        if not is_dicom(file.read(HEAD)):
            raise Refused("not-an-image", "the content is not that of a DICOM file")
        check_unpacked(file)
        header = read_header(file, pixels=False, tags=_TAGS)

    def number(name: str) -> int | None:
        value = header.get(name)
        return None if value is None or value == "" else int(value)

    rows, columns, count = number("Rows"), number("Columns"), number("NumberOfFrames") or 1
    if not rows or not columns:
        return Contents((), (), skipped="DICOM without pixels")
    check_size(columns, rows, count)
    texts = {each: str(header.get(tag, "") or "") for each, tag in _GROUPS.items()}
    names = {each: pseudonym(text) if text else None for each, text in texts.items()}
    slices = range(count) if count > 1 else [number("InstanceNumber")]
    return Contents(
        [""] if count == 1 else [f"frame={frame}" for frame in range(count)],
        [_WHOLE] if count == 1 else range(count),
        frames=slices if by == "series" else None,
        before=f"{pseudonym(texts['patient'])}/{pseudonym(texts['series'])}/" if hides else "",
        group=names[by],
        columns={f"DICOM {each}": name for each, name in names.items() if each != by},
    )


class DicomFile:
    """An open DICOM file."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._file: BinaryIO | None = None

    def read(self, numbers: Sequence[int]) -> Iterator[bytes | Bytes8 | Unreadable]:
        """Yield the whole file, or some of its frames."""
        if list(numbers) == [_WHOLE]:
            yield read_file(self._path)  # decoded as it is in a plain folder
            return
        self._file = self._file or open(self._path, "rb")  # noqa: SIM115 - closed by close
        frames = dicom_frames(self._file, numbers)
        for _ in numbers:
            with _without_values():
                frame = next(frames)
            yield rgb_of_array(frame)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
