"""SDXL, Stable Diffusion 3 and DeepFloyd IF behind the protocol, against diffusers by hand."""

import json

import numpy as np
import pytest
import torch

from tiny_pipelines import (
    MAKERS,
    deepfloyd,
    saved,
    stable_diffusion_3,
    stable_diffusion_xl,
    stock,
    stock_images,
    unet,
)
from visleak.diffusion import load_model
from visleak.diffusion.families import DeepFloyd, StableDiffusion3
from visleak.diffusion.model import Conditioning, Sampling
from visleak.diffusion.pipeline import LoadedPipeline, quiet
from visleak.errors import UsageError, VisleakError
from visleak.memorization.scores import TriggerScore
from visleak.memorization.settings import ScoreSettings

PROMPTS = ["a photo of a cat", "The sun on a red hill"]
FAMILIES = ("sd1", "sdxl", "sd3", "if")


@pytest.fixture(scope="module", params=FAMILIES)
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
    together = model.encode_prompt([*PROMPTS, ""])
    for row, prompt in enumerate([*PROMPTS, ""]):
        alone = model.encode_prompt([prompt])
        torch.testing.assert_close(together.states[row], alone.states[0], atol=1e-5, rtol=0)
        if together.pooled is not None:
            torch.testing.assert_close(together.pooled[row], alone.pooled[0], atol=1e-5, rtol=0)


def test_the_score_runs_and_gradients_flow(loaded, family):
    model = loaded(family)
    score = TriggerScore(model, ScoreSettings(noises=2))(["", *PROMPTS])
    assert score.d_l2[0] == pytest.approx(0, abs=1e-4)
    assert (score.d_l2[1:] > 0.01).all()
    encoded = model.encode_prompt(PROMPTS[:1])
    states = encoded.states.detach().requires_grad_(True)
    output = model.predict_noise(model.noises([1]), 500, encoded.with_states(states))
    output.square().sum().backward()
    assert float(states.grad.abs().sum()) > 0
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


# -- Stable Diffusion XL --------------------------------------------------------------------------


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
    folder = saved(lambda: stable_diffusion_xl(zeros=False), tmp_path / "xl")
    model = load_model(str(folder), device="cpu")
    assert float(model.unconditional(2).states.abs().sum()) > 0
    wanted = stock_images(stock(folder), PROMPTS, [1, 2], num_inference_steps=4)
    images = model.sample(model.encode_prompt(PROMPTS), [1, 2], Sampling(4, 5.0, 8))
    assert np.array_equal(images, wanted)
    zeros = load_model(str(made("sdxl")), scheduler="ddim")
    assert float(zeros.unconditional(2).states.abs().sum()) == 0
    assert zeros.about()["scheduler"] == "DDIMScheduler"


# -- Stable Diffusion 3 ---------------------------------------------------------------------------


def test_velocities_take_the_place_of_noises(loaded, made):
    """At the first step the images they stand for differ as they do, the noises not at all."""
    model, pipeline = loaded("sd3"), stock(made("sd3"))
    noise, sigma = model.noises([1]), 1.0
    with torch.no_grad():
        velocities = [
            model.predict_noise(noise, 1000, model.encode_prompt([each])) for each in ("a cat", "")
        ]
        states, _, pooled, _ = pipeline.encode_prompt(["a cat"], None, None)
        wanted = pipeline.transformer(
            hidden_states=noise,
            timestep=torch.tensor([1000.0]),
            encoder_hidden_states=states,
            pooled_projections=pooled,
        ).sample
    assert torch.equal(velocities[0], wanted)
    images = [noise - sigma * each for each in velocities]
    noises = [noise + (1 - sigma) * each for each in velocities]
    assert torch.equal(noises[0], noises[1])
    distance = float((velocities[0] - velocities[1]).norm())
    assert float((images[0] - images[1]).norm()) == pytest.approx(distance, rel=1e-5)
    assert distance > 0.01
    with pytest.raises(UsageError, match="the noises that velocities stand for are all equal"):
        model.as_epsilon(velocities[0], noise, 1000)
    assert "distance of velocities" in str(model.about()["output"])


@pytest.mark.parametrize("options", [{"with_t5": False}, {"use_dynamic_shifting": True}])
def test_sd3_without_its_t5_or_with_shifts_that_depend_on_size(tmp_path, options):
    folder = saved(lambda: stable_diffusion_3(**options), tmp_path / "sd3")
    model = load_model(str(folder), device="cpu")
    none = {} if options.get("with_t5", True) else {"text_encoder_3": None, "tokenizer_3": None}
    wanted = stock_images(stock(folder, **none), PROMPTS, [1, 2], num_inference_steps=4)
    images = model.sample(model.encode_prompt(PROMPTS), [1, 2], Sampling(4, 7.0, 8))
    assert np.array_equal(images, wanted)
    assert model.first_timestep(20) == 1000
    assert model.pooled_text(PROMPTS).shape == (2, 48)


def test_parts_of_another_kind_are_refused():
    from diffusers import DDIMScheduler

    with quiet():
        timed = stable_diffusion_3()
        timed.scheduler = DDIMScheduler()
        plain = deepfloyd(unet=unet(channels=3, encoder_hid_dim=32))
    with pytest.raises(VisleakError, match="must be one of flow matching; got DDIMScheduler"):
        StableDiffusion3(LoadedPipeline("tiny", timed, "cpu", "fp32", "0"))
    text = "must give noise and variance, 6 channels; it gives 3"
    with pytest.raises(VisleakError, match=text):
        DeepFloyd(LoadedPipeline("tiny", plain, "cpu", "fp32", "0"))


# -- DeepFloyd IF ---------------------------------------------------------------------------------


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
    torch.testing.assert_close(
        found, model.encode_prompt([" the RED cat"]).states, atol=1e-6, rtol=0
    )
    found.square().sum().backward()
    assert (given.grad.abs().sum(-1) > 0).all()


def test_if_starts_from_the_noise_of_its_seed(loaded):
    """In one step of its sampler nothing else is random but the noise that is added after it."""
    model = loaded("if")
    starts = []
    stepped = type(model.pipeline.scheduler).step

    def kept(self, output, timestep, sample, **named):
        starts.append(sample.clone())
        return stepped(self, output, timestep, sample, **named)

    model.pipeline.scheduler.step = kept.__get__(model.pipeline.scheduler)
    try:
        model.sample(model.encode_prompt(PROMPTS), [3, 4], Sampling(2, 7.5, 2))
    finally:
        del model.pipeline.scheduler.step
    assert torch.equal(starts[0], model.noises([3, 4]))


def test_the_mean_state_of_t5_stands_for_a_prompt(loaded):
    model = loaded("if")
    tokens = model.pipeline.tokenizer("a cat", return_tensors="pt")
    with torch.no_grad():
        # no padding here: what the mask leaves out must not count
        states = model.pipeline.text_encoder(**tokens).last_hidden_state[0]
    found = model.pooled_text(["a cat", "the cat sat on the mat"])
    np.testing.assert_allclose(found[0], states.mean(0).numpy(), atol=1e-5)
    assert not np.allclose(found[0], found[1])
