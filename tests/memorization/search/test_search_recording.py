"""What a search leaves in its folder, and what a second call makes of it."""

import csv
import json
from dataclasses import replace

import pyarrow.parquet as pq
import pytest

from toy_prompt_models import FiveProposer, FiveWords, d_of, task
from visleak.errors import VisleakError
from visleak.memorization.prompt_files import read_prompts, read_values
from visleak.memorization.prompts import Prompts
from visleak.memorization.search import (
    AugmentSettings,
    Budget,
    GibbsSearch,
    GibbsSettings,
    augment_into,
    diversify_into,
    search_into,
)
from visleak.memorization.search.driver import FILE, Ledger, ScoredCandidate
from visleak.memorization.search.run import folder_of
from visleak.memorization.settings import DiversifySettings

GIBBS = GibbsSettings(length=3, iterations=6, candidates=4, temperature=0.4, kappa=1.0, norm="l2")
AUGMENT = AugmentSettings(
    iterations=5, candidates=4, temperature=0.4, kappa=1.0, patience=2, top=7, norm="l2"
)
TRIGGERS = Prompts(("ant bee cat", "eel dog", "=cmd() ant"), origin="mine.txt (text)")


def searched(out, model=None, **given):
    force, said = given.pop("force", False), given.pop("note", None)
    settings = given.pop("settings", GIBBS)
    return search_into(
        GibbsSearch(FiveProposer(), settings),
        task(model, **{"chains": 3, **given}),
        out,
        kappa=settings.kappa,
        about={"preset": "paper"},
        force=force,
        note=said,
    )


def test_a_search_writes_what_the_next_verb_reads(tmp_path):
    found = searched(tmp_path)
    held = json.loads((tmp_path / "search.json").read_text())
    assert held == found == folder_of(tmp_path, "search").content()
    assert held["complete"] is True
    prompts = read_prompts(tmp_path / "prompts.parquet")
    assert set(prompts.texts) == {each["prompt"] for each in held["best"]}
    assert read_prompts(tmp_path / "prompts.csv").texts == prompts.texts
    table = pq.read_table(tmp_path / "prompts.parquet")
    assert table["d_l2"].to_pylist() == [d_of(text) for text in table["prompt"].to_pylist()]
    bank = pq.read_table(tmp_path / "bank.parquet")
    assert bank.num_rows == held["bank"] > 3
    assert bank["d_l2"].to_pylist() == sorted(bank["d_l2"].to_pylist(), reverse=True)
    reached = [each["d"] >= 1.0 for each in held["best"]]
    assert [each["reached"] for each in held["best"]] == reached


def test_a_search_that_its_budget_ended_goes_on_with_a_larger_one(tmp_path):
    part = searched(tmp_path / "a", budget=Budget(calls=30))
    assert not part["complete"]
    said = []
    assert searched(tmp_path / "a", budget=Budget(calls=30), note=said.append) == part
    whole = searched(tmp_path / "a", note=said.append)
    assert f"as far as its budget went: it resumes at {part['calls']} passes" in said[1]
    wanted = searched(tmp_path / "b")
    for name in ("best", "bank", "calls", "complete", "key"):
        assert whole[name] == wanted[name]
    for name in ("prompts.parquet", "bank.parquet", "prompts.csv"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


@pytest.mark.parametrize("damaged", [False, True])
def test_an_unfinished_search_of_another_kind_is_refused_unless_forced(tmp_path, damaged):
    with pytest.raises(KeyboardInterrupt):
        searched(tmp_path, FiveWords(kill_after=40))
    if damaged:
        (tmp_path / FILE).write_bytes(b"no database at all" * 100)
    other, words = replace(GIBBS, temperature=1.0), r"another search \(other temperature\)|remove"
    with pytest.raises(VisleakError, match=words):
        searched(tmp_path, settings=other)
    assert searched(tmp_path, settings=other, force=True)["settings"]["temperature"] == 1.0


def test_an_augmentation_writes_the_best_and_the_bank(tmp_path):
    made = augment_into(task(), FiveProposer(), TRIGGERS, AUGMENT, tmp_path)
    assert made == folder_of(tmp_path, "augment").content()
    assert [each["unknown"] for each in made["triggers"]] == [0, 0, 1]
    table = pq.read_table(tmp_path / "prompts.parquet")
    bank = pq.read_table(tmp_path / "bank.parquet")
    assert bank.num_rows == made["bank"] == sum(each["scored"] for each in made["triggers"])
    for each in made["triggers"]:
        scores, banked = (
            [row["d_l2"] for row in held.to_pylist() if row["trigger"] == each["trigger"]]
            for held in (table, bank)
        )
        assert len(scores) == each["kept"] == sum(each["changed"].values()) <= 7
        assert scores == sorted(banked, reverse=True)[: each["kept"]]
    with (tmp_path / "prompts.csv").open(newline="") as lines:
        cells = {row["trigger"] for row in csv.DictReader(lines)}
    # a spreadsheet runs nothing
    assert cells == {"ant bee cat", "eel dog", "'=cmd() ant"}


def test_a_prompt_of_several_triggers_is_in_the_bank_of_each(tmp_path):
    """A trigger whose prompts all come from another one too has picks like any other."""
    bank = tmp_path / "bank.csv"
    bank.write_text("prompt,trigger\nant,one\nbee,one\ncat,one\ncat,two\nbee,two\ndog,three\n")
    pairs = read_values(bank, "trigger")
    out = tmp_path / "diverse"
    three = DiversifySettings(count=3, per_source=True)
    made = diversify_into(FiveWords(), read_prompts(bank), out, three, triggers=pairs)
    assert made == folder_of(out, "diversify").content()
    assert diversify_into(FiveWords(), read_prompts(bank), out, three, triggers=pairs) == made
    with pytest.raises(VisleakError, match=r"holds a result already \(diversify\.json\)"):
        diversify_into(FiveWords(), read_prompts(bank), out, DiversifySettings())
    assert made["sources"] == {"one": 3, "two": 2, "three": 1}
    assert made["short"] == 2
    rows = pq.read_table(out / "prompts.parquet").to_pylist()
    assert {(row["prompt"], row["trigger"]) for row in rows} == set(pairs)
    assert all(row["row"] == ["ant", "bee", "cat", "dog"].index(row["prompt"]) for row in rows)
    together = diversify_into(FiveWords(), read_prompts(bank), tmp_path / "b", DiversifySettings(9))
    assert (together["picks"], together["short"]) == (4, 1)
    # other triggers make no difference to the picks of one
    alone = tmp_path / "alone.csv"
    alone.write_text("prompt,trigger\ncat,two\nbee,two\n")
    diversify_into(FiveWords(), read_prompts(alone), tmp_path / "a", three)
    picks = [row["prompt"] for row in rows if row["trigger"] == "two"]
    assert pq.read_table(tmp_path / "a" / "prompts.parquet")["prompt"].to_pylist() == picks


def test_a_prompt_scored_again_keeps_its_mean_and_where_it_was_highest():
    with Ledger(None, {}) as ledger:
        for step, score in enumerate((1.0, 3.0, 2.0, 3.0)):
            scored = ScoredCandidate("a", score, step, step, 4 - step)
            ledger.save(step, [scored], calls=1, seconds=0.0)
        (held,) = ledger.best()
    assert (held.mean, held.best, held.times) == (2.25, 3.0, 4)
    assert (held.chain, held.step, held.changed) == (1, 1, 1)
