"""No mitigation: what every other method is compared with."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from visleak.memorization.extraction.generating import Job, Maker, Plain
from visleak.memorization.model import DiffusionModel


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
