"""Which tokens raise D: gradients against finite differences, words left out one by one."""

import numpy as np
import pytest
import torch

import tiny_pipelines as tiny
from closed_form import TOKENS, WIDTH, ClosedForm
from visleak.diffusion import load_model
from visleak.diffusion.model import Conditioning
from visleak.errors import UsageError, VisleakError
from visleak.memorization.detection import leave_one_out, token_significance
from visleak.memorization.scores import TriggerScore, seeds_of
from visleak.memorization.settings import ScoreSettings


class Curved(ClosedForm):
    """A network of float64 in which every token counts in another way, and on all pixels."""

    def __init__(self):
        super().__init__()
        generator = torch.Generator().manual_seed(8)
        shape = (TOKENS * WIDTH, *self.shape)
        self.weights = torch.randn(shape, generator=generator, dtype=torch.float64)

    def encode_prompt(self, prompts):
        states = super().encode_prompt(prompts).states.double()
        # begin, end and padding are not zero either
        fixed = torch.linspace(0.1, 1, TOKENS * WIDTH, dtype=torch.float64)
        return Conditioning(states + fixed.reshape(TOKENS, WIDTH))

    def predict_noise(self, latents, timestep, conditioning):
        flat = conditioning.states.flatten(1)
        moved = torch.tanh(torch.einsum("nk,kchw->nchw", flat, self.weights) / 8)
        return latents.double() * (1 + moved) + moved.square()


def distance(model, states, noise):
    own = model.predict_noise(noise, 981.0, Conditioning(states))
    empty = model.predict_noise(noise, 981.0, model.encode_prompt([""]))
    return float((own - empty).norm())


@pytest.mark.parametrize("noises", [1, 3])
def test_significance_is_the_norm_of_finite_differences(noises):
    model, prompt, step = Curved(), "red 2 house 0.5", 1e-5
    score = TriggerScore(model, ScoreSettings(noises=noises, seed=2, norm="squared"))
    found = token_significance(score, prompt)
    states = model.encode_prompt([prompt]).states
    slopes = np.zeros((noises, TOKENS, WIDTH))
    drawn = model.noises(seeds_of(2, 0, noises))
    for number, token, place in np.ndindex(slopes.shape):
        moved = []
        for side in (step, -step):
            other = states.clone()
            other[0, token, place] += side
            moved.append(distance(model, other, drawn[number : number + 1]))
        slopes[number, token, place] = (moved[0] - moved[1]) / (2 * step)
    norms = np.sqrt((slopes**2).sum(2))
    # begin stands first, then the four tokens; the mean of norms, not the norm of the mean
    np.testing.assert_allclose(found.values, norms[:, 1:5].mean(0), rtol=1e-6)
    rest = np.sqrt((slopes[:, 5:] ** 2).sum((1, 2))).mean()
    assert found.rest == pytest.approx(rest, rel=1e-6)
    assert found.tokens == ("t0", "t1", "t2", "t3")
    each = [distance(model, states, drawn[n : n + 1]) for n in range(noises)]
    # the L2 norm, whatever the settings call D
    assert found.d == pytest.approx(np.mean(each))
    assert (found.method, found.prompt) == ("gradient", prompt)


@pytest.mark.parametrize(("family", "begins"), [("sd3", 1), ("if", 0), ("sd1", 1)])
def test_each_token_has_the_gradient_of_its_own_row(family, begins, tmp_path, monkeypatch):
    """T5 has no begin token; the rows that Stable Diffusion 3 adds are no token's."""
    model = load_model(str(tiny.saved(tiny.MAKERS[family], tmp_path / family)), device="cpu")
    output = "raw" if family == "sd3" else "epsilon"
    score = TriggerScore(model, ScoreSettings(output=output))
    prompt = "a photo of a cat"
    ids, encoded = model.token_ids(prompt), model.encode_prompt([prompt])
    ((noise, empty),) = score.noises(0)
    states = encoded.states.detach().clone().requires_grad_(True)
    squared = score.squared_distance(encoded.with_states(states), noise, empty)
    (gradient,) = torch.autograd.grad(squared.sqrt().sum(), states)
    norms = gradient[0].double().norm(dim=-1).numpy()
    found = token_significance(score, prompt)
    assert len(found.values) == len(ids) == 5
    np.testing.assert_allclose(found.values, norms[begins : begins + 5], rtol=1e-4)
    assert found.rest == pytest.approx(np.linalg.norm(norms[begins + 5 :]), rel=1e-4)


def test_a_prompt_that_moves_nothing_has_no_gradient():
    found = token_significance(TriggerScore(ClosedForm()), "0 0")
    assert (found.d, found.values, found.rest) == (0.0, (0.0, 0.0), 0.0)


def test_leaving_out_a_word():
    model = ClosedForm()
    score = TriggerScore(model, ScoreSettings(noises=2))
    found = leave_one_out(score, "2 house  5 0")
    strength = np.mean([float(noise.abs().mean()) for noise in model.noises(seeds_of(0, 0, 2))])
    assert found.tokens == ("2", "house", "5", "0")
    lost = np.array(found.values)[[0, 2, 3]]
    np.testing.assert_allclose(lost, np.array([2, 5, 0]) * strength, atol=1e-5)
    assert found.d == pytest.approx(score(["2 house  5 0"]).d_l2[0])
    assert (found.rest, found.method) == (None, "leave-one-out")


def test_a_model_without_tokens_says_what_else_there_is():
    class Sealed(ClosedForm):
        token_ids = property()

    score = TriggerScore(Sealed())
    with pytest.raises(UsageError, match=r"gradient needs the tokens .* leave-one-out"):
        token_significance(score, "a")
    assert leave_one_out(score, "a 3").values[1] > 0


def test_a_gradient_that_is_no_number_is_said():
    class Steep(ClosedForm):
        def predict_noise(self, latents, timestep, conditioning):
            # the root's slope is infinite where the padding is
            own = super().predict_noise(latents, timestep, conditioning)
            return own + conditioning.states.sqrt().sum((1, 2))[:, None, None, None]

    with pytest.raises(VisleakError, match="the gradient of D of '3 4' is not a"):
        token_significance(TriggerScore(Steep()), "3 4")
