"""Train the network that detects overlays: src/visleak/verification/laid_over.onnx.

usage: VISLEAK_DATA=FOLDER python benchmarks/fit_laid_over.py [FILE]

Windows of registered pairs, as the fine comparison registers them. Rendered documents of the
fitting kinds with one field or all fields changed, plain and processed; true copies of the same
documents, plain, stamped or marked; and processed, covered or distorted copies of images of the
fitting halves of nine sets (no document kinds or images that results are reported on). The truth of
every pixel is known. A cell has three labels: content was altered, one image has an overlay, the
other one has. Takes about eight minutes on 16 cores and a GPU; without a GPU the training takes
hours. Writes to FILE if given.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from multiprocessing import Pool
from pathlib import Path

import cv2
import documents
import numpy as np
import numpy.typing as npt
import torch
from changes import FITTED, OCCLUDING, PLANTED, changed, generator
from domain_sets import DOCUMENTS_OF_NETWORK, FITTING, OF_NETWORK, DomainSet
from fit_alteration import (
    ALTERED,
    AROUND,
    FURTHER,
    NOTHING,
    SAME,
    SETS,
    UNASKED,
    VISIBLE,
    Pixels,
    cells,
    drawn_cell,
    moved,
)
from record import data_folder
from torch import nn
from torch.nn import functional

from visleak.records import VIEWS
from visleak.verification import check, fine_comparison
from visleak.verification.alteration import CELL
from visleak.verification.frame import Photo, bounded
from visleak.verification.markings import MAX_COLOUR, NetworkInput

TARGET = Path(__file__).parents[1] / "src" / "visleak" / "verification" / "laid_over.onnx"

#: Windows per pair.
OF_DOCUMENT, OF_IMAGE = 20, 8

#: Documents in addition to those of :mod:`domain_sets`, and fields of each document that are
#: changed, one at a time.
FURTHER_DOCUMENTS = range(500, 508)
CHANGES = 10

#: Copies of a document, where the classes that most resemble a change occur more than once; and
#: copies of changed ones.
MARK = "mark"
OPERATIONS = (*documents.COPIES, "stamp", "scanned", "crop", MARK, MARK, MARK)
OF_CHANGED = (*documents.COPIES, "scanned", *FURTHER, MARK)

#: Changes of an image: occluding ones, planted ones, others; those that add an overlay, and those
#: that add one on the whole image.
DRAWN = ((OCCLUDING, 3), (PLANTED, 4), (FITTED, 2))
LAYING = ("stamp", "highlighter", MARK, "grey quarter", "stickers", "text bar")
ALL_OVER = ("watermark", "mosaic 12", "bar, mirror, jpeg-60", "letterbox", "frame")

#: Side of a window, pixels.
WINDOW = 128

#: Quantization steps per unit of stored windows: planes, colours.
STEPS = 16.0, 31.0

#: Channels at a half, a quarter and an eighth of the size.
WIDTHS = (24, 40, 72)
EPOCHS, BATCH, RATE, DECAY = 16, 256, 4e-3, 1e-2

#: Of this number of jobs one is used for validation.
HELD_BACK = 25

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Truth:
    """Ground truth of a pair, (h, w) in the reference; ``None`` for nowhere."""

    altered: Mask | None = None
    ours: Mask | None = None  # overlays on the query
    theirs: Mask | None = None  # overlays on the reference
    laid_all_over: bool = False  # overlays on the query at unknown places


@dataclass(frozen=True)
class Windows:
    """Windows of pairs."""

    planes: npt.NDArray[np.int8]  # (n, 2, side, side)
    colours: npt.NDArray[np.int8]  # (n, 4, side / 2, side / 2)
    taught: Pixels  # (n, 3, side / CELL, side / CELL): altered, ours, theirs

    @classmethod
    def joined(cls, parts: Sequence[Windows]) -> Windows:
        """Return all windows of some parts."""
        return cls(*(
            np.concatenate([getattr(part, name) for part in parts])
            for name in ("planes", "colours", "taught")
        ))  # fmt: skip

    def __len__(self) -> int:
        return len(self.taught)


class Block(nn.Module):
    """A dilated convolution with a residual connection."""

    def __init__(self, width: int, dilation: int) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(width, width, 3, 1, dilation, dilation, bias=False)
        self.scale = nn.BatchNorm2d(width)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Return features of the same shape."""
        return functional.relu(features + self.scale(self.convolution(features)))


def _convolution(width: int, to: int, side: int, stride: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(width, to, side, stride, side // 2, bias=False), nn.BatchNorm2d(to), nn.ReLU()
    )


class Network(nn.Module):
    """Convolutions at a half, a quarter and an eighth of the size; receptive field 250 pixels."""

    def __init__(self) -> None:
        super().__init__()
        half, quarter, eighth = WIDTHS
        self.grey = _convolution(3, half, 5, 2)
        self.coloured = _convolution(half + 4, quarter, 3, 2)
        self.near = nn.Sequential(Block(quarter, 1), Block(quarter, 2))
        self.down = _convolution(quarter, eighth, 3, 2)
        self.far = nn.Sequential(*(Block(eighth, dilation) for dilation in (2, 4, 8)))
        self.up = nn.ConvTranspose2d(eighth, quarter, 2, 2)
        self.both = nn.Conv2d(2 * quarter, quarter, 1)
        self.last = nn.Conv2d(quarter, 3, 1)

    def forward(self, looks: torch.Tensor, colours: torch.Tensor) -> torch.Tensor:
        """Return the log-odds of each cell (n, 3, h / 4, w / 4)."""
        near = self.near(self.coloured(torch.cat([self.grey(looks), colours], 1)))
        far = functional.relu(self.up(self.far(self.down(near))))
        return self.last(functional.relu(self.both(torch.cat([near, far], 1))))


# -- windows -------------------------------------------------------------------------------------


def of_document(job: tuple[str, int]) -> Windows | None:
    """Return windows of the pairs of one document."""
    made = documents.document(*job, changes=CHANGES)
    rng = generator("windows", *job)
    original = made.original
    further = rng.choice(FURTHER, 2, replace=False).tolist()
    found = [_of_copy(original, made, name, None, Truth(), rng) for name in (*OPERATIONS, *further)]
    for variant in made.variants:
        if (made.kind, variant.change) in UNASKED:
            continue
        different = _apart(variant.pixels, original)
        truth = Truth(different)
        if variant.marked is not None:
            truth = Truth(None, different & variant.marked, different & ~variant.marked)
        names = rng.choice(OF_CHANGED, 3 if variant.marked is not None else 1, replace=False)
        for name in ("", *names.tolist()) if rng.random() < 0.5 else names.tolist():
            found.append(_of_copy(variant.pixels, made, name, variant.box, truth, rng))
    return _joined(found)


def _of_copy(
    pixels: Pixels, made: documents.Document, name: str, keep: documents.Box | None, truth: Truth,
    rng: np.random.Generator,
) -> Windows | None:  # fmt: skip
    """Return windows of a copy of a rendering with the original."""
    if name == MARK:
        query = marked(pixels, rng)
    elif name in documents.COPIES:
        query = documents.copy(pixels, name, rng, keep=keep)
    elif name:
        query = changed(pixels, name, f"{made.kind} {made.number} {rng.integers(2**31)}")
    else:
        query = pixels
    if name in LAYING:
        laid = _apart(query, pixels)
        truth = Truth(
            None if truth.altered is None else truth.altered & ~laid,
            laid if truth.ours is None else laid | truth.ours,
            None if truth.theirs is None else truth.theirs & ~laid,
        )
    return windows(query, made.original, 0, truth, OF_DOCUMENT, rng)


def _apart(one: Pixels, other: Pixels) -> Mask:
    return np.asarray(np.abs(one.astype(np.int16) - other).max(axis=2) >= VISIBLE)


def marked(pixels: Pixels, rng: np.random.Generator) -> Pixels:
    """Return an image with one mark: a ring, a frame, a tinted row, a disc or a line."""
    height, width = pixels.shape[:2]
    unit = max(8.0, rng.uniform(0.02, 0.06) * max(height, width))
    w = unit * (rng.uniform(0.8, 2) if rng.random() < 0.5 else rng.uniform(3, 14))
    h = unit * rng.uniform(0.7, 1.8)
    x, y = rng.uniform(0, max(1, width - w)), rng.uniform(0, max(1, height - h))
    colour = rng.integers(0, 256, 3).tolist()
    if rng.random() < 0.3:
        colour = [int(rng.integers(0, 256))] * 3
    one, other = (round(x), round(y)), (round(x + w), round(y + h))
    centre, axes = (round(x + w / 2), round(y + h / 2)), (round(w / 2), round(h / 2))
    layer, strength = pixels.copy(), 1.0
    thick, smooth = max(2, round(unit * rng.uniform(0.06, 0.2))), cv2.LINE_AA
    kind = int(rng.integers(6))
    if kind == 0:
        cv2.ellipse(layer, centre, axes, 0, 0, 360, colour, thick, smooth)
    elif kind == 1:
        cv2.rectangle(layer, one, other, colour, thick)
    elif kind == 2:
        cv2.rectangle(layer, one, other, colour, -1)
        strength = float(rng.uniform(0.15, 0.7))
    elif kind == 3:
        radius = max(3, round(unit * rng.uniform(0.2, 0.5)))
        cv2.circle(layer, centre, radius, colour, -1, smooth)
    elif kind == 4:
        cv2.line(layer, (one[0], other[1]), other, colour, thick)
    else:
        ground = pixels[min(one[1], height - 1), min(one[0], width - 1)]
        cv2.rectangle(layer, one, other, (255 - ground).tolist(), -1)
        strength = float(rng.uniform(0.1, 0.4))
    return cv2.addWeighted(layer, strength, pixels, 1 - strength, 0) if strength < 1 else layer


def of_image(job: tuple[Path, str, int]) -> Windows | None:
    """Return windows of an image of a set with its copies."""
    data, name, place = job
    images = DomainSet.of(data, name)
    pixels, rng = images.image(place), generator("copies", name, place)
    query = marked(pixels, rng)
    found = [windows(query, pixels, 0, Truth(ours=_apart(query, pixels)), OF_IMAGE, rng)]
    for changes, count in DRAWN:
        for change in rng.choice(list(changes), count, replace=False).tolist():
            view = VIEWS.index("mirror") if "mirror" in change else 0
            query = changed(pixels, change, images.names[place])
            truth = Truth(laid_all_over=change in ALL_OVER)
            if change in LAYING:
                truth = Truth(ours=_apart(query, pixels))
            found.append(windows(query, pixels, view, truth, OF_IMAGE, rng))
    return _joined(found)


def _joined(found: Iterable[Windows | None]) -> Windows | None:
    kept = [each for each in found if each is not None]
    return Windows.joined(kept) if kept else None


def windows(
    query: Pixels, reference: Pixels, view: int, truth: Truth, count: int, rng: np.random.Generator
) -> Windows | None:
    """Return windows of a pair and the labels of their cells.

    Args:
        query, reference: RGB ``uint8``.
        view: in which the query is compared.
        truth: of the pair.
        count: of windows.
        rng: draws them among cells with labels, those that differ, and those with content.
    """
    small = bounded(query, check.BOUND), bounded(reference, check.BOUND)
    _, matrix = check.check(*small, view, (0.0, 0.0), same_size=False)
    query, reference = (bounded(image, fine_comparison.PLACES_SIDE) for image in (query, reference))
    seen = fine_comparison.markings_input((Photo.of(query), Photo.of(reference)), matrix)
    if seen is None or min(seen.size) < WINDOW:
        return None
    rows, columns = seen.cells
    inside = (np.abs(seen.planes[:2]).max(axis=0) > 0)[: CELL * rows, : CELL * columns]
    inside = cv2.dilate(inside.astype(np.uint8), np.ones((9, 9), np.uint8))
    inside = inside.reshape(rows, CELL, columns, CELL).max(axis=(1, 3)) > 0
    nowhere = np.zeros((rows, columns), np.bool_)
    kinds = [
        nowhere if mask is None
        else cells(moved(mask, query, reference, matrix, seen.size)) & inside
        for mask in (truth.altered, truth.ours, truth.theirs)
    ]  # fmt: skip
    taught = _taught(kinds, inside, truth)
    content, difference = (
        _mean(np.abs(seen.planes[plane]), (rows, columns)) * (taught[0] == SAME) for plane in (0, 2)
    )
    asked = np.logical_or.reduce(kinds)
    half = [(asked, count // 2)] if asked.any() else [(difference**2, count // 4)]
    drawn = [*half, (difference**2, count // 4), (content, count // 4)]
    picked = [
        drawn_cell(weight, rng) for weight, times in drawn for _ in range(times) if weight.any()
    ]
    return _cut(seen, taught, picked, rng) if picked else None


def _mean(plane: npt.NDArray[np.float32], size: tuple[int, int]) -> npt.NDArray[np.float32]:
    """Return the smooth mean of a plane in each cell."""
    inner = cv2.GaussianBlur(plane, (0, 0), 3)[: CELL * size[0], : CELL * size[1]]
    return np.asarray(cv2.resize(inner, size[::-1], interpolation=cv2.INTER_AREA), np.float32)


def _taught(kinds: Sequence[Mask], inside: Mask, truth: Truth) -> Pixels:
    """Return the labels of each cell, (3, rows, columns)."""
    around = np.ones((2 * AROUND + 1,) * 2, np.uint8)
    altered, ours, theirs = (cv2.dilate(kind.astype(np.uint8), around) > 0 for kind in kinds)
    # content below a stamp is the same; for a mark that moved only its image is a label
    moved = (ours | theirs) & bool(kinds[2].any())
    answers = [
        np.where(kind, ALTERED, np.where(unasked | ~inside, NOTHING, SAME))
        for kind, unasked in zip(
            kinds, (altered | moved, altered | ours, altered | theirs), strict=True
        )
    ]
    if truth.laid_all_over:
        answers[1][:] = answers[2][:] = NOTHING
    return np.stack(answers).astype(np.uint8)


def _cut(
    seen: NetworkInput, taught: Pixels, picked: Sequence[tuple[int, int]], rng: np.random.Generator
) -> Windows:
    cut = WINDOW // CELL
    parts: list[tuple[npt.NDArray[np.int8], npt.NDArray[np.int8], Pixels]] = []
    for row, column in picked:
        # an even cell: colours are stored at half the size
        top, left = (
            2 * (int(np.clip(at - cut // 2 + rng.integers(-8, 9), 0, most - cut)) // 2)
            for at, most in ((row, taught.shape[1]), (column, taught.shape[2]))
        )
        y, x, half = CELL * top, CELL * left, CELL // 2
        planes = seen.planes[:2, y : y + WINDOW, x : x + WINDOW]
        colours = seen.colours[:, half * top :, half * left :][:, : WINDOW // 2, : WINDOW // 2]
        parts.append((
            np.rint(np.clip(planes, -7.9, 7.9) * STEPS[0]).astype(np.int8),
            np.rint(np.clip(colours, -MAX_COLOUR, MAX_COLOUR) * STEPS[1]).astype(np.int8),
            taught[:, top : top + cut, left : left + cut],
        ))  # fmt: skip
    return Windows(*(np.stack(own) for own in zip(*parts, strict=True)))


def gathered(data: Path) -> tuple[Windows, Windows]:
    """Return the windows for training and for validation."""
    drawn = [
        (kind, number)
        for number in (*range(DOCUMENTS_OF_NETWORK), *FURTHER_DOCUMENTS)
        for kind in documents.FITTING
    ]
    taken = [
        (data, name, place)
        for name in SETS
        for place in DomainSet.of(data, name).sources(FITTING, OF_NETWORK)
    ]
    with Pool(os.cpu_count(), cv2.setNumThreads, (1,)) as pool:
        parts = [*pool.imap(of_document, drawn), *pool.imap(of_image, taken)]
    kept = [(number, part) for number, part in enumerate(parts) if part is not None]
    return (
        Windows.joined([part for number, part in kept if number % HELD_BACK]),
        Windows.joined([part for number, part in kept if not number % HELD_BACK]),
    )


# -- training ------------------------------------------------------------------------------------

Batch = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def trained(learnt: Windows, held_back: Windows, device: str) -> Network:
    """Return the network trained on randomly augmented windows."""
    torch.manual_seed(0)
    network = Network().to(device, memory_format=torch.channels_last)
    decayed = [p for p in network.parameters() if p.ndim > 1]
    others = [p for p in network.parameters() if p.ndim <= 1]
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": DECAY}, {"params": others, "weight_decay": 0.0}]
    )
    stored = _on(learnt, device)
    count = len(learnt)
    steps = count // BATCH
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=EPOCHS * steps)
    start = time.perf_counter()
    for epoch in range(EPOCHS):
        total = torch.zeros((), device=device)
        order = torch.randperm(count, device=device)
        for step in range(steps):
            batch = processed(_batch(stored, order[step * BATCH : (step + 1) * BATCH]))
            loss = _loss(network, batch, device)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            schedule.step()
            total += loss.detach()
        print(
            f"epoch {epoch + 1} of {EPOCHS}: loss {total.item() / steps:.4f},"
            f" held back {_validated(network, held_back, device):.4f},"
            f" {time.perf_counter() - start:.0f} s",
            flush=True,
        )
    return network.eval().cpu()


def _on(windows: Windows, device: str) -> Batch:
    planes, colours, taught = (
        torch.from_numpy(each).to(device)
        for each in (windows.planes, windows.colours, windows.taught)
    )
    return planes, colours, taught


def _batch(stored: Batch, rows: torch.Tensor) -> Batch:
    planes, colours, taught = (each[rows] for each in stored)
    return planes.float() / STEPS[0], colours.float() / STEPS[1], taught


def _loss(network: Network, batch: Batch, device: str) -> torch.Tensor:
    planes, colours, taught = batch
    looks = torch.cat([planes, 2 * (planes[:, :1] - planes[:, 1:])], 1)
    with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
        odds = network(
            looks.contiguous(memory_format=torch.channels_last),
            colours.contiguous(memory_format=torch.channels_last),
        )
    weight = 2.0 * (taught == ALTERED) + 1.0 * (taught == SAME)
    each = weight * functional.binary_cross_entropy_with_logits(
        odds.float(), (taught == ALTERED).float(), reduction="none"
    )
    return (each.sum((0, 2, 3)) / weight.sum((0, 2, 3)).clamp_min(1)).sum()


@torch.no_grad()
def _validated(network: Network, windows: Windows, device: str) -> float:
    network.eval()
    stored = _on(windows, device)
    rows = torch.arange(len(windows), device=device).split(BATCH)
    losses = [_loss(network, _batch(stored, own), device).item() for own in rows]
    network.train()
    return float(np.mean(losses))


def processed(batch: Batch) -> Batch:
    """Return windows with random exchange of sides, inversion, mirroring and processing."""
    planes, colours, taught = batch
    count, device = len(planes), planes.device

    def some(share: float) -> torch.Tensor:
        return torch.rand(count, 1, 1, 1, device=device) < share

    exchanged = some(0.5)
    planes = torch.where(exchanged, planes.flip(1), planes)
    colours = torch.where(exchanged, colours[:, [2, 3, 0, 1]], colours)
    taught = torch.where(exchanged, taught[:, [0, 2, 1]], taught)
    for axis in (-1, -2):
        mirrored = some(0.5)
        planes, colours, taught = (
            torch.where(mirrored, each.flip(axis), each) for each in (planes, colours, taught)
        )
    if torch.rand(()) < 0.5:
        planes, colours, taught = (each.transpose(-1, -2) for each in (planes, colours, taught))
    ours, theirs = planes[:, :1], planes[:, 1:]
    ours = torch.where(some(0.5), _moved_a_little(ours), ours)
    ours = torch.where(some(0.3), _blurred(ours), ours)
    amount = 0.15 * torch.rand(count, 1, 1, 1, device=device) * some(0.6)
    ours = ours * (1 + 0.12 * torch.randn(count, 1, 1, 1, device=device))
    ours = ours + amount * torch.randn_like(ours) * (ours != 0)
    planes = torch.cat([ours, theirs], 1)
    again = some(0.5)
    planes = torch.where(again, planes.flip(1), planes)
    colours = torch.where(again, colours[:, [2, 3, 0, 1]], colours)
    taught = torch.where(again, taught[:, [0, 2, 1]], taught)
    planes = torch.where(some(0.5), -planes, planes)
    strength = (0.5 + torch.rand(count, 1, 1, 1, device=device)) * ~some(0.15)
    signs = torch.randint(0, 2, (count, 2, 1, 1), device=device).repeat(1, 2, 1, 1) * 2 - 1
    return planes, colours * strength * signs, taught


def _moved_a_little(plane: torch.Tensor) -> torch.Tensor:
    """Return planes moved by up to a pixel, as by registration errors."""
    theta = torch.zeros(len(plane), 2, 3, device=plane.device)
    theta[:, 0, 0] = theta[:, 1, 1] = 1
    theta += 0.004 * (torch.rand_like(theta) - 0.5)
    theta[..., 2] += 2.4 / WINDOW * (torch.rand(len(plane), 2, device=plane.device) - 0.5)
    grid = functional.affine_grid(theta, list(plane.shape), align_corners=False)
    return functional.grid_sample(plane, grid, padding_mode="border", align_corners=False)


def _blurred(plane: torch.Tensor) -> torch.Tensor:
    kernel = torch.tensor([1.0, 2.0, 1.0], device=plane.device)
    return functional.conv2d(plane, torch.outer(kernel, kernel)[None, None] / 16, padding=1)


def main(target: Path) -> None:
    """Train and write the network."""
    learnt, held_back = gathered(data_folder("photos", "coco128", "domains"))
    shares = ", ".join(f"{(learnt.taught == each).mean():.3f}" for each in (NOTHING, SAME, ALTERED))
    print(f"{len(learnt):,} windows; cells that teach nothing, no, yes: {shares}", flush=True)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    network = trained(learnt, held_back, device)
    looks = torch.zeros(1, 3, WINDOW, WINDOW), torch.zeros(1, 4, WINDOW // 2, WINDOW // 2)
    # explicit sizes: OpenCV 4 takes dynamic ones for 1, where the two branches do not fit together
    torch.onnx.export(
        network, looks, str(target), dynamo=False, input_names=["looks", "colours"],
        output_names=["odds"],
    )  # fmt: skip


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else TARGET)
