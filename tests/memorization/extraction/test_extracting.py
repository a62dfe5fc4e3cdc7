"""Candidate images of prompts, from the model to the files."""

import json
import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from replaying_model import ReplayingModel, planted
from visleak.diffusion.model import Sampling
from visleak.errors import UsageError
from visleak.images import decode
from visleak.memorization.extraction import ExtractSettings, extract, read_extraction, reclustered
from visleak.memorization.extraction.similarity import recall_of
from visleak.memorization.prompt_files import read_prompts
from visleak.memorization.prompts import PromptScores

#: A prompt that a spreadsheet, HTML, Markdown and a terminal would all misread.
HOSTILE = "=cmd|' /C calc'!A0 <img src=x onerror=alert(1)> [a](b) \x1b[31m\nsecond line"
REPLAYS = {"always": (0, 1.0), HOSTILE: (1, 0.7), "seldom": (2, 0.25)}
PROMPTS = ["always", "never", HOSTILE, "seldom"]
SETTINGS = ExtractSettings(images=24, min_cluster=12)
SAMPLING = Sampling(steps=5, guidance=7.5, batch=16)


def model():
    return ReplayingModel(REPLAYS)


def made(folder, settings=SETTINGS, prompts=PROMPTS, **changes):
    options = {"sampling": SAMPLING, "similarity": "pixels", "sheets": False, **changes}
    return extract(options.pop("model", model()), prompts, settings, folder, **options)


@pytest.fixture(scope="session")
def results(tmp_path_factory):
    """Return a finished run by each similarity, which is only read."""
    return {
        similarity: made(tmp_path_factory.mktemp(similarity), similarity=similarity, sheets=True)
        for similarity in ("builtin", "pixels")
    }


@pytest.fixture(scope="session")
def finished(results):
    """Return the folder of a finished run."""
    return results["pixels"].folder


@pytest.fixture
def copied(finished, tmp_path):
    """Return a folder of a finished run of the test's own."""
    return Path(shutil.copytree(finished, tmp_path / "copied"))


@pytest.mark.parametrize("similarity", ["builtin", "pixels"])
def test_planted_prompts_give_their_cluster_and_others_none(results, similarity):
    result = results[similarity]
    assert [each.prompt for each in result.clusters] == ["always", HOSTILE]
    for each in result.clusters:
        number, _ = REPLAYS[each.prompt]
        replayed = {
            seed
            for prompt, seed in _seeds(result.folder)
            if prompt == each.prompt
            and np.abs(model().image(prompt, seed).astype(int) - planted(number, 16)).mean() < 20
        }
        assert each.size == len(replayed)
        assert each.seed in replayed
        assert each.images == 24
        assert each.number == 0
        assert each.cohesion > 0.9
        seen = decode((result.folder / each.path).read_bytes())
        assert np.array_equal(seen.pixels, model().image(each.prompt, each.seed))
    assert result.images == 96
    assert result.calls == 96 * 5 * 2
    assert result.about["similarity"]["name"] == similarity
    assert result.about["settings"]["eps"] == {"builtin": 0.5, "pixels": 0.1}[similarity]


def _seeds(folder):
    table = pq.read_table(folder / "generated.parquet")
    return list(zip(table["prompt"].to_pylist(), table["seed"].to_pylist(), strict=True))


def test_all_prompts_start_from_the_same_noises_unless_told(finished, tmp_path):
    assert len({seed for _, seed in _seeds(finished)}) == 24
    made(tmp_path, ExtractSettings(images=5, min_cluster=3, paired=False), PROMPTS[:2])
    assert len({seed for _, seed in _seeds(tmp_path)}) == 10


def test_the_tables_agree_with_each_other(finished):
    result = read_extraction(finished)
    rows = pq.read_table(finished / "generated.parquet").to_pylist()
    assert all((finished / row["path"]).is_file() for row in rows)
    sizes = Counter((r["prompt"], r["cluster"]) for r in rows if r["cluster"] is not None)
    assert sizes == {(each.prompt, each.number): each.size for each in result.clusters}
    digests = {(row["prompt"], row["cluster"], row["digest"]) for row in rows}
    assert {(each.prompt, each.number, each.medoid) for each in result.clusters} <= digests
    clusters = pq.read_table(finished / "clusters.parquet").to_pylist()
    assert [row["medoid"] for row in clusters] == [each.medoid for each in result.clusters]


def test_clusters_are_made_anew_without_a_model(copied):
    files = {path: path.stat().st_mtime_ns for path in copied.rglob("images/*/*.png")}
    looser = ExtractSettings(min_cluster=5)
    result = reclustered(copied, looser, similarity="pixels")
    assert [each.prompt for each in result.clusters] == ["always", HOSTILE, "seldom"]
    assert result.about["settings"]["images"] == 24
    assert files == {path: path.stat().st_mtime_ns for path in copied.rglob("images/*/*.png")}
    assert len(list((copied / "sheets").iterdir())) == 3
    back = reclustered(copied, ExtractSettings(min_cluster=12), similarity="pixels")
    assert len(list((copied / "sheets").iterdir())) == 2
    # the same as the run that made the images: that run would find it finished
    assert made(copied, model=(untouched := model())).key == back.key
    assert untouched.rows == []


def test_the_order_of_prompts_changes_no_cluster(results, tmp_path):
    back = made(tmp_path, SETTINGS, PROMPTS[::-1], sampling=Sampling(5, 7.5, 7))
    assert set(results["pixels"].clusters) == set(back.clusters)


def test_what_cannot_be_extracted_is_refused(tmp_path):
    untouched = model()
    with pytest.raises(UsageError, match="there are no prompts to make images of;"):
        extract(untouched, [], folder=tmp_path)
    with pytest.raises(UsageError, match="similarity phash has no threshold of"):
        extract(untouched, ["a"], folder=tmp_path, similarity="phash")
    assert untouched.rows == []
    for eps in (0.0, 3.0, float("nan")):
        with pytest.raises(UsageError, match="eps must be"):
            ExtractSettings(eps=eps)


def test_prompts_of_high_d_without_a_cluster_are_listed(finished, tmp_path):
    """The similarity may have missed them; the list is one that every verb reads."""
    d = {"always": 4.0, "never": 5.0, HOSTILE: 6.0, "seldom": 1.0}
    found = made(tmp_path / "out", scores=PromptScores("d_l2", d))
    assert [(each.prompt, each.d) for each in found.unclustered] == [("never", 5.0)]
    assert "1 of high D" in json.loads((tmp_path / "out" / "extract.json").read_text())["headline"]
    listed = read_prompts(tmp_path / "out" / "unclustered.csv")
    assert (listed.texts, listed.columns["d_l2"]) == (("never",), ("5",))
    assert read_extraction(tmp_path / "out").unclustered == found.unclustered
    # other clusters leave out others
    least = ExtractSettings(images=24, min_cluster=24)
    few = reclustered(tmp_path / "out", least, similarity="pixels", sheets=False)
    assert [each.prompt for each in few.unclustered] == [HOSTILE, "never"]
    reached = PromptScores("d_l2", d, frozenset({"always"}), "kappa 4 (d_l2)")
    all_found = made(tmp_path / "out", scores=reached, force=True)
    assert all_found.unclustered == ()
    assert not (tmp_path / "out" / "unclustered.csv").exists()
    assert read_extraction(finished).high_rule == ""


@pytest.mark.parametrize("step", ["extract", "trace"])
def test_quoted_figures_are_those_that_were_measured(step):
    file = Path(__file__).parents[3] / "benchmarks" / "reproductions.json"
    content = json.loads(file.read_text(encoding="utf-8"))
    measured = content["figures"][step]["by kind"]
    quoted = recall_of("builtin", step)
    kinds = quoted["by_kind"]
    assert {kind: (each["found"], each["of"]) for kind, each in kinds.items()} == {
        kind: (each["count"], each["total"]) for kind, each in measured.items()
    }
    assert content["date"] in quoted["source"]
