"""All methods on tiny models of the real classes: same noises, families, precisions."""

import pytest
import torch
from mitigated_models import tiny

from visleak.diffusion.model import Sampling
from visleak.memorization.extraction.images import Job, seeds_of
from visleak.memorization.mitigate import PromptOptimisation, mitigation, usual_methods
from visleak.memorization.mitigate.wen import optimised_each
from visleak.memorization.scores import TriggerScore
from visleak.memorization.settings import ScoreSettings

PROMPTS = ["a photo of a cat", "the sun on a hill"]
QUICK = Sampling(3, 7.5, 4)
LOUD = 6.0

#: One text a method and way; l is below what the tiny models' D is.
TEXTS = (
    "none",
    "rna:2",
    "rta:2,draw=image",
    "wen:0.01,steps=2",
    "wen:0.01,scope=prompt,steps=2",
    "wen:0.01,scope=batch,steps=2",
    "ren:1.2",
    "ren:1.2,summary=padding",
)


@pytest.fixture(scope="module")
def model():
    return tiny("sd1", loud=LOUD)


def jobs_of(seeds):
    return [Job(prompt, seed) for prompt in PROMPTS for seed in seeds]


@pytest.mark.parametrize("text", TEXTS)
def test_every_method_starts_from_the_noises_of_the_seeds(model, text):
    """The network sees, at the first step, each image's own noise, whatever the method does."""
    seen = []

    def heard(_module, args, named):
        seen.append((args[0].clone(), float(args[1])))

    seeds = seeds_of(3, 3)
    jobs = jobs_of(seeds)
    first = model.first_timestep(QUICK.steps)
    with model.network.register_forward_pre_hook(heard, with_kwargs=True):
        mitigation(text).prepared(model, seeds)(model, jobs, QUICK)
    wanted = {tuple(model.noises([seed]).flatten().tolist()) for seed in seeds}
    begun = [latents for latents, timestep in seen if timestep == first]
    assert {tuple(row.flatten().tolist()) for latents in begun for row in latents} == wanted
    # both branches of guidance, image by image
    sampled = [latents for latents in begun if len(latents) in (8, 4)][-2:]
    noises = model.noises([job.seed for job in jobs])
    assert torch.equal(sampled[0], torch.cat([noises[:4]] * 2))
    assert torch.equal(sampled[1], torch.cat([noises[4:]] * 2))


@pytest.mark.parametrize(
    ("family", "skipped"),
    [("sd1", {"wen"}), ("sdxl", {"wen"}), ("sd3", {"wen", "ren"}), ("if", {"wen", "ren"})],
)
def test_where_no_method_is_named_a_model_has_those_that_it_can(family, skipped):
    """The tiny sd1 has not the size of latents that the paper's l belongs to."""
    methods, notes = usual_methods(tiny(family), seeds_of(0, 2))
    assert methods[0].name == "none"
    assert {each.name for each in methods} == {"none", "rna", "rta", "wen", "ren"} - skipped
    assert {note.split()[0] for note in notes} == skipped


def d_of(score, encoded):
    """Return D of embeddings, each at the noise of a seed of its own."""
    losses = []
    for row, seed in enumerate((3, 4)):
        noise = score.model.noises([seed])
        with torch.no_grad():
            nothing = score.predict(score.model.encode_prompt([""]), noise)
            losses.append(score.squared_distance(encoded[row : row + 1], noise, nothing).sqrt())
    return torch.cat(losses)


@pytest.mark.parametrize("name", ["sd2", "sdxl", "sd3", "if"])
def test_methods_work_on_other_families(name):
    model = tiny(name, loud=LOUD)
    score, encoded = TriggerScore(model, ScoreSettings(steps=3)), model.encode_prompt(PROMPTS)
    wen = PromptOptimisation(0.0, steps=6, rate=0.01)
    states = optimised_each(score, encoded, [3, 4], wen)
    assert (d_of(score, encoded.with_states(states)) < d_of(score, encoded)).all()
    # a T5 has no begin token that stays
    assert torch.equal(states[:, 0], encoded.states[:, 0]) == (name != "if")
    seeds = seeds_of(0, 2)
    jobs = jobs_of(seeds)
    plain, *others = [
        mitigation(text).prepared(model, seeds)(model, jobs, QUICK)
        for text in TEXTS
        if name in ("sd2", "sdxl") or not text.startswith("ren")
    ]
    assert all(made.shape == plain.shape and (made != plain).any() for made in others)
