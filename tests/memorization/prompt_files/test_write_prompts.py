"""Data sets of prompts: the table, the datasheet, and what becomes of hostile texts."""

import json

import pyarrow.parquet as pq
import pytest

from visleak.errors import UsageError
from visleak.memorization import Prompts, read_prompts
from visleak.memorization.prompt_files import provenance_of, vouched, write_prompts
from visleak.memorization.prompt_files.dataset import read_prompt_set

PROMPTS = vouched(
    Prompts(
        ("a red bag", "a red bag now", "grey wall mural caf\u00e9"),
        (True, True, None),
        (("bag.png", "bag2.png"), ("bag2.png",), ("wall.png",)),
        {"d_l2": ("4.5", "", "5.25"), "word": ("x", "", "=y")},
        "list.csv (CSV)",
        ("empty prompts that were left out: 1",),
    ),
    "a look at both",
)


def test_what_is_written_is_read_again(tmp_path):
    data = write_prompts(PROMPTS, tmp_path, day="2024-05-01")
    table = pq.read_table(tmp_path / "prompts.parquet")
    assert table["group"].to_pylist() == [0, 0, 1]
    assert table["d_l2"].to_pylist() == [4.5, None, 5.25]
    assert table["verified"].to_pylist() == [True] * 3
    again = read_prompts(tmp_path / "prompts.parquet")
    for name in ("texts", "labels", "sources"):
        assert getattr(again, name) == getattr(PROMPTS, name)
    assert again.columns["verified_by"] == ("a look at both",) * 3
    assert (data.images, data.groups, data.largest, data.words) == (3, 2, 2, (3, 4, 4))
    assert data.effective == pytest.approx(9 / 5)
    assert (data.day, data.other_letters) == ("2024-05-01", 1)
    assert data.verified_by == {"a look at both": 3}


def test_candidates_carry_the_word_in_name_and_sheet(tmp_path):
    prompts = Prompts(("a", "b"), sources=(("u",), ()))
    assert write_prompts(prompts, tmp_path, unverified=True).table == "prompts-unverified.parquet"
    sheet = (tmp_path / "datasheet.md").read_text()
    assert sheet.startswith("# Datasheet: Unverified candidate prompts\n")
    assert "- 2 of 2 prompts are unverified: their images are not shown to be copies" in sheet
    # a verified set takes its place, and no table lies about beside it
    write_prompts(vouched(prompts, "Ann"), tmp_path, force=True)
    assert not (tmp_path / "prompts-unverified.parquet").exists()
    assert (tmp_path / "prompts.parquet").exists()


def test_a_data_set_is_reused_and_read_again(tmp_path):
    first, said = write_prompts(PROMPTS, tmp_path), []
    again = write_prompts(PROMPTS, tmp_path, note=said.append)
    assert again == first == read_prompt_set(tmp_path)
    assert len(said) == 1
    # without one of its files a result is not finished
    (tmp_path / "prompts.parquet").unlink()
    write_prompts(PROMPTS, tmp_path, force=True, note=said.append)
    assert (tmp_path / "prompts.parquet").is_file()
    assert len(said) == 1


def _result(folder, verb, model, **more):
    folder.mkdir()
    content = {"kind": f"visleak memorization {verb}", "schema": 1, "model": model, **more}
    (folder / f"{verb}.json").write_text(json.dumps(content))
    (folder / "other.json").write_text('{"kind": "visleak memorization detect", "model": {}}')
    (folder / "broken.json").write_text("[" * 100_000)
    table = folder / "scores.csv"
    table.write_text("prompt\na red bag\n")
    return table


def test_a_list_says_which_verb_model_and_settings_made_it(tmp_path):
    model = {"name": "/home/ann/models/sd-1.4/", "digest": "ab12", "family": "sd"}
    table = _result(tmp_path / "d", "detect", model, settings={"noises": 4, "more": [1]})
    origin = provenance_of(table)
    assert (origin.file, origin.verb, origin.model) == ("scores.csv", "detect", model)
    data = write_prompts(PROMPTS, tmp_path / "out", origins=[origin])
    assert data.model == model
    sheet = (tmp_path / "out" / "datasheet.md").read_text()
    assert "the model sd-1.4 (family sd, digest ab12)" in sheet
    assert "/home/ann" not in sheet
    assert "scores.csv (visleak memorization detect, SHA-256 " in sheet
    assert "with noises 4" in sheet
    inner = _result(tmp_path / "e", "extract", {}, about={"settings": {"images": 9}})
    (tmp_path / "e" / "extract.json").write_text(
        json.dumps({"kind": "visleak memorization extract", "about": {"model": model}})
    )
    assert provenance_of(inner).model == model
    traced = _result(tmp_path / "t", "trace", {}).with_name("trace.json")
    content = {"kind": "visleak memorization trace", "about": {"origin": {"model": model}}}
    traced.write_text(json.dumps(content))
    assert (provenance_of(traced).verb, provenance_of(traced).model) == ("trace", model)


def test_prompts_of_two_models_are_two_data_sets(tmp_path):
    tables = [
        _result(tmp_path / name, "search", {"name": name, "digest": name}) for name in ("x", "y")
    ]
    with pytest.raises(UsageError, match="prompts are about different models:"):
        write_prompts(PROMPTS, tmp_path / "out", origins=[provenance_of(each) for each in tables])
