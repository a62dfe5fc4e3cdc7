"""D against passes done by hand, and what scores cost."""

from functools import partial

import numpy as np
import pytest
import torch

from closed_form import ClosedForm
from tiny_pipelines import saved, stable_diffusion
from visleak.diffusion import load_model
from visleak.errors import UsageError, VisleakError
from visleak.memorization.scores import TriggerScore, seeds_of
from visleak.memorization.settings import ScoreSettings

PROMPTS = ("a photo of a cat", "the red house", "sun on the hill a", "dog")


@pytest.fixture(scope="module", params=["epsilon", "v_prediction"])
def network(request, tmp_path_factory):
    """A Stable Diffusion with random weights, by the real libraries."""
    folder = tmp_path_factory.mktemp("tiny") / request.param
    saved(partial(stable_diffusion, request.param), folder)
    return load_model(str(folder), device="cpu", precision="fp32")


def by_hand(model, prompt, noise, timestep):
    """Return eps(x, p) - eps(x, "") by two calls of the bare network on the bare text encoder."""
    pipeline = model.pipeline
    outputs = []
    for text in (prompt, ""):
        ids = pipeline.tokenizer(
            text, padding="max_length", max_length=10, truncation=True, return_tensors="pt"
        ).input_ids
        with torch.no_grad():
            states = pipeline.text_encoder(ids)[0]
            moment = torch.tensor(timestep)
            outputs.append(
                pipeline.unet(noise, moment, encoder_hidden_states=states).sample.double().numpy()
            )
    return np.asarray(outputs[0] - outputs[1])


@pytest.mark.parametrize("timestep", ["first", 999, 500])
def test_d_is_that_of_two_passes_done_by_hand(network, timestep):
    settings = ScoreSettings(noises=3, timestep=timestep, seed=5, batch=3)
    found = TriggerScore(network, settings)(PROMPTS)
    # first: DDIM's 50 leading steps of 20, offset 1
    at = 981.0 if timestep == "first" else float(str(timestep))
    noises = network.noises(seeds_of(5, 0, 3))
    for row, prompt in enumerate(PROMPTS):
        squares = [
            float((by_hand(network, prompt, noises[n : n + 1], at) ** 2).sum()) for n in range(3)
        ]
        np.testing.assert_allclose(found.squared[row], squares, rtol=2e-4)
        np.testing.assert_allclose(found.l2[row], np.sqrt(squares), rtol=1e-4)
        assert found.d_l2[row] == pytest.approx(np.mean(np.sqrt(squares)), rel=1e-4)
        assert found.d_squared[row] == pytest.approx(np.mean(squares), rel=2e-4)
    assert (found.d_l2 > 1e-4).all()


def test_order_batch_and_neighbours_change_nothing_but_rounding(network):
    whole = TriggerScore(network, ScoreSettings(noises=2))(PROMPTS).l2
    for batch in (1, 2, 3):
        other = TriggerScore(network, ScoreSettings(noises=2, batch=batch))(PROMPTS[::-1]).l2
        np.testing.assert_allclose(other[::-1], whole, rtol=1e-3)


def test_epsilon_of_a_velocity_differs_by_one_factor(network):
    raw = TriggerScore(network, ScoreSettings(noises=2, timestep=700))(PROMPTS).l2
    noise = TriggerScore(network, ScoreSettings(noises=2, timestep=700, output="epsilon"))(PROMPTS)
    # eps = sqrt(abar) v + sqrt(1 - abar) x, and x is the same on both sides
    abar = network.pipeline.scheduler.alphas_cumprod[700].item()
    factor = abar**0.5 if network.prediction == "v_prediction" else 1.0
    np.testing.assert_allclose(noise.l2, raw * factor, rtol=1e-3)


def test_all_prompts_of_a_draw_meet_the_same_noises():
    score = TriggerScore(ClosedForm(), ScoreSettings(noises=2))
    first = score(["7 a"]).l2
    assert (score(["1 b", "7 a"], draw=0).l2[1] == first[0]).all()
    other = score(["7 a"], draw=1).l2
    assert (other != first).all()
    assert (score(["7 a"], draw=0).l2 == first).all()
    again = TriggerScore(ClosedForm(), ScoreSettings(noises=2, seed=1))(["7 a"]).l2
    assert len({*first[0], *other[0], *again[0]}) == 6


@pytest.mark.parametrize("noises", [1, 3])
def test_ten_thousand_prompts_cost_ten_thousand_and_one_passes_a_noise(noises):
    model = ClosedForm()
    score = TriggerScore(model, ScoreSettings(noises=noises, batch=128))
    told = []
    # a prompt that comes again is passed once
    prompts = [*(f"prompt {number / 1000}" for number in range(10_000)), "prompt 7.0"]
    found = score(prompts, progress=told.append)
    assert (found.l2[-1] == found.l2[7000]).all()
    assert model.rows == score.calls == 10_001 * noises
    # text encoders are slow too: each prompt is encoded once, whatever the noises
    assert len(model.encoded) == 10_001
    assert max(model.batches) == 128
    assert sum(told) == 10_001
    assert score.seconds > 0


def test_scores_that_cannot_be_are_said(monkeypatch):
    with pytest.raises(UsageError, match="steps must be 1 or more"):
        ScoreSettings(steps=0)
    for wrong in ("last", -1, True):
        with pytest.raises(UsageError, match="timestep must be 'first' or a whole number"):
            ScoreSettings(timestep=wrong)
    model = ClosedForm()
    model.precision = "fp16"
    huge = f"{'3' * 38} {'3' * 39}"
    with pytest.raises(VisleakError, match="' is not a finite number in fp16; use"):
        TriggerScore(model, ScoreSettings(batch=2))(["1", "2", huge])

    def full(*given):
        raise torch.cuda.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(model, "predict_noise", full)
    with pytest.raises(VisleakError, match="batches of 512 prompts do not fit into"):
        TriggerScore(model, ScoreSettings(batch=512))(["a"])
