"""The searches of a comparison by name, and what verifies their candidates."""

import numpy as np
import pytest
from PIL import Image

from linear_model import WordProposer, linear_model
from visleak.diffusion.model import Sampling
from visleak.errors import UsageError
from visleak.memorization.baselines import Means, TracedImages, load_searchers
from visleak.memorization.baselines.document import Reproduction
from visleak.memorization.extraction import ExtractSettings, load_similarity
from visleak.progress import silent


@pytest.mark.parametrize("several", [False, True])
def test_what_is_replayed_names_its_set_once(tmp_path, natural, several):
    small = {}
    for name, folder in (("chelsea", "training"), ("coffee", "training"), ("camera", "other")):
        (tmp_path / folder).mkdir(exist_ok=True)
        small[name] = np.asarray(Image.fromarray(natural[name]).resize((64, 64)))
        Image.fromarray(small[name]).save(tmp_path / folder / f"{name}.png")
    model = linear_model()
    model.replays = {"cow": small["chelsea"]}
    sources = [str(tmp_path / folder) for folder in ("training", "other")[: 1 + several]]
    few, similarity = ExtractSettings(images=12, min_cluster=6), load_similarity("pixels")
    made = TracedImages(model, sources, few, Sampling(2, 1.0, 12), similarity, cache=None)
    assert made.about()["sources"] == [{"source": each} for each in sources]
    found = made.verify(["cow dog", "gnu ant"], tmp_path / "out", silent)
    assert found.clustered == ("cow dog",)
    assert found.reproduced == (Reproduction("training/chelsea.png", 0, "cow dog"),)
    # two prompts, twelve images, two steps without guidance
    assert found.calls == 2 * 12 * 2


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


def test_the_papers_temperature_is_of_one_model():
    with pytest.raises(UsageError, match="Stable Diffusion 1"):
        load_searchers(["gibbs"], Means(linear_model(), "squared"))


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
