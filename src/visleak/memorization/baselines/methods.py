"""Methods of search by name, each made for a comparison at one budget."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from visleak.errors import UsageError
from visleak.memorization.baselines.conzic import Conzic, ConzicSettings
from visleak.memorization.baselines.greedy import Greedy
from visleak.memorization.baselines.pez import Pez, PezSettings
from visleak.memorization.baselines.zerocap import (
    CausalLanguageModel,
    ShiftSettings,
    Zerocap,
    ZerocapSettings,
)
from visleak.memorization.model import TokenModel
from visleak.memorization.prompts import Prompts
from visleak.memorization.scores import Norm
from visleak.memorization.search.gibbs import GibbsSearch, GibbsSettings
from visleak.memorization.search.presets import refuse_other_scale, search_preset
from visleak.memorization.search.proposals import Proposer
from visleak.memorization.search.random_words import RandomSettings, RandomWords
from visleak.memorization.search.task import Searcher

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


def gibbs(means: Means) -> GibbsSearch:
    """Return Algorithm 1: one round without a kappa, as for table 2 (200 runs, 150 iterations).

    Raises:
        UsageError: D is on another scale than the paper's K, and no K was given.
    """
    usual = search_preset("paper").settings
    if means.temperature is None and means.norm != usual.norm:
        raise UsageError(
            f"the paper's K (temperature {usual.temperature:g}) is on the {usual.norm} scale and D"
            f" on the {means.norm} one: give --temperature, or --norm {usual.norm}"
        )
    if means.temperature is None:
        refuse_other_scale(means.model, "paper", search_preset("paper"), {"kappa"})
    wanted = means.own(usual.iterations)
    settings: GibbsSettings = replace(
        usual,
        length=means.length,
        iterations=ENDLESS if wanted is None else wanted,
        candidates=means.candidates or usual.candidates,
        temperature=usual.temperature if means.temperature is None else means.temperature,
        kappa=None,
        rounds=1,
        norm=means.norm,
    )
    return GibbsSearch(means.masked("gibbs"), settings)


def random_words(means: Means) -> RandomWords:
    """Return strings of random words; without a budget as many as Algorithm 1 scores."""
    usual = search_preset("paper").settings
    wanted = means.own(usual.iterations)
    prompts = None if wanted is None else wanted * (means.candidates or usual.candidates)
    return RandomWords(means.masked("random"), RandomSettings(means.length, prompts))


def greedy(means: Means) -> Greedy:
    """Return the best of a list.

    Raises:
        UsageError: no list was given.
    """
    if means.prompts is None:
        raise UsageError("greedy needs a list of prompts: give --prompts FILE")
    return Greedy(means.prompts)


def conzic(means: Means) -> Conzic:
    """Return ConZIC with D."""
    usual = ConzicSettings()
    settings = replace(
        usual,
        length=means.length,
        iterations=means.own(usual.iterations or ENDLESS),
        candidates=means.candidates or usual.candidates,
    )
    return Conzic(means.masked("conzic"), settings)


def zerocap(means: Means) -> Zerocap:
    """Return ZeroCap with D; the budget, not a number of iterations, ends its chains early.

    Raises:
        UsageError: no causal language model was given.
    """
    if means.causal is None:
        raise UsageError("zerocap needs a causal language model: give --causal-lm FOLDER")
    usual = ZerocapSettings()
    shift: ShiftSettings = replace(usual.shift, top=means.candidates or usual.shift.top)
    settings = replace(
        usual,
        length=means.length,
        beams=means.beams,
        shift=shift,
        prefix=usual.prefix if means.prefix is None else means.prefix,
    )
    return Zerocap(means.causal(), settings)


def pez(means: Means) -> Pez:
    """Return PEZ with D."""
    usual = PezSettings()
    iterations = means.own(usual.iterations or ENDLESS)
    return Pez(means.model, replace(usual, length=means.length, iterations=iterations))


#: Functions that make a method, by its name.
SEARCHERS: Final[Mapping[str, Callable[[Means], Searcher]]] = {
    "gibbs": gibbs,
    "random": random_words,
    "greedy": greedy,
    "conzic": conzic,
    "zerocap": zerocap,
    "pez": pez,
}


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
        what = "no method is given" if twice is None else f"method {twice} is given twice"
        raise UsageError(f"{what}; give each of them once, with commas between")
    made = {}
    for name in names:
        made[name] = SEARCHERS[name](means)
    return made
