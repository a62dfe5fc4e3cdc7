"""Random numbers (RNA) or random tokens (RTA) among the words of a prompt.

Somepalli et al. 2023, "Understanding and Mitigating Copying in Diffusion Models", section 6, as
Hong et al. 2024 (MemBench) run it: a prompt is split at single blanks, and n times something is
put at a place that is uniform from before the first word to behind the last one, what was put in
before counting as a word. A text encoder cuts off what no longer fits, as with any long prompt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, cast

import numpy as np

from visleak.diffusion.model import DiffusionModel, Sampling, TokenModel
from visleak.documents import digest_of
from visleak.errors import UsageError
from visleak.memorization.extraction.images import Job, Maker, plain_images
from visleak.memorization.mitigate.method import LETTER, Mitigation
from visleak.records import Bytes8

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

    def _images(self, model: DiffusionModel, jobs: Sequence[Job], sampling: Sampling) -> Bytes8:
        made = [Job(self.prompt_of(job, model), job.seed) for job in jobs]
        return plain_images(model, made, sampling)

    def _drawn(self, job: Job, value: Callable[[np.random.Generator], str]) -> str:
        """Return the prompt with drawn values; no other prompt, image or order changes it."""
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
        """Return the prompt with numbers; no other prompt, image or order changes it."""
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
        """Return the prompt with tokens; no other prompt, image or order changes it."""
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


def with_tokens(model: DiffusionModel, name: str) -> TokenModel:
    """Return a model whose prompts can be taken apart."""
    if not hasattr(model, "token_ids"):
        raise UsageError(
            f"{name} needs the tokens of a prompt, which {model.name} does not provide; leave"
            f" {name} out"
        )
    return cast(TokenModel, model)


def vocabulary_size(model: TokenModel) -> int:
    """Return how many tokens a model's (first) tokenizer has."""
    tokenizer = getattr(getattr(model, "pipeline", None), "tokenizer", None)
    # families of several text encoders have no one table
    return len(model.token_table() if tokenizer is None else tokenizer)
