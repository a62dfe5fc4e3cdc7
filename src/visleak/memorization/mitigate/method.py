"""What a mitigation is: a way to make images of prompts that reproduces less of the training set.

A method is a frozen dataclass whose first field, if it has any, is its strength and whose other
fields are options. What the fields mean is written down here once: in tables, in results, and in
the key of every image.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Literal

import numpy as np

from visleak.diffusion.model import DiffusionModel, Sampling, TokenModel, with_tokens
from visleak.documents import digest_of
from visleak.errors import UsageError
from visleak.memorization.extraction.images import PLAIN, Job, Maker, plain_images
from visleak.records import Bytes8

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
        for place, each in enumerate(dataclasses.fields(self)):  # type: ignore[arg-type]
            value = getattr(self, each.name)
            if place and value == each.default:
                continue
            text = f"{value:g}" if isinstance(value, float) else str(value)
            parts.append(text if each.metadata.get(BARE) else f"{letter_of(each)}={text}")
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


def place_of(seed: int, seeds: Sequence[int], method: Mitigation) -> int:
    """Return the number of the image that a seed belongs to, from 0."""
    if seed not in seeds:
        raise UsageError(
            f"{method.name} ({method.setting}) needs all seeds of a prompt's images beforehand;"
            f" seed {seed} is not among the {len(seeds)} that it was prepared for"
        )
    return list(seeds).index(seed)


@dataclass(frozen=True)
class Unmitigated(Mitigation):
    """The model as it is; it shares its images with every other command that makes them."""

    name = "none"
    source = "the model"

    @property
    def strength(self) -> float:
        """NaN."""
        return math.nan

    def about(self) -> dict[str, object]:
        """Return name and source."""
        return {name: value for name, value in super().about().items() if name != "version"}

    def prepared(self, model: DiffusionModel, seeds: Sequence[int]) -> Maker:
        """Return what makes images by the model as it is."""
        return PLAIN


# -- random numbers (RNA) or random tokens (RTA) among the words of a prompt ----------------------

# Somepalli et al. 2023, "Understanding and Mitigating Copying in Diffusion Models", section 6, as
# Hong et al. 2024 (MemBench) run it: a prompt is split at single blanks, and n times something is
# put at a place that is uniform from before the first word to behind the last one, what was put in
# before counting as a word. A text encoder cuts off what no longer fits, as with any long prompt.


Draw = Literal["prompt", "image"]
SOURCE: Final = (
    "Somepalli et al. 2023, Understanding and Mitigating Copying in Diffusion Models, section 6"
)
#: Below which number RNA draws, as in the authors' code (their paper prints 10^6).
BELOW: Final = 100_000
#: Insertions at most, and draws of a token that is refused before a vocabulary is given up.
MOST: Final = 1000
PATIENCE: Final = 20_000


def with_insertions(prompt: str, additions: Iterable[str], places: Iterable[int]) -> str:
    """Return a prompt with words put in, each before a place counted in what is there by then."""
    words = prompt.split(" ")
    for addition, place in zip(additions, places, strict=True):
        words.insert(place, addition)
    return " ".join(words)


def drawn_prompt(
    prompt: str, count: int, draw: np.random.Generator, value: Callable[[np.random.Generator], str]
) -> str:
    """Return a prompt with ``count`` random values at random places."""
    additions, places = [], []
    words = len(prompt.split(" "))
    for number in range(count):
        additions.append(value(draw))
        places.append(int(draw.integers(words + number + 1)))
    return with_insertions(prompt, additions, places)


def generator_of(*parts: object) -> np.random.Generator:
    """Return a generator that depends on plain data alone."""
    return np.random.default_rng(int(digest_of(list(parts)), 16))


class Insertion(Mitigation):
    """A method that makes images of other prompts."""

    source = SOURCE
    count: int
    draw: Draw
    seed: int

    def __post_init__(self) -> None:
        if not 1 <= self.count <= MOST:
            raise UsageError(f"n of {self.name} is 1 to {MOST:,}; got {self.count}")
        if self.seed < 0:
            raise UsageError(f"seed of {self.name} is 0 or more; got {self.seed}")

    def prepared(self, model: DiffusionModel, seeds: Sequence[int]) -> Maker:
        """Return what makes images of prompts with insertions."""
        return Maker(self.key(), self._images)

    def prompt_of(self, job: Job, model: DiffusionModel | None = None) -> str:
        """Return the prompt with insertions; no other prompt, image or order changes it."""
        raise NotImplementedError

    def _images(self, model: DiffusionModel, jobs: Sequence[Job], sampling: Sampling) -> Bytes8:
        made = [Job(self.prompt_of(job, model), job.seed) for job in jobs]
        return plain_images(model, made, sampling)

    def _drawn(self, job: Job, value: Callable[[np.random.Generator], str]) -> str:
        image = job.seed if self.draw == "image" else None
        draw = generator_of(self.name, self.count, self.seed, job.prompt, image)
        return drawn_prompt(job.prompt, self.count, draw, value)


@dataclass(frozen=True)
class NumberAddition(Insertion):
    """RNA: random numbers among the words."""

    name = "rna"

    count: int = field(metadata={LETTER: "n"})  #: numbers that are put in, n
    #: ``prompt`` draws them once a prompt, so that all its images share them (the authors' code),
    #: ``image`` again for every image
    draw: Draw = "prompt"
    seed: int = 0  #: of the draws; the images' noises do not depend on it

    def prompt_of(self, job: Job, model: DiffusionModel | None = None) -> str:
        """Return the prompt with numbers."""
        return self._drawn(job, lambda draw: str(int(draw.integers(BELOW))))


@dataclass(frozen=True)
class TokenAddition(Insertion):
    """RTA: random tokens of the model among the words."""

    name = "rta"

    count: int = field(metadata={LETTER: "n"})  #: tokens that are put in, n
    draw: Draw = "prompt"  #: as for :class:`NumberAddition`
    #: ``any`` draws any token that is not special, most of them pieces of words (the authors' code,
    #: which leaves out CLIP's last six as well); ``words`` only tokens of letters that, as a prompt
    #: of their own, are that one token again
    tokens: Literal["any", "words"] = "any"
    seed: int = 0  #: of the draws

    def prepared(self, model: DiffusionModel, seeds: Sequence[int]) -> Maker:
        """Return what makes images of prompts with tokens."""
        with_tokens(model, self.name)
        return super().prepared(model, seeds)

    def prompt_of(self, job: Job, model: DiffusionModel | None = None) -> str:
        """Return the prompt with tokens."""
        if model is None:
            raise UsageError("rta draws tokens of the model: a model is needed to know its prompts")
        known = with_tokens(model, self.name)
        special, size = known.special_ids(), vocabulary_size(known)

        def value(draw: np.random.Generator) -> str:
            for _ in range(PATIENCE):
                number = int(draw.integers(size))
                if number not in special and (text := self._text(known, number)):
                    return text
            raise UsageError(
                f"model {known.name} has no token that rta could put in (tokens={self.tokens})"
            )

        return self._drawn(job, value)

    def _text(self, model: TokenModel, number: int) -> str:
        """Return a token's text; ``""`` where it may not be put in."""
        (text,) = model.token_texts([number])
        if self.tokens == "words" and not (text.isalpha() and model.token_ids(text) == [number]):
            return ""
        return text


def vocabulary_size(model: TokenModel) -> int:
    """Return how many tokens a model's (first) tokenizer has."""
    tokenizer = getattr(getattr(model, "pipeline", None), "tokenizer", None)
    # families of several text encoders have no one table
    return len(model.token_table() if tokenizer is None else tokenizer)
