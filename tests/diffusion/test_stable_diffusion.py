"""Stable Diffusion behind the protocol, against diffusers and transformers by hand."""

import numpy as np
import pytest
import torch

from tiny_pipelines import stable_diffusion, unet
from visleak.diffusion import load_model
from visleak.diffusion.families import StableDiffusion
from visleak.diffusion.model import Sampling
from visleak.diffusion.pipeline import LoadedPipeline, quiet
from visleak.errors import UsageError, VisleakError

PROMPTS = ["a photo of a cat", "the sun on a red hill", ""]
QUICK = Sampling(6, 7.5, 8)


@pytest.fixture(scope="module")
def model(made):
    return load_model(str(made("sd1")), device="cpu")


@pytest.fixture(scope="module")
def second(made):
    return load_model(str(made("sd2")), device="cpu")


def test_noises_are_each_of_its_seed(model):
    noises = model.noises([7, 8])
    assert noises.shape == (2, 4, 8, 8) == (2, *model.shape)
    assert noises.dtype == torch.float32
    assert torch.equal(noises[1:], model.noises([8]))
    assert torch.equal(noises[1], torch.randn((4, 8, 8), generator=torch.manual_seed(8)))
    assert model.noises([]).shape == (0, 4, 8, 8)


@pytest.mark.parametrize(("steps", "first"), [(50, 981), (20, 951), (1, 1), (999, 999)])
def test_the_first_timestep_is_that_of_ddim(model, steps, first):
    """MemBench: 981 for 50 steps, where the search of its code takes 999."""
    assert model.first_timestep(steps) == first


def test_the_first_timestep_disturbs_no_sampler_and_must_exist(model):
    scheduler = model.pipeline.scheduler
    scheduler.set_timesteps(7)
    before = scheduler.timesteps.clone()
    assert model.first_timestep(13) == 76 * 12 + 1
    assert torch.equal(scheduler.timesteps, before)
    text = "steps must be a number of steps that DDIMScheduler can make, 1 to 1000; got 2000"
    with pytest.raises(UsageError, match=text):
        model.first_timestep(2000)
    with pytest.raises(UsageError, match=text):
        model.sample(model.encode_prompt(["a"]), [0], Sampling(2000, 7.5, 1))


def test_what_cannot_be_sampled_is_refused(model):
    with pytest.raises(UsageError, match="seeds must be one per row of conditioning; got 1 for 2"):
        model.sample(model.encode_prompt(["a", "the"]), [0], QUICK)
    broken = model.encode_prompt(["a"])
    with pytest.raises(VisleakError, match="makes images that are not finite in precision fp32"):
        model.sample(broken.with_states(broken.states * float("nan")), [0], QUICK)


def signal_by_hand(timestep):
    """Return abar of Stable Diffusion's schedule."""
    betas = np.linspace(0.00085**0.5, 0.012**0.5, 1000) ** 2
    return float(np.prod(1 - betas[: timestep + 1]))


@pytest.mark.parametrize("timestep", [0, 400, 981, 999, 10.25])
@pytest.mark.parametrize("name", ["sd1", "sd2", "sample"])
def test_what_a_network_predicts_stands_for_a_noise(made, name, timestep):
    """Salimans & Ho 2022: v = sqrt(abar) noise - sqrt(1 - abar) image.

    Between timesteps the ratio of noise to image is interpolated, as samplers with such do.
    """
    model = load_model(str(made(name)))
    noise, image = model.noises([1]), model.noises([2])
    signals = [signal_by_hand(int(timestep) + at) for at in (0, 1)]
    ratio = np.interp(timestep % 1, [0, 1], [np.sqrt((1 - s) / s) for s in signals])
    signal = 1 / (1 + ratio**2)
    latents = signal**0.5 * image + (1 - signal) ** 0.5 * noise
    velocity = signal**0.5 * noise - (1 - signal) ** 0.5 * image
    output = {"epsilon": noise, "v_prediction": velocity, "sample": image}[model.prediction]
    found = model.as_epsilon(output, latents, timestep)
    torch.testing.assert_close(found, noise, atol=1e-4, rtol=0)


def test_where_nothing_but_noise_is_left_outputs_stand_for_one_noise(second, monkeypatch):
    """Zero terminal SNR: D of such noises would be 0 for every prompt."""
    noise = second.noises([1])
    none = second.pipeline.scheduler.alphas_cumprod.clone()
    none[-1] = 0.0
    monkeypatch.setattr(second.pipeline.scheduler, "alphas_cumprod", none)
    with pytest.raises(UsageError, match=r"nothing but noise is left.*compare raw outputs"):
        second.as_epsilon(noise, noise, 999)
    second.as_epsilon(noise, noise, 998)


def model_of(pipeline):
    return StableDiffusion(LoadedPipeline("tiny", pipeline, "cpu", "fp32", "0"))


def test_networks_of_another_kind_are_refused():
    """Inpainting reads a mask, distilled models the guidance."""
    for more in ({"in_channels": 9}, {"time_cond_proj_dim": 16}):
        with quiet():
            pipeline = stable_diffusion(unet=unet(**more))
        with pytest.raises(VisleakError, match="reads more than noise and a prompt"):
            model_of(pipeline)
    with quiet():
        pipeline = stable_diffusion()
        pipeline.scheduler.register_to_config(prediction_type="smell")
    with pytest.raises(VisleakError, match=r"prediction_type must be epsilon, .* got 'smell'"):
        model_of(pipeline)


def test_ddim_gets_what_the_pipeline_makes_of_old_settings(made):
    """Published configurations leave out what later versions need."""
    from diffusers import LMSDiscreteScheduler

    with quiet():
        pipeline = stable_diffusion(scheduler=LMSDiscreteScheduler(beta_end=0.012))
        StableDiffusion.prepare(pipeline, "ddim")
    config = pipeline.scheduler.config
    assert (config.clip_sample, config.steps_offset, config.beta_end) == (False, 1, 0.012)
