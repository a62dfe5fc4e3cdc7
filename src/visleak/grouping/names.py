"""Grammar of file names: what the names of images may state about recordings, copies and subjects.

Each scheme is a pair of patterns as ``--group`` and ``--frame`` take them, so that what was found
can be given to every later command. Names alone prove nothing: :mod:`visleak.grouping.evidence`
compares the images that a scheme puts together.
"""

from __future__ import annotations

import hashlib
import math
import re
import struct
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import chain, pairwise
from pathlib import Path
from typing import Final

import numpy as np
from PIL import Image

from visleak.formats.frames import since_1970
from visleak.groups import components

#: Ids that are read to find schemes: some stretches of the sorted ids.
READ: Final = 20_000
STRETCHES: Final = 40
#: Share of the ids that a scheme must cover.
COVERED: Final = 0.5
#: Pixels between tiles, at least.
STEP: Final = 8
#: Share of names from which something is taken to be part of all.
NUMEROUS: Final = 0.8
#: Subjects with a number from which names state them, and images of most of them at most.
MANY_SUBJECTS: Final = 20
FEW_IMAGES: Final = 30
#: Groups that must have two images before copies or subjects are supposed.
LEAST_GROUPS: Final = 3
#: Images of a sequence, at least.
LONG: Final = 5
#: Different texts behind or before a counter that are listed in a pattern.
LISTED: Final = 8
#: Chance that a counter that begins with 1 has no smaller numbers, below which it does not.
OUTSIDE: Final = 1e-3
#: Digits of the counter of a camera, at least.
CAMERA_DIGITS: Final = 4

_WORDS: Final = (
    *("aug", "augment", "augmented", "augmentation", "transform", "transformed", "flip"),
    *("flipped", "hflip", "vflip", "fliplr", "flipud", "flip_lr", "flip_ud", "mirror", "mirrored"),
    *("rot", "rotate", "rotated", "rotation", "crop", "cropped", "noise", "noisy", "blur"),
    *("blurred", "bright", "brighter", "brightness", "brightened", "dark", "darker", "darkened"),
    *("contrast", "gamma", "color", "colour", "jitter", "hue", "saturation", "gray", "grey"),
    *("grayscale", "greyscale", "scale", "scaled", "zoom", "zoomed", "shift", "shifted", "shear"),
    *("sheared", "translate", "translated", "elastic", "distorted", "cutout", "invert"),
    *("inverted", "sharp", "sharpened", "equalized", "equalised", "jpeg", "compressed", "resize"),
    *("resized", "copy", "dup", "duplicate"),
)
_WORD: Final = "|".join(sorted(_WORDS, key=len, reverse=True))
#: A suffix that names what was done to an image; `` (1)`` and ``.rf.HASH`` of exports included.
_SUFFIX: Final = re.compile(
    rf"(?:(?:[ _.\-]+|(?<=\d))(?:{_WORD})(?:[ _.\-]*\d+(?:deg|x|px)?)?(?![A-Za-z])[_\-]?)+$"
    r"|(?:_(?:jpe?g|png|bmp|webp|tiff?))?\.rf\.[0-9a-f]{16,}$"
    r"|(?: - copy)? ?\(\d+\)$",
    re.IGNORECASE,
)
_NUMBER_ALONE: Final = re.compile(r" ?\(\d+\)")
#: Words before the number of whom or what an image is of: those that hold others come first.
_SUBJECTS: Final = (
    *("patient", "pat", "pt", "subject", "subj", "sub", "participant", "person", "donor"),
    *("animal", "mouse", "cow", "case", "specimen", "sample_id", "lesion", "plant", "slide"),
    *("recording", "session", "episode", "ep", "trajectory", "traj", "flight", "drive", "video"),
    *("vid", "clip", "sequence", "seq", "scene", "track", "rosbag", "bag"),
)
#: Words that name subjects in columns, and are too common in names of files.
_OWNERS: Final = (
    *("study", "series", "user", "photographer", "camera", "location", "place", "house"),
)
#: Words of columns that hold classes and properties.
_CLASSES: Final = (
    *("class", "classes", "category", "label", "target", "type", "kind", "species", "genus"),
    *("diagnosis", "finding", "grade", "stage", "split", "fold", "set", "subset"),
    *("width", "height", "size", "count", "age", "sex", "gender", "year", "month", "day"),
)
#: The text between the name of a recording and the number of a frame.
_JOINT: Final = re.compile(
    r"(?:[\W_]+(?:f|fr|frame|frames|img|image|im|i|n|t|z|slice|idx|no|pic|photo|shot)?[\W_]*"
    r"|[\W_]*)$",
    re.IGNORECASE,
)
#: Texts that are another one for every image: names of uploads.
NOISE: Final = r"(?:[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{16,})"
_NOISE: Final = re.compile(rf"^(?:.*/)?{NOISE}[\W_]*", re.IGNORECASE)
_DAY: Final = r"(?:19|20)\d\d[-_.]?[01]\d[-_.]?[0-3]\d"
_MOMENT: Final = rf"(?<!\d){_DAY}[-_ T.]+[0-2]\d[-_.:]?[0-5]\d[-_.:]?[0-5]\d(?!\d)"
#: Seconds since 1970 with a fraction.
_SECONDS: Final = r"(?<!\d)1\d{9}\.\d{3,9}(?!\d)"
_ENDING: Final = re.compile(r"\.[A-Za-z]\w{1,4}$")


@dataclass(frozen=True, slots=True)
class Scheme:
    """What names may mean."""

    kind: str  # ``copies``, ``sequence``, ``subjects`` or ``tiles``
    words: str  # the scheme in words, such as ``<recording>_<frame>``
    # patterns whose first groups are searched in the id; no frame where empty
    group: str
    frame: str = ""
    stated: bool = False  # names state it themselves, by words or by the counter of a camera
    source: str = "names"  # where it is read: names, EXIF, or the source of the images


def schemes(ids: Sequence[str]) -> list[Scheme]:
    """Return what the names of all images of a dataset may mean, the most specific first.

    >>> found = schemes([f"road{d}_{n:04}.jpg" for d in range(3) for n in range(9)])
    >>> found[0].words, found[0].group
    ('<recording>_<frame>', '^(.*?)_\\\\d+\\\\.\\\\w+$')
    """
    names = _read(ids)
    ending = r"\.\w+$" if all(map(_ENDING.search, names)) else r"(?:\.[A-Za-z]\w{1,4})?$"
    stems = [_ENDING.sub("", name) for name in names]
    copies, suffix = _copies(stems, ending)
    if suffix:
        behind = re.compile(f"(?:{suffix})$")
        # an original and its copies have one number
        stems = list(dict.fromkeys(behind.sub("", stem) for stem in stems))
        ending = f"(?:{suffix})?{ending}"
    time = _by_time(stems)
    found = [copies, *_by_word(stems), time, _tiles(stems, ending)]
    found += _by_counter(stems, ending) if time is None else ()
    return [each for each in dict.fromkeys(found) if each is not None]


def _read(ids: Sequence[str]) -> list[str]:
    """Return all ids, or some stretches of neighbours of many."""
    names = sorted(set(ids))
    if len(names) <= READ:
        return names
    length = READ // STRETCHES
    starts = (place * (len(names) - length) // (STRETCHES - 1) for place in range(STRETCHES))
    return list(dict.fromkeys(chain.from_iterable(names[at : at + length] for at in starts)))


def general(text: str) -> str:
    """Return a pattern of a text whose numbers may be others.

    >>> general("_aug3.b")
    '_aug\\\\d+\\\\.b'
    """
    parts = re.split(r"([0-9a-f]{16,}|\d+)", text)
    return "".join(
        re.escape(part).replace(r"\ ", " ").replace(r"\-", "-")
        if not place % 2
        else r"\d+"
        if part.isdigit() and len(part) < 16
        else "[0-9a-f]+"
        for place, part in enumerate(parts)
    )


# -- copies ---------------------------------------------------------------------------------------


def _copies(stems: Sequence[str], ending: str) -> tuple[Scheme | None, str]:
    """Return the scheme of augmented copies, and the pattern of their suffixes."""
    known = set(stems)
    suffixes: Counter[str] = Counter()
    bases: defaultdict[str, set[str]] = defaultdict(set)
    named = True
    for stem in stems:
        found = _SUFFIX.search(stem)
        if found and _of_one_image(stem[: found.start()], found.group(), known):
            suffixes[general(found.group())] += 1
            bases[stem[: found.start()]].add(stem)
    if not suffixes:
        named = False
        for stem in stems:
            # another name, and a suffix behind a separator
            parts = (stem[: found.start()] for found in re.finditer(r"[ _.\-~(]+", stem))
            if base := next((part for part in parts if part in known), ""):
                suffixes[general(stem[len(base) :])] += 1
                bases[base].add(stem)
    several = [b for b, own in bases.items() if len(own) + (b in known) > 1]
    common = [text for text, count in suffixes.most_common(LISTED) if count >= LEAST_GROUPS]
    everywhere = named and sum(suffixes.values()) >= NUMEROUS * len(stems)
    if not common or (len(several) < LEAST_GROUPS and not everywhere):
        return None, ""
    suffix = "|".join(sorted(common, key=lambda text: (-len(text), text)))
    if len(several) < LEAST_GROUPS:
        return None, suffix  # what an export appends to every name
    group = f"^(.+?)(?:{suffix})?{ending}"
    shown = common[0].replace(r"\d+", "<n>").replace("[0-9a-f]+", "<n>").replace("\\", "")
    return Scheme("copies", f"<image>{shown}", group, stated=named), suffix


def _of_one_image(base: str, suffix: str, known: set[str]) -> bool:
    """Whether the text before a suffix can be the name of one image.

    Files of a class are renamed to ``cat (1)``, ``cat (2)``, and saved as ``images (1)`` from the
    web: a number alone marks a copy only of an image that exists and has a name of its own.
    A word with a number counts the images of a class where its name has none: ``leaf_crop12``.
    """
    own = re.search(r"\d", base.rpartition("/")[2])
    if _NUMBER_ALONE.fullmatch(suffix):
        return own is not None and base in known
    counts = r"\d+" in general(suffix)
    return bool(re.search(r"\w", base)) and (own is not None or base in known or not counts)


# -- words ----------------------------------------------------------------------------------------


def _by_word(stems: Sequence[str]) -> Iterator[Scheme]:
    """Yield the scheme of the first word that names whom or what images are of."""
    for word in _SUBJECTS:
        group = rf"(?:^|[/_\-. ])({word}s?[_\- ]?[A-Za-z]?\d+)(?![A-Za-z0-9])"
        pattern = re.compile(group, re.IGNORECASE)
        found = [match.group(1) for match in map(pattern.search, stems) if match]
        sizes = Counter(found)
        if len(found) >= COVERED * len(stems) and repeats(sizes):
            name = word.replace("_id", "")
            yield Scheme("subjects", f"<{name}>", f"(?i:{group})", stated=True)
            return


def repeats(sizes: Counter[str]) -> bool:
    """Whether there are several groups, and enough of them with two images or more."""
    return len(sizes) > 1 and sum(count > 1 for count in sizes.values()) >= LEAST_GROUPS


def like_classes(sizes: Mapping[str, int]) -> bool:
    """Whether groups are so few, or have so many images, that they may as well be classes."""
    middle = sorted(sizes.values())[len(sizes) // 2]
    return len(sizes) < MANY_SUBJECTS or middle > FEW_IMAGES


def of_column(name: str, sizes: Counter[str]) -> Scheme | None:
    """Return the scheme of a column by its name and the number of images of each value.

    ``None`` where its values can hardly be subjects.

    >>> of_column("patientID", Counter("aabbcc")).stated
    True
    >>> of_column("class_id", Counter("aabbcc")), of_column("batch", Counter("aabbcc"))
    (None, None)
    """
    text = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).lower()
    words = {
        each for word in re.findall(r"[a-z]+", text) for each in (word, word.removesuffix("s"))
    }
    if not repeats(sizes) or words & {*_CLASSES} or max(sizes.values()) > sizes.total() // 2:
        return None
    stated = bool(words & {*_SUBJECTS, *_OWNERS})
    if not stated and like_classes(sizes):
        return None
    return Scheme("subjects", f"column {name}", "", stated=stated, source="column")


def _by_time(stems: Sequence[str]) -> Scheme | None:
    """Return the scheme of names that hold the time of each image."""
    for moment in (_MOMENT, _SECONDS):
        known = [match.group() for match in map(re.compile(moment).search, stems) if match]
        # one time of many images is that of a recording
        if len(set(known)) >= max(COVERED * len(stems), LONG):
            group = rf"^(.*?)[\W_]*{moment}"
            return Scheme("sequence", "<camera>_<time>", group, f"({moment})", stated=True)
    return None


# -- tiles ----------------------------------------------------------------------------------------

_TILE: Final = r"[\W_]+(?:x|r|row|tile|patch|crop|px)?[\W_]*\d+[\W_]*(?:x|y|c|col|_)[\W_]*\d+"
_TILE_WORD: Final = re.compile(r"(?:^|[\W_])(?:x|r|row|tile|patch|crop)[\W_]*\d+", re.IGNORECASE)


def _tiles(stems: Sequence[str], ending: str) -> Scheme | None:
    """Return the scheme of tiles: two numbers behind the name of a scene, on a grid."""
    pattern = re.compile(rf"^(.+?)({_TILE})$", re.IGNORECASE)
    matches = [match for match in map(pattern.search, stems) if match]
    if len(matches) < COVERED * len(stems) or not repeats(Counter(m.group(1) for m in matches)):
        return None
    places = [map(int, re.findall(r"\d+", m.group(2))[-2:]) for m in matches]
    columns = list(zip(*places, strict=True))
    # both coordinates are multiples of a step of some pixels
    grid = all(len(set(values)) > 1 and math.gcd(*values) >= STEP for values in columns)
    if not grid and sum(map(bool, map(_TILE_WORD.search, stems))) <= len(stems) // 2:
        return None
    return Scheme("tiles", "<scene>_<x>_<y>", f"(?i:^(.+?){_TILE}{ending})", stated=True)


# -- counters -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Counted:
    """Names with a counter."""

    head: str  # the text before it, without the joint
    joint: str  # the text between
    number: str
    tail: str  # the text behind, as a pattern


def _by_counter(stems: Sequence[str], ending: str) -> Iterator[Scheme]:
    """Yield what the counter of names may be: of frames, of shots, or of images of a subject."""
    noisy = sum(map(bool, map(_NOISE.search, stems))) >= NUMEROUS * len(stems)
    for place in (1, 2, 3):
        pattern = re.compile(rf"^(.*?)(\d+)(\D*(?:\d+\D*){{{place - 1}}})$")
        found = list(_counted(stems, pattern, noisy))
        tails = Counter(each.tail for each in found)
        kept = {tail for tail, _ in tails.most_common(LISTED)}
        found = [each for each in found if each.tail in kept]
        series: defaultdict[str, set[str]] = defaultdict(set)
        for each in found:
            series[each.head].add(each.number)
        if len(found) < COVERED * len(stems) or max(map(len, series.values()), default=0) < 2:
            continue
        group, frame, words = _patterns(found, kept, ending, noisy)
        long = sum(len(own) for own in series.values() if len(own) >= LONG)
        if long >= COVERED * len(found):
            yield Scheme("sequence", words, group, frame, stated=_of_camera(found))
        sizes = Counter({head: len(own) for head, own in series.items()})
        if repeats(sizes) and max(sizes.values()) <= len(found) // 2:
            words = words.replace("recording", "subject").replace("frame", "image")
            # ids: many with a number of three digits, of few images
            ids = sum(bool(re.search(r"\d{3}", name.rpartition("/")[2])) for name in sizes)
            stated = ids >= NUMEROUS * len(sizes) and not like_classes(sizes)
            yield Scheme("subjects", words, group, stated=stated)
        return


def _counted(stems: Iterable[str], pattern: re.Pattern[str], noisy: bool) -> Iterator[_Counted]:
    for stem in stems:
        text = _NOISE.sub("", stem) if noisy else stem
        match = pattern.search(text)
        if match is None or len(match.group(2)) > 19:
            continue
        before, number, behind = match.groups()
        joint = _JOINT.search(before)
        head = before[: joint.start()] if joint else before
        if not re.search(r"\w", head.rpartition("/")[2]) and re.search(r"\w", before):
            # a word with nothing before it is all that the recording is called
            head = before.rstrip("_-. ")
        yield _Counted(head, before[len(head) :], number, general(behind))


def _patterns(
    found: Sequence[_Counted], tails: set[str], ending: str, noisy: bool
) -> tuple[str, str, str]:
    """Return the patterns of group and frame of names with counters, and the scheme in words."""
    joints = [text for text, _ in Counter(each.joint for each in found).most_common(LISTED)]
    joint, tail = _either([general(text) for text in joints]), _either(sorted(tails))
    start = rf"^(?:.*/)?{NOISE}[\W_]*" if noisy else "^"
    group = rf"{start}(.*?){joint}\d+{tail}{ending}"
    return group, rf"(\d+){tail}{ending}", f"<recording>{joints[0]}<frame>"


def _either(patterns: Sequence[str]) -> str:
    """Return a pattern of any of some patterns.

    >>> _either(["_", "_f"]), _either([""]), _either(["", "b"])
    ('(?:_f|_)', '', '(?:b)?')
    """
    texts = sorted({text for text in patterns if text}, key=lambda text: (-len(text), text))
    if not texts:
        return ""
    if len(texts) == 1 and "" not in patterns:
        return texts[0]
    return f"(?:{'|'.join(texts)}){'?' if '' in patterns else ''}"


def _of_camera(found: Sequence[_Counted]) -> bool:
    """Whether most numbers are those of a camera: they do not begin where an index would.

    The numbers of an index are a part of 1 to the largest. The chance that so many of them are
    all above the smallest one seen is tiny where a camera counted other images before. Series
    that follow each other are one index, sorted by what they are called after.
    """
    numbers: defaultdict[str, list[int]] = defaultdict(list)
    for each in found:
        numbers[each.head].append(int(each.number))
    if max(len(each.number) for each in found) < CAMERA_DIGITS:
        return False
    ranges = sorted((min(own), max(own)) for own in numbers.values())
    apart = all(first[1] < second[0] for first, second in pairwise(ranges))
    series = [list(chain.from_iterable(numbers.values()))] if apart else list(numbers.values())
    late = 0
    for own in series:
        least, most = min(own), max(own)
        if least > 1 and (1.0 - (least - 1) / most) ** len(own) < OUTSIDE:
            late += len(own)
    return late > len(found) / 2


# -- tags of photographs and maps ------------------------------------------------------------------


#: Files that are tried first, and files of all sets that are read at most.
TRIED: Final = 60
MOST: Final = 100_000
#: Share of files with tags from which tags are used.
ENOUGH: Final = 0.5
#: Metres on the ground that a photograph covers.
AROUND: Final = 25.0
#: Share of a side by which footprints of maps must overlap.
OVERLAP: Final = 0.02

_EXIF: Final = 0x8769  # the table with time and serial number
_GPS: Final = 0x8825
_MAKE, _MODEL, _SERIAL, _TIME, _FRACTION = 0x010F, 0x0110, 0xA431, 0x9003, 0x9291
#: Tags of GeoTIFF: sides of a pixel, a pixel and its place, and the kind of coordinates.
_SCALE, _TIE, _KEYS = 33550, 33922, 34735
_KIND, _DEGREES = 1024, 2
_METRES: Final = 111_320.0  # of a degree of latitude
#: Properties of XMP, as attributes or as elements.
_PROPERTY: Final = r"[\w-]+:(?i:{})(?:\s*=\s*[\"']([^\"']+)[\"']|>([^<]+)<)"
_VALUE: Final = r"\d+(?:\.\d+)?"
_BURST: Final = re.compile(_PROPERTY.format("BurstID|BurstUUID"))
_ORIGINAL: Final = re.compile(_PROPERTY.format("OriginalDocumentID"))
_CREATED: Final = re.compile(_PROPERTY.format("DateTimeOriginal|CreateDate"))
_CAMERA: Final = re.compile(_PROPERTY.format("Model"))
_NUMBER: Final = re.compile(_PROPERTY.format("SerialNumber"))
_LATITUDE: Final = re.compile(_PROPERTY.format("GPSLatitude"))
_LONGITUDE: Final = re.compile(_PROPERTY.format("GPSLongitude|GPSLongtitude"))
_ANGLE: Final = re.compile(rf"([+-]?{_VALUE})(?:,({_VALUE}))?(?:,({_VALUE}))?([NSEW]?)")
_LONGEST: Final = 1 << 20  # bytes of XMP that are read
#: What Pillow raises for damaged files and tags.
_DAMAGED: Final = (
    OSError, ValueError, TypeError, KeyError, SyntaxError, EOFError, OverflowError,
    ZeroDivisionError, AttributeError, struct.error, Image.DecompressionBombError,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Shot:
    """When and by which camera a photograph was taken."""

    camera: str  # make and model, with four digits of a digest of the serial number if known
    time: int  # milliseconds since 1970 by the clock of the camera


@dataclass(frozen=True, slots=True)
class Place:
    """Where an image was taken, or what part of the ground it shows."""

    # of its middle, in metres; degrees in metres at the latitude of the image
    x: float
    y: float
    width: float  # of the ground, in metres
    height: float
    kind: str  # of the coordinates; those of two kinds are not comparable


@dataclass(frozen=True, slots=True)
class Tags:
    """What the tags of a file state, each ``None`` where they do not."""

    shot: Shot | None = None
    place: Place | None = None
    burst: str | None = None  # digest of the name of a series that was taken at once
    original: str | None = None  # digest of the name of the document that it was made of


def read_tags(paths: Sequence[str]) -> list[Tags | None] | None:
    """Return the tags of each file, if it is one; ``None`` where few files have any."""
    if not paths or len(paths) > MOST:
        return None
    step = max(1, len(paths) // TRIED)
    tried = [tags_of(path) for path in paths[::step]]
    if sum(tags is not None for tags in tried) < ENOUGH * len(tried):
        return None
    return [tags_of(path) for path in paths]


def tags_of(path: str) -> Tags | None:
    """Return what the tags of a file state, ``None`` where that is nothing."""
    if not Path(path).is_file():
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(path) as image:
                exif = image.getexif()
                tags = {**exif, **exif.get_ifd(_EXIF)}
                xmp = _xmp(image)
                angles = (_degrees(found(each, xmp)) for each in (_LATITUDE, _LONGITUDE))
                place = _of_gps(exif.get_ifd(_GPS)) or _of_map(image) or _at(*angles)
                burst, original = (_digest(found(pattern, xmp)) for pattern in (_BURST, _ORIGINAL))
                made = Tags(_shot(tags) or _shot(_as_exif(xmp)), place, burst, original)
    except _DAMAGED:
        return None
    return made if made != Tags() else None


def _digest(text: str, size: int = 6) -> str | None:
    encoded = text.encode("utf-8", "replace")
    return hashlib.blake2b(encoded, digest_size=size).hexdigest() if text else None


# -- camera and time ------------------------------------------------------------------------------


def _shot(tags: Mapping[int, object]) -> Shot | None:
    make, model, text, fraction, serial = (
        str(tags.get(tag) or "").strip(" \0") for tag in (_MAKE, _MODEL, _TIME, _FRACTION, _SERIAL)
    )
    camera = f"{make} {model}".strip()
    try:
        taken = since_1970(datetime.strptime(text, "%Y:%m:%d %H:%M:%S"))
    except ValueError:
        return None
    if not camera or taken < 0:
        return None
    milliseconds = int(f"{fraction:0<3}"[:3]) if fraction.isdecimal() else 0
    if serial:
        camera = f"{camera} {_digest(serial, 2)}"
    return Shot(camera, taken + milliseconds)


# -- XMP ------------------------------------------------------------------------------------------


def _xmp(image: Image.Image) -> str:
    """Return the XMP of an image as text; nothing where there is none."""
    data = image.info.get("xmp") or image.info.get("XML:com.adobe.xmp") or b""
    if not data and (tags := getattr(image, "tag_v2", None)) is not None:
        data = tags.get(700) or b""
    text = data.decode("utf-8", "replace") if isinstance(data, bytes) else str(data)
    return text[:_LONGEST]


def found(pattern: re.Pattern[str], xmp: str) -> str:
    """Return the value of a property, empty where it is not there."""
    match = pattern.search(xmp)
    return (match[1] or match[2]).strip() if match else ""


def _as_exif(xmp: str) -> dict[int, object]:
    """Return camera and time of XMP as EXIF has them.

    >>> xmp = '<x tiff:Model="M" xmp:CreateDate="2021-03-04T05:06:07.25Z"/>'
    >>> sorted(_as_exif(xmp).values())
    ['', '2021:03:04 05:06:07', '25', 'M']
    """
    date, _, time = found(_CREATED, xmp).partition("T")
    clock = re.match(r"(\d\d:\d\d:\d\d)(?:\.(\d+))?", time)
    return {
        _MODEL: found(_CAMERA, xmp),
        _SERIAL: found(_NUMBER, xmp),
        _TIME: f"{date.replace('-', ':')} {clock[1]}" if clock else "",
        _FRACTION: (clock[2] or "") if clock else "",
    }


def _degrees(text: str) -> float | None:
    """Return an angle of XMP in degrees.

    >>> _degrees("48,30.6N"), _degrees("2,15,36W"), _degrees("+12.5"), _degrees("")
    (48.51, -2.26, 12.5, None)
    """
    match = _ANGLE.fullmatch(text)
    if match is None:
        return None
    value = float(match[1]) + float(match[2] or 0) / 60 + float(match[3] or 0) / 3600
    return round(-value if match[4] in ("S", "W") else value, 9)


# -- places ---------------------------------------------------------------------------------------


def _of_gps(tags: Mapping[int, object]) -> Place | None:
    """Return the place that the GPS of EXIF states."""
    angles = []
    for sign, number, negative in ((1, 2, "S"), (3, 4, "W")):
        parts = tags.get(number)
        if not isinstance(parts, tuple) or len(parts) != 3:
            return None
        degrees, minutes, seconds = map(float, parts)
        value = degrees + minutes / 60 + seconds / 3600
        angles.append(-value if str(tags.get(sign, "")).upper().startswith(negative) else value)
    return _at(angles[0], angles[1])


def _at(latitude: float | None, longitude: float | None) -> Place | None:
    """Return the place about a position; none for 0, 0, which cameras without signal write."""
    if latitude is None or longitude is None or not (latitude or longitude):
        return None
    if not (abs(latitude) <= 90 and abs(longitude) <= 180):
        return None
    x = longitude * _METRES * math.cos(math.radians(latitude))
    return Place(x, latitude * _METRES, AROUND, AROUND, "degrees")


def _of_map(image: Image.Image) -> Place | None:
    tags = getattr(image, "tag_v2", {})
    scale, tie, keys = (tags.get(tag) for tag in (_SCALE, _TIE, _KEYS))
    if not scale or not tie or len(scale) < 2 or len(tie) < 6:
        return None
    width, height = image.width * float(scale[0]), image.height * float(scale[1])
    x = float(tie[3]) - float(tie[0]) * float(scale[0]) + width / 2
    y = float(tie[4]) + float(tie[1]) * float(scale[1]) - height / 2
    if not all(map(math.isfinite, (x, y, width, height))) or min(width, height) <= 0:
        return None
    keys = tuple(keys or ())
    entries = [keys[at : at + 4] for at in range(4, len(keys), 4)]
    kinds = {entry[0]: entry[3] for entry in entries if len(entry) == 4}
    if kinds.get(_KIND) == _DEGREES:
        across = _METRES * math.cos(math.radians(max(min(y, 90.0), -90.0)))
        return Place(x * across, y * _METRES, width * across, height * _METRES, "degrees")
    return Place(x, y, width, height, f"map {sorted(kinds.items())}")


def joined_places(places: Sequence[Place | None]) -> list[str | None]:
    """Return the name of the place of each image: images that overlap are of one place.

    >>> joined_places([Place(0, 0, 9, 9, "a"), None, Place(5, 5, 9, 9, "a"), Place(9, 0, 9, 9, "")])
    ['place 1', None, 'place 1', 'place 2']
    """
    from scipy.spatial import KDTree

    known = [row for row, place in enumerate(places) if place is not None]
    found = [place for place in places if place is not None]
    ties = []
    for kind in sorted({place.kind for place in found}):
        own = np.array([at for at, place in enumerate(found) if place.kind == kind], np.int64)
        boxes = np.array([(p.x, p.y, p.width, p.height) for p in (found[at] for at in own)])
        middle, size = boxes[:, :2], boxes[:, 2:]
        reach = float(size.max())
        pairs = KDTree(middle).query_pairs(reach, p=np.inf, output_type="ndarray")
        first, second = pairs[:, 0], pairs[:, 1]
        limit = (size[first] + size[second]) / 2 - OVERLAP * np.minimum(size[first], size[second])
        over = (abs(middle[first] - middle[second]) < limit).all(axis=1)
        ties.append((own[first[over]], own[second[over]]))
    part = components(len(found), ties)
    result: list[str | None] = [None] * len(places)
    for row, number in zip(known, part.tolist(), strict=True):
        result[row] = f"place {number + 1}"
    return result
