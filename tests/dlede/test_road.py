"""The rendered drives of benchmarks/dlede, and the page of their experiment."""

import hashlib
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "benchmarks" / "dlede"
FIGURES = json.loads((FOLDER / "experiment.json").read_text())


def test_same_bytes_on_every_machine(script, monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    road, hasher = script("dlede/road"), hashlib.blake2b(digest_size=8)
    for number in range(0, 12, 2):
        frame = road.render(road.Recording(road.SEED, number, 50), 20, 64, 48)
        hasher.update(road.png(frame.pixels) + road.label_lines(frame).encode())
    assert hasher.hexdigest() == "20fbcd1b50e2f645"


def test_page_is_what_the_figures_make(script, monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    page = (ROOT / "examples" / "dlede_road.md").read_text("utf-8")
    assert script("dlede/experiment_page").page_text(FIGURES) == page


@pytest.mark.parametrize("name", ["sequences", "random"])
def test_means_follow_from_the_trainings(name):
    """Equation 1 by hand, from the scores of single training runs."""
    early = FIGURES["figures"]["splits"][name]["early"]
    assert early["training_runs"] == 15
    for judged in early["judgement"]["metrics"]:
        columns = list(zip(*early["scores"][judged["metric"]], strict=True))
        means = [sum(column) / len(column) for column in columns]
        for at in (1, 2):
            rise = (means[at] - means[at - 1]) / means[at - 1]
            assert judged["steps"][at]["increase"]["value"] == pytest.approx(rise, abs=1e-3)
