"""The example that needs no data: what is planted in it is found, and nothing else."""

import json
import sys
from pathlib import Path

import pytest

from visleak.study import Options, read_study, study
from visleak.study.config import plan
from visleak.study.running import locate, missing_sets

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.fixture(scope="module")
def example():
    # the name of the module is that of a room's function: only this test imports it
    sys.path.insert(0, str(EXAMPLES))
    try:
        import study as example

        yield example
    finally:
        sys.path.remove(str(EXAMPLES))
        sys.modules.pop("study", None)
        sys.modules.pop("demo", None)


Made = tuple[Path, dict[tuple[str, str], int]]


@pytest.fixture(scope="module")
def made(example, tmp_path_factory):
    folder = tmp_path_factory.mktemp("made")
    return folder, example.build(folder)


def test_the_plan_of_the_example(made):
    folder, truth = made
    asked = read_study(folder / "sets.toml")
    planned = plan(asked, missing_sets(locate(asked)))
    assert set(truth) <= {(each.query, each.reference) for each in planned.comparisons}
    assert [left.why for left in planned.included] == ["shore-val is part of shore-train2"]
    assert {left.why for left in planned.skipped} == {"needs elsewhere"}


def test_the_same_sets_come_out_again(made, example, tmp_path):
    folder, truth = made
    assert example.build(tmp_path) == truth
    for path in tmp_path.rglob("*.jpg"):
        assert path.read_bytes() == (folder / path.relative_to(tmp_path)).read_bytes()


@pytest.fixture(scope="module")
def result(made):
    folder, _ = made
    return study(folder / "sets.toml", folder / "study", Options(workers=1, cache=None))


@pytest.mark.slow
def test_what_is_planted_is_found_and_nothing_else(made, example, result):
    folder, truth = made
    found = {
        (cell.comparison.query, cell.comparison.reference): cell.rates["near_or_exact"].count
        for cell in result.cells
    }
    assert found == {couple: truth.get(couple, 0) for couple in found}
    assert set(truth) <= set(found)
    stored = json.loads((folder / "study" / "study.json").read_text())
    lines = example.compare(stored, truth)
    assert len(lines) == 1 + len(found)
    for line in lines[1:]:
        assert line.split()[2] == line.split()[3], line


def test_the_example_for_local_data_can_be_read():
    planned = plan(read_study(EXAMPLES / "local.toml"))
    assert len(planned.comparisons) == 7
    assert len(planned.included) == 1
