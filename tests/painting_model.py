"""A model that replays an image for a trigger prompt, half as often for each word put in."""

from dataclasses import dataclass, fields
from hashlib import blake2b

import numpy as np
from PIL import Image

from replaying_model import ReplayingModel, fresh
from visleak.diffusion.model import Sampling
from visleak.memorization.benchmark import Judges, Plan, references_of
from visleak.memorization.extraction.similarity import PixelSimilarity
from visleak.memorization.mitigate import mitigation, with_none
from visleak.memorization.prompts import Prompts
from visleak.memorization.settings import BenchmarkSettings

SIDE = 16
TRIGGERS = ("a red bag", "the old house", "one blue lamp", "a grey wall")
#: Two prompts replay one image: they are one group.
SOURCES = ("bag.png", "https://cdn.example/a/house.png?v=2", "lamp.png", "lamp.png")
GENERAL = ("a dog runs", "two cups on a table", "the sea at night")


def picture(seed):
    """Return an image of its own for each seed."""
    return fresh(seed, SIDE)


@dataclass
class PaintingModel(ReplayingModel):
    """Paints an image again, with noise, where a prompt holds the words of a trigger."""

    name: str = "painting"
    digest: str = "painting-1"

    def image(self, prompt, seed):
        return paint(prompt, seed)


def paint(prompt, seed):
    """Return the image of a prompt and a seed."""
    draw = np.random.default_rng([seed, *prompt.encode()])
    words = prompt.split(" ")
    for trigger, source in zip(TRIGGERS, SOURCES, strict=True):
        own = trigger.split(" ")
        if set(own) <= set(words) and draw.random() < 0.9 * 0.5 ** (len(words) - len(own)):
            noise = draw.normal(0, 6, (SIDE, SIDE, 3))
            return np.clip(picture(number_of(source)) + noise, 0, 255).astype(np.uint8)
    return picture(1000 + int(draw.integers(1 << 30)))


def number_of(source):
    """Return the seed of a source's image."""
    return len(source)


class WordAlignment:
    """A toy of a CLIP: mean colours against what the letters of a text add up to."""

    name, digest, width = "words", "words-1", 4

    def texts(self, prompts):
        rows = [list(blake2b(text.encode(), digest_size=3).digest()) for text in prompts]
        return self._unit(np.array(rows, np.float64))

    def images(self, pictures):
        return self._unit(np.array([each.mean((0, 1)) for each in pictures]))

    @staticmethod
    def _unit(colours):
        rows = np.column_stack([colours / 255, np.full(len(colours), 0.5)])
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)


class Contrast:
    """A toy of an aesthetic score: more contrast is more beautiful."""

    name, digest = "contrast", "contrast-1"

    def __call__(self, pictures):
        return np.array([4 + each.std() / 64 for each in pictures])


def planted(folder):
    """Write the memorized images, and return their folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for source in dict.fromkeys(SOURCES):
        name = source.rpartition("/")[2].partition("?")[0]
        Image.fromarray(picture(number_of(source))).save(folder / name)
    return folder


def plan_of(folder, *methods, **more):
    """Return a small plan: four triggers in three groups, three ordinary prompts."""
    triggers = Prompts(TRIGGERS, sources=tuple((each,) for each in SOURCES), origin="triggers.csv")
    judges = Judges(PixelSimilarity(), WordAlignment(), Contrast())
    given = {
        "model": PaintingModel(),
        "triggers": triggers,
        "references": references_of(triggers, planted(folder)),
        "mitigations": with_none([mitigation(each) for each in methods]),
        "judges": judges,
        "general": Prompts(GENERAL, origin="general.txt"),
    }
    chosen = {"images": 5, "sampling": Sampling(2, 7.5, 4)}
    names = {each.name for each in fields(BenchmarkSettings)}
    chosen |= {name: more.pop(name) for name in names & set(more)}
    return Plan(**{**given, "settings": BenchmarkSettings(**chosen), **more})
