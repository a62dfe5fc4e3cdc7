"""Settings by name: those of the paper, and those of its authors' code (Hong et al. 2024).

All constants that the paper prints for its searches are on the squared scale of D, although its
equation 4 is the norm itself; a preset therefore carries its norm. The paper says only "T" for the
timestep, the code asks at 999.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Final, Literal

from visleak.errors import UsageError
from visleak.memorization.model import VERSIONS, DiffusionModel, TokenModel, version_of
from visleak.memorization.search.augmentation import AugmentSettings
from visleak.memorization.search.gibbs import GibbsSettings
from visleak.memorization.search.proposals import Rules, own_banned_words


@dataclass(frozen=True, slots=True)
class SearchPreset:
    """Settings of Algorithm 1.

    Attributes:
        settings: of the search.
        rules: of the language model's proposals.
        timestep: at which D is asked.
        source: where the values are from.
        version: model whose scale of D they are on, see
            :func:`visleak.memorization.model.version_of`.
    """

    settings: GibbsSettings
    rules: Rules
    timestep: Literal["first"] | int
    source: str
    version: str = "sd1"


@dataclass(frozen=True, slots=True)
class AugmentPreset:
    """Settings of Algorithm 2; as :class:`SearchPreset`."""

    settings: AugmentSettings
    rules: Rules
    timestep: Literal["first"] | int
    source: str
    version: str = "sd1"


#: Settings that are on the scale of D of one model.
CONSTANTS: Final = ("temperature", "kappa", "floor")


def refuse_other_scale(
    model: DiffusionModel, name: str, preset: SearchPreset | AugmentPreset, given: Collection[str]
) -> None:
    """Refuse constants that were chosen for D of another model.

    Args:
        model: whose D it is.
        name: of the preset.
        preset: whose constants stand in for those that were not given.
        given: names of the settings that were given.

    Raises:
        UsageError: a constant of the preset does not fit the model, with those to give.
    """
    if version_of(model) == preset.version:
        return
    own = {each: getattr(preset.settings, each, None) for each in CONSTANTS}
    taken = {each: value for each, value in own.items() if value is not None and each not in given}
    if not taken:
        return
    values = ", ".join(f"{each} {value:g}" for each, value in taken.items())
    options = " and ".join(f"--{each}" for each in taken)
    other = " or --preset paper-sd2" if _has_sd2(model, preset) else ""
    raise UsageError(
        f"--preset {name} has constants of D of {VERSIONS[preset.version]} ({values}), and D of"
        f" {model.name} is on another scale. Give {options} on that of this model{other};"
        " visleak memorization detect shows D of ordinary prompts"
    )


def _has_sd2(model: DiffusionModel, preset: SearchPreset | AugmentPreset) -> bool:
    return isinstance(preset, AugmentPreset) and version_of(model) == "sd2"


def refuse_longer(model: TokenModel, length: int) -> None:
    """Refuse prompts that the model would cut.

    Raises:
        UsageError: a prompt of so many words has more tokens than the model reads.
    """
    most = model.most_tokens()
    if length > most:
        raise UsageError(
            f"--length must be at most {most}, the tokens that {model.name} reads of a prompt, got"
            f" {length}. Longer prompts would be cut, and D would be that of their beginning"
        )


def about_preset(
    name: str,
    preset: SearchPreset | AugmentPreset,
    settings: GibbsSettings | AugmentSettings,
    rules: Rules,
    timestep: Literal["first"] | int,
) -> dict[str, object]:
    """Return for a result which preset was asked for, and what of it was changed.

    >>> preset = search_preset("paper")
    >>> hotter = GibbsSettings(temperature=0.5)
    >>> about_preset("paper", preset, hotter, preset.rules, 999)["changed"]
    ['temperature', 'timestep']
    """
    changed = [
        field.name
        for mine, theirs in ((settings, preset.settings), (rules, preset.rules))
        for field in fields(mine)
        if getattr(mine, field.name) != getattr(theirs, field.name)
    ]
    changed += ["timestep"] if timestep != preset.timestep else []
    return {"preset": name, "preset_source": preset.source, "changed": changed}


def _code_rules() -> Rules:
    """Return the rules of the authors' code; the banned words are a list of our own."""
    return Rules("Image of a", True, own_banned_words(), "own", True)


def search_preset(name: str) -> SearchPreset:
    """Return settings of Algorithm 1 by name: ``paper`` or ``official-code``.

    The paper prints them for Stable Diffusion 1 only. The digit of its n is lost in print; 8 is
    the code's.

    Raises:
        UsageError: there is no such preset.

    >>> search_preset("paper").settings.kappa, search_preset("official-code").settings.kappa
    (5.0, None)
    """
    if name == "paper":
        return SearchPreset(GibbsSettings(), Rules(), "first", "Hong et al. 2024, table 6, SD1")
    if name == "official-code":
        settings = GibbsSettings(kappa=None, rounds=1, best="scored", forced="mask-and-word")
        return SearchPreset(settings, _code_rules(), 999, "the authors' code, README (150 steps)")
    raise UsageError(f"--preset is paper or official-code for a search; got {name!r}")


_AUGMENT: Final[Mapping[str, AugmentSettings]] = MappingProxyType(
    {
        "paper": AugmentSettings(),
        "paper-sd2": AugmentSettings(temperature=50.0, kappa=50.0),
        "official-code": AugmentSettings(
            iterations=50,
            chains="per-position",
            stop="at",
            floor=5.0,
            repeats=100,
            top=None,
            forced="words",
        ),
    }
)


def augment_preset(name: str) -> AugmentPreset:
    """Return settings of Algorithm 2 by name: ``paper``, ``paper-sd2`` or ``official-code``.

    ``paper`` is table 6 for Stable Diffusion 1, ``paper-sd2`` for Stable Diffusion 2. The paper's
    own example (appendix C.2) and the code take N = 50 rather than 20.

    Raises:
        UsageError: there is no such preset.

    >>> augment_preset("paper-sd2").settings.kappa
    50.0
    """
    if name not in _AUGMENT:
        raise UsageError(f"--preset is {', '.join(_AUGMENT)} for augmentation; got {name!r}")
    if name == "official-code":
        return AugmentPreset(_AUGMENT[name], _code_rules(), 999, "the authors' code")
    version = "sd2" if name == "paper-sd2" else "sd1"
    source = f"Hong et al. 2024, table 6, {version.upper()}"
    return AugmentPreset(_AUGMENT[name], Rules(), "first", source, version)
