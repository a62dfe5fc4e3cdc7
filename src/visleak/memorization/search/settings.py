"""Settings of Algorithms 1 and 2, by name: those of the paper, and those of its authors' code.

All constants that the paper prints for its searches are on the squared scale of D, although its
equation 4 is the norm itself; a preset therefore carries its norm. The paper says only "T" for the
timestep, the code uses 999.

Where the code does something else than the paper, the preset decides. In Algorithm 1: the code
returns the best of all scored candidates instead of the visited states, and always lets mask and
present word be drawn, so that prompts may be shorter than n. In Algorithm 2: it stops a chain at s
moves below kappa instead of above s, runs one chain per position from the trigger, and lets the
trigger's and the present word be drawn. Its language model never proposes what :class:`Rules` name.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

from visleak.errors import UsageError
from visleak.memorization.model import VERSIONS, DiffusionModel, TokenModel, version_of
from visleak.memorization.scores import NORMS, Norm
from visleak.memorization.search.driver import refuse_below_one
from visleak.memorization.search.proposals import Rules, own_banned_words

Preset = Literal["paper", "paper-sd2", "official-code"]
CODE: Final = "official-code"


def _check(settings: GibbsSettings | AugmentSettings, *counts: str) -> None:
    refuse_below_one(settings, "iterations", "candidates", *counts)
    if not settings.temperature > 0:
        raise UsageError(f"temperature (K) must be above 0; got {settings.temperature}")
    if settings.norm not in NORMS:
        raise UsageError(f"norm is one of {', '.join(NORMS)}; got {settings.norm!r}")


@dataclass(frozen=True, slots=True)
class GibbsSettings:
    """Settings of Algorithm 1; K and kappa are on the scale of ``norm``.

    Attributes:
        preset: ``paper``, or ``official-code``: where the two differ, what is done.
        length: n, word pieces of a prompt.
        iterations: N, moves of an outer round.
        candidates: Q, the most probable words of the language model for a position.
        temperature: K, in units of D.
        kappa: D at which a chain ends; ``None``: after one round (the code).
        rounds: outer rounds at most; ``None`` is no limit, as printed: then the budget ends the
            search of a chain that never reaches kappa.
        norm: of D, K and kappa.
        keep: prompts in the bank, at most.
    """

    preset: Preset = "paper"
    length: int = 8
    iterations: int = 150
    candidates: int = 200
    temperature: float = 0.1
    kappa: float | None = 5.0
    rounds: int | None = 10
    norm: Norm = "squared"
    keep: int = 1000

    def __post_init__(self) -> None:
        _check(self, "length", "keep", "rounds")

    @property
    def code(self) -> bool:
        """Whether the authors' code is followed."""
        return self.preset == CODE


@dataclass(frozen=True, slots=True)
class AugmentSettings:
    """Settings of Algorithm 2; K, kappa and ``floor`` are on the scale of ``norm``.

    Attributes:
        preset: ``paper``, ``paper-sd2``, or ``official-code``: where they differ, what is done.
        iterations: N, moves of a chain.
        candidates: Q, the most probable words of the language model for a position.
        temperature: K, in units of D.
        kappa: a move that ends below it counts towards stopping the chain.
        patience: s, such moves in a row.
        repeats: runs for every trigger, with other random numbers.
        top: T, prompts kept of every trigger, by mean D; ``None`` keeps all (the code).
        floor: prompts with a mean D below are dropped (the code: 5); ``None`` drops none.
        norm: of D, K, kappa and floor.
    """

    preset: Preset = "paper"
    iterations: int = 20
    candidates: int = 200
    temperature: float = 1.5
    kappa: float = 3.0
    patience: int = 3
    repeats: int = 1
    top: int | None = 100
    floor: float | None = None
    norm: Norm = "squared"

    def __post_init__(self) -> None:
        _check(self, "repeats", "top", "patience")

    @property
    def code(self) -> bool:
        """Whether the authors' code is followed."""
        return self.preset == CODE


Settings: TypeAlias = GibbsSettings | AugmentSettings

#: Settings by name. The paper prints those of Algorithm 1 for Stable Diffusion 1 only; the digit of
#: its n is lost in print, 8 is the code's. Its own example of Algorithm 2 (appendix C.2) and the
#: code take N = 50 rather than the 20 of table 6.
SEARCH: Final[Mapping[str, GibbsSettings]] = MappingProxyType(
    {"paper": GibbsSettings(), CODE: GibbsSettings(CODE, kappa=None, rounds=1)}
)
AUGMENT: Final[Mapping[str, AugmentSettings]] = MappingProxyType(
    {
        "paper": AugmentSettings(),
        "paper-sd2": AugmentSettings("paper-sd2", temperature=50.0, kappa=50.0),
        CODE: AugmentSettings(CODE, iterations=50, floor=5.0, repeats=100, top=None),
    }
)

#: Where the values of a preset are from.
SOURCES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "paper": "Hong et al. 2024, table 6, SD1",
        "paper-sd2": "Hong et al. 2024, table 6, SD2",
        CODE: "the authors' code",
    }
)


def search_preset(name: str) -> GibbsSettings:
    """Return settings of Algorithm 1 by name: ``paper`` or ``official-code``.

    Raises:
        UsageError: there is no such preset.

    >>> search_preset("paper").kappa, search_preset("official-code").kappa
    (5.0, None)
    """
    if name not in SEARCH:
        raise UsageError(f"--preset is {' or '.join(SEARCH)} for a search; got {name!r}")
    return SEARCH[name]


def augment_preset(name: str) -> AugmentSettings:
    """Return settings of Algorithm 2 by name: ``paper``, ``paper-sd2`` or ``official-code``.

    Raises:
        UsageError: there is no such preset.

    >>> augment_preset("paper-sd2").kappa
    50.0
    """
    if name not in AUGMENT:
        raise UsageError(f"--preset is {', '.join(AUGMENT)} for augmentation; got {name!r}")
    return AUGMENT[name]


def rules_of(preset: str) -> Rules:
    """Return which proposals of the language model a preset takes.

    The list of banned words of the authors' code is not published; ours stands in for it.
    """
    if preset != CODE:
        return Rules()
    return Rules("Image of a", stop=True, banned=own_banned_words(), banned_name="own")


def timestep_of(preset: str) -> Literal["first"] | int:
    """Return the timestep at which a preset measures D."""
    return 999 if preset == CODE else "first"


def version_of_preset(preset: str) -> str:
    """Return the model whose scale of D a preset's constants are on, see ``version_of``."""
    return "sd2" if preset == "paper-sd2" else "sd1"


#: Settings that are on the scale of D of one model.
CONSTANTS: Final = ("temperature", "kappa", "floor")


def refuse_other_scale(
    model: DiffusionModel, preset: Settings, given: Collection[str] = ()
) -> None:
    """Refuse constants that were chosen for D of another model.

    Args:
        model: whose D it is.
        preset: whose constants stand in for those that were not given.
        given: names of the settings that were given.

    Raises:
        UsageError: a constant of the preset does not fit the model, with those to give.
    """
    version = version_of_preset(preset.preset)
    if version_of(model) == version:
        return
    own = {each: getattr(preset, each, None) for each in CONSTANTS}
    taken = {each: value for each, value in own.items() if value is not None and each not in given}
    if not taken:
        return
    values = ", ".join(f"{each} {value:g}" for each, value in taken.items())
    options = " and ".join(f"--{each}" for each in taken)
    has_sd2 = isinstance(preset, AugmentSettings) and version_of(model) == "sd2"
    raise UsageError(
        f"--preset {preset.preset} has constants of D of {VERSIONS[version]} ({values}), and D of"
        f" {model.name} is on another scale. Give {options} on that of this model"
        f"{' or --preset paper-sd2' if has_sd2 else ''};"
        " visleak memorization detect shows D of ordinary prompts"
    )


def refuse_longer(model: TokenModel, length: int) -> None:
    """Refuse prompts that the model would cut.

    Raises:
        UsageError: a prompt of that many words has more tokens than the model reads.
    """
    most = model.most_tokens()
    if length > most:
        raise UsageError(
            f"--length must be at most {most}, the tokens that {model.name} reads of a prompt, got"
            f" {length}. Longer prompts would be cut, and D would be that of their beginning"
        )


def about_preset(
    preset: Settings, settings: Settings, rules: Rules, timestep: Literal["first"] | int
) -> dict[str, object]:
    """Return for a result which preset was used, and what of it was changed.

    >>> from dataclasses import replace
    >>> preset = search_preset("paper")
    >>> hotter = replace(preset, temperature=0.5)
    >>> about_preset(preset, hotter, Rules(), 999)["changed"]
    ['temperature', 'timestep']
    """
    usual = rules_of(preset.preset)
    changed = [
        field.name
        for mine, theirs in ((settings, preset), (rules, usual))
        for field in fields(mine)
        if getattr(mine, field.name) != getattr(theirs, field.name)
    ]
    changed += ["timestep"] if timestep != timestep_of(preset.preset) else []
    return {"preset": preset.preset, "preset_source": SOURCES[preset.preset], "changed": changed}
