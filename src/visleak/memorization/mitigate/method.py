"""What a mitigation is: a way to make images of prompts that replays less of the training set.

A method is a frozen dataclass whose first field, if it has any, is its strength and whose other
fields are options. What the fields say is written down here once: in tables, in results, and in
the key of every image.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from visleak.errors import UsageError
from visleak.memorization.extraction.images import Job, Maker, Plain
from visleak.memorization.model import DiffusionModel

#: Metadata of a field: what an option is called where it is not called like the field, and that a
#: table prints its value alone.
LETTER: Final = "letter"
BARE: Final = "bare"


class Mitigation(Protocol):
    """A method against replaying, with its setting."""

    @property
    def name(self) -> str:
        """The method, such as ``rna``."""
        ...

    @property
    def setting(self) -> str:
        """The setting as a table prints it, such as ``n=4``; ``""`` where there is none."""
        ...

    @property
    def strength(self) -> float:
        """The number that orders a method's settings from weak to strong; NaN where none does."""
        ...

    def about(self) -> dict[str, object]:
        """Return everything that its images depend on, and its source, as plain data."""
        ...

    def prepared(self, model: DiffusionModel, seeds: Sequence[int]) -> Maker:
        """Return what makes its images.

        Args:
            model: that makes them.
            seeds: of the images of a prompt, the same for all prompts and all methods: the noises
                that reach the network are then the same, and methods can be compared in pairs.

        Raises:
            UsageError: the model cannot do it, with the reason.
        """
        ...

    def prompt_of(self, job: Job, model: DiffusionModel | None = None) -> str:
        """Return the text that the network is given.

        Args:
            job: whose prompt and seed.
            model: needed where the text is made of the model's tokens (``rta``).

        Raises:
            UsageError: the model is needed, and is not given.
        """
        ...


def letter_of(field: dataclasses.Field[Any]) -> str:
    """Return what an option is called on the command line and in tables."""
    return str(field.metadata.get(LETTER, field.name))


def options_of(method: Any) -> dict[str, object]:
    """Return all fields of a method by the names that its user knows."""
    return {letter_of(each): getattr(method, each.name) for each in dataclasses.fields(method)}


def setting_of(method: Any) -> str:
    """Return a method's setting as a table prints it.

    The strength is always there, an option only where it is not the default.
    """
    return ", ".join(_settings(method))


def _settings(method: Any) -> Iterator[str]:
    for place, field in enumerate(dataclasses.fields(method)):
        value = getattr(method, field.name)
        if place and value == field.default:
            continue
        text = f"{value:g}" if isinstance(value, float) else str(value)
        yield text if field.metadata.get(BARE) else f"{letter_of(field)}={text}"


def about_method(method: Any, version: int, source: str) -> dict[str, object]:
    """Return a method's name, setting, options, version and source, as plain data."""
    return {
        "name": method.name,
        "setting": method.setting,
        "options": options_of(method),
        "version": version,
        "source": source,
    }


def key_of_method(method: Any, version: int, **more: object) -> str:
    """Return the key of a method's images.

    Args:
        method: whose fields all enter it.
        version: of the algorithm; a change of what its images are needs another one.
        more: plain data that they depend on besides.
    """
    options = json.dumps(options_of(method) | more, sort_keys=True, allow_nan=False)
    return f"{method.name} {options} v{version}"


def place_of(seed: int, seeds: Sequence[int], method: Any) -> int:
    """Return which of a prompt's images a seed stands for, from 0.

    Raises:
        UsageError: it is none of them.
    """
    if seed not in seeds:
        raise UsageError(
            f"{method.name} ({method.setting}) needs all seeds of a prompt's images beforehand;"
            f" seed {seed} is none of the {len(seeds)} that it was prepared for"
        )
    return list(seeds).index(seed)


@dataclass(frozen=True, slots=True)
class Unmitigated:
    """The model as it is; it shares its images with every other verb that makes them."""

    @property
    def name(self) -> str:
        """The method."""
        return "none"

    @property
    def setting(self) -> str:
        """Nothing."""
        return ""

    @property
    def strength(self) -> float:
        """NaN: there is none."""
        return math.nan

    def about(self) -> dict[str, object]:
        """Return name and source."""
        return {"name": self.name, "setting": self.setting, "options": {}, "source": "the model"}

    def prepared(self, model: DiffusionModel, seeds: Sequence[int]) -> Maker:
        """Return what makes images by the model as it is."""
        return Plain()

    def prompt_of(self, job: Job, model: DiffusionModel | None = None) -> str:
        """Return the prompt."""
        return job.prompt
