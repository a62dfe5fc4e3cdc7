"""Methods of search by name, each made for a comparison at one budget."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Final, Literal

from visleak.errors import UsageError
from visleak.memorization.baselines.causal import CausalLanguageModel
from visleak.memorization.model import TokenModel
from visleak.memorization.prompts import Prompts
from visleak.memorization.scores import Norm
from visleak.memorization.search.proposals import Proposer
from visleak.memorization.search.task import Searcher

#: Name of a method -> function that makes it of :class:`Means`.
SEARCHERS: Final = {
    "gibbs": "visleak.memorization.baselines.makers:gibbs",
    "random": "visleak.memorization.baselines.makers:random_words",
    "greedy": "visleak.memorization.baselines.makers:greedy",
    "conzic": "visleak.memorization.baselines.makers:conzic",
    "zerocap": "visleak.memorization.baselines.makers:zerocap",
    "pez": "visleak.memorization.baselines.makers:pez",
}

#: Moves that no budget reaches.
ENDLESS: Final = 1_000_000_000


@dataclass(frozen=True)
class Means:
    """What methods are made of; what a method does not need may be left out.

    Attributes:
        model: the diffusion model.
        norm: by which D counts.
        proposer: makes the masked language model (gibbs, random, conzic).
        causal: makes the causal one (zerocap).
        prompts: the list (greedy).
        length: words or tokens of a prompt; ZeroCap and PEZ count in tokens of their own models.
        candidates: words that are tried at a position (gibbs, conzic, and ZeroCap's ``top``);
            ``None``: each method's own.
        iterations: moves of a chain; ``None``: each method's own number in the paper; ``"budget"``:
            as many as the budget holds.
        temperature: K of Algorithm 1, on the scale of ``norm``; ``None``: the paper's, which is on
            the squared one.
        beams: of ZeroCap.
        prefix: that ZeroCap's language model begins with; ``None``: ZeroCap's own.
    """

    model: TokenModel
    norm: Norm
    proposer: Callable[[], Proposer] | None = None
    causal: Callable[[], CausalLanguageModel] | None = None
    prompts: Prompts | None = None
    length: int = 8
    candidates: int | None = None
    iterations: int | Literal["budget"] | None = "budget"
    temperature: float | None = None
    beams: int = 5
    prefix: str | None = None

    def masked(self, method: str) -> Proposer:
        """Return the masked language model.

        Raises:
            UsageError: none was named.
        """
        if self.proposer is None:
            raise UsageError(f"{method} needs a masked language model: give --lm FOLDER")
        return self.proposer()

    def own(self, usual: int) -> int | None:
        """Return the iterations of a method whose own number is known; ``None`` is no limit."""
        if self.iterations == "budget":
            return None
        return usual if self.iterations is None else self.iterations


def load_searchers(names: Sequence[str], means: Means) -> dict[str, Searcher]:
    """Return methods by name.

    Args:
        names: of :data:`SEARCHERS`, in the order of the result.
        means: what they are made of.

    Raises:
        UsageError: there is no method of a name, one stands twice, or lacks what it needs.
        MissingExtra: a package is not installed.
    """
    for name in names:
        if name not in SEARCHERS:
            raise UsageError(f"a method is one of {', '.join(SEARCHERS)}; got {name!r}")
    twice = next((name for name in names if list(names).count(name) > 1), None)
    if twice is not None or not names:
        what = "no method is given" if twice is None else f"method {twice} stands twice"
        raise UsageError(f"{what}; give each of them once, with commas between")
    made = {}
    for name in names:
        module, _, function = SEARCHERS[name].partition(":")
        make: Callable[[Means], Searcher] = getattr(import_module(module), function)
        made[name] = make(means)
    return made
