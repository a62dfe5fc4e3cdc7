"""PEZ: gradients, projection, AdamW, and the search itself, each against another way."""

import itertools

import pytest
import torch

from linear_model import linear_model, score_of
from visleak.errors import UsageError
from visleak.memorization.baselines.gradients import (
    Moments,
    Pez,
    PezSettings,
    Vocabulary,
    adamw,
    ascent,
)
from visleak.memorization.search.driver import SearchTask


@pytest.mark.parametrize("norm", ["l2", "squared"])
@pytest.mark.parametrize("noises", [1, 3])
def test_the_gradient_is_that_of_finite_differences(norm, noises):
    model = linear_model(2, wobble=0.4)
    model.table, model.weight = model.table.double(), model.weight.double()
    score = score_of(model, norm=norm, noises=noises, batch=2)
    vocabulary = Vocabulary(model)
    ids = torch.tensor([[1, 2, 3], [4, 4, 5], [6, 7, 8]])
    values, slopes = ascent(score, vocabulary, ids, 5)
    by_text = score([model.prompt_of(row) for row in ids.tolist()], draw=5).by(norm)
    assert values == pytest.approx(list(by_text), rel=1e-9)

    def d(embeddings):
        total = 0.0
        for noise, empty in score.noises(5):
            squared = score.squared_distance(model.encode_embeddings(embeddings), noise, empty)
            total = total + (squared if norm == "squared" else squared.sqrt())
        return (total / noises).detach()

    start, step = model.table[ids], 1e-6
    for token, axis in itertools.product(range(3), range(4)):
        nudge = torch.zeros_like(start)
        nudge[:, token, axis] = step
        slope = (d(start + nudge) - d(start - nudge)) / (2 * step)
        assert slopes[:, token, axis].tolist() == pytest.approx(slope.tolist(), rel=1e-4, abs=1e-5)


def test_adamw_is_that_of_torch():
    source = torch.Generator().manual_seed(0)
    start = torch.randn((3, 2, 4), generator=source)
    theirs = start.clone().requires_grad_(True)
    optimizer = torch.optim.AdamW([theirs], lr=0.1, weight_decay=0.1)
    ours = Moments(start, torch.zeros_like(start), torch.zeros_like(start))
    for step in range(1, 30):
        gradient = torch.randn((3, 2, 4), generator=source)
        theirs.grad = gradient.clone()
        optimizer.step()
        ours = adamw(ours, gradient, step, 0.1, 0.1)
    assert torch.allclose(ours.soft, theirs.detach(), rtol=1e-5, atol=1e-6)


def test_it_reaches_the_best_prompt_of_a_linear_model():
    hits = 0
    for seed in range(5):
        model = linear_model(seed)
        best = max(
            model.d(" ".join(words))
            for words in itertools.combinations_with_replacement(model.words[1:], 3)
        )
        settings = PezSettings(length=3, iterations=100)
        found = Pez(model, settings).search(SearchTask(score_of(model), chains=6, seed=seed))
        top = max(each.score for each in found.best)
        assert top <= best * (1 + 1e-5)
        assert model.d(found.bank[0].prompt) == pytest.approx(top, rel=1e-5)
        hits += top == pytest.approx(best, rel=1e-5)
    assert hits == 5


def test_errors():
    with pytest.raises(UsageError, match="length 13 of pez is more than the 12 tokens that linear"):
        Pez(linear_model(), PezSettings(length=13))
    with pytest.raises(UsageError, match="decay must be below 1 / rate"):
        PezSettings(rate=2.0, decay=0.5)
