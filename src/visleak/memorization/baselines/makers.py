"""How each method of a comparison is made; settings nobody named are the papers' own."""

from __future__ import annotations

from dataclasses import replace

from visleak.errors import UsageError
from visleak.memorization.baselines.conzic import Conzic, ConzicSettings
from visleak.memorization.baselines.greedy import Greedy
from visleak.memorization.baselines.methods import ENDLESS, Means
from visleak.memorization.baselines.pez import Pez, PezSettings
from visleak.memorization.baselines.shifting import ShiftSettings
from visleak.memorization.baselines.zerocap import Zerocap, ZerocapSettings
from visleak.memorization.search.gibbs import GibbsSearch, GibbsSettings
from visleak.memorization.search.presets import refuse_other_scale, search_preset
from visleak.memorization.search.random_words import RandomSettings, RandomWords


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
