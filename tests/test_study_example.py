"""The example that needs no data: what is planted in it is found, and nothing else."""

import json
from pathlib import Path

import pytest

from visleak.study import Options, read_study, study
from visleak.study.config import plan
from visleak.study.running import locate, missing_sets

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.mark.slow
def test_what_is_planted_is_found_and_nothing_else(script, tmp_path):
    example = script("study", "examples")
    truth = example.build(tmp_path)
    planned = plan(asked := read_study(tmp_path / "sets.toml"), missing_sets(locate(asked)))
    assert [left.why for left in planned.included] == ["shore-val is part of shore-train2"]
    assert {left.why for left in planned.skipped} == {"needs elsewhere"}
    result = study(tmp_path / "sets.toml", tmp_path / "study", Options(workers=1, cache=None))
    found = {
        (cell.comparison.query, cell.comparison.reference): cell.rates["near_or_exact"].count
        for cell in result.cells
    }
    assert found == {couple: truth.get(couple, 0) for couple in found}
    assert set(truth) <= set(found)
    stored = json.loads((tmp_path / "study" / "study.json").read_text())
    lines = example.compare(stored, truth)
    assert len(lines) == 1 + len(found)
    for line in lines[1:]:
        assert line.split()[2] == line.split()[3], line


def test_the_example_for_local_data_can_be_read():
    planned = plan(read_study(EXAMPLES / "local.toml"))
    assert len(planned.comparisons) == 7
    assert len(planned.included) == 1
