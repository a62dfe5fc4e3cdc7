"""Embeddings moved until D is small enough: many at a time, each as if it were alone.

The loss is D of Hong et al. 2024 (equation 4) as a function of the text encoder's output, so it is
``scores.TriggerScore`` that works it out. Embeddings, moments and losses are float32 or better
whatever the network is: it rounds what it is given.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from visleak.encoders.libraries import library
from visleak.errors import VisleakError
from visleak.memorization.model import Conditioning, Tensor
from visleak.memorization.scores import TriggerScore

#: From embeddings (n, tokens, width) and which rows of all they are to losses (n,) and the slope
#: of each row's loss (n, tokens, width).
Asked = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]

#: The optimisers of torch, with its own defaults: AdamW's weight decay is 0.01.
OPTIMISERS: Final = {"adam": "Adam", "adamw": "AdamW"}

#: What a half-precision loss is multiplied with before its slope is taken, the first that stays
#: finite: small slopes would otherwise be rounded to nothing.
FACTORS: Final = (1024.0, 32.0, 1.0)


@dataclass(frozen=True, slots=True)
class Descent:
    """How embeddings are moved.

    Attributes:
        limit: l; an embedding whose loss is not above it stays.
        steps: updates at most.
        rate: learning rate.
        optimiser: of :data:`OPTIMISERS`.
    """

    limit: float
    steps: int = 10
    rate: float = 0.05
    optimiser: str = "adam"


@dataclass(frozen=True, slots=True)
class Moved:
    """Embeddings that were moved.

    Attributes:
        states: (n, tokens, width), of the type that was given; a row without an update is what was
            given, bit for bit.
        first: (n,) losses before the first update.
        last: (n,) last losses that were seen; none is worked out after the last update.
        updates: (n,) how many there were.
    """

    states: Tensor
    first: Tensor
    last: Tensor
    updates: Tensor


def descend(states: Tensor, asked: Asked, free: Tensor, how: Descent) -> Moved:
    """Move each row until its loss is at most ``how.limit``: loss, stop or step, and again.

    All rows begin together and a row that stops never goes on, so that one optimiser, whose
    arithmetic is by element, serves all of them.

    Args:
        states: (n, tokens, width).
        asked: gives losses and slopes of rows.
        free: (n or 1, tokens, 1), 1 where a slope counts and 0 where it is taken as zero.
        how: settings.

    Raises:
        VisleakError: a loss or a slope is no finite number.
    """
    torch = library("torch", "diffusion", "moving embeddings")
    given = states.detach()
    moving = given.to(torch.promote_types(given.dtype, torch.float32)).clone().requires_grad_(True)
    optimiser = getattr(torch.optim, OPTIMISERS[how.optimiser])([moving], lr=how.rate)
    counts = free.to(moving).expand(len(given), -1, 1)
    going = torch.arange(len(given), device=given.device)
    first = last = torch.zeros(len(given), dtype=torch.float64)
    updates = torch.zeros(len(given), dtype=torch.long, device=given.device)
    for step in range(how.steps):
        losses, slopes = asked(moving.detach()[going], going)
        last = last.clone()
        last[going.cpu()] = losses.detach().double().cpu()
        first = last if step == 0 else first
        refuse_infinite(losses, slopes)
        above = losses > how.limit
        going, slopes = going[above], slopes[above]
        if not len(going):
            break
        _step(optimiser, moving, going, slopes * counts[going])
        updates[going] += 1
    return Moved(moving.detach().to(given.dtype), first, last, updates.cpu())


def _step(optimiser: Any, moving: Tensor, going: Tensor, slopes: Tensor) -> None:
    """Make one update of some rows, in place; momentum and decay leave the others alone."""
    before = moving.detach().clone()
    moving.grad = before.new_zeros(before.shape).index_copy(0, going, slopes)
    optimiser.step()
    moving.data = before.index_copy(0, going, moving.data[going])


def each_alone(
    score: TriggerScore, conditioning: Conditioning, noises: Tensor, targets: Tensor
) -> Asked:
    """Return the loss of embeddings of which each has a noise of its own.

    Args:
        score: D, whose timestep counts.
        conditioning: n rows, whose states are replaced.
        noises: (n, channels, height, width).
        targets: the network's answers to the empty prompt at them.
    """

    def asked(rows: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
        states, grad = leaf(rows)
        with grad:
            now = taken(conditioning, places).with_states(states)
            losses = root(score.squared_distance(now, noises[places], targets[places]))
            return losses.detach(), slope(losses.sum(), states, score.model.precision)

    return asked


def one_for_all(
    score: TriggerScore,
    conditioning: Conditioning,
    noises: Tensor,
    targets: Tensor,
    norm: Literal["mean", "frobenius"],
    batch: int,
) -> Asked:
    """Return the loss of one embedding that several images share.

    Args:
        score: D, whose timestep counts.
        conditioning: one row, whose states are replaced.
        noises: (n, channels, height, width), of the images.
        targets: the network's answers to the empty prompt at them.
        norm: ``mean`` of the images' norms, or ``frobenius``: one norm over all of them, which
            grows with the root of n.
        batch: images a call of the network; it changes rounding only.
    """

    def asked(rows: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
        total, slopes = 0.0, rows.new_zeros(rows.shape)
        for start in range(0, len(noises), batch):
            part = slice(start, start + batch)
            states, grad = leaf(rows)
            with grad:
                now = conditioning.with_states(states).repeated(len(noises[part]))
                squared = score.squared_distance(now, noises[part], targets[part])
                summed = (root(squared) / len(noises) if norm == "mean" else squared).sum()
                slopes = slopes + slope(summed, states, score.model.precision)
            total = total + summed.detach()[None]
        if norm == "mean":
            return total, slopes
        loss: Tensor = root(total)
        # at no distance both are 0, and so is the slope, as of images alone
        return loss, slopes / (2 * loss).clamp_min(1e-12).to(slopes)

    return asked


def leaf(rows: Tensor) -> tuple[Tensor, Any]:
    """Return embeddings whose slope can be taken, and where: callers may have switched it off."""
    torch = library("torch", "diffusion", "moving embeddings")
    return rows.detach().requires_grad_(True), torch.enable_grad()


def taken(conditioning: Conditioning, places: Tensor) -> Conditioning:
    """Return some rows of a conditioning, by their numbers."""
    pooled, mask = conditioning.pooled, conditioning.mask
    return Conditioning(
        conditioning.states[places],
        None if pooled is None else pooled[places],
        None if mask is None else mask[places],
    )


def joined(parts: Sequence[Conditioning]) -> Conditioning:
    """Return conditionings one below the other."""
    torch = library("torch", "diffusion", "moving embeddings")

    def stacked(rows: Sequence[Any]) -> Any:
        return None if rows[0] is None else torch.cat(list(rows))

    return Conditioning(
        stacked([each.states for each in parts]),
        stacked([each.pooled for each in parts]),
        stacked([each.mask for each in parts]),
    )


def root(squared: Tensor) -> Tensor:
    """Return roots of sums of squares; the slope at 0 is 0."""
    # below, the root's own slope is infinite, and 0 times infinity no number
    return squared.clamp_min(1e-24).sqrt() * (squared > 0)


def slope(loss: Tensor, states: Tensor, precision: str) -> Tensor:
    """Return the slope of a loss; a network of half precision meets a larger loss."""
    torch = library("torch", "diffusion", "moving embeddings")
    factors = FACTORS if precision == "fp16" else FACTORS[-1:]
    for factor in factors:
        (found,) = torch.autograd.grad(loss * factor, [states], retain_graph=factor != factors[-1])
        if torch.isfinite(found).all():
            break
    return found / factor


def refuse_infinite(losses: Tensor, slopes: Tensor) -> None:
    """Refuse losses and slopes that are no numbers.

    Raises:
        VisleakError: there are such.
    """
    torch = library("torch", "diffusion", "moving embeddings")
    if not (torch.isfinite(losses).all() and torch.isfinite(slopes).all()):
        raise VisleakError(
            "D of a prompt or its slope is no finite number; use --precision bf16 or fp32"
        )
