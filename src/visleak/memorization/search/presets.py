"""What a preset of Algorithms 1 and 2 means beside its settings, and which models it fits.

The paper says only "T" for the timestep, the code uses 999. The language model of the code never
proposes what :class:`~visleak.memorization.search.proposals.Rules` name.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import fields
from types import MappingProxyType
from typing import Final, Literal

from visleak.errors import UsageError
from visleak.memorization.model import VERSIONS, DiffusionModel, TokenModel, version_of
from visleak.memorization.search.proposals import Rules, own_banned_words
from visleak.memorization.settings import CODE, AugmentSettings, MoveSettings

#: Where the values of a preset are from.
SOURCES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "paper": "Hong et al. 2024, table 6, SD1",
        "paper-sd2": "Hong et al. 2024, table 6, SD2",
        CODE: "the authors' code",
    }
)


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
    model: DiffusionModel, preset: MoveSettings, given: Collection[str] = ()
) -> None:
    """Refuse constants that were chosen for D of another model."""
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
    """Refuse prompts that the model would cut."""
    most = model.most_tokens()
    if length > most:
        raise UsageError(
            f"--length must be at most {most}, the tokens that {model.name} reads of a prompt, got"
            f" {length}. Longer prompts would be cut, and D would be that of their beginning"
        )


def about_preset(
    preset: MoveSettings, settings: MoveSettings, rules: Rules, timestep: Literal["first"] | int
) -> dict[str, object]:
    """Return for a result which preset was used, and what of it was changed.

    >>> from dataclasses import replace
    >>> from visleak.memorization.settings import GibbsSettings
    >>> preset = GibbsSettings()
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
