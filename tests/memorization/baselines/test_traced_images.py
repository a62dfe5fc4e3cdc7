"""Searches compared end to end, with real images, clusters, sources and gradients."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from visleak.diffusion.model import Sampling
from visleak.errors import UsageError
from visleak.memorization.baselines import Contest, Means, TracedImages, compare, load_searchers
from visleak.memorization.baselines.document import Reproduction, Verified, rows_of
from visleak.memorization.baselines.zerocap import load_causal
from visleak.memorization.extraction import ExtractSettings, load_similarity
from visleak.memorization.prompts import Prompts
from visleak.memorization.settings import Budget, ScoreSettings
from visleak.progress import silent

TEXTS = ("ant bee", "cow dog", "cow elk", "fox gnu", "hen ibis", "bee hen", "gnu ant")


@pytest.fixture
def training(tmp_path: Path, natural: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Four training pictures of 64 pixels, in a folder."""
    folder = tmp_path / "training"
    folder.mkdir()
    found = {}
    for name in ("astronaut", "chelsea", "coffee", "rocket"):
        small = Image.fromarray(natural[name]).resize((64, 64), Image.Resampling.LANCZOS)
        small.save(folder / f"{name}.png")
        found[name] = np.asarray(small)
    return found


def verifier(model, folder):
    return TracedImages(
        model,
        [str(folder)],
        ExtractSettings(images=12, min_cluster=6),
        Sampling(2, 1.0, 12),
        load_similarity("builtin"),
        cache=None,
    )


def test_what_is_replayed_is_found_by_name(make_model, training, tmp_path):
    model = make_model()
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


@pytest.mark.parametrize("several", [False, True])
def test_what_is_replayed_names_its_set_once(make_model, training, tmp_path, natural, several):
    other = tmp_path / "other"
    other.mkdir()
    Image.fromarray(natural["camera"][..., :3]).resize((64, 64)).save(other / "camera.png")
    model = make_model()
    model.replays = {"cow": training["chelsea"]}
    made = verifier(model, tmp_path / "training")
    if several:
        made = replace(made, sources=[*made.sources, str(other)])
    found = made.verify(["cow dog"], tmp_path / "out", silent)
    assert found.reproduced == (Reproduction("training/chelsea.png", 0, "cow dog"),)


def test_means_say_what_is_missing(make_model, make_proposer):
    model = make_model()
    means = Means(model, "l2")
    for name, needed in (
        ("random", "random needs a masked language model: give --lm FOLDER"),
        ("conzic", "conzic needs a masked language model: give --lm FOLDER"),
        ("greedy", "greedy needs a list of prompts: give --prompts FILE"),
        ("zerocap", "zerocap needs a causal language model: give --causal-lm FOLDER"),
        ("gibbs", r"the paper's K \(temperature 0.1\) is on the squared scale and D on the l2"),
        ("beam", "a method is one of gibbs, random, greedy, conzic, zerocap, pez; got 'beam'"),
    ):
        with pytest.raises(UsageError, match=needed):
            load_searchers([name], means)
    with pytest.raises(UsageError, match="methods must be one or more, each given once"):
        load_searchers(["pez", "pez"], means)
    with pytest.raises(UsageError, match="methods must be one or more, each given once"):
        load_searchers([], means)


@pytest.mark.parametrize(("asked", "gibbs", "pez"), [(None, 150, 200), (7, 7, 7)])
def test_iterations_are_the_papers_or_as_asked(make_model, make_proposer, asked, gibbs, pez):
    model = make_model()
    means = Means(model, "squared", lambda: make_proposer(model), length=3, iterations=asked)
    with pytest.raises(UsageError, match="constants of D of Stable Diffusion 1"):
        load_searchers(["gibbs"], means)
    means = replace(means, temperature=0.1)
    made = load_searchers(["gibbs", "conzic", "pez", "random"], means)
    assert made["gibbs"].settings.iterations == gibbs
    assert (made["gibbs"].settings.kappa, made["gibbs"].settings.rounds) == (None, 1)
    assert made["conzic"].settings.iterations == pez
    assert made["pez"].settings.iterations == pez
    assert made["random"].settings.prompts == gibbs * 200


class Correlated:
    """Verifies by correlation with the memorised pictures: most of six images above 0.6.

    The tests' toy is trained so shortly that its copies are noisy: the product's own verification
    calls them similar, not near (that of a toy of 2,000 updates finds all three).
    """

    def __init__(self, model, pictures):
        self.model, self.pictures = model, pictures

    def about(self):
        return {"by": "correlation", "pictures": len(self.pictures)}

    def verify(self, prompts, folder, progress):
        reproduced = []
        for prompt in prompts:
            encoded = self.model.encode_prompt([prompt] * 6)
            images = self.model.sample(encoded, list(range(6)), Sampling(15, 7.5, 6))
            for number, picture in enumerate(self.pictures):
                alike = [np.corrcoef(image.ravel(), picture.ravel())[0, 1] for image in images]
                if np.median(alike) > 0.6:
                    reproduced.append(Reproduction(f"memorised/{number}", number, prompt))
        calls = len(prompts) * 6 * 15 * 2
        return Verified(6 * len(prompts), tuple(prompts), tuple(reproduced), calls, 1.0)


@pytest.mark.slow
def test_methods_on_a_model_that_memorises(trained_toy: Path, tmp_path: Path):
    from visleak.diffusion import load_model
    from visleak.memorization.search.proposals import Rules, load_language_model, own_banned_words

    model = load_model(str(trained_toy / "pipeline"), device="cpu", precision="fp32")
    rules = Rules(banned=own_banned_words(), banned_name="own")
    lm = load_language_model(str(trained_toy / "mlm"), rules=rules)
    known = json.loads((trained_toy / "world.json").read_text())
    captions = [each["caption"] for each in known["memorised"]]
    listed = (*captions[:3], *dict.fromkeys(known["general"][:60]))
    pictures = [
        np.asarray(Image.open(trained_toy / each["picture"]).convert("RGB"))
        for each in known["memorised"]
    ]
    means = Means(
        *(model, "l2", lambda: lm, lambda: load_causal(str(trained_toy / "clm"))),
        Prompts(listed),
        length=6,
        candidates=16,
        temperature=0.05,
        beams=2,
    )
    contest = Contest(model, ScoreSettings(batch=64), Budget(calls=300), 3)
    made = load_searchers(("greedy", "pez", "conzic", "zerocap"), means)
    result = compare(contest, made, Correlated(model, pictures), tmp_path)
    rows = {row.method: row for row in rows_of(result)}
    assert all(0 < row.search_calls <= 300 for row in rows.values())
    assert all(row.candidates >= 1 for row in rows.values())
    # three known triggers stand in the list: nearly all of the highest D, and reproduced
    (greedy,) = result.of("greedy")
    found = {captions.index(each.prompt) for each in greedy.candidates if each.prompt in captions}
    assert len(found & {0, 1, 2}) >= 2
    assert {each.number for each in greedy.verified.reproduced} == found
    # as in the paper, gradients reach a high D, and guided fluent texts do not
    assert rows["pez"].best_d.value > 1.5 * rows["zerocap"].best_d.value
    assert (tmp_path / "compare.svg").is_file()
