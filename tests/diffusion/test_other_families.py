"""Every family of models behind the protocol, against diffusers and transformers by hand."""

import json

import numpy as np
import pytest
import torch
from torch.testing import assert_close as close

import tiny_pipelines as tiny
from tiny_pipelines import MAKERS, saved, stock, stock_images
from visleak.diffusion import load_model
from visleak.diffusion.families import DeepFloyd, StableDiffusion, StableDiffusion3
from visleak.diffusion.model import Conditioning, Sampling
from visleak.diffusion.pipeline import LoadedPipeline, quiet
from visleak.errors import UsageError, VisleakError

PROMPTS = ["a photo of a cat", "The sun on a red hill"]


@pytest.fixture(scope="module", params=["sd1", "sdxl", "sd3", "if"])
def family(request):
    return request.param


@pytest.fixture(scope="module")
def loaded(made):
    """What returns a model by family, loaded once."""
    models = {}

    def model(name):
        if name not in models:
            models[name] = load_model(str(made(name)), device="cpu")
        return models[name]

    return model


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("guidance", [7.5, 1.0])
def test_images_are_those_of_the_library(loaded, made, name, guidance):
    from diffusers import DDIMScheduler

    model, pipeline = loaded(name), stock(made(name))
    if model.family == "sd":
        pipeline.scheduler = DDIMScheduler.from_config(pipeline.scheduler.config, clip_sample=False)
    options = {"num_inference_steps": 4, "guidance_scale": guidance}
    wanted = stock_images(pipeline, PROMPTS, [1, 2], **options)
    images = model.sample(model.encode_prompt(PROMPTS), [1, 2], Sampling(4, guidance, 8))
    assert images.dtype == np.uint8
    assert np.array_equal(images, wanted)
    assert len(np.unique(images)) > 20


def test_images_and_rows_do_not_depend_on_their_neighbours(loaded, family):
    model = loaded(family)
    conditioning = model.encode_prompt(PROMPTS)
    two, one = (model.sample(conditioning, [5, 6], Sampling(4, 7.5, n)) for n in (2, 1))
    assert np.abs(two.astype(int) - one).max() <= 1
    for row, prompt in enumerate(PROMPTS):
        alone = model.encode_prompt([prompt])
        close(conditioning.states[row], alone.states[0], atol=1e-5, rtol=0)
        if conditioning.pooled is not None:
            close(conditioning.pooled[row], alone.pooled[0], atol=1e-5, rtol=0)


def test_gradients_flow_to_the_states_alone(loaded, family):
    model = loaded(family)
    encoded = model.encode_prompt(PROMPTS[:1])
    states = encoded.states.detach().requires_grad_(True)
    output = model.predict_noise(model.noises([1]), 500, encoded.with_states(states))
    output.square().sum().backward()
    assert states.grad.any()
    assert not any(each.requires_grad for each in model.network.parameters())


def test_half_precision_runs(made, loaded, family):
    half = load_model(str(made(family)), precision="bf16")
    with torch.no_grad():
        both = [
            each.predict_noise(each.noises([1, 2]), 500, each.encode_prompt(PROMPTS)).float()
            for each in (half, loaded(family))
        ]
    assert float((both[0] - both[1]).norm() / both[1].norm()) < 0.05
    assert half.sample(half.encode_prompt(PROMPTS[:1]), [1], Sampling(2, 7.5, 1)).any()


@pytest.mark.parametrize(
    ("name", "scheduler", "first"),
    [
        *(("sd1", "DDIM", 981), ("sdxl", "EulerDiscreteScheduler", 981)),
        *(("sd3", "FlowMatch", 1000), ("if", "DDPM", 980)),
    ],
)
def test_each_has_its_own_scheduler(loaded, made, name, scheduler, first):
    model = loaded(name)
    about = model.about()
    assert json.loads(json.dumps(about)) == about
    assert about["family"] == name.replace("sd1", "sd")
    assert about["scheduler"].startswith(scheduler)
    assert model.first_timestep(50) == first
    if name in ("sd3", "if"):
        with pytest.raises(UsageError, match=r"scheduler ddim does not fit .*; use auto or own"):
            load_model(str(made(name)), scheduler="ddim")


def test_prompts_of_every_family_can_be_taken_apart(loaded, family):
    model = loaded(family)
    ids = model.token_ids("the red cat")
    assert model.token_texts(ids) == ["the", "red", "cat"]
    assert model.prompt_of(ids) == "the red cat"
    assert not set(ids) & model.special_ids()
    assert len(model.token_ids("cat " * 100)) == model.most_tokens()
    with pytest.raises(UsageError, match="prompts must hold at least one prompt; got none"):
        model.encode_prompt([])


@pytest.mark.parametrize("name", ["sdxl", "sd3"])
def test_several_text_encoders_have_a_pooled_part_and_no_one_table(loaded, name):
    model = loaded(name)
    text = "several text encoders read a prompt, each with a table of its own"
    with pytest.raises(UsageError, match=f"has no token_table: {text}"):
        model.token_table()
    with pytest.raises(UsageError, match=f"has no encode_embeddings: {text}"):
        model.encode_embeddings(torch.zeros(1, 2, 32))
    bare = Conditioning(model.encode_prompt(PROMPTS).states)
    with pytest.raises(UsageError, match="must have a pooled part; use encode_prompt"):
        model.predict_noise(model.noises([1, 2]), 500, bare)


@pytest.fixture
def model(loaded):
    return loaded("sd1")


def test_noises_are_each_of_its_seed(model):
    noises = model.noises([7, 8])
    assert noises.shape == (2, 4, 8, 8) == (2, *model.shape)
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
        model.sample(model.encode_prompt(["a", "the"]), [0], Sampling(6, 7.5, 8))
    broken = model.encode_prompt(["a"])
    with pytest.raises(VisleakError, match="makes images that are not finite in precision fp32"):
        model.sample(broken.with_states(broken.states * float("nan")), [0], Sampling(6, 7.5, 8))


def signal_by_hand(timestep):
    """Return abar of Stable Diffusion's schedule."""
    betas = np.linspace(0.00085**0.5, 0.012**0.5, 1000) ** 2
    return float(np.prod(1 - betas[: timestep + 1]))


@pytest.mark.parametrize("timestep", [0, 400, 981, 999, 10.25])
@pytest.mark.parametrize("name", ["sd1", "sd2", "sample"])
def test_what_a_network_predicts_stands_for_a_noise(loaded, name, timestep):
    """Salimans & Ho 2022: v = sqrt(abar) noise - sqrt(1 - abar) image."""
    model = loaded(name)
    noise, image = model.noises([1]), model.noises([2])
    signals = [signal_by_hand(int(timestep) + at) for at in (0, 1)]
    ratio = np.interp(timestep % 1, [0, 1], [np.sqrt((1 - s) / s) for s in signals])
    signal = 1 / (1 + ratio**2)
    latents = signal**0.5 * image + (1 - signal) ** 0.5 * noise
    velocity = signal**0.5 * noise - (1 - signal) ** 0.5 * image
    output = {"epsilon": noise, "v_prediction": velocity, "sample": image}[model.prediction]
    found = model.as_epsilon(output, latents, timestep)
    torch.testing.assert_close(found, noise, atol=1e-4, rtol=0)


def test_where_nothing_but_noise_is_left_outputs_stand_for_one_noise(loaded, monkeypatch):
    """Zero terminal SNR: D of such noises would be 0 for every prompt."""
    second = loaded("sd2")
    noise = second.noises([1])
    none = second.pipeline.scheduler.alphas_cumprod.clone()
    none[-1] = 0.0
    monkeypatch.setattr(second.pipeline.scheduler, "alphas_cumprod", none)
    with pytest.raises(UsageError, match=r"nothing but noise is left.*compare raw outputs"):
        second.as_epsilon(noise, noise, 999)
    second.as_epsilon(noise, noise, 998)


def test_ddim_gets_what_the_pipeline_makes_of_old_settings(made):
    """Published configurations leave out what later versions need."""
    from diffusers import LMSDiscreteScheduler

    with quiet():
        pipeline = tiny.stable_diffusion(scheduler=LMSDiscreteScheduler(beta_end=0.012))
        StableDiffusion.prepare(pipeline, "ddim")
    config = pipeline.scheduler.config
    assert (config.clip_sample, config.steps_offset, config.beta_end) == (False, 1, 0.012)


def test_the_network_of_sdxl_is_asked_as_by_hand(loaded, made):
    model, pipeline = loaded("sdxl"), stock(made("sdxl"))
    with quiet(), torch.no_grad():
        states, _, pooled, _ = pipeline.encode_prompt(PROMPTS)
        added = {"text_embeds": pooled, "time_ids": torch.tensor([[16.0, 16, 0, 0, 16, 16]] * 2)}
        wanted = pipeline.unet(
            model.noises([1, 2]), 981, encoder_hidden_states=states, added_cond_kwargs=added
        ).sample
        output = model.predict_noise(model.noises([1, 2]), 981, model.encode_prompt(PROMPTS))
    assert torch.equal(output, wanted)
    assert np.array_equal(model.pooled_text(PROMPTS), pooled.numpy())


def test_sdxl_leads_away_from_what_the_pipeline_says(tmp_path, made):
    folder = saved(lambda: tiny.stable_diffusion_xl(zeros=False), tmp_path / "xl")
    model = load_model(str(folder), device="cpu")
    assert float(model.unconditional(2).states.abs().sum()) > 0
    wanted = stock_images(stock(folder), PROMPTS, [1, 2], num_inference_steps=4)
    images = model.sample(model.encode_prompt(PROMPTS), [1, 2], Sampling(4, 5.0, 8))
    assert np.array_equal(images, wanted)
    zeros = load_model(str(made("sdxl")), scheduler="ddim")
    assert float(zeros.unconditional(2).states.abs().sum()) == 0
    assert zeros.about()["scheduler"] == "DDIMScheduler"


def test_velocities_take_the_place_of_noises(loaded, made):
    model, pipeline = loaded("sd3"), stock(made("sd3"))
    noise, time = model.noises([1]), torch.tensor([1000.0])
    with torch.no_grad():
        velocity = model.predict_noise(noise, 1000, model.encode_prompt(["a cat"]))
        states, _, pooled, _ = pipeline.encode_prompt(["a cat"], None, None)
        wanted = pipeline.transformer(noise, states, pooled, time).sample
    assert torch.equal(velocity, wanted)
    with pytest.raises(UsageError, match="the noises that velocities stand for are all equal"):
        model.as_epsilon(velocity, noise, 1000)
    assert "distance of velocities" in str(model.about()["output"])


@pytest.mark.parametrize("options", [{"with_t5": False}, {"use_dynamic_shifting": True}])
def test_sd3_without_its_t5_or_with_shifts_that_depend_on_size(tmp_path, options):
    folder = saved(lambda: tiny.stable_diffusion_3(**options), tmp_path / "sd3")
    model = load_model(str(folder), device="cpu")
    none = {} if options.get("with_t5", True) else {"text_encoder_3": None, "tokenizer_3": None}
    wanted = stock_images(stock(folder, **none), PROMPTS, [1, 2], num_inference_steps=4)
    images = model.sample(model.encode_prompt(PROMPTS), [1, 2], Sampling(4, 7.0, 8))
    assert np.array_equal(images, wanted)
    assert model.first_timestep(20) == 1000
    assert model.pooled_text(PROMPTS).shape == (2, 48)


def timed():
    from diffusers import DDIMScheduler

    pipeline = tiny.stable_diffusion_3()
    pipeline.scheduler = DDIMScheduler()
    return pipeline


def of_unet(maker, **more):
    return lambda: maker(unet=tiny.unet(**more))


@pytest.mark.parametrize(
    ("family", "make", "text"),
    [
        # inpainting reads a mask, distilled models the guidance
        (StableDiffusion, of_unet(tiny.stable_diffusion, in_channels=9), "reads more than noise"),
        (StableDiffusion, of_unet(tiny.stable_diffusion, time_cond_proj_dim=16), "reads more than"),
        (StableDiffusion, lambda: tiny.stable_diffusion("smell"), "got 'smell'"),
        (StableDiffusion3, timed, "must be one of flow matching; got DDIMScheduler"),
        (DeepFloyd, of_unet(tiny.deepfloyd, channels=3, encoder_hid_dim=32), "it gives 3"),
    ],
)
def test_parts_of_another_kind_are_refused(family, make, text):
    with quiet():
        pipeline = make()
    with pytest.raises(VisleakError, match=text):
        family(LoadedPipeline("tiny", pipeline, "cpu", "fp32", "0"))


def test_the_network_of_if_is_asked_as_by_hand(loaded, made):
    model, pipeline = loaded("if"), stock(made("if"))
    with torch.no_grad():
        states, _ = pipeline.encode_prompt(PROMPTS, do_classifier_free_guidance=False)
        whole = pipeline.unet(model.noises([1, 2]), 980, encoder_hidden_states=states).sample
        conditioning = model.encode_prompt(PROMPTS)
        output = model.predict_noise(model.noises([1, 2]), 980, conditioning)
    assert torch.equal(conditioning.states, states)
    assert whole.shape == (2, 6, 8, 8)
    assert torch.equal(output, whole[:, :3])


def test_embeddings_of_t5_are_the_prompt(loaded):
    model = loaded("if")
    ids = model.token_ids("The red cat")
    given = model.token_table()[ids][None].clone().requires_grad_(True)
    found = model.encode_embeddings(given).states
    close(found, model.encode_prompt([" the RED cat"]).states, atol=1e-6, rtol=0)
    found.square().sum().backward()
    assert (given.grad.abs().sum(-1) > 0).all()


def test_the_mean_state_of_t5_stands_for_a_prompt(loaded):
    model = loaded("if")
    tokens = model.pipeline.tokenizer("a cat", return_tensors="pt")
    with torch.no_grad():
        # no padding here: what the mask leaves out must not count
        states = model.pipeline.text_encoder(**tokens).last_hidden_state[0]
    found = model.pooled_text(["a cat", "the cat sat on the mat"])
    np.testing.assert_allclose(found[0], states.mean(0).numpy(), atol=1e-5)
