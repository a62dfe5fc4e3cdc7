"""Train the toy's text encoder and U-Net together, with checkpoints."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from toy_networks import POSITIONS, denoiser, prompt_tokenizer, scheduler, text_encoder, to_latents
from worlds import World

#: Steps per checkpoint.
CHECKPOINT = 200


@dataclass(frozen=True, slots=True)
class Recipe:
    """Training settings of a toy.

    Attributes:
        steps: updates.
        batch: pairs per update.
        memorised: probability of a repeated pair.
        empty: probability of an empty caption.
        rate: highest learning rate, after warm-up and before the cosine.
        warm_up: updates until the rate is reached.
        average: decay of the averaged weights, smaller at the beginning.
        clip: largest norm of a gradient.
    """

    steps: int = 2000
    batch: int = 32
    memorised: float = 0.15
    empty: float = 0.10
    rate: float = 1e-3
    warm_up: int = 100
    average: float = 0.999
    clip: float = 1.0


@dataclass(frozen=True, slots=True)
class Pairs:
    """The training data as tensors.

    Attributes:
        latents: of general images, then memorised ones, (n, 3, 16, 16).
        tokens: of their captions, then of the empty one, (n + 1, 40).
        memorised: number of memorized ones.
    """

    latents: torch.Tensor
    tokens: torch.Tensor
    memorised: int


@dataclass(slots=True)
class State:
    """The state of a training run."""

    networks: torch.nn.ModuleDict
    averages: dict[str, torch.Tensor]
    optimizer: torch.optim.Optimizer
    losses: list[float]
    seconds: float = 0.0

    @property
    def step(self) -> int:
        """Number of finished updates."""
        return len(self.losses)


def pairs_of(world: World, tokenizer: Any) -> Pairs:
    """Turn a world's images and captions into tensors."""
    captions = [*world.captions, *world.memorised, ""]
    tokens = tokenizer(
        captions, padding="max_length", max_length=POSITIONS, truncation=True, return_tensors="pt"
    ).input_ids
    latents = torch.cat([to_latents(world.pictures), to_latents(world.memorised_pictures)])
    return Pairs(latents, tokens, len(world.memorised))


def rate_at(step: int, recipe: Recipe) -> float:
    """Return the learning rate of an update: a warm-up, then a cosine down to zero.

    >>> rate_at(99, Recipe()), round(rate_at(1050, Recipe()), 6), rate_at(2000, Recipe())
    (0.001, 0.0005, 0.0)
    """
    if step < recipe.warm_up:
        return recipe.rate * (step + 1) / recipe.warm_up
    done = (step - recipe.warm_up) / max(1, recipe.steps - recipe.warm_up)
    return recipe.rate * 0.5 * (1 + math.cos(math.pi * done))


def drawn(
    pairs: Pairs, recipe: Recipe, seed: int, step: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Draw the batch of a step: latents, tokens, noise and times, seeded by (seed, step)."""
    rng = torch.Generator().manual_seed((seed << 32) + step + 1)
    count, general = recipe.batch, len(pairs.latents) - pairs.memorised
    repeated = torch.rand(count, generator=rng) < recipe.memorised
    at = torch.where(
        repeated,
        general + torch.randint(pairs.memorised, (count,), generator=rng),
        torch.randint(general, (count,), generator=rng),
    )
    empty = torch.rand(count, generator=rng) < recipe.empty
    tokens = pairs.tokens[torch.where(empty, len(pairs.tokens) - 1, at)]
    noise = torch.randn((count, *pairs.latents.shape[1:]), generator=rng)
    return pairs.latents[at], tokens, noise, torch.randint(1000, (count,), generator=rng)


def fresh(tokenizer: Any, seed: int) -> State:
    """Return untrained networks, by seed, and their optimizer."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        networks = torch.nn.ModuleDict({"text": text_encoder(tokenizer), "unet": denoiser()})
    networks.train()
    averages = {name: value.detach().clone() for name, value in networks.named_parameters()}
    optimizer = torch.optim.AdamW(networks.parameters(), lr=1e-3, fused=True)
    return State(networks, averages, optimizer, [])


def update(state: State, pairs: Pairs, recipe: Recipe, seed: int, signal: torch.Tensor) -> None:
    """Do one update.

    Args:
        signal: cumulative product of alphas for every time, (1000,).
    """
    step = state.step
    latents, tokens, noise, times = drawn(pairs, recipe, seed, step)
    kept = signal[times][:, None, None, None]
    noisy = kept.sqrt() * latents + (1 - kept).sqrt() * noise
    states = state.networks["text"](tokens).last_hidden_state
    guess = state.networks["unet"](noisy, times, states, return_dict=False)[0]
    loss = torch.nn.functional.mse_loss(guess, noise)
    state.optimizer.zero_grad(set_to_none=True)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(state.networks.parameters(), recipe.clip, foreach=True)
    for group in state.optimizer.param_groups:
        group["lr"] = rate_at(step, recipe)
    state.optimizer.step()
    state.losses.append(float(loss.detach()))
    decay = min(recipe.average, (1 + step) / (10 + step))
    values = [value.detach() for value in state.networks.parameters()]
    torch._foreach_lerp_(list(state.averages.values()), values, 1 - decay)


def save(state: State, path: Path) -> None:
    """Write a checkpoint atomically."""
    content = {
        "networks": state.networks.state_dict(),
        "averages": state.averages,
        "optimizer": state.optimizer.state_dict(),
        "losses": state.losses,
        "seconds": state.seconds,
    }
    part = path.with_suffix(".part")
    torch.save(content, part)
    os.replace(part, path)


def restore(state: State, path: Path) -> State:
    """Return the state of a checkpoint."""
    content: Mapping[str, Any] = torch.load(path, weights_only=True)
    state.networks.load_state_dict(content["networks"])
    state.optimizer.load_state_dict(content["optimizer"])
    return State(
        state.networks,
        content["averages"],
        state.optimizer,
        list(content["losses"]),
        content["seconds"],
    )


def train(world: World, recipe: Recipe, seed: int, checkpoint: Path, until: int = 0) -> State:
    """Train a toy from scratch, or from its checkpoint, with the same result.

    Args:
        world: captions and images.
        recipe: training settings.
        seed: of weights and batches.
        checkpoint: file of the state, read if it exists and written every `CHECKPOINT` steps.
        until: stop after this many steps; 0 for all.

    Returns:
        the state after the last step.
    """
    tokenizer = prompt_tokenizer(world.words)
    pairs, state = pairs_of(world, tokenizer), fresh(tokenizer, seed)
    if checkpoint.exists():
        state = restore(state, checkpoint)
    signal = scheduler().alphas_cumprod
    while state.step < (until or recipe.steps):
        start = perf_counter()
        update(state, pairs, recipe, seed, signal)
        state.seconds += perf_counter() - start
        if state.step % CHECKPOINT == 0 or state.step == (until or recipe.steps):
            save(state, checkpoint)
            recent = sum(state.losses[-50:]) / len(state.losses[-50:])
            print(f"step {state.step}: loss {recent:.4f}, {state.seconds:.0f} s", flush=True)
    return state


def averaged(state: State) -> torch.nn.ModuleDict:
    """Put the averaged weights into a state's networks, and return them for use."""
    with torch.no_grad():
        for name, value in state.networks.named_parameters():
            value.copy_(state.averages[name])
    return state.networks.eval()
