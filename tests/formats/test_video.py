"""Videos and animations: the frame at each time, whatever the container, and damaged files."""

import pickle

import numpy as np
import pytest
from PIL import Image
from video_making import number_of, numbered, write_video

from refusals import refused
from visleak.errors import UsageError, VisleakError
from visleak.formats import open_image_set
from visleak.formats.video import FrameInterval
from visleak.images import decode
from visleak.records import Unreadable

FRAMES = [numbered(number) for number in range(120)]
CONTAINERS = (
    ("a.mp4", "libx264", {"bf": "3", "g": "30"}),
    ("a.mkv", "libx264", {"bf": "2", "g": "250"}),
    ("a.avi", "mpeg4", {"bf": "2", "g": "12"}),
    ("b.avi", "libx264", {"bf": "3", "g": "30"}),  # which has no times of showing
    ("a.webm", "libvpx", {"g": "50", "b": "1M"}),
)


@pytest.fixture(scope="module", params=CONTAINERS, ids=lambda each: each[0])
def video(request, tmp_path_factory):
    name, codec, options = request.param
    return write_video(tmp_path_factory.mktemp("video") / name, FRAMES, codec, **options)


def test_each_frame_is_the_one_of_its_time(video):
    images = open_image_set(f"video:{video}#every=all")
    assert len(images) == 120
    assert images.timed
    assert images.frames.to_pylist() == [40 * number for number in range(120)]
    assert set(images.groups.to_pylist()) == {video.name}
    shown = [number_of(frame) for frame in images.opener.read(range(120))]
    assert shown == list(range(120))


def test_any_order_of_passes_gives_the_same_frames(video):
    images = open_image_set(f"video:{video}#every=all")
    opener = pickle.loads(pickle.dumps(images.opener))
    for positions in ([90], [3, 4, 100], [2], [2], [119], [0, 60, 61]):
        assert [number_of(frame) for frame in opener.read(positions)] == positions


def test_an_interval_takes_the_frame_that_is_shown(video):
    images = open_image_set(video)  # by its ending, each second
    assert images.ids.to_pylist() == [f"{video.name}#t={second}.000" for second in range(5)]
    images = open_image_set(f"video:{video}#every=30")
    assert images.frames.to_pylist() == [0, 1200, 2400, 3600]


def test_a_rate_that_varies(tmp_path):
    times = [0, 40, 1500, 1540, 1580, 4000, 4010]
    frames = [numbered(number) for number in range(len(times))]
    path = write_video(tmp_path / "vfr.mkv", frames, milliseconds=times)
    images = open_image_set(f"video:{path}#every=all")
    assert images.frames.to_pylist() == times
    images = open_image_set(f"video:{path}#every=1s")
    # at 0 s, 1 s and 2 s to 4 s: a frame that is shown for long is taken once
    assert [number_of(frame) for frame in images.opener.read(range(len(images)))] == [0, 1, 4, 5]


@pytest.mark.parametrize("text", ["0", "1.5", "x", "-1s", "1h", ""])
def test_intervals_that_are_none(text):
    with pytest.raises(UsageError, match="every must be"):
        FrameInterval.parse(text, "video:a.mp4")


def test_a_folder_of_videos(tmp_path, put):
    (tmp_path / "one").mkdir()
    write_video(tmp_path / "one" / "a.mp4", FRAMES[:50])
    write_video(tmp_path / "b.mkv", FRAMES[:20])
    put("notes.txt", b"words")
    images = open_image_set(tmp_path)
    assert images.ids.to_pylist() == ["b.mkv#t=0.000", "one/a.mp4#t=0.000", "one/a.mp4#t=1.000"]
    assert images.labels.to_pylist() == [None, "one", "one"]
    assert images.skipped == {".txt": 1}
    put("cat.png", b"\x89PNG\r\n\x1a\n")
    assert open_image_set(tmp_path).ids.to_pylist() == ["cat.png"]


def test_a_truncated_video_keeps_what_it_holds(tmp_path):
    path = write_video(tmp_path / "a.mkv", [*FRAMES, *FRAMES], g="10")
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    images = open_image_set(f"video:{path}#every=all")
    assert 20 < len(images) < 200
    (problem,) = images.problems
    assert problem.reason == "truncated"
    found = list(images.opener.read(range(len(images))))
    shown = {
        time // 40: number_of(frame)
        for time, frame in zip(images.frames.to_pylist(), found, strict=True)
        if not isinstance(frame, Unreadable)
    }
    assert shown == {at: at % 120 for at in shown}
    assert len(shown) >= len(found) - 2


def test_damaged_videos_are_rows_and_not_crashes(tmp_path):
    good = write_video(tmp_path / "good.mp4", FRAMES[:30])
    content = good.read_bytes()
    (tmp_path / "cut.mp4").write_bytes(content[: len(content) // 2])  # without its index
    (tmp_path / "list.mp4").write_bytes(b"#EXTM3U\n#EXTINF:1,\nhttp://127.0.0.1:9/a.ts\n")
    images = open_image_set(f"video:{tmp_path}")
    assert [each.id for each in images.problems] == ["cut.mp4", "list.mp4"]
    assert images.groups.to_pylist() == ["good.mp4", "good.mp4"]
    refused(VisleakError, "holds no images", tmp_path / "cut.mp4", open_image_set)


def test_damage_in_the_middle_costs_the_frames_there(tmp_path):
    path = write_video(tmp_path / "a.mkv", FRAMES, g="10", bf="0")
    content = bytearray(path.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 400] = bytes(400)
    path.write_bytes(content)
    images = open_image_set(f"video:{path}#every=all")
    times = images.frames.to_pylist()
    found = list(images.opener.read(range(len(images))))
    right = [
        not isinstance(frame, Unreadable) and number_of(frame) == time // 40
        for frame, time in zip(found, times, strict=True)
    ]
    assert sum(right) > 60
    assert right[0]


def test_a_missing_file_is_a_row(tmp_path):
    path = write_video(tmp_path / "a.mp4", FRAMES[:30])
    images = open_image_set(path)
    path.unlink()
    assert [each.reason for each in images.opener.read([0, 1])] == ["missing", "missing"]


@pytest.mark.parametrize("ending", ["gif", "png", "webp", "avif"])
def test_animations_frame_by_frame(tmp_path, ending):
    frames = [Image.fromarray(numbered(number)) for number in range(6)]
    path = tmp_path / f"a.{ending}"
    frames[0].save(path, save_all=True, append_images=frames[1:], duration=200)
    images = open_image_set(f"video:{path}#every=all")
    assert images.frames.to_pylist() == [0, 200, 400, 600, 800, 1000]
    found = list(images.opener.read(range(6)))
    assert [number_of(frame) for frame in found] == list(range(6))
    assert np.array_equal(found[0], decode(path.read_bytes()).pixels)
    frames[0].save(tmp_path / f"still.{ending}")
    listed = open_image_set(f"video:{tmp_path}#every=all")  # of a folder, what moves
    assert set(listed.groups.to_pylist()) == {path.name} | ({"still.gif"} & {f"still.{ending}"})
    cut = tmp_path / f"cut.{ending}"
    cut.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    problems = open_image_set(f"video:{tmp_path}").problems if ending == "gif" else ()
    assert all(each.reason in ("truncated", "corrupt") for each in problems)


@pytest.mark.parametrize("ending", ["jpg", "heic", "jxl"])
def test_an_image_that_is_named_as_a_video_is_refused_as_one(tmp_path, ending):
    path = tmp_path / f"a.{ending}"
    path.write_bytes(b"pixels")
    refused(VisleakError, rf"\.{ending} files are read as one", f"video:{path}", open_image_set)
