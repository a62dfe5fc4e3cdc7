"""Train the network that sees altered content: src/visleak/verify/alteration.onnx.

usage: VISLEAK_DATA=FOLDER python benchmarks/fit_alteration.py

Windows of registered pairs, as the close comparison registers them. Altered: rendered documents of
the fitting kinds with one field, or all fields, changed, as they are and processed; the truth of
every pixel is known. Not altered: true copies of the same documents, and processed, covered or
distorted copies of images of the fitting halves of nine sets (no document kind and no image that
figures are reported on). Takes about 40 minutes on two cores.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
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
from visleak.verify import check, close
from visleak.verify.alteration import CELL, planes
from visleak.verify.frame import Placement, bounded

TARGET = Path(__file__).parents[1] / "src" / "visleak" / "verify" / "alteration.onnx"

SETS = ("photos", "coco", "clothing", "receipts", "xray", "skin", "steel", "blood", "camvid")

#: Windows of each pair.
OF_DOCUMENT, OF_IMAGE = 24, 12

#: Changes of an image: occluding ones, planted ones, others.
DRAWN = ((OCCLUDING, 3), (PLANTED, 4), (FITTED, 3))

#: Side of a window, pixels; levels of a channel from which a pixel counts as changed, and the share
#: of a pixel of the frame.
WINDOW, VISIBLE, SHARE = 80, 40, 60 / 255

#: Cells around an altered one of which nothing is asked.
AROUND = 3

WIDTHS = (24, 32, 32, 32, 32)
EPOCHS, BATCH, RATE, DECAY = 5, 128, 4e-3, 1e-3

#: What a cell of a window teaches.
NOTHING, SAME, ALTERED = 0, 1, 2

Pixels = npt.NDArray[np.uint8]
Windows = tuple[npt.NDArray[np.float16], Pixels]


class Network(nn.Module):
    """Five convolutions, two of them dilated: a cell of 4 pixels sees about 60."""

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
    variants = iter(made.variants)
    found, different = [], None
    for number, pair in enumerate(documents.pairs(made, processed=1)):
        if pair.grade == "near":
            different = None
        elif not pair.copy:
            apart = np.abs(next(variants).pixels.astype(np.int16) - made.original)
            different = apart.max(axis=2) >= VISIBLE
        rng = generator("windows", *job, number)
        found.append(windows(pair.query, pair.reference, 0, different, OF_DOCUMENT, rng))
    return [each for each in found if each is not None]


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
    """Return windows of a pair, (n, 3, side, side), and what each of their cells teaches.

    Args:
        query, reference: RGB ``uint8``.
        view: in which the query is compared.
        different: where the reference's content was altered, (h, w); ``None`` for nowhere.
        count: of windows.
        rng: draws them: of altered cells, of those that differ, and of those with content.
    """
    small = bounded(query, check.BOUND), bounded(reference, check.BOUND)
    measures, matrix = check.check(*small, view, (0.0, 0.0), same_size=False)
    query, reference = (bounded(image, close.PLACES_SIDE) for image in (query, reference))
    measures = close.closer(measures, query, reference, matrix)
    found = close.in_register(query, reference, matrix)
    if measures.amount < close.SHARED or found is None or min(found[0].shape) < WINDOW:
        return None
    looks, mask = planes(*found), found[2]
    size = (-(-mask.shape[1] // CELL), -(-mask.shape[0] // CELL))
    inside = cv2.resize(mask.astype(np.uint8), size, interpolation=cv2.INTER_NEAREST) > 0
    altered = np.zeros(inside.shape, np.bool_)
    if different is not None:
        altered = inside & _cells(_moved(different, query, reference, matrix, mask.shape))
    close_by = cv2.dilate(altered.astype(np.uint8), np.ones((2 * AROUND + 1,) * 2, np.uint8)) > 0
    taught = np.where(altered, ALTERED, np.where(close_by | ~inside, NOTHING, SAME))
    strengths = [
        cv2.resize(cv2.GaussianBlur(np.abs(look), (0, 0), 3), size, interpolation=cv2.INTER_AREA)
        * (taught == SAME)
        for look in (looks[0], looks[2])
    ]
    half = [(altered, count // 2)] if altered.any() else [(strengths[1] ** 2, count // 4)]
    drawn = [*half, (strengths[1] ** 2, count // 4), (strengths[0], count // 4)]
    picked = [_place(weight, rng) for weight, times in drawn for _ in range(times) if weight.any()]
    cut = WINDOW // CELL
    result = []
    for row, column in picked:
        top, left = (
            int(np.clip(at - cut // 2 + rng.integers(-4, 5), 0, most // CELL - cut))
            for at, most in ((row, mask.shape[0]), (column, mask.shape[1]))
        )
        y, x = CELL * top, CELL * left
        look = looks[:, y : y + WINDOW, x : x + WINDOW].astype(np.float16)
        result.append((look, taught[top : top + cut, left : left + cut].astype(np.uint8)))
    if not result:
        return None
    return np.stack([look for look, _ in result]), np.stack([each for _, each in result])


def _moved(
    different: npt.NDArray[np.bool_], query: Pixels, reference: Pixels,
    matrix: npt.NDArray[np.float64], shape: tuple[int, ...],
) -> npt.NDArray[np.float32]:  # fmt: skip
    """Return what was altered in the reference as it lies in the frame, 0..1."""
    height, width = reference.shape[:2]
    place = Placement.of(query.shape[:2], (height, width), matrix, close.PLACES_SIDE)
    assert place is not None
    share = cv2.resize(different.astype(np.float32), (width, height), interpolation=cv2.INTER_AREA)
    to_pixels = (
        np.diag([shape[1], shape[0], 1.0]) @ place.to_frame @ np.diag([1 / width, 1 / height, 1.0])
    )
    return np.asarray(cv2.warpPerspective(share, to_pixels, shape[1::-1]), np.float32)


def _cells(share: npt.NDArray[np.float32]) -> npt.NDArray[np.bool_]:
    """Return which cells hold altered pixels."""
    rows, columns = (-(-side // CELL) for side in share.shape)
    padded = np.zeros((rows * CELL, columns * CELL), np.float32)
    padded[: share.shape[0], : share.shape[1]] = share
    return np.asarray(padded.reshape(rows, CELL, columns, CELL).max(axis=(1, 3)) > SHARE)


def _place(weight: npt.NDArray[np.generic], rng: np.random.Generator) -> tuple[int, int]:
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
    """Return the network trained on windows, each turned over at random."""
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    network = Network()
    optimizer = torch.optim.AdamW(network.parameters(), weight_decay=DECAY)
    batches = len(looks) // BATCH
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=EPOCHS * batches)
    for epoch in range(EPOCHS):
        total = 0.0
        for rows in np.array_split(rng.permutation(len(looks)), batches):
            look, cell = turned(looks[np.sort(rows)], taught[np.sort(rows)], rng)
            weight = 2.0 * (cell == ALTERED) + 1.0 * (cell == SAME)
            losses = functional.binary_cross_entropy_with_logits(
                network(look)[:, 0], (cell == ALTERED).float(), reduction="none"
            )
            loss = (losses * weight).sum() / weight.sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            total += loss.item()
        print(f"epoch {epoch + 1} of {EPOCHS}: loss {total / batches:.4f}", flush=True)
    return network.eval()


def turned(
    looks: npt.NDArray[np.float16], taught: Pixels, rng: np.random.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return windows with sides exchanged, inverted and mirrored at random."""
    look, cell = torch.from_numpy(looks.astype(np.float32)), torch.from_numpy(taught)
    exchange: Sequence[Callable[[torch.Tensor], torch.Tensor]] = (
        lambda planes: torch.stack([planes[:, 1], planes[:, 0], -planes[:, 2]], 1),
        lambda planes: -planes,
    )
    for change in exchange:
        if rng.random() < 0.5:
            look = change(look)
    for axis in (-1, -2):
        if rng.random() < 0.5:
            look, cell = look.flip(axis), cell.flip(axis)
    return look, cell


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
