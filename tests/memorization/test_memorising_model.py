"""The steps of an audit on a model that memorizes, whose triggers and images are known."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs torch")

from linear_model import WordProposer
from memorising_model import CAPTIONS, COLOURS, memorising_model, ordinary, picture
from visleak.diffusion.model import Sampling
from visleak.memorization.baselines import Contest, Means, compare, load_searchers
from visleak.memorization.baselines.document import Reproduction, Verified, rows_of
from visleak.memorization.detection import Analysis, detect, token_significance
from visleak.memorization.prompts import Prompts
from visleak.memorization.scores import TriggerScore
from visleak.memorization.search import (
    AugmentSettings,
    Budget,
    GibbsSearch,
    GibbsSettings,
    RandomSettings,
    RandomWords,
    SearchTask,
    augment,
    diversify,
)
from visleak.memorization.settings import ScoreSettings

SETTINGS = GibbsSettings(
    length=3, iterations=30, candidates=20, temperature=0.05, kappa=None, norm="l2"
)


@pytest.fixture
def model():
    return memorising_model()


class Plain(WordProposer):
    """Proposes no colours."""

    def __init__(self, model):
        super().__init__(model)
        self.chances[:, : len(COLOURS)] = 0.0
        self.chances /= self.chances.sum(1, keepdims=True)

    def words(self):
        return super().words()[len(COLOURS) :]


def score_of(model, **given):
    return TriggerScore(model, ScoreSettings(timestep=999, **given))


def task(model, **given):
    return SearchTask(score_of(model, norm="l2"), **given)


def test_d_tells_memorized_captions_and_their_words(model, tmp_path: Path):
    listed = Prompts(CAPTIONS, (True,) * len(CAPTIONS))
    analysis = Analysis(fpr=0.1)
    found = detect(
        score_of(model), listed, tmp_path, general=Prompts(ordinary()), analysis=analysis
    )
    assert found.separation is not None
    assert found.threshold is not None
    assert found.separation.auc.value == 1.0
    assert found.known_reached == len(CAPTIONS)
    assert found.threshold.alarms <= 10
    tokens = token_significance(score_of(model), "red kab lod mif")
    assert tokens.tokens == ("red", "kab", "lod", "mif")


def test_both_searches_find_higher_d_than_ordinary_captions_have(model):
    general = score_of(model)(ordinary()).d_l2
    found = GibbsSearch(Plain(model), SETTINGS).search(task(model, chains=2))
    budget = Budget(calls=found.calls)
    blind = RandomWords(Plain(model), RandomSettings(3)).search(
        task(model, chains=2, budget=budget)
    )
    assert blind.calls <= found.calls
    for each in (found, blind):
        assert min(candidate.score for candidate in each.best) > np.quantile(general, 0.95)
        words = {word for candidate in each.bank for word in candidate.prompt.split()}
        assert words.isdisjoint(COLOURS)
    triggers = [set(caption.split()) for caption in CAPTIONS]
    assert all(set(candidate.prompt.split()) in triggers for candidate in found.best)


def test_a_known_trigger_is_multiplied_and_spread(model):
    kappa = float(np.quantile(score_of(model)(ordinary()).d_l2, 0.95))
    settings = AugmentSettings(
        iterations=6, candidates=12, temperature=0.1, kappa=kappa, top=40, norm="l2"
    )
    (only,) = augment(task(model), WordProposer(model), [CAPTIONS[0]], settings).triggers
    assert only.above >= 1
    assert len(only.prompts) == min(40, only.scored)
    texts = [each.prompt for each in only.prompts]
    close, spread = (
        [pick.closeness or 0.0 for pick in diversify(model, bank, 6, seed=1)[1:]]
        for bank in (texts[:6], texts)
    )
    assert np.mean(spread) <= np.mean(close)


class Correlated:
    """Verifies by correlation with the memorized images: most of six images above 0.6."""

    def __init__(self, model):
        self.model = model

    def about(self):
        return {"by": "correlation"}

    def verify(self, prompts, folder, progress):
        reproduced = []
        for prompt in prompts:
            encoded = self.model.encode_prompt([prompt] * 6)
            images = self.model.sample(encoded, list(range(6)), Sampling(15, 7.5, 6))
            for number in range(len(CAPTIONS)):
                own = picture(number).ravel()
                similar = [np.corrcoef(image.ravel(), own)[0, 1] for image in images]
                if np.median(similar) > 0.6:
                    reproduced.append(Reproduction(f"memorised/{number}", number, prompt))
        calls = len(prompts) * 6 * 15 * 2
        return Verified(6 * len(prompts), tuple(prompts), tuple(reproduced), calls, 1.0)


def test_methods_are_compared_by_what_they_reproduce(model, tmp_path: Path):
    listed = (*CAPTIONS[:3], *ordinary(60))
    means = Means(
        *(model, "l2", lambda: WordProposer(model), None, Prompts(listed)),
        length=3,
        candidates=16,
        temperature=0.05,
    )
    contest = Contest(model, ScoreSettings(batch=64), Budget(calls=600), 3)
    made = load_searchers(("greedy", "pez", "conzic", "gibbs"), means)
    result = compare(contest, made, Correlated(model), tmp_path)
    rows = {row.method: row for row in rows_of(result)}
    assert all(0 < row.search_calls <= 600 for row in rows.values())
    assert all(row.candidates >= 1 for row in rows.values())
    # three known triggers stand in the list: all of the highest D, and reproduced
    (greedy,) = result.of("greedy")
    assert [each.prompt for each in greedy.candidates] == sorted(
        CAPTIONS[:3], key=lambda text: -float(score_of(model)([text]).d_l2[0])
    )
    assert {each.number for each in greedy.verified.reproduced} == {0, 1, 2}
    assert (tmp_path / "compare.svg").is_file()
