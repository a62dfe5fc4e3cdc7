"""A model whose D has a closed form, and whose images are known beforehand."""

import numpy as np
import torch
from PIL import Image

from toy_models import ToyModel
from visleak.diffusion.model import Conditioning
from visleak.memorization.scores import TriggerScore
from visleak.memorization.search.proposals import Candidates
from visleak.memorization.settings import ScoreSettings

WORDS = ("<pad>", "ant", "bee", "cow", "dog", "elk", "fox", "gnu", "hen", "ibis")


class LinearModel(ToyModel):
    """D = |W sum e|, with ``wobble`` noise too; dies at pass ``dies_at``; replays words."""

    name = "linear"
    digest = "linear-1"
    shape = (1, 2, 3)
    words = WORDS

    def __init__(self, table, weight, wobble):
        super().__init__()
        self.table, self.weight, self.wobble = table, weight, wobble
        self.dies_at = None
        self.seen, self.known, self.replays = [], {}, {}

    @property
    def passes(self):
        return self.rows

    def encode_prompt(self, prompts):
        self.seen += prompts
        rows = torch.stack([self.table[self.token_ids(text)].sum(0) for text in prompts])
        self.known |= {row.numpy().tobytes(): text for row, text in zip(rows, prompts, strict=True)}
        return Conditioning(rows[:, None])

    def encode_embeddings(self, embeddings):
        return Conditioning(embeddings.sum(1, keepdim=True))

    def noises(self, seeds):
        return super().noises(seeds).to(self.weight.dtype)

    def predict_noise(self, latents, timestep, conditioning):
        self.most = None if self.dies_at is None else self.dies_at - 1
        self.count(conditioning, timestep)
        moved = (conditioning.states[:, 0] @ self.weight).reshape(-1, *self.shape)
        return latents + moved * (1.0 + self.wobble * latents)

    def as_epsilon(self, output, latents, timestep):
        return output

    def sample(self, conditioning, seeds, sampling):
        rows = conditioning.states.reshape(len(seeds), -1)
        prompts = [self.known[row.numpy().tobytes()] for row in rows]
        return np.stack([self.image(text, seed) for text, seed in zip(prompts, seeds, strict=True)])

    def image(self, prompt, seed):
        """Return the image that a word of the prompt replays, with noise; else blobs."""
        draw = np.random.default_rng([seed, *prompt.encode()])
        for word, picture in self.replays.items():
            if word in prompt.split():
                noisy = picture + draw.normal(0, 5, picture.shape)
                return np.clip(noisy, 0, 255).astype(np.uint8)
        coarse = draw.integers(0, 256, (4, 4, 3)).astype(np.uint8)
        return np.asarray(Image.fromarray(coarse).resize((64, 64), Image.Resampling.BICUBIC))

    def token_ids(self, prompt):
        return [self.words.index(word) for word in prompt.split() if word in self.words]

    def token_texts(self, ids):
        return [self.words[at] for at in ids]

    def prompt_of(self, ids):
        return " ".join(self.token_texts(ids))

    def most_tokens(self):
        return 12

    def token_table(self):
        return self.table

    def special_ids(self):
        return frozenset({0})

    def pooled_text(self, prompts):
        return self.encode_prompt(prompts).states[:, 0].numpy()

    def d(self, prompt):
        """D by hand, without a wobble."""
        ids = self.token_ids(prompt)
        return float(np.linalg.norm(self.table.numpy()[ids].sum(0) @ self.weight.numpy()))


def linear_model(seed=0, *, wobble=0.0, width=4):
    source = torch.Generator().manual_seed(seed)
    table = torch.randn((len(WORDS), width), generator=source)
    weight = torch.randn((width, int(np.prod(LinearModel.shape))), generator=source)
    return LinearModel(table, weight, wobble)


def score_of(model, **settings):
    """Return D of a model."""
    return TriggerScore(model, ScoreSettings(**{"batch": 4, **settings}))


class WordProposer:
    """Proposes the words of a model with fixed probabilities of their places."""

    name = "words"

    def __init__(self, model, seed=0):
        self.model = model
        count = len(model.words) - 1
        self.chances = np.random.default_rng(seed).dirichlet(np.ones(count), size=12)

    def about(self):
        return {"words": len(self.model.words)}

    def start(self, length):
        return [0] * length

    def ids(self, text):
        return self.model.token_ids(text), 0

    def candidates(self, states, positions, count, forced=None):
        orders = [np.argsort(-self.chances[at], kind="stable")[:count] for at in positions]
        return [
            Candidates(order + 1, np.log(self.chances[at][order]))
            for at, order in zip(positions, orders, strict=True)
        ]

    def texts(self, states):
        return [self.model.prompt_of([at for at in state if at]) for state in states]

    def words(self):
        return np.arange(1, len(self.model.words))
