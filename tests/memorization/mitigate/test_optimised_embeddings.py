"""Embeddings moved against D: slopes, stops, and torch's Adam by hand."""

import pytest
import torch
from smooth_model import TOKENS, WIDTH, SmoothModel, distance

from visleak.diffusion.model import Conditioning, Sampling
from visleak.errors import UsageError, VisleakError
from visleak.memorization.extraction.images import Job
from visleak.memorization.mitigate import PromptOptimisation, mitigation
from visleak.memorization.mitigate.wen import (
    each_alone,
    empty_outputs,
    free_rows,
    one_for_all,
    optimised_each,
    optimised_together,
    slope,
)
from visleak.memorization.scores import TriggerScore
from visleak.memorization.settings import ScoreSettings

PROMPTS = ["a cat", "a dog", "the red house", "sun"]
SEEDS = [5, 6, 7, 8]
BIT = Sampling(50, 7.5, 3)


@pytest.fixture
def model():
    return SmoothModel()


@pytest.fixture
def score(model):
    return TriggerScore(model, ScoreSettings(batch=3))


def by_hand(model, states, loss_of, limit, steps=10, rate=0.05):
    """Return an embedding (tokens, width) and how often it moved, by the text of the paper."""
    row = states.clone().requires_grad_(True)
    moves = torch.optim.Adam([row], lr=rate)
    updates = 0
    for _ in range(steps):
        moves.zero_grad()
        loss = loss_of(row)
        if loss.item() <= limit:
            break
        loss.backward()
        row.grad[0] = 0
        moves.step()
        updates += 1
    return row.detach(), updates


def frobenius(model, seeds):
    return lambda row: sum(distance(model, row, seed) ** 2 for seed in seeds) ** 0.5


def mean(model, seeds):
    return lambda row: sum(distance(model, row, seed) for seed in seeds) / len(seeds)


def wen(limit, steps=10, rate=0.05):
    return PromptOptimisation(limit, steps=steps, rate=rate)


def test_the_slope_at_no_distance_is_zero(model, score):
    encoded = model.encode_prompt(["", "a cat"])
    noises = model.noises([5, 6])
    targets = empty_outputs(score, noises, 2)
    losses, slopes = each_alone(score, encoded, noises, targets)(encoded.states, torch.arange(2))
    assert float(losses[0]) == 0.0
    assert float(slopes[0].abs().max()) == 0.0
    assert float(slopes[1].abs().max()) > 0.0


def test_there_are_at_most_so_many_updates_and_no_look_behind_the_last(model, score):
    optimised_each(score, model.encode_prompt(PROMPTS), SEEDS, wen(0.0, 4))
    # the empty prompt's answers, then one call a step
    assert len(model.batches) == 1 + 4


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16])
def test_an_embedding_with_d_not_above_the_limit_is_returned_bit_for_bit(dtype):
    model = SmoothModel(dtype)
    score = TriggerScore(model, ScoreSettings(batch=3))
    encoded = model.encode_prompt(PROMPTS)
    noises = model.noises(SEEDS)
    targets = empty_outputs(score, noises, 3)
    d, _ = each_alone(score, encoded, noises, targets)(encoded.states, torch.arange(4))
    # exactly D is not above D; the second row moves beside those that do not
    limit = float(d.sort().values[2])
    states = optimised_each(score, encoded, SEEDS, wen(limit))
    assert states.dtype == dtype
    stays = d <= limit
    assert int(stays.sum()) == 3
    assert torch.equal(states[stays], encoded.states[stays])
    assert not torch.equal(states[~stays], encoded.states[~stays])
    one = model.encode_prompt(["a cat"])
    for norm in ("mean", "frobenius"):
        full, _ = one_for_all(score, one, noises, targets, norm, 3)(one.states, torch.arange(1))
        same = optimised_together(score, one, SEEDS, wen(float(full)), norm)
        assert torch.equal(same, one.states)


def test_begin_and_masked_tokens_stay(model, score):
    encoded = model.encode_prompt(PROMPTS)
    states = optimised_each(score, encoded, SEEDS, wen(0.0, 7))
    assert torch.equal(states[:, 0], encoded.states[:, 0])
    assert bool((states[:, 1:] != encoded.states[:, 1:]).all())
    mask = torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 0]])
    free = free_rows(model, Conditioning(torch.zeros((2, TOKENS, WIDTH)), None, mask))
    assert free[..., 0].tolist() == [[0, 1, 1, 0, 0], [0, 1, 1, 1, 0]]
    # a family without begin token
    model.family = "if"
    assert bool((optimised_each(score, encoded, SEEDS, wen(0.0, 1)) != encoded.states).all())


def test_many_small_steps_add_up_in_half_precision():
    """A step of 1/1,000 is lost in a bfloat16 of 1; the sum of 40 of them is not."""
    encoded = SmoothModel(torch.bfloat16).encode_prompt(PROMPTS)
    moved, expected = (
        optimised_each(TriggerScore(SmoothModel(dtype)), given, SEEDS, wen(0.0, 40, 0.001)).double()
        for dtype, given in (
            (torch.bfloat16, encoded),
            (torch.float64, Conditioning(encoded.states.double())),
        )
    )
    way = (moved - encoded.states.double()).abs()[:, 1:]
    assert float(way.median()) > 0.02
    # float32 inside: what is left is the rounding of the result
    torch.testing.assert_close(moved, expected, atol=1e-4, rtol=2**-8)


def test_slopes_too_large_for_half_precision_are_taken_of_a_smaller_loss():
    states = torch.ones(2, requires_grad=True)
    large = (states.to(torch.float16) * 2.0**10).sum()
    assert slope(large.float(), states, "fp16").tolist() == [2.0**10] * 2


def test_what_is_no_number_is_refused(model, score):
    encoded = model.encode_prompt(PROMPTS)
    encoded.states[2, 1, 1] = float("inf")
    model.a[0, 1] = 0.0
    with pytest.raises(VisleakError, match="not a finite number; use --precision bf16 or fp32"):
        optimised_each(score, encoded, SEEDS, wen(0.0))


def made(model, text, jobs, sampling=BIT, seeds=SEEDS):
    """Return states that reach the sampler, and the seeds."""
    maker = mitigation(text).prepared(model, seeds)
    pixels = maker(model, jobs, sampling)
    assert len(pixels) == len(jobs)
    conditioning, sampled = model.sampled[-1]
    return conditioning.states, sampled


def test_every_image_is_optimised_on_the_noise_it_is_made_of(model):
    jobs = [Job(prompt, seed) for prompt in PROMPTS[:2] for seed in SEEDS]
    states, seeds = made(model, "wen:4.4", jobs, Sampling(30, 7.5, 3))
    assert set(model.timesteps) == {970.0}, "the sampler's first step, for its number of steps"
    assert seeds == [job.seed for job in jobs]
    seen = set()
    for row, job in enumerate(jobs):
        given = model.encode_prompt([job.prompt]).states[0]
        expected, updates = by_hand(model, given, mean(model, [job.seed]), 4.4)
        torch.testing.assert_close(states[row], expected, atol=1e-10, rtol=0)
        seen.add(updates)
    assert len(seen) > 2, "rows must stop at different steps for this test to say anything"


@pytest.mark.parametrize(
    ("scope", "limit", "loss"), [("prompt", 4.4, mean), ("batch", 9.0, frobenius)]
)
def test_shared_scopes_share_one_embedding_a_prompt(model, scope, limit, loss):
    jobs = [Job(prompt, seed) for prompt in PROMPTS[:2] for seed in SEEDS]
    states, _ = made(model, f"wen:{limit},scope={scope}", jobs)
    for row, job in enumerate(jobs):
        given = model.encode_prompt([job.prompt]).states[0]
        expected, updates = by_hand(model, given, loss(model, SEEDS), limit)
        assert updates
        torch.testing.assert_close(states[row], expected, atol=1e-10, rtol=0)


def test_batches_do_not_change_a_shared_embedding_and_it_is_made_once(model):
    maker = mitigation("wen:3,scope=batch").prepared(model, SEEDS)
    jobs = [Job("a cat", seed) for seed in SEEDS]
    maker(model, jobs, BIT)
    calls = len(model.batches)
    whole = model.sampled[-1][0].states
    maker(model, jobs[:1], BIT)
    assert len(model.batches) == calls, "the embedding of a prompt is kept"
    later = mitigation("wen:3,scope=batch").prepared(model, SEEDS)
    later(model, [Job("a dog", 5), jobs[2]], BIT)
    assert torch.equal(model.sampled[-1][0].states[1], whole[2])


def test_the_noise_may_be_compared_instead_of_the_raw_output(model):
    """Of this model the noise is half the output, so D is half as large."""
    states, _ = made(model, "wen:2.2,output=epsilon", [Job("a cat", 5)])
    given = model.encode_prompt(["a cat"]).states[0]
    expected, updates = by_hand(model, given, mean(model, [5]), 4.4)
    assert updates
    torch.testing.assert_close(states[0], expected, atol=1e-6, rtol=0)


def test_what_cannot_be_optimised_is_refused(model, monkeypatch):
    def full(*_):
        raise torch.cuda.OutOfMemoryError("full")

    maker = mitigation("wen:3,scope=batch").prepared(model, SEEDS)
    with pytest.raises(UsageError, match=r"wen \(l=3, batch\) needs all seeds .* seed 9 is not"):
        maker(model, [Job("a cat", 9)], BIT)
    with pytest.raises(UsageError, match="wen with scope=prompt needs the seeds"):
        mitigation("wen:3,scope=prompt").prepared(model, [])
    monkeypatch.setattr(model, "predict_noise", full)
    with pytest.raises(VisleakError, match=r"batches of 3 images do not fit .* smaller batch"):
        mitigation("wen:3").prepared(model, SEEDS)(model, [Job("a cat", 5)], BIT)
    model.prediction = "flow"
    with pytest.raises(UsageError, match="use wen with output=raw"):
        mitigation("wen:3,output=epsilon").prepared(model, SEEDS)
