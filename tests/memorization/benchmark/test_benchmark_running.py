"""A benchmark from prompts to tables, with a model whose images are known."""

import dataclasses
from operator import attrgetter

import numpy as np
import pytest
from PIL import Image

from painting_model import GENERAL, TRIGGERS, Contrast, WordAlignment, paint, picture, plan_of
from visleak.errors import UsageError
from visleak.formats import open_image_set
from visleak.memorization.benchmark import (
    Judges,
    RealImages,
    References,
    benchmark,
    document,
    read_benchmark,
)
from visleak.memorization.benchmark.plan import sampled
from visleak.memorization.extraction.images import Job, seeds_of
from visleak.memorization.extraction.similarity import PixelSimilarity
from visleak.memorization.mitigate import mitigation
from visleak.memorization.prompts import Prompts
from visleak.stats import set_distances as distances

SEEDS = seeds_of(0, 5)


@pytest.fixture(autouse=True)
def _no_figure(monkeypatch):
    """The figure is drawn once, of the result that most tests read."""
    monkeypatch.setattr(document, "tradeoff", lambda *given: {})


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """A finished benchmark: its plan and its result."""
    base = tmp_path_factory.mktemp("benchmark")
    plan = plan_of(base / "refs", "rna:1", "rna:3")
    return plan, benchmark(plan, base / "out")


def test_every_number_is_that_of_the_images_by_hand(done):
    plan, result = done
    similarity = PixelSimilarity()
    for number, row in enumerate(result.rows):
        # the first is none
        method = plan.mitigations[number]
        given = method.prompt_of if number else attrgetter("prompt")
        own = []
        for prompt, files in zip(TRIGGERS, plan.references.files, strict=True):
            pixels = [paint(given(Job(prompt, seed)), seed) for seed in SEEDS]
            reference = np.asarray(Image.open(files[0]))
            alike = np.array([similarity.between([each], [reference])[0, 0] for each in pixels])
            text = WordAlignment().texts([prompt])[0]
            own.append(
                (
                    alike.max(),
                    np.sort(alike)[-3:].mean(),
                    (alike > 0.5).mean(),
                    np.mean([WordAlignment().images([each])[0] @ text for each in pixels]),
                    np.mean([4 + each.std() / 64 for each in pixels]),
                )
            )
        wanted = np.array(own).mean(0)
        found = [row.value("trigger", n) for n in ("top1", "top3", "share", "clip", "aesthetic")]
        assert found == pytest.approx(wanted, abs=1e-12)
        ordinary = [paint(given(Job(p, SEEDS[0])), SEEDS[0]) for p in GENERAL]
        scores = [4 + each.std() / 64 for each in ordinary]
        assert row.value("general", "aesthetic") == pytest.approx(np.mean(scores))
        assert row.value("general", "aesthetic_std_images") == pytest.approx(np.std(scores, ddof=1))
    assert result.base.value("trigger", "share") > result.rows[2].value("trigger", "share")


def test_the_floor_is_of_memorized_images_of_other_groups(done):
    """Each prompt has one memorized image of another group to be compared with."""
    plan, result = done
    similarity, groups = PixelSimilarity(), plan.groups()
    tops = []
    for prompt, group in zip(TRIGGERS, groups, strict=True):
        pixels = [paint(prompt, seed) for seed in SEEDS]
        own = []
        for other, files in zip(groups, plan.references.files, strict=True):
            if other != group:
                reference = np.asarray(Image.open(files[0]))
                own.append(similarity.between(pixels, [reference]).max())
        tops.append(sorted(own))
    floor = result.floor
    assert (floor.source, floor.images, floor.share.prompts) == ("trigger", 20, 4)
    assert np.mean([own[0] for own in tops]) - 1e-9 <= floor.top1.value
    assert floor.top1.value <= np.mean([own[-1] for own in tops]) + 1e-9
    assert floor.share.value < result.base.value("trigger", "share")
    assert read_benchmark(result.folder).floor == floor


def test_the_floor_of_one_group_is_of_general_prompts(tmp_path):
    plan = plan_of(tmp_path / "refs")
    one = Prompts(TRIGGERS[2:], sources=(("lamp.png",),) * 2, origin="one group")
    files = References(plan.references.files[2:])
    alone = dataclasses.replace(plan, triggers=one, references=files)
    found = benchmark(alone, tmp_path / "out")
    assert (found.floor.source, found.floor.images) == ("general", len(GENERAL))
    without = benchmark(dataclasses.replace(alone, general=None), tmp_path / "other")
    assert without.floor is None


def test_intervals_end_where_the_number_does(tmp_path):
    """Two groups that differ: Student's interval reaches far beyond both."""

    class Sure(PixelSimilarity):
        least = 0.0

        def between(self, one, other):
            return np.where(super().between(one, other) > 0.9, 0.95, 0.0)

    plan = plan_of(tmp_path / "refs", "rna:1", "rna:3")
    judges = dataclasses.replace(plan.judges, similarity=Sure())
    result = benchmark(dataclasses.replace(plan, judges=judges), tmp_path / "out")
    found = [s for row in result.rows for s in row.scores if s.name in ("top1", "top3", "share")]
    intervals = [*(s.interval for s in found), result.floor.top1, result.floor.share]
    assert not any(each.low < 0.0 or each.high > 1.0 for each in intervals)
    # they were cut, and not by luck
    assert any(each.low == 0.0 or each.high == 1.0 for each in intervals)
    changes = [s.change for s in found if s.change]
    assert changes
    assert not any(each.low < -1.0 or each.high > 1.0 for each in changes)
    with pytest.raises(UsageError, match="give an alignment model with --clip"):
        Judges(PixelSimilarity(), None, Contrast(), source=object())


def test_another_method_makes_its_own_images_and_another_judge_none(tmp_path):
    plan = plan_of(tmp_path / "refs", "rna:1", general=None)
    first = benchmark(plan, tmp_path / "out")
    made = len(plan.model.made)
    more = dataclasses.replace(
        plan, mitigations=(*plan.mitigations, mitigation("rna:2")), judges=Judges(PixelSimilarity())
    )
    second = benchmark(more, tmp_path / "out", force=True)
    assert len(plan.model.made) - made == 20
    assert second.rows[1].value("trigger", "top1") == first.rows[1].value("trigger", "top1")
    assert second.rows[1].score("trigger", "clip") is None
    assert second.general is None
    assert not (tmp_path / "out" / "worst.png").exists()
    made = len(plan.model.made)
    third = benchmark(dataclasses.replace(more, judges=plan.judges), tmp_path / "out", force=True)
    assert len(plan.model.made) == made
    assert third.rows[1].value("trigger", "clip") == first.rows[1].value("trigger", "clip")
    with pytest.raises(UsageError, match=r"method rna n=1 is given twice; give it once"):
        plan_of(tmp_path / "refs", "rna:1", "rna:1")
    with pytest.raises(UsageError, match="the first method is none, which all others are"):
        plan_of(tmp_path / "refs", mitigations=())


def test_prompts_without_references_count_for_all_but_similarity(tmp_path):
    plan = plan_of(tmp_path / "refs", "rna:1", general=None)
    files = (plan.references.files[0], (), *plan.references.files[2:])
    references, skipped = References(files, ("said",)), ("ren is skipped: no attention",)
    plan = dataclasses.replace(plan, references=references, skipped=skipped)
    result = benchmark(plan, tmp_path / "out")
    assert result.base.score("trigger", "top1").interval.prompts == 3
    assert result.base.score("trigger", "clip").interval.prompts == 4
    assert (result.triggers.referenced, result.notes) == (3, (*skipped, "said"))


def test_distances_are_those_of_the_images_as_a_set(tmp_path):
    real = tmp_path / "real"
    real.mkdir()
    for number in range(6):
        Image.fromarray(picture(50 + number)).save(real / f"{number}.png")
    (real / "broken.png").write_text("none")

    class Means:
        name, number, digest, width = "means", "mean colours", "means-1", 3

        def images(self, pictures):
            calls.append(len(pictures))
            return np.array([each.mean((0, 1)) / 255 for each in pictures])

    calls, features = [], Means()
    judges = Judges(PixelSimilarity(), real=RealImages(open_image_set(real), features))
    plan = plan_of(tmp_path / "refs", "rna:1", general=None, judges=judges)
    result = benchmark(plan, tmp_path / "out")
    made = [paint(p, seed) for p in TRIGGERS for seed in SEEDS]
    one, other = features.images(made), features.images([picture(50 + n) for n in range(6)])
    found = result.base.distance
    assert found.frechet == pytest.approx(distances.frechet_distance(one, other))
    kernel = distances.kernel_distance(one, other, np.repeat(plan.groups(), 5))
    assert found.kernel == pytest.approx(kernel.value)
    assert (found.images, found.against) == (20, 6)
    assert result.about["real"]["unreadable"] == 1
    before = len(calls)
    benchmark(plan, tmp_path / "out", force=True)
    assert len(calls) == before


def test_a_sample_keeps_what_is_known_of_its_prompts():
    whole = Prompts(
        tuple("abcdefgh"),
        labels=(True,) * 8,
        sources=tuple((letter.upper(),) for letter in "abcdefgh"),
        columns={"n": tuple("12345678")},
    )
    few = sampled(whole, 3, 0)
    assert few == sampled(whole, 3, 0)
    assert [own[0].lower() for own in few.sources] == list(few.texts) == sorted(few.texts)
    assert few.columns["n"] == tuple(str("abcdefgh".index(text) + 1) for text in few.texts)
    assert few.notes == ("3 of 8 prompts, drawn by seed 0",)
    assert sampled(whole, None, 0) is whole
    with pytest.raises(UsageError, match="a sample has at least 1 prompt; got 0"):
        sampled(whole, 0, 0)
