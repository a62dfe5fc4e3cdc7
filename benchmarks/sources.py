"""Detection of shared segments of videos and of scans under several windows, and reading rates.

Twenty clips are cut out of recordings, cropped, covered with a bar, reduced in rate or size, and
put between other footage. They are compared with the recordings and with still images of them:
exactly the shared segments must be found, with their ends within half a second. Slices of a 12-bit
phantom are stored as DICOM under four windows, as 16-bit PNG and as 8-bit JPEG: all pairs of a
slice must be near or exact, and no pair of two slices. Reading times are relative to those of the
libraries.

Needs VISLEAK_DATA. About five minutes on two cores.
"""

from __future__ import annotations

import csv
import io
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import av
import cv2
import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq
import pydicom
import tifffile
from changes import generator
from PIL import Image
from pydicom import uid
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.pixels.processing import apply_modality_lut, apply_voi_lut
from record import Bar, data_folder, write
from scipy.ndimage import gaussian_filter

import visleak
from visleak.formats import open_image_set
from visleak.groups import components
from visleak.images import decode

Frame = npt.NDArray[np.uint8]

RATE, HEIGHT, WIDTH = 25, 240, 320
MASTERS, SCENES, SCENE = 2, 6, 3.0  # recordings, scenes of each, seconds of a scene
CLIPS = 20
EVERY = "500ms"
#: Centre and width of the windows, in Hounsfield units.
WINDOWS = {"full": (1023, 4096), "soft": (40, 400), "lung": (-500, 1500), "bone": (400, 1800)}
SLICES = 3


# -- videos --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Clip:
    """A clip, and the source of its middle."""

    name: str
    start: float  # of the shared segment in the clip, seconds
    master: int
    at: float  # of the segment in the recording
    length: float


def footage(photo: Path, seconds: float, rng: np.random.Generator) -> Iterator[Frame]:
    """Yield frames of a camera that moves slowly over a photograph."""
    with Image.open(photo) as file:
        picture = np.asarray(file.convert("RGB").resize((int(WIDTH * 1.35), int(HEIGHT * 1.35))))
    down, across = picture.shape[0] - HEIGHT, picture.shape[1] - WIDTH
    begin, end = rng.uniform(0, 1, 2), rng.uniform(0, 1, 2)
    for step in np.linspace(0, 1, round(seconds * RATE)):
        y, x = (begin + (end - begin) * step * 0.5) * (down, across)
        yield picture[int(y) : int(y) + HEIGHT, int(x) : int(x) + WIDTH]


def changed(frame: Frame, number: int) -> Frame:
    """Return a frame of a clip: cropped, covered, or smaller."""
    if number % 4 == 1:
        frame = frame[HEIGHT // 16 : -HEIGHT // 16, WIDTH // 16 : -WIDTH // 16]
    if number % 4 == 2:
        frame = frame.copy()
        frame[-HEIGHT // 10 :] = (20, 60, 160)
        cv2.putText(frame, "CHANNEL 5", (10, HEIGHT - 7), 0, 0.6, (255, 255, 255), 2)
    if number % 4 == 3:
        frame = cv2.resize(frame, (WIDTH * 3 // 4, HEIGHT * 3 // 4), interpolation=cv2.INTER_AREA)
    return np.ascontiguousarray(frame[: frame.shape[0] // 2 * 2, : frame.shape[1] // 2 * 2])


def write_video(path: Path, frames: Sequence[Frame], rate: int = RATE) -> None:
    """Write a video."""
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=rate, options={"preset": "veryfast"})
        stream.height, stream.width = frames[0].shape[:2]
        stream.pix_fmt = "yuv420p"
        for pixels in frames:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")))
        container.mux(stream.encode())


def make_videos(folder: Path, photos: Sequence[Path]) -> list[Clip]:
    """Write recordings, stills and clips."""
    rng, rest = generator("sources", "videos"), iter(photos)
    masters = []
    for name in ("masters", "clips", "stills"):
        (folder / name).mkdir()
    for number in range(MASTERS):
        frames = [frame for _ in range(SCENES) for frame in footage(next(rest), SCENE, rng)]
        masters.append(frames)
        write_video(folder / "masters" / f"m{number}.mp4", frames)
        for at in range(0, len(frames), RATE // 4):
            name = f"m{number}-{1000 * at // RATE:06d}.jpg"
            Image.fromarray(frames[at]).save(folder / "stills" / name, quality=92)
    for photo in list(photos)[-40:]:
        with Image.open(photo) as file:
            file.convert("RGB").resize((WIDTH, HEIGHT)).save(folder / "stills" / photo.name)
    clips = []
    for number in range(CLIPS):
        master, length = number % MASTERS, float(rng.uniform(1.5, 3.5))
        at = float(rng.uniform(0, SCENES * SCENE - length))
        before = list(footage(next(rest), float(rng.uniform(1, 1.6)), rng))
        after = list(footage(next(rest), float(rng.uniform(1, 1.6)), rng))
        first = round(at * RATE)
        taken = masters[master][first : first + round(length * RATE)]
        frames = [changed(frame, number) for frame in (*before, *taken, *after)]
        slow = number % 5 == 4
        name = f"c{number:02d}.{('mp4', 'mkv', 'avi')[number % 3]}"
        shown = frames[::2] if slow else frames
        write_video(folder / "clips" / name, shown, RATE // 2 if slow else RATE)
        # every other frame at half the rate, rounded down to whole frames
        stretch = (RATE / 2) / (RATE // 2) if slow else 1.0
        start = len(before) / RATE * stretch
        clips.append(Clip(name, start, master, first / RATE, len(taken) / RATE * stretch))
    return clips


def segments(folder: Path, train: str, out: str) -> list[dict[str, str]]:
    """Audit the clips against a source and return the segments."""
    audit = visleak.audit(
        f"video:{folder / 'clips'}?every={EVERY}",
        train,
        out=folder / out,
        cache=None,
        within=False,
    )
    table = audit.folder / "segments.csv"
    if not table.exists():
        return []
    with table.open(newline="") as lines:
        return list(csv.DictReader(lines))


def judged(clips: Sequence[Clip], rows: Sequence[dict[str, str]], videos: bool) -> dict[str, Any]:
    """Return the numbers of found and false segments, and the largest error of an end."""
    errors, found, wrong = list[float](), set[str](), list[str]()
    by_name = {clip.name: clip for clip in clips}
    for row in rows:
        clip = by_name[row["query"]]
        start, end = float(row["query_start"]), float(row["query_end"])
        own = [abs(start - clip.start), abs(end - clip.start - clip.length)]
        if videos:
            shown = (float(row["reference_start"]), float(row["reference_end"]))
            own += [abs(shown[0] - clip.at), abs(shown[1] - clip.at - clip.length)]
        overlaps = start < clip.start + clip.length and end > clip.start
        if not overlaps or (videos and row["reference"] != f"m{clip.master}.mp4"):
            wrong.append(f"{row['query']} {start}-{end} {row['reference']}")
            continue
        found.add(clip.name)
        errors += own
    return {
        "segments": len(clips),
        "found": len(found),
        "rows": len(rows),
        "false": wrong,
        "error_seconds": round(max(errors, default=0.0), 3),
        "missed": sorted(set(by_name) - found),
    }


# -- scans ---------------------------------------------------------------------------------------


def phantom(seed: int, size: int = 192) -> npt.NDArray[np.uint16]:
    """Return a slice of a phantom: 12 bits, 1,024 above Hounsfield units."""
    rng = generator("sources", f"phantom {seed}")
    y, x = np.mgrid[-1 : 1 : size * 1j, -1 : 1 : size * 1j]
    units = np.full((size, size), -1000.0)
    units[(x / 0.85) ** 2 + (y / 0.65) ** 2 < 1] = -90
    inner = (x / 0.78) ** 2 + (y / 0.58) ** 2 < 1
    units[inner] = 40
    for _ in range(25):
        across, down, turn = rng.uniform(-0.6, 0.6), rng.uniform(-0.45, 0.45), rng.uniform(0, 3.2)
        wide, high = rng.uniform(0.03, 0.22, 2)
        u = (x - across) * np.cos(turn) + (y - down) * np.sin(turn)
        v = -(x - across) * np.sin(turn) + (y - down) * np.cos(turn)
        tissue = float(rng.choice([-800, -60, 10, 60, 90, 130, 300, 900])) + rng.normal(0, 8)
        units[((u / wide) ** 2 + (v / high) ** 2 < 1) & inner] = tissue
    units = gaussian_filter(units, 1.0)
    texture = gaussian_filter(rng.normal(0, 1, units.shape), 1.2) * 40 * (units > -900)
    noise = rng.normal(0, 6, units.shape)
    return np.clip(np.rint(units + texture + noise + 1024), 0, 4095).astype(np.uint16)


def dicom(values: npt.NDArray[np.uint16], centre: float, width: float) -> bytes:
    """Return a DICOM file of a slice with a window."""
    header = Dataset()
    header.file_meta = FileMetaDataset()
    header.file_meta.TransferSyntaxUID = uid.ExplicitVRLittleEndian
    header.SOPClassUID, header.SOPInstanceUID = uid.CTImageStorage, uid.generate_uid()
    header.Rows, header.Columns = values.shape
    header.SamplesPerPixel, header.PhotometricInterpretation = 1, "MONOCHROME2"
    header.BitsAllocated, header.BitsStored, header.HighBit = 16, 12, 11
    header.PixelRepresentation, header.RescaleSlope, header.RescaleIntercept = 0, 1, -1024
    header.WindowCenter, header.WindowWidth = centre, width
    header.PixelData = values.tobytes()
    file = io.BytesIO()
    header.save_as(file, enforce_file_format=True)
    return file.getvalue()


def make_scans(folder: Path) -> None:
    """Write each slice as DICOM and JPEG under each window, and as 16-bit PNG."""
    for number in range(SLICES):
        values = phantom(number)
        Image.fromarray(values).save(folder / f"{number}-png.png")
        for name, (centre, width) in WINDOWS.items():
            (folder / f"{number}-{name}.dcm").write_bytes(dicom(values, centre, width))
            shares = (values.astype(np.float64) - 1024 - centre + width / 2) / width
            eight = np.rint(np.clip(shares, 0, 1) * 255).astype(np.uint8)
            Image.fromarray(eight).save(folder / f"{number}-{name}.jpg", quality=90)


def scans(folder: Path) -> dict[str, Any]:
    """Return the number of near or exact pairs of one slice, and of two slices.

    Pairs that are connected by near ones are not verified, and count as near.
    """
    make_scans(folder)
    audit = visleak.audit(str(folder), cache=None, candidates="auto", per_query=100)
    grades = {
        frozenset((row["query"], row["reference"])): row["grade"]
        for row in pq.read_table(audit.folder / "pairs.parquet").to_pylist()
    }
    names = sorted(path.name for path in folder.iterdir())
    place = {name: number for number, name in enumerate(names)}
    near = [
        sorted(place[name] for name in pair)
        for pair, grade in grades.items()
        if grade in ("near", "exact")
    ]
    ends = np.array(near, np.int64).reshape(-1, 2)
    part = components(len(names), [(ends[:, 0], ends[:, 1])])
    pairs = list(combinations(names, 2))
    same = [pair for pair in pairs if pair[0][0] == pair[1][0]]
    apart = [pair for pair in same if part[place[pair[0]]] != part[place[pair[1]]]]
    return {
        "slices": SLICES,
        "forms": len(names) // SLICES,
        "pairs_of_a_slice": len(same),
        "verified_near_or_exact": sum(names[one][0] == names[other][0] for one, other in near),
        "not": [" ".join((*pair, str(grades.get(frozenset(pair))))) for pair in apart],
        "other_pairs": len(pairs) - len(same),
        "wrong": sum(names[one][0] != names[other][0] for one, other in near),
    }


# -- rates ---------------------------------------------------------------------------------------


def seconds(task: Callable[[], object], repeats: int = 5) -> float:
    """Return the smallest processor time of a task, of all threads."""
    found = []
    for _ in range(repeats):
        start = time.process_time()
        task()
        found.append(time.process_time() - start)
    return min(found)


def with_opencv(path: Path) -> int:
    """Read all frames of a video with OpenCV, as RGB."""
    video, count = cv2.VideoCapture(str(path)), 0
    while True:
        there, frame = video.read()
        if not there:
            return count
        cv2.cvtColor(frame, cv2.COLOR_BGR2RGB)
        count += 1


def read(source: str) -> int:
    """Read all images of a source with visleak."""
    images = open_image_set(source)
    return sum(1 for _ in images.opener.read(range(len(images))))


def rates(folder: Path, photos: Sequence[Path]) -> dict[str, float]:
    """Return the speed of visleak relative to the libraries."""
    rng = generator("sources", "rates")
    frames = [cv2.resize(frame, (1280, 720)) for frame in footage(photos[0], 6, rng)]
    write_video(folder / "v.mp4", frames)
    pages = np.stack([cv2.resize(frame, (1024, 1024))[:, :, 0] for frame in frames[:24]])
    tifffile.imwrite(folder / "p.tif", pages, compression="zlib")
    values = (pages[0].astype(np.uint16) << 4) | 7
    plain, packed = folder / "s.dcm", folder / "packed.dcm"
    plain.write_bytes(dicom(values, 40, 400))
    header = pydicom.dcmread(plain)
    header.compress(uid.RLELossless)
    header.save_as(packed)
    video = f"video:{folder / 'v.mp4'}?every=all"
    tiff = folder / "p.tif"
    with tifffile.TiffFile(tiff) as file:
        paged = seconds(lambda: [page.asarray() for page in file.pages])
    ours = seconds(lambda: decode(plain.read_bytes()))
    return {
        "video": seconds(lambda: with_opencv(folder / "v.mp4")) / seconds(lambda: read(video)),
        "tiff": paged / seconds(lambda: read(f"tiff:{tiff}")),
        "dicom_packed": seconds(lambda: pydicom.dcmread(packed).pixel_array)
        / seconds(lambda: decode(packed.read_bytes())),
        "dicom_rendered": seconds(lambda: rendered(plain)) / ours,
        # the library only copies these bytes, without conversion to 8 bits and colours
        "dicom_values_alone": seconds(lambda: pydicom.dcmread(plain).pixel_array) / ours,
    }


def rendered(path: Path) -> Frame:
    """Return a scan in 8 bits, rendered by pydicom."""
    header = pydicom.dcmread(path)
    values = apply_voi_lut(apply_modality_lut(header.pixel_array, header), header)
    low, high = values.min(), values.max()
    return ((values - low) / (high - low) * 255).astype(np.uint8)


def main() -> None:
    """Measure, print and write the figures."""
    photos = sorted((data_folder("photos") / "photos").glob("*.jpg"))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for part in ("scans", "rates"):
            (folder / part).mkdir()
        clips = make_videos(folder, photos)
        masters = f"video:{folder / 'masters'}?every=250ms"
        between = judged(clips, segments(folder, masters, "between"), videos=True)
        print(between, flush=True)
        stills = judged(clips, segments(folder, str(folder / "stills"), "beside"), videos=False)
        print(stills, flush=True)
        shares = rates(folder / "rates", photos)
        print(shares, flush=True)
        slices = scans(folder / "scans")
        print(slices, flush=True)
    bars = [
        Bar("video against OpenCV, share of its speed", shares["video"], 0.5, most=False),
        Bar("TIFF against tifffile, share of its speed", shares["tiff"], 0.5, most=False),
        Bar("packed DICOM against pydicom, share of its speed", shares["dicom_packed"], 0.5, False),
        Bar("DICOM in 8 bits against pydicom's", shares["dicom_rendered"], 0.5, False),
        Bar("pairs of a slice not near or exact", len(slices["not"]), 0),
        Bar("pairs of two slices near or exact", slices["wrong"], 0),
    ]
    for what, found in (("recordings", between), ("stills", stills)):
        bars += [
            Bar(f"clips against {what}: segments missed", len(found["missed"]), 0),
            Bar(f"clips against {what}: false segments", len(found["false"]), 0),
            Bar(f"clips against {what}: error of an end, seconds", found["error_seconds"], 0.5),
        ]
    figures = {"rates": shares, "scans": slices, "recordings": between, "stills": stills}
    write(__file__, bars, figures)


if __name__ == "__main__":
    main()
