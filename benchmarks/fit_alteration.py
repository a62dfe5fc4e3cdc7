"""Train the network that detects altered content: src/visleak/verification/alteration.onnx.

usage: VISLEAK_DATA=FOLDER python benchmarks/fit_alteration.py

Windows of registered pairs, as the fine comparison registers them. Altered: rendered documents of
the fitting kinds with one field or all fields changed, plain and processed; the truth of every
pixel is known. Not altered: true copies of the same documents, and processed, covered or distorted
copies of images of the fitting halves of nine sets (no document kinds or images that results are
reported on). Takes about 45 minutes on two cores, and 14 GB of memory.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from multiprocessing import Pool
from pathlib import Path

import cv2
import documents
import numpy as np
import numpy.typing as npt
import torch
from changes import FITTED, OCCLUDING, PLANTED, changed, generator
from domain_sets import DOCUMENTS_OF_NETWORK, FITTING, OF_NETWORK, DomainSet
from record import data_folder
from torch import nn
from torch.nn import functional

from visleak.records import VIEWS
from visleak.verification import check, fine_comparison
from visleak.verification.alteration import CELL, normalized_planes
from visleak.verification.differences import match_tiles
from visleak.verification.frame import Photo, Placement, bounded

TARGET = Path(__file__).parents[1] / "src" / "visleak" / "verification" / "alteration.onnx"

SETS = ("photos", "coco", "clothing", "receipts", "xray", "skin", "steel", "blood", "camvid")

#: Windows per pair.
OF_DOCUMENT, OF_IMAGE = 24, 12

#: Copies of a document, where the classes that most resemble a change occur more than once; copies
#: of each changed document; and changes in addition to the classes of :mod:`documents`, one of
#: which is applied to each copy of a changed document.
OPERATIONS = (*documents.COPIES, "stamp", "stamp", "scanned", "crop", "rotated")
PROCESSED = 2
FURTHER = ("jpeg-50 at 70 %", "jpeg-30 at 50 %", "brightness, contrast", "noise", "grey, gamma")

#: Changes of an image: occluding ones, planted ones, others.
DRAWN = ((OCCLUDING, 3), (PLANTED, 4), (FITTED, 3))

#: Side of a window, pixels; levels of a channel from which a pixel counts as changed, and the share
#: of a pixel of the frame.
WINDOW, VISIBLE, SHARE = 80, 40, 60 / 255

#: Cells around an altered one that are not used for training.
AROUND = 3

WIDTHS = (24, 32, 32, 32, 32)
EPOCHS, BATCH, RATE, DECAY = 6, 128, 4e-3, 1e-3

#: Share of the windows with the largest loss that are used in every epoch except the first, and the
#: share of the others: most have a low loss after the first.
HARD, EASY = 0.4, 0.15

#: Label of a cell of a window.
NOTHING, SAME, ALTERED = 0, 1, 2

Pixels = npt.NDArray[np.uint8]
Windows = tuple[npt.NDArray[np.float16], Pixels]

#: Changes that are not used: within a window, another image and a sticker on the image are the
#: same.
UNASKED = (("catalogue", "picture"), ("catalogue", "template"))


class Network(nn.Module):
    """Five convolutions, two of them dilated; cells of 4 pixels with a receptive field of 60."""

    def __init__(self) -> None:
        super().__init__()
        one, two, three, four, five = WIDTHS
        self.one = nn.Conv2d(3, one, 5, 2, 2)
        self.two = nn.Conv2d(one, two, 3, 2, 1)
        self.three = nn.Conv2d(two, three, 3, 1, 1)
        self.four = nn.Conv2d(three, four, 3, 1, 2, dilation=2)
        self.five = nn.Conv2d(four, five, 3, 1, 4, dilation=4)
        self.last = nn.Conv2d(five + three, 1, 1)

    def forward(self, looks: torch.Tensor) -> torch.Tensor:
        """Return the log-odds of each cell (n, 1, h / 4, w / 4)."""
        near = functional.relu(
            self.three(functional.relu(self.two(functional.relu(self.one(looks)))))
        )
        far = functional.relu(self.five(functional.relu(self.four(near))))
        return self.last(torch.cat([far, near], 1))


# -- windows -------------------------------------------------------------------------------------


def of_document(job: tuple[str, int]) -> list[Windows]:
    """Return windows of the pairs of one document."""
    cv2.setNumThreads(1)
    made = documents.document(*job)
    rng = generator("windows", *job)
    changed_to = {variant.change: variant.pixels for variant in made.variants}
    found = [windows(*pair, None, OF_DOCUMENT, rng) for pair in further(made.original, made, rng)]
    for pair in documents.pairs(made, operations=OPERATIONS, processed=PROCESSED):
        if (made.kind, pair.change) in UNASKED:
            continue
        different = None
        if pair.change:
            variant = changed_to[pair.change]
            apart = np.abs(variant.astype(np.int16) - made.original)
            different = apart.max(axis=2) >= VISIBLE
            if not pair.copy:
                (processed,) = further(variant, made, rng, 1)
                found.append(windows(*processed, different, OF_DOCUMENT, rng))
        found.append(windows(pair.query, pair.reference, 0, different, OF_DOCUMENT, rng))
    return [each for each in found if each is not None]


def further(
    pixels: Pixels, made: documents.Document, rng: np.random.Generator, count: int = len(FURTHER)
) -> list[tuple[Pixels, Pixels, int]]:
    """Return copies of a rendering with the original, and the view for the comparison."""
    names = rng.choice(FURTHER, count, replace=False).tolist()
    key = f"{made.kind} {made.number} {rng.integers(2**31)}"
    return [(changed(pixels, name, key), made.original, 0) for name in names]


def of_image(job: tuple[Path, str, int]) -> list[Windows]:
    """Return windows of an image of a set with its copies."""
    cv2.setNumThreads(1)
    data, name, place = job
    images = DomainSet.of(data, name)
    pixels, rng = images.image(place), generator("copies", name, place)
    found = []
    for changes, count in DRAWN:
        for change in rng.choice(list(changes), count, replace=False).tolist():
            view = VIEWS.index("mirror") if "mirror" in change else 0
            query = changed(pixels, change, images.names[place])
            found.append(windows(query, pixels, view, None, OF_IMAGE, rng))
    return [each for each in found if each is not None]


def windows(
    query: Pixels, reference: Pixels, view: int, different: npt.NDArray[np.bool_] | None,
    count: int, rng: np.random.Generator,
) -> Windows | None:  # fmt: skip
    """Return windows of a pair, (n, 2, side, side), and the labels of their cells.

    The third input plane of the network is computed from the two.

    Args:
        query, reference: RGB ``uint8``.
        view: in which the query is compared.
        different: where the content of the reference was altered, (h, w); ``None`` for nowhere.
        count: of windows.
        rng: draws them: of altered cells, of those that differ, and of those with content.
    """
    small = bounded(query, check.BOUND), bounded(reference, check.BOUND)
    _, matrix = check.check(*small, view, (0.0, 0.0), same_size=False)
    query, reference = (bounded(image, fine_comparison.PLACES_SIDE) for image in (query, reference))
    photos = Photo.of(query), Photo.of(reference)
    aligned = fine_comparison.align(photos, matrix, fine_comparison.PLACES_SIDE)
    if aligned.registered is None or min(aligned.registered.mask.shape) < WINDOW:
        return None
    if aligned.detail.amount < fine_comparison.SHARED:
        return None
    ours, theirs, mask = aligned.registered.uncovered
    looks = normalized_planes(match_tiles(ours, theirs, mask), theirs, mask)
    size = (-(-mask.shape[1] // CELL), -(-mask.shape[0] // CELL))
    inside = cv2.resize(mask.astype(np.uint8), size, interpolation=cv2.INTER_NEAREST) > 0
    altered = np.zeros(inside.shape, np.bool_)
    if different is not None:
        altered = inside & cells(moved(different, query, reference, matrix, mask.shape))
    close_by = cv2.dilate(altered.astype(np.uint8), np.ones((2 * AROUND + 1,) * 2, np.uint8)) > 0
    taught = np.where(altered, ALTERED, np.where(close_by | ~inside, NOTHING, SAME))
    strengths = [
        cv2.resize(cv2.GaussianBlur(np.abs(look), (0, 0), 3), size, interpolation=cv2.INTER_AREA)
        * (taught == SAME)
        for look in (looks[0], looks[2])
    ]
    half = [(altered, count // 2)] if altered.any() else [(strengths[1] ** 2, count // 4)]
    drawn = [*half, (strengths[1] ** 2, count // 4), (strengths[0], count // 4)]
    picked = [
        drawn_cell(weight, rng) for weight, times in drawn for _ in range(times) if weight.any()
    ]
    cut = WINDOW // CELL
    result = []
    for row, column in picked:
        top, left = (
            int(np.clip(at - cut // 2 + rng.integers(-4, 5), 0, most // CELL - cut))
            for at, most in ((row, mask.shape[0]), (column, mask.shape[1]))
        )
        y, x = CELL * top, CELL * left
        look = looks[:2, y : y + WINDOW, x : x + WINDOW].astype(np.float16)
        result.append((look, taught[top : top + cut, left : left + cut].astype(np.uint8)))
    if not result:
        return None
    return np.stack([look for look, _ in result]), np.stack([each for _, each in result])


def moved(
    different: npt.NDArray[np.bool_], query: Pixels, reference: Pixels,
    matrix: npt.NDArray[np.float64], shape: tuple[int, ...],
) -> npt.NDArray[np.float32]:  # fmt: skip
    """Return the altered parts of the reference in the frame, 0..1."""
    height, width = reference.shape[:2]
    place = Placement.of(query.shape[:2], (height, width), matrix, fine_comparison.PLACES_SIDE)
    assert place is not None
    share = cv2.resize(different.astype(np.float32), (width, height), interpolation=cv2.INTER_AREA)
    to_pixels = (
        np.diag([shape[1], shape[0], 1.0]) @ place.to_frame @ np.diag([1 / width, 1 / height, 1.0])
    )
    return np.asarray(cv2.warpPerspective(share, to_pixels, shape[1::-1]), np.float32)


def cells(share: npt.NDArray[np.float32]) -> npt.NDArray[np.bool_]:
    """Return which cells hold altered pixels."""
    rows, columns = (-(-side // CELL) for side in share.shape)
    padded = np.zeros((rows * CELL, columns * CELL), np.float32)
    padded[: share.shape[0], : share.shape[1]] = share
    return np.asarray(padded.reshape(rows, CELL, columns, CELL).max(axis=(1, 3)) > SHARE)


def drawn_cell(weight: npt.NDArray[np.generic], rng: np.random.Generator) -> tuple[int, int]:
    """Return a cell drawn by weight."""
    flat = weight.ravel().astype(np.float64)
    row, column = divmod(int(rng.choice(len(flat), p=flat / flat.sum())), weight.shape[1])
    return row, column


def gathered(data: Path) -> Windows:
    """Return the windows of all documents and images."""
    with Pool(2) as pool:
        drawn = [
            (kind, number) for kind in documents.FITTING for number in range(DOCUMENTS_OF_NETWORK)
        ]
        taken = [
            (data, name, place)
            for name in SETS
            for place in DomainSet.of(data, name).sources(FITTING, OF_NETWORK)
        ]
        parts = [*_flat(pool.imap(of_document, drawn)), *_flat(pool.imap(of_image, taken))]
    return np.concatenate([look for look, _ in parts]), np.concatenate([own for _, own in parts])


def _flat(lists: Iterator[list[Windows]]) -> Iterator[Windows]:
    for each in lists:
        yield from each


# -- training ------------------------------------------------------------------------------------


def trained(looks: npt.NDArray[np.float16], taught: Pixels) -> Network:
    """Return the network trained on randomly augmented windows."""
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    network = Network()
    optimizer = torch.optim.AdamW(network.parameters(), weight_decay=DECAY)
    count = len(looks)
    least = int(count * (HARD + (1 - HARD) * EASY))
    steps = count // BATCH + (EPOCHS - 1) * (least // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=steps)
    losses = np.full(count, np.inf)
    for epoch in range(EPOCHS):
        chosen = np.arange(count) if epoch == 0 else _hard(losses, least, rng)
        total = 0.0
        for rows in np.array_split(rng.permutation(chosen), len(chosen) // BATCH):
            rows.sort()
            look, cell = turned(looks[rows], taught[rows], rng)
            weight = 2.0 * (cell == ALTERED) + 1.0 * (cell == SAME)
            each = weight * functional.binary_cross_entropy_with_logits(
                network(look)[:, 0], (cell == ALTERED).float(), reduction="none"
            )
            loss = each.sum() / weight.sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            losses[rows] = each.detach().sum(dim=(1, 2)).numpy()
            total += loss.item() * len(rows)
        print(f"epoch {epoch + 1} of {EPOCHS}: loss {total / len(chosen):.4f}", flush=True)
    return network.eval()


def _hard(
    losses: npt.NDArray[np.float64], count: int, rng: np.random.Generator
) -> npt.NDArray[np.int64]:
    """Return ``count`` windows: those of the largest loss, and some of the others."""
    order = np.argsort(-losses, kind="stable")
    hard = int(HARD * len(losses))
    return np.concatenate([order[:hard], rng.choice(order[hard:], count - hard, replace=False)])


def turned(
    looks: npt.NDArray[np.float16], taught: Pixels, rng: np.random.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return windows, all planes, with sides exchanged, inverted and mirrored at random."""
    look, cell = torch.from_numpy(looks.astype(np.float32)), torch.from_numpy(taught)
    if rng.random() < 0.5:
        look = look.flip(1)
    if rng.random() < 0.5:
        look = -look
    for axis in (-1, -2):
        if rng.random() < 0.5:
            look, cell = look.flip(axis), cell.flip(axis)
    return torch.cat([look, 2 * (look[:, :1] - look[:, 1:])], 1), cell


def main() -> None:
    """Train and write the network."""
    data = data_folder("photos", "coco128", "domains")
    looks, taught = gathered(data)
    shares = ", ".join(f"{(taught == each).mean():.3f}" for each in (NOTHING, SAME, ALTERED))
    print(f"{len(looks):,} windows; cells that teach nothing, same, altered: {shares}", flush=True)
    network = trained(looks, taught)
    axes = {2: "height", 3: "width"}
    torch.onnx.export(
        network, (torch.zeros(1, 3, WINDOW, WINDOW),), str(TARGET), dynamo=False,
        input_names=["looks"], output_names=["odds"], dynamic_axes={"looks": axes, "odds": axes},
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
