"""The published values agree with each other, and files of them are read with care."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from visleak.errors import UsageError, VisleakError
from visleak.study.config import Paper, read_paper

FILE = Path(__file__).parents[2] / "examples" / "ramos2025_reference.json"


@pytest.fixture(scope="module")
def paper() -> Paper:
    return read_paper(FILE)


def test_printed_totals_are_hard_plus_soft(paper: Paper) -> None:
    """The text's totals into LAION are sums of figure 3's cells, to the printed digit."""
    printed = {
        "imagenet-test": 4.64,
        "openimages-test": 10.67,
        "textcaps-test": 9.60,
        "coco-test2014": 4.59,
        "flickr30k": 1.81,
    }
    stored = {
        row["query"]: row["hard_or_soft"]
        for row in json.loads(FILE.read_text())["cells"]
        if "hard_or_soft" in row
    }
    assert stored == printed
    for query, total in printed.items():
        values = paper.of(query, "laion-400m")
        # half a unit of the last digit for each of the two terms
        assert values["hard"] + values["soft"] == pytest.approx(total, abs=0.01)


def test_figure_4_repeats_figure_3(paper: Paper) -> None:
    """ImageNet's and OpenImages' bars have one reference: they are cells of the matrix."""
    for dataset in ("imagenet", "openimages"):
        for split in ("test", "val"):
            cell = paper.of(f"{dataset}-{split}", f"{dataset}-train")
            assert paper.intra[f"{dataset}-{split}"] == cell


def test_counts_behind_the_shares(paper: Paper) -> None:
    """Two cells are counted in the paper's tables 2 and 3: 271 + 2,010 and 789 + 891 of 50,000."""
    for reference, hard, soft in (("laion-400m", 271, 2010), ("imagenet-train", 789, 891)):
        values = paper.of("imagenet-val", reference)
        assert values["hard"] == pytest.approx(100 * hard / 50_000, abs=0.005)
        assert values["soft"] == pytest.approx(100 * soft / 50_000, abs=0.005)


def test_what_is_not_printed_is_nothing(paper: Paper) -> None:
    assert paper.intra["gcc-val"] == {"hard": None, "soft": None}
    assert paper.intra["coco-test2014"]["soft"] == (1.35, 1.38)
    assert "hard_or_soft" not in paper.intra["coco-val2017"]
    assert paper.of("flickr30k", "nowhere") == {}


GOOD = {"kind": "visleak published values", "schema": 1, "source": "somebody", "cells": []}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ([], 'does not say "kind": "visleak published values"; it holds no'),
        (GOOD | {"schema": 2}, "has layout 2, this visleak reads up to 1; use a newer one"),
        (GOOD | {"source": 3}, "is damaged: source is missing, or no text"),
        (GOOD | {"cells": {}}, "is damaged: cells is not a list of objects"),
        (GOOD | {"cells": [{"query": "a"}]}, "is damaged: reference is missing, or no text"),
        (
            GOOD | {"cells": [{"query": "a", "reference": "b", "hard": 101}]},
            "is damaged: 101 is not a number of per cent",
        ),
        (GOOD | {"intra": [{"query": "a", "hard": True}]}, "is damaged: True is not a number of"),
    ],
)
def test_a_wrong_file_is_refused(tmp_path: Path, content: object, said: str) -> None:
    file = tmp_path / "values.json"
    file.write_text(json.dumps(content))
    with pytest.raises(VisleakError) as caught:
        read_paper(file)
    assert said in str(caught.value)
    assert str(file) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no\.json is not a file; leave `paper` out, or name one"):
        read_paper(tmp_path / "no.json")
