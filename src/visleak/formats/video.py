"""Videos and animated images: frames at an interval, by the time at which they are shown.

A file is listed by its packets, without decoding: so times are those of the file, also where its
rate varies. Reading looks for the nearest key frame and decodes up to the very frame.
"""

from __future__ import annotations

import bisect
import heapq
import itertools
import re
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
from PIL import Image, UnidentifiedImageError

from visleak.errors import UsageError
from visleak.formats.listing import ending_of
from visleak.formats.request import Request
from visleak.formats.sources import VIDEOS
from visleak.formats.stacks import (
    MAX_IMAGES,
    Contents,
    Stack,
    check_size,
    files_of,
    only_holds,
    stack_set,
)
from visleak.images.decoding import MAX_PIXELS, QUIET
from visleak.images.encodings import SUFFIXES
from visleak.images.pixels import rgb_of_image
from visleak.lazy import library
from visleak.records import Bytes8, ImageSet, Refused, Unreadable

if TYPE_CHECKING:
    from av.container import InputContainer
    from av.video.frame import VideoFrame
    from av.video.stream import VideoStream

#: Endings of animations, which Pillow reads.
ANIMATIONS: Final = (".gif", ".apng", ".webp", ".png", ".avif", ".avifs")
#: Animations by their ending: others are mostly those of still images.
_ANIMATED: Final = (".gif", ".apng", ".avifs")
#: Containers that may be opened; others, such as playlists, may name further files or addresses.
_CONTAINERS: Final = "mov,mp4,avi,matroska,webm,mpegts,mpeg,mpegvideo,asf,flv,m4v,h264,hevc,ogg,ivf"
_EVERY: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|min)?")
_SECONDS: Final = {"ms": Fraction(1, 1000), "s": Fraction(1), "min": Fraction(60)}
#: Share of the stated length that may be missing at the end; lengths are rounded and of the sound.
_SHORT: Final = 0.9
#: Number of frames that are checked for ascending stamps.
_TRIED: Final = 24


@dataclass(frozen=True, slots=True)
class FrameInterval:
    """Which frames are taken."""

    seconds: Fraction | None  # the interval, None for a number of frames
    frames: int = 1

    @classmethod
    def parse(cls, text: str, where: str) -> FrameInterval:
        """Return the interval of ``1s``, ``500ms``, ``10`` (frames) or ``all``.

        >>> FrameInterval.parse("500ms", ""), FrameInterval.parse("all", "").frames
        (FrameInterval(seconds=Fraction(1, 2), frames=1), 1)
        """
        found = _EVERY.fullmatch("1" if text == "all" else text)
        if found is None or not float(found[1]) or (not found[2] and "." in found[1]):
            raise UsageError(
                f"source {where!r}: every must be a time (1s, 500ms, 2min), a number of frames"
                f" (10) or all; got {text!r}"
            )
        if not found[2]:
            return cls(None, int(found[1]))
        return cls(Fraction(found[1]) * _SECONDS[found[2]])

    def chosen(self, times: Sequence[Fraction]) -> list[int]:
        """Return which frames of ascending times are taken: those shown at each interval.

        >>> FrameInterval.parse("1s", "").chosen([Fraction(t) for t in ("5", "5.4", "5.9", "8.2")])
        [0, 2]
        """
        if self.seconds is None or not times:
            return list(range(0, len(times), self.frames))
        taken, at = list[int](), times[0]
        while at <= times[-1]:
            taken.append(bisect.bisect_right(times, at) - 1)
            if taken[-1] + 1 == len(times):
                break
            # a frame that is shown for long is taken once
            after = times[taken[-1] + 1]
            steps = max(1, -((times[0] - after) // self.seconds) - (at - times[0]) // self.seconds)
            at += steps * self.seconds
        return taken


def is_video_folder(path: Path) -> bool:
    """Whether a folder has videos, and no images."""
    return only_holds(path, _is_video)


def open_video(request: Request) -> ImageSet:
    """List frames of a video or animation, or of those of a folder: ``video:FILE#every=1s``.

    The group of a frame is its file, and its time is known.
    """
    request.refuse_options("every")
    every = FrameInterval.parse(request.options.get("every", "1s"), request.text)
    listing = files_of(request, _takes, "a video")
    return stack_set(request, listing, partial(contents, every=every), opened, timed=True)


def _is_video(path: str) -> bool:
    return ending_of(path) in VIDEOS


def _takes(path: str) -> bool:
    """Whether a file is a video or an animation: of endings of still images, those that move."""
    ending = ending_of(path)
    if ending in (*VIDEOS, *_ANIMATED) or ending not in ANIMATIONS:
        return ending in (*VIDEOS, *_ANIMATED)
    try:
        with QUIET, Image.open(path) as image:
            return bool(getattr(image, "is_animated", False))
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
        return False


def contents(path: str, every: FrameInterval) -> Contents:
    """Return the frames of a file that are taken, by their times."""
    if ending_of(path) in ANIMATIONS:
        times, numbers, problem = _animation_times(path)
    else:
        times, numbers, problem = _video_times(path)
    taken = every.chosen(times)
    moments = _milliseconds(times)
    return Contents(
        [f"t={float(times[at] - times[0]):.3f}" for at in taken],
        [numbers[at] for at in taken],
        frames=[moments[at] for at in taken],
        problem=problem,
    )


def _milliseconds(times: Sequence[Fraction]) -> list[int]:
    return [round(1000 * (time - times[0])) for time in times]


def opened(path: str) -> Stack:
    """Open a video or an animation."""
    return Animation(path) if ending_of(path) in ANIMATIONS else Video(path)


# -- videos --------------------------------------------------------------------------------------


def _container(path: str) -> InputContainer:
    """Open a video: a file of this machine, that names no other."""
    if (ending := ending_of(path)) in SUFFIXES:
        raise Refused(
            "unsupported",
            f"{ending} files are read as one image each; give the file or its folder without"
            " `video:`",
        )
    av = library("av", "video", f"reading {Path(path).name}")
    options = {"protocol_whitelist": "file", "format_whitelist": _CONTAINERS}
    container: InputContainer = av.open(path, options=options)
    if not container.streams.video:
        container.close()
        raise Refused("unsupported", "the file has no video")
    return container


def _prepared(container: InputContainer) -> VideoStream:
    stream = container.streams.video[0]
    context = stream.codec_context
    if context is None:
        raise Refused("unsupported", "the video is encrypted, or in a codec that is not read")
    check_size(context.width, context.height)
    context.options = {"max_pixels": str(MAX_PIXELS)}
    stream.thread_type = "AUTO"
    return stream


def _video_times(path: str) -> tuple[list[Fraction], list[int], Unreadable | None]:
    """Return time and stamp of every frame, and the problem of the file."""
    times, stamps, stated = _packets(path)
    if not times:
        raise Refused("corrupt", "no frame of the video can be found")
    first = None
    for stamp in dict.fromkeys((stamps[0], stamps[len(stamps) // 2])):
        with closing(Video(path)) as video:
            first = next(video.read([stamp]))
        if not isinstance(first, Unreadable):
            break
    if isinstance(first, Unreadable):
        raise Refused(first.reason, f"no frame of the video can be decoded ({first.detail})")
    length = float(times[-1] - times[0])
    if stated > 1 and length + 1 < _SHORT * stated:
        ends = f"the video ends after {length:.1f} of {stated:.1f} seconds"
        return times, stamps, Unreadable("truncated", ends)
    return times, stamps, None


def _packets(path: str) -> tuple[list[Fraction], list[int], float]:
    """Return time and stamp of every frame of which there is a packet, and the stated length."""
    with _container(path) as container:
        import av.error

        stream = _prepared(container)
        base, stated = stream.time_base or Fraction(1, 1000), container.duration
        stamps = set[int]()
        # the rest of a damaged file is not read: its length says how much that is
        with suppress(av.error.FFmpegError):
            for packet in itertools.islice(container.demux(stream), MAX_IMAGES):
                stamp = packet.dts if packet.pts is None else packet.pts
                if stamp is not None and packet.size and not packet.is_discard:
                    stamps.add(stamp)
        ordered = sorted(stamps)
        return [stamp * base for stamp in ordered], ordered, (stated or 0) / 1e6


#: A frame, and its stamp.
Shown = tuple[int, "VideoFrame"]


class Video:
    """An open video; its frames are numbered by their stamps."""

    def __init__(self, path: str) -> None:
        import av.error

        self.path = path
        self.container = container = _container(path)
        self._stream = _prepared(container)
        self._first = self._stream.start_time or 0
        self._in_order = True
        if container.format.name == "avi":  # which may hold the order of decoding
            stamps = list[int]()
            with suppress(av.error.FFmpegError):  # a damaged file is read as far as it goes
                stamps += (stamp for stamp, _ in itertools.islice(self._decoded(), _TRIED))
                container.seek(self._first, stream=self._stream)
            self._in_order = stamps == sorted(stamps)
        self._frames = self._decoded()
        self._waiting: Shown | None = None  # decoded, and behind the one that was wanted
        self._landed: Shown | None = None  # the first that was decoded for the one wanted
        self._passed: int | None = None  # the stamp of the last that was decoded

    @cached_property
    def moments(self) -> tuple[list[int], list[int]]:
        """The times and stamps of all frames."""
        times, stamps, _ = _packets(self.path)
        return _milliseconds(times), stamps

    def read(self, numbers: Sequence[int]) -> Iterator[bytes | Bytes8 | Unreadable]:
        """Yield the frames with some stamps."""
        for number in numbers:
            frame = self._frame(number)
            if frame is None or frame.is_corrupt:
                yield Unreadable("corrupt", "the frame cannot be decoded")
            else:
                check_size(frame.width, frame.height)
                turns = round(frame.rotation / 90) % 4
                pixels = np.asarray(frame.to_ndarray(format="rgb24"), np.uint8)
                yield np.ascontiguousarray(np.rot90(pixels, turns)) if turns else pixels

    def _frame(self, stamp: int) -> VideoFrame | None:
        """Return the frame with a stamp, ``None`` where it cannot be decoded.

        Indexes are by the times of decoding, which are before those of showing: so a key frame may
        turn out to be behind the frame, and an earlier one is looked for.
        """
        if not self._seeks(stamp):
            return self._next(stamp)
        second = round(1 / (self._stream.time_base or Fraction(1, 1000)))
        for back in (0, second, 10 * second, None):
            target = self._first if back is None else max(stamp - back, self._first)
            self._jump(target)
            frame = self._next(stamp)
            if frame is not None or target == self._first:
                return frame
            if self._waiting is None or self._waiting is not self._landed:
                return None
        return None

    def _jump(self, stamp: int) -> None:
        self.container.seek(stamp, stream=self._stream, backward=True, any_frame=False)
        self._frames, self._waiting, self._passed = self._decoded(), None, None

    def _next(self, stamp: int) -> VideoFrame | None:
        """Return the frame with a stamp, of those that follow."""
        held, self._waiting = self._waiting, None
        following = itertools.chain([held], self._frames) if held else self._frames
        for number, shown in enumerate(following):
            self._passed, frame = shown
            if not number:
                self._landed = shown
            if self._passed == stamp:
                return frame
            if self._passed > stamp:
                self._waiting = shown
                return None
        return None

    def _seeks(self, stamp: int) -> bool:
        """Whether a frame is reached faster from a key frame than by decoding on."""
        if self._passed is None:
            return stamp > self._first and self._has_key(self._first, stamp)
        if stamp < self._passed or (stamp == self._passed and self._waiting is None):
            return True
        return self._has_key(self._passed, stamp)

    def _has_key(self, after: int, until: int) -> bool:
        entries = self._stream.index_entries
        at = entries.search_timestamp(until) if len(entries) else -1
        return at >= 0 and entries[at].timestamp > after

    def _decoded(self) -> Iterator[Shown]:
        """Yield the frames from here on; packets that cannot be decoded are left out.

        Frames are decoded in the order in which they are shown. Where their stamps are not, they
        have those of the packets, in ascending order.
        """
        import av.error

        stamps = list[int]()
        for packet in self.container.demux(self._stream):
            own = packet.dts if packet.pts is None else packet.pts
            if not self._in_order and own is not None and packet.size:
                heapq.heappush(stamps, own)
            try:
                for frame in packet.decode():
                    stamp = frame.dts if frame.pts is None else frame.pts
                    if not self._in_order:
                        stamp = heapq.heappop(stamps) if stamps else None
                    if stamp is not None:
                        yield stamp, frame
            except av.error.FFmpegError:
                continue

    def close(self) -> None:
        """Close the file."""
        self.container.close()


# -- animations ----------------------------------------------------------------------------------


def _animation(path: str) -> Image.Image:
    try:
        image = Image.open(path)
    except UnidentifiedImageError as error:
        raise Refused("corrupt", "the content is not that of an animation") from error
    check_size(*image.size)
    return image


def _animation_times(path: str) -> tuple[list[Fraction], list[int], Unreadable | None]:
    """Return time and number of every frame of an animation, and the problem of the file."""
    at, times = Fraction(0), list[Fraction]()
    with QUIET, _animation(path) as image:
        count = getattr(image, "n_frames", 1)
        check_size(*image.size, count)
        for number in range(count):
            try:
                image.seek(number)
                image.load()
            except (OSError, EOFError, ValueError, SyntaxError) as error:
                if not times:
                    raise
                why = f"frame {number + 1} of {count} cannot be decoded ({error})"
                return times, list(range(len(times))), Unreadable("truncated", why)
            times.append(at)
            # what states no time is shown as browsers do: for a tenth of a second
            at += Fraction(round(1000 * (image.info.get("duration") or 100)), 1_000_000)
    return times, list(range(len(times))), None


@dataclass
class Animation:
    """An open animation; its frames are numbered from 0."""

    path: str

    def __post_init__(self) -> None:
        self._image = _animation(self.path)

    @cached_property
    def moments(self) -> tuple[list[int], list[int]]:
        """The times and numbers of all frames."""
        times, numbers, _ = _animation_times(self.path)
        return _milliseconds(times), numbers

    def read(self, numbers: Sequence[int]) -> Iterator[bytes | Bytes8 | Unreadable]:
        """Yield some frames."""
        for number in numbers:
            with QUIET:
                self._image.seek(number)
                self._image.load()
                pixels = rgb_of_image(self._image).copy()
            yield pixels

    def close(self) -> None:
        """Close the file."""
        self._image.close()
