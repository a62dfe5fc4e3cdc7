"""A world of five words in which D of every prompt is known, and a language model of five words."""

import itertools
import math
from hashlib import blake2b
from types import SimpleNamespace

import numpy as np
import torch

from toy_models import ToyModel
from visleak.diffusion.model import Conditioning
from visleak.memorization.scores import TriggerScore
from visleak.memorization.search.driver import SearchTask
from visleak.memorization.search.proposals import Candidates
from visleak.memorization.settings import ScoreSettings

WORDS = ("ant", "bee", "cat", "dog", "eel")
MASK = len(WORDS)


def d_of(prompt):
    """Return D of a prompt: any number from 0 to 2, but 0 for no words. Words interact."""
    if not prompt:
        return 0.0
    digest = blake2b(prompt.encode(), digest_size=4).digest()
    # a multiple of 2^-20: models compute in float32, and its square and root are exact in float64
    return (int.from_bytes(digest, "big") >> 11) / 2**20


class FiveWords(ToyModel):
    """A model whose D is :func:`d_of`, or times the mean of |x|; ``asked`` has encoded prompts."""

    name = "five words"
    digest = "5"
    shape = (1, 2, 2)

    def __init__(self, *, noisy=False, kill_after=None):
        super().__init__(kill_after)
        self.noisy = noisy
        self.asked = []

    def most_tokens(self):
        return 75

    def encode_prompt(self, prompts):
        self.asked += prompts
        return Conditioning(torch.tensor([[[d_of(prompt)]] for prompt in prompts]))

    def predict_noise(self, latents, timestep, conditioning):
        self.count(conditioning, timestep)
        strength = conditioning.states[:, 0, 0]
        if self.noisy:
            strength = strength * latents.abs().mean((1, 2, 3))
        # the difference of two answers is taken of these, so that D is exact without noise
        moved = torch.zeros_like(latents)
        moved[:, 0, 0, 0] = strength
        return moved

    def pooled_text(self, prompts):
        digests = (blake2b(prompt.encode(), digest_size=4).digest() for prompt in prompts)
        rows = [np.random.default_rng(list(each)).standard_normal(6) for each in digests]
        return np.array(rows, np.float32)


class PaperWords(FiveWords):
    """The same with the size and text encoder of Stable Diffusion 1, whose constants fit it."""

    shape = (4, 64, 64)
    network = SimpleNamespace(config=SimpleNamespace(cross_attention_dim=768))


class FiveProposer:
    """A masked language model over five words, whose preferences depend on the other words."""

    name = "five words"
    banned: tuple[int, ...] = ()

    def about(self):
        return {"model": self.name, "banned": list(self.banned)}

    def start(self, length):
        return [MASK] * length

    def ids(self, text):
        words = text.split()
        known = [WORDS.index(word) for word in words if word in WORDS]
        return known, len(words) - len(known)

    def log_probabilities(self, state, position):
        """Return those of all five words at a position; the word there is not looked at."""
        others = (*state[:position], -1, *state[position + 1 :])
        logits = np.array([hash_of(others, position, word) for word in range(len(WORDS))])
        return logits - math.log(sum(math.exp(each) for each in logits))

    def candidates(self, states, positions, count, forced=None):
        made = []
        for number, (state, position) in enumerate(zip(states, positions, strict=True)):
            logs = self.log_probabilities(state, position)
            ranked = sorted(range(len(WORDS)), key=lambda word: (-logs[word], word))
            ids = [word for word in ranked if word not in self.banned][:count]
            missing = [word for word in (forced or [()] * len(states))[number] if word not in ids]
            ids = [*ids[: max(0, count - len(missing))], *dict.fromkeys(missing)]
            every = np.append(logs, -np.inf)
            made.append(Candidates(np.array(ids), every[ids]))
        return made

    def texts(self, states):
        return [" ".join(WORDS[word] for word in state if word != MASK) for state in states]

    def words(self):
        return np.array([word for word in range(len(WORDS)) if word not in self.banned])


def hash_of(*parts):
    digest = blake2b(repr(parts).encode(), digest_size=4).digest()
    return int.from_bytes(digest, "big") / 2**31


def all_states(length, *, masks=False):
    """Return all prompts of so many words, or of words and masks."""
    return list(itertools.product(range(len(WORDS) + masks), repeat=length))


def text_of(state):
    return " ".join(WORDS[word] for word in state if word != MASK)


def brute_transition(proposer, state, position, count, temperature):
    """Return T_i(p -> p') for all p', written down from equations 7 to 9, in plain Python."""
    logs = proposer.log_probabilities(state, position)
    top = sorted(range(len(WORDS)), key=lambda word: (-logs[word], word))[:count]
    changed = {word: (*state[:position], word, *state[position + 1 :]) for word in top}
    weights = {word: math.exp(d_of(text_of(changed[word])) / temperature) for word in top}
    total = math.fsum(weights.values())
    return {changed[word]: weights[word] / total for word in top}


def brute_matrix(proposer, length, count, temperature):
    """Return all states, masks among them, and T = sum over i of T_i / n."""
    states = all_states(length, masks=True)
    place = {state: row for row, state in enumerate(states)}
    matrix = np.zeros((len(states), len(states)))
    for state in states:
        for position in range(length):
            found = brute_transition(proposer, state, position, count, temperature)
            for target, chance in found.items():
                matrix[place[state], place[target]] += chance / length
    return states, matrix


def task(model=None, **given):
    """Return a search by the L2 norm, by default on a model of its own."""
    return SearchTask(TriggerScore(model or FiveWords(), ScoreSettings(norm="l2")), **given)
