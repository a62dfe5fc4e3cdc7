"""Searches compared end to end, with real images, clusters, sources and gradients."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from linear_model import WordProposer, linear_model
from visleak.diffusion.model import Sampling
from visleak.errors import UsageError
from visleak.memorization.baselines import Contest, Means, TracedImages, compare, load_searchers
from visleak.memorization.baselines.document import Reproduction
from visleak.memorization.extraction import ExtractSettings, load_similarity
from visleak.memorization.prompts import Prompts
from visleak.memorization.settings import Budget, ScoreSettings
from visleak.progress import silent

TEXTS = ("ant bee", "cow dog", "cow elk", "fox gnu", "hen ibis", "bee hen", "gnu ant")


@pytest.fixture
def training(tmp_path, natural):
    """Four training images of 64 pixels, in a folder."""
    (tmp_path / "training").mkdir()
    found = {}
    for name in ("astronaut", "chelsea", "coffee", "rocket"):
        small = Image.fromarray(natural[name]).resize((64, 64), Image.Resampling.LANCZOS)
        small.save(tmp_path / "training" / f"{name}.png")
        found[name] = np.asarray(small)
    return found


def verifier(model, folder):
    return TracedImages(
        model,
        [str(folder)],
        ExtractSettings(images=12, min_cluster=6),
        Sampling(2, 1.0, 12),
        load_similarity("pixels"),
        cache=None,
    )


def test_what_is_replayed_is_found_by_name(training, tmp_path):
    model = linear_model()
    model.replays = {"cow": training["chelsea"], "ant": training["coffee"]}
    means = Means(model, "l2", prompts=Prompts(TEXTS), length=2)
    contest = Contest(model, ScoreSettings(), Budget(calls=200), 7)
    made = load_searchers(["greedy"], means)
    result = compare(contest, made, verifier(model, tmp_path / "training"), tmp_path / "out")
    (one,) = result.attempts
    assert set(one.verified.clustered) == {"ant bee", "cow dog", "cow elk", "gnu ant"}
    assert {(each.prompt, Path(each.reference).name) for each in one.verified.reproduced} == {
        *(("ant bee", "coffee.png"), ("gnu ant", "coffee.png")),
        *(("cow dog", "chelsea.png"), ("cow elk", "chelsea.png")),
    }
    assert one.found == 2
    # seven prompts, twelve images, two steps without guidance
    assert one.verified.calls == 7 * 12 * 2
    assert one.search_calls == len(TEXTS) + 1
    # a second run, made anew from what is on disk, says the same
    (tmp_path / "out" / "compare.json").unlink()
    (tmp_path / "out" / "greedy" / "seed-0" / "attempt.json").unlink()
    model.known.clear()
    again = compare(contest, made, verifier(model, tmp_path / "training"), tmp_path / "out")
    assert again.attempts[0].verified.reproduced == one.verified.reproduced
    assert again.attempts[0].candidates == one.candidates
    assert again.attempts[0].search_calls == one.search_calls


def test_what_is_replayed_names_its_set_once(training, tmp_path, natural):
    other = tmp_path / "other"
    other.mkdir()
    Image.fromarray(natural["camera"][..., :3]).resize((64, 64)).save(other / "camera.png")
    model = linear_model()
    model.replays = {"cow": training["chelsea"]}
    made = verifier(model, tmp_path / "training")
    for sources in (made.sources, [*made.sources, str(other)]):
        found = replace(made, sources=sources).verify(["cow dog"], tmp_path / "out", silent)
        assert found.reproduced == (Reproduction("training/chelsea.png", 0, "cow dog"),)


@pytest.mark.parametrize(
    ("names", "needed"),
    [
        (["random"], "random needs a masked language model: give --lm FOLDER"),
        (["greedy"], "greedy needs a list of prompts: give --prompts FILE"),
        (["zerocap"], "zerocap needs a causal language model: give --causal-lm FOLDER"),
        (["gibbs"], r"the paper's K \(temperature 0.1\) is on the squared scale and D on the l2"),
        (["beam"], "a method is one of gibbs, random, greedy, conzic, zerocap, pez; got 'beam'"),
        (["pez", "pez"], "methods must be one or more, each given once"),
        ([], "methods must be one or more, each given once"),
    ],
)
def test_means_say_what_is_missing(names, needed):
    with pytest.raises(UsageError, match=needed):
        load_searchers(names, Means(linear_model(), "l2"))


@pytest.mark.parametrize(("asked", "gibbs", "pez"), [(None, 150, 200), (7, 7, 7)])
def test_iterations_are_the_papers_or_as_asked(language, asked, gibbs, pez):
    model = linear_model()
    given = {"length": 3, "iterations": asked, "temperature": 0.1, "causal": lambda: language}
    means = Means(model, "squared", lambda: WordProposer(model), **given)
    made = load_searchers(["gibbs", "conzic", "pez", "random", "zerocap"], means)
    assert made["gibbs"].settings.iterations == gibbs
    assert (made["gibbs"].settings.kappa, made["gibbs"].settings.rounds) == (None, 1)
    assert made["conzic"].settings.iterations == pez
    # the length of a text and its budget end it
    assert (made["zerocap"].settings.length, made["zerocap"].settings.beams) == (3, 5)
    assert made["pez"].settings.iterations == pez
    assert made["random"].settings.prompts == gibbs * 200
