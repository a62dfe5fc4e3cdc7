"""What a search for trigger prompts is given and what it gives back, whatever its method.

Algorithm 1 and the baselines of table 2 (Hong et al. 2024) stand behind one interface and one
budget, so that what they find can be compared at equal cost.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from visleak.errors import UsageError
from visleak.memorization.scores import TriggerScore

#: A pass with its gradient costs about two: one forward and one backward. It is three where weights
#: are trained; here they are frozen, and only what lies on the way to the prompt is derived
#: (measured on a small UNet2DConditionModel on a CPU: 2.03 times a pass without).
GRADIENT_CALLS: Final = 2


@dataclass(frozen=True, slots=True)
class Candidate:
    """A prompt that a search returns.

    Attributes:
        prompt: its text.
        score: D at the moment it was found, by the norm of the settings.
        chain: number of the chain (or run) that found it.
        step: of the chain.
    """

    prompt: str
    score: float
    chain: int = 0
    step: int = 0


@dataclass(frozen=True, slots=True)
class Budget:
    """What a search may spend; whichever is reached first ends it.

    Attributes:
        calls: passes of the diffusion network, one per row; ``None`` is no limit. A pass with
            gradient counts as ``GRADIENT_CALLS``.
        seconds: of wall time.
    """

    calls: int | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        for name, value in (("calls", self.calls), ("seconds", self.seconds)):
            if value is not None and not value > 0:
                raise UsageError(f"a budget of {name} is above 0, or none at all; got {value}")


@dataclass(frozen=True, slots=True)
class Progress:
    """What a running search says.

    Attributes:
        done: units done (steps of all chains, prompts scored).
        total: units there are, or ``None`` where nobody knows.
        calls: of the network so far.
        best: the highest D so far, and its prompt.
    """

    done: int
    total: int | None
    calls: int
    best: Candidate | None


@dataclass(frozen=True)
class SearchTask:
    """One search.

    Attributes:
        score: D, with the model and its settings.
        chains: independent runs, which are batched together where the method can.
        seed: of everything random; chain k draws from (seed, k) alone.
        budget: of the whole search, all chains together.
        folder: where the state of chains is kept, so that a killed search goes on; ``None`` keeps
            nothing.
        say: told of progress now and then.
    """

    score: TriggerScore
    chains: int = 1
    seed: int = 0
    budget: Budget = field(default_factory=Budget)
    folder: Path | None = None
    say: Callable[[Progress], None] | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """What a search found.

    Attributes:
        method: its name.
        about: its settings, as plain data.
        best: one candidate a chain, in the order of chains.
        bank: every prompt that was scored and is worth keeping (which is the method's to say),
            best first, each once.
        calls: passes of the network, gradients counted by ``GRADIENT_CALLS``.
        seconds: of wall time, over all runs of a resumed search.
        complete: whether every chain ran to its end within the budget.
    """

    method: str
    about: dict[str, object]
    best: tuple[Candidate, ...]
    bank: tuple[Candidate, ...]
    calls: int
    seconds: float
    complete: bool = True


class Searcher(Protocol):
    """A method of search.

    Attributes:
        name: of the method, such as ``gibbs``.
    """

    name: str

    def about(self) -> dict[str, object]:
        """Return its settings as plain data: a part of the key of its state."""
        ...

    def search(self, task: SearchTask) -> Found:
        """Search. The same task and settings give the same prompts, killed in between or not."""
        ...


def refuse_below_one(settings: object, *names: str) -> None:
    """Refuse counts below 1; ``None`` passes.

    Raises:
        UsageError: one of them is.
    """
    for name in names:
        value = getattr(settings, name)
        if value is not None and value < 1:
            raise UsageError(f"{name} is at least 1; got {value}")


def refuse_temperature(temperature: float) -> None:
    """Refuse a K that nothing can be divided by.

    Raises:
        UsageError: it is not above 0.
    """
    if not temperature > 0:
        raise UsageError(f"temperature (K) is above 0; got {temperature}")


def refuse_others(settings: object, choices: Mapping[str, tuple[str, ...]]) -> None:
    """Refuse what is none of the choices of a setting.

    Raises:
        UsageError: one of them is not.
    """
    for name, allowed in choices.items():
        if getattr(settings, name) not in allowed:
            raise UsageError(
                f"{name} is one of {', '.join(allowed)}; got {getattr(settings, name)!r}"
            )
