"""What a mitigation is: a way to make images of prompts that reproduces less of the training set.

A method is a frozen dataclass whose first field, if it has any, is its strength and whose other
fields are options. What the fields mean is written down here once: in tables, in results, and in
the key of every image.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from visleak.diffusion.model import DiffusionModel
from visleak.errors import UsageError
from visleak.memorization.extraction.images import PLAIN, Job, Maker

#: Metadata of a field: what an option is called where it is not called like the field, and that a
#: table prints its value alone.
LETTER: Final = "letter"
BARE: Final = "bare"


def letter_of(field: dataclasses.Field[object]) -> str:
    """Return the name of an option on the command line and in tables."""
    return str(field.metadata.get(LETTER, field.name))


class Mitigation:
    """A method against memorization, a frozen dataclass: what follows from its fields."""

    name: ClassVar[str]  #: of the method
    source: ClassVar[str]  #: where it is described
    version: ClassVar[int] = 1  #: of the algorithm; it grows when its images change

    @property
    def options(self) -> dict[str, Any]:
        """All fields by the names of their options."""
        fields: Any = dataclasses.fields(self)  # type: ignore[arg-type]
        return {letter_of(each): getattr(self, each.name) for each in fields}

    @property
    def setting(self) -> str:
        """As a table prints it: the strength, and options that are not the default."""
        parts = []
        for place, field in enumerate(dataclasses.fields(self)):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            if place and value == field.default:
                continue
            text = f"{value:g}" if isinstance(value, float) else str(value)
            parts.append(text if field.metadata.get(BARE) else f"{letter_of(field)}={text}")
        return ", ".join(parts)

    @property
    def strength(self) -> float:
        """The first field."""
        return float(next(iter(self.options.values())))

    def about(self) -> dict[str, object]:
        """Return name, setting, options, version and source, as plain data."""
        return {
            "name": self.name,
            "setting": self.setting,
            "options": self.options,
            "version": self.version,
            "source": self.source,
        }

    def key(self, **more: object) -> str:
        """Return the key of the images."""
        options = json.dumps(self.options | more, sort_keys=True, allow_nan=False)
        return f"{self.name} {options} v{self.version}"

    def prepared(self, model: DiffusionModel, seeds: Sequence[int]) -> Maker:
        """Return what makes its images; refuse what the model cannot do."""
        raise NotImplementedError

    def prompt_of(self, job: Job, model: DiffusionModel | None = None) -> str:
        """Return the text that the network is given: methods that change it have their own."""
        return job.prompt


def place_of(seed: int, seeds: Sequence[int], method: Mitigation) -> int:
    """Return which of a prompt's images a seed stands for, from 0."""
    if seed not in seeds:
        raise UsageError(
            f"{method.name} ({method.setting}) needs all seeds of a prompt's images beforehand;"
            f" seed {seed} is none of the {len(seeds)} that it was prepared for"
        )
    return list(seeds).index(seed)


@dataclass(frozen=True)
class Unmitigated(Mitigation):
    """The model as it is; it shares its images with every other command that makes them."""

    name = "none"
    source = "the model"

    @property
    def strength(self) -> float:
        """NaN: there is none."""
        return math.nan

    def about(self) -> dict[str, object]:
        """Return name and source."""
        return {name: value for name, value in super().about().items() if name != "version"}

    def prepared(self, model: DiffusionModel, seeds: Sequence[int]) -> Maker:
        """Return what makes images by the model as it is."""
        return PLAIN
