"""Mitigations: ways to make images of prompts that reproduce less of the training set."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal, get_args, get_origin, get_type_hints

from visleak.diffusion.model import DiffusionModel, version_of
from visleak.errors import UsageError
from visleak.memorization.mitigate.method import (
    Mitigation,
    NumberAddition,
    TokenAddition,
    Unmitigated,
    letter_of,
)
from visleak.memorization.mitigate.ren import AttentionRescaling
from visleak.memorization.mitigate.wen import PromptOptimisation

__all__ = [
    "METHODS",
    "AttentionRescaling",
    "Mitigation",
    "NumberAddition",
    "PromptOptimisation",
    "TokenAddition",
    "Unmitigated",
    "methods_of",
    "mitigation",
    "paper_settings",
    "usual_methods",
    "with_none",
]


#: Name of a method -> its class: a frozen dataclass, whose first field is its strength.
METHODS: Final[Mapping[str, type[Any]]] = {
    "none": Unmitigated,
    "rna": NumberAddition,
    "rta": TokenAddition,
    "wen": PromptOptimisation,
    "ren": AttentionRescaling,
}

#: What the settings of tables 3 and 5 of Hong et al. 2024 are, by model.
PAPER: Final = {
    "sd1": {"rna": range(1, 7), "rta": range(1, 7), "wen": (7, 6, 5, 4, 3, 2)},
    "sd2": {"rna": range(1, 6), "rta": range(1, 6), "wen": (70, 60, 50, 40)},
}
PAPER_C: Final = ("1.0", "1.1", "1.2", "1.3")


def mitigation(text: str) -> Mitigation:
    """Return the mitigation of ``NAME``, ``NAME:STRENGTH`` or ``NAME:STRENGTH,OPTION=VALUE,...``.

    Raises:
        UsageError: the method, option or value is unknown; the message lists those available.

    >>> mitigation("wen:3,scope=batch").setting
    'l=3, batch'
    """
    name, _, rest = text.strip().partition(":")
    if name not in METHODS:
        raise UsageError(
            f"a method is one of {', '.join(METHODS)}, with its strength such as rna:4; got"
            f" {text!r}"
        )
    kind = METHODS[name]
    hints = get_type_hints(kind)
    names = {letter_of(field): field.name for field in dataclasses.fields(kind)}
    strength, *options = names or [""]
    wanted = f"{name} stands alone"
    if names:
        wanted = f"give {name}:{strength.upper()}, then if need be, each once and with commas"
        wanted += f" between, {', '.join(f'{option}=...' for option in options)}"
    given: dict[str, Any] = {}
    for place, part in enumerate(rest.split(",") if rest else []):
        letter, equals, value = (each.strip() for each in part.partition("="))
        if not equals and place == 0:
            letter, value = strength, letter
        if letter not in names or names[letter] in given or not value:
            raise UsageError(f"{part.strip()!r} of {text!r} cannot be; {wanted}")
        given[names[letter]] = _value(value, hints[names[letter]], f"{letter} of {name}")
    if names and names[strength] not in given:
        raise UsageError(f"{text!r} has no {strength}; {wanted}")
    made: Mitigation = kind(**given)
    return made


def _value(text: str, hint: Any, what: str) -> Any:
    if get_origin(hint) is Literal:
        if text not in get_args(hint):
            raise UsageError(f"{what} is one of {', '.join(get_args(hint))}; got {text!r}")
        return text
    try:
        return hint(text)
    except ValueError:
        kind = "a whole number" if hint is int else "a number"
        raise UsageError(f"{what} is {kind}; got {text!r}") from None


def paper_settings(model: str | DiffusionModel) -> tuple[str, ...]:
    """Return the settings of table 3 (sd1) or 5 (sd2), none first; l with scope=batch."""
    known = model if isinstance(model, str) else version_of(model)
    if known not in PAPER:
        raise UsageError(
            f"the paper has settings for {' and '.join(PAPER)}, Stable Diffusion 1 and 2; for"
            f" {model if isinstance(model, str) else model.name!r} name each method and setting"
        )
    table: dict[str, Iterable[object]] = {**PAPER[known], "ren": PAPER_C}
    pairs = [(name, value) for name, values in table.items() for value in values]
    return ("none", *(f"{name}:{v}{',scope=batch' * (name == 'wen')}" for name, v in pairs))


def usual_methods(
    model: DiffusionModel, seeds: Sequence[int]
) -> tuple[tuple[Mitigation, ...], tuple[str, ...]]:
    """Return the methods where none is named: the paper's, or those that need no scale of D."""
    if version_of(model) is not None:
        return tuple(map(mitigation, paper_settings(model))), ()
    methods: list[Mitigation] = []
    skipped = {
        "wen": "the paper's values of l are on the scale of D of Stable Diffusion 1 and 2; give"
        " --method wen:L with an l of this model's scale"
    }
    for each in map(mitigation, paper_settings("sd1")):
        if each.name not in skipped:
            try:
                each.prepared(model, seeds)
                methods.append(each)
            except UsageError as error:
                skipped[each.name] = str(error)
    return tuple(methods), tuple(f"{name} is skipped: {why}" for name, why in skipped.items())


def methods_of(
    texts: Sequence[str], model: DiffusionModel, seeds: Sequence[int]
) -> tuple[tuple[Mitigation, ...], tuple[str, ...]]:
    """Return the methods of texts, none in front, and why the model cannot have others."""
    if texts:
        named = (each for t in texts for each in (paper_settings(model) if t == "paper" else (t,)))
        return with_none(list(dict.fromkeys(map(mitigation, named)))), ()
    usual, skipped = usual_methods(model, seeds)
    return with_none(usual), skipped


def with_none(methods: Sequence[Mitigation]) -> tuple[Mitigation, ...]:
    """Return methods with none in front, once."""
    return (Unmitigated(), *(each for each in methods if each.name != Unmitigated.name))
