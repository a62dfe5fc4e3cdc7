"""The page of the experiment says what its figures say, and nothing else."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "benchmarks" / "dlede"
FIGURES = json.loads((FOLDER / "experiment.json").read_text())
PAGE = (ROOT / "examples" / "dlede_road.md").read_text("utf-8")


@pytest.fixture(scope="module")
def page():
    """Load the script from its folder, which is no package."""
    names = ("experiment_figures", "experiment_page")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(FOLDER))
        yield importlib.import_module("experiment_page")
    for name in names:
        sys.modules.pop(name, None)


def test_page_is_what_the_figures_make(page):
    assert page.page_text(FIGURES) == PAGE


def test_every_figure_of_the_page_is_there():
    shown = [line.split("(")[1].rstrip(")") for line in PAGE.splitlines() if line.startswith("![")]
    assert len(shown) == 4
    assert all((ROOT / "examples" / name).stat().st_size > 1000 for name in shown)


@pytest.mark.parametrize("name", ["sequences", "random"])
def test_means_follow_from_the_trainings(name):
    """Equation 1 by hand, from the scores of single trainings."""
    early = FIGURES["figures"]["splits"][name]["early"]
    assert early["trainings"] == 15
    for judged in early["judgement"]["metrics"]:
        columns = list(zip(*early["scores"][judged["metric"]], strict=True))
        means = [sum(column) / len(column) for column in columns]
        for at in (1, 2):
            rise = (means[at] - means[at - 1]) / means[at - 1]
            assert judged["steps"][at]["increase"]["value"] == pytest.approx(rise, abs=1e-3)
