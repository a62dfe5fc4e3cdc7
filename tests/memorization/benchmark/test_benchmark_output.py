"""Tables, figures, sentences, the section of the report, and the leaderboard."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from made_benchmark import HOSTILE, benchmark_of_the_paper
from PIL import Image

from visleak.errors import UsageError, VisleakError
from visleak.memorization.benchmark import add_to, read_leaderboard
from visleak.memorization.benchmark.figures import tradeoff
from visleak.memorization.benchmark.headline import headline, meets, verdicts
from visleak.memorization.benchmark.latex import latex
from visleak.memorization.benchmark.leaderboard import (
    board_of,
    leaderboard_markdown,
    table_beside,
)
from visleak.memorization.benchmark.lines import LINES, lines_of
from visleak.memorization.benchmark.markup import cautions, markdown, reading
from visleak.memorization.benchmark.numbers import Measured
from visleak.memorization.benchmark.paper import paper_table
from visleak.memorization.benchmark.records import Score
from visleak.memorization.benchmark.section import section
from visleak.memorization.benchmark.tables import distance_grid, main_grid
from visleak.memorization.benchmark.worst import worst_of, worst_sheet
from visleak.memorization.mitigate import mitigation, paper_settings
from visleak.report import sections


def table(model: str):
    found = paper_table({"name": model, "family": "sd"})
    assert found is not None
    return found


def test_the_papers_tables_have_all_its_settings() -> None:
    for model, name in (("sd1", "sd-1.4"), ("sd2", "sd-2.1")):
        settings = [mitigation(text) for text in paper_settings(model)]
        found = table(name)
        for each in settings:
            strength = each.strength if each.name != "none" else float("nan")
            row = found.row(each.name, strength)
            assert row is not None, each
            assert ("trigger", "top1") in row.values
        assert len(found.rows) == len(settings) + 1


def test_the_papers_tables_say_what_its_text_says() -> None:
    """Falls with strength, and the sentences of the paper about its own numbers."""
    for name in ("sd-1.4", "sd-2.1"):
        for method in ("rna", "rta", "wen", "ren"):
            own = [row for row in table(name).rows if row.method == method]
            top = [row.values[("trigger", "top1")] for row in own]
            assert top == sorted(top, reverse=True)  # type: ignore[type-var]
    sd1 = table("sd-1.4")
    clip = [sd1.row(*at).values[("trigger", "clip")] for at in (("none",), ("rna", 6.0))]  # type: ignore[union-attr, arg-type]
    assert clip[0] - clip[1] == pytest.approx(0.015)  # type: ignore[operator]
    assert all(
        row.values[("general", "clip")] == 0.321
        for row in sd1.rows
        if row.method in ("none", "wen")
    )
    assert sd1.frechet["none"] == 116.07
    lost = [row for row in sd1.rows if None in row.values.values()]
    assert [(row.method, row.value) for row in lost] == [("rta", 1.0), ("wen", 3.0)]


def test_other_models_have_no_table() -> None:
    about = {"name": "sd-1.4", "family": "sd", "shape": [3, 16, 16]}
    assert paper_table(about) is None
    assert paper_table({"name": "sd-3", "family": "sd3"}) is None
    assert paper_table({"name": "realistic-vision", "family": "sd"}) is None


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("hub:CompVis/stable-diffusion-v1-4", 3),
        ("/models/sd-v1-4-fp16/", 3),
        ("stabilityai/stable-diffusion-2-1-base", 5),
        ("stable-diffusion-2", 5),
        # whoever has more to its name, or only lies in such a folder, is another model
        *((name, None) for name in (
            "openjourney-v1.4", "realistic-vision-v1.4", "stable-diffusion-v1-5",
            "stable-diffusion-v1-4-dreambooth-cat", "/home/ann/v1.4/my-finetune", "sd-1.6",
            "anything-v2.1", "sd-1/my-own-model",
        )),
    ],
)  # fmt: skip
def test_only_a_model_of_the_paper_has_its_rows(name: str, number: int | None) -> None:
    found = paper_table({"name": name, "family": "sd"})
    assert (None if found is None else found.table) == number


def test_a_distance_by_other_features_is_no_fid(tmp_path: Path) -> None:
    result = benchmark_of_the_paper(tmp_path)
    ours = distance_grid(result)
    assert (ours.header[1], ours.header[-1]) == ("FID ↓", "paper: FID")
    real = {**result.about["real"], "features": "dinov2"}
    other = dataclasses.replace(result, about={**result.about, "real": real})
    assert distance_grid(other).header == [
        *("method", "Fréchet distance ↓", "kernel distance ↓", "images"),
    ]
    rows = [dict(zip(LINES, row, strict=True)) for row in lines_of(other)]
    found = [row for row in rows if row["number"] == "frechet_distance"]
    assert {(row["paper"], row["judge"]) for row in found} == {("", "dinov2")}


def test_every_table_says_what_similarity_stands_in(tmp_path: Path) -> None:
    """And no number of the paper's SSCD stands beside it."""
    result = benchmark_of_the_paper(tmp_path, similarity="pixels")
    rows = [dict(zip(LINES, row, strict=True)) for row in lines_of(result)]
    copying = [row for row in rows if row["number"] in ("top1", "top3", "share")]
    assert {(row["paper"], row["judge"]) for row in copying} == {("", "pixels")}
    clip = {row["judge"] for row in rows if row["number"] == "clip"}
    assert clip == {"open_clip:ViT-g-14/laion2b_s12b_b42k"}
    captions = re.findall(r"\\caption\{(.*)", latex(result))
    about_similarity = [each for each in captions if "Cost" not in each and "Distance" not in each]
    assert len(about_similarity) >= 3
    assert all("imilarity: pixels" in each for each in about_similarity)


def test_a_leaderboard_replaces_nothing_but_its_own_table(tmp_path: Path) -> None:
    with pytest.raises(
        UsageError, match=r"where its table would be written; name it .*board\.json"
    ):
        table_beside(tmp_path / "board.md")
    (tmp_path / "README.md").write_text("# Mine\n")
    with pytest.raises(UsageError, match=r"README\.md is no table of a leaderboard"):
        table_beside(tmp_path / "README.json")
    (tmp_path / "README.md").write_text("# Mitigations against replaying\n\n## sd\n")
    assert table_beside(tmp_path / "README.json") == tmp_path / "README.md"
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(VisleakError, match="it is no leaderboard"):
        table_beside(tmp_path / "other.json")


def test_the_papers_rows_stand_beneath_ours(tmp_path: Path) -> None:
    grid = main_grid(benchmark_of_the_paper(tmp_path))
    assert grid.header[2:5] == ["top-1 ↓", "top-3 ↓", "> 0.5 ↓"]
    assert grid.header[8:] == ["general CLIP ↑", "general aes. ↑", "general aes. std ↓"]
    names = [row[:2] for row in grid.rows]
    assert names[:7] == [
        *(["no mitigation", ""], ["", "paper"], ["floor", "other prompts' images"]),
        *(["reference", "laion"], ["", "paper"], ["RNA", "n=1"], ["", "paper"]),
    ]
    assert grid.rows[5][2] == ".479* (.419 to .539)"
    assert grid.rows[6][2] == ".479"
    assert grid.rows[6][6] == "5.18?"
    wen = next(row for row, after in zip(grid.rows, grid.rows[1:], strict=False)
               if row[:2] == ["Wen et al.", "l=3, batch"])  # fmt: skip
    assert grid.rows[grid.rows.index(wen) + 1][6] == "?"
    assert grid.rows[grid.rows.index(wen) + 1][1] == "paper"
    elsewhere = main_grid(benchmark_of_the_paper(tmp_path, model="mine"))
    assert not any(row[1] == "paper" for row in elsewhere.rows)


def test_an_l_of_each_image_alone_is_not_the_papers(tmp_path: Path) -> None:
    made = mitigation("wen:3,scope=batch")
    row = benchmark_of_the_paper(tmp_path).rows[17]
    assert (row.method, row.strength) == ("wen", made.strength)
    known = table("sd-1.4")
    own = dataclasses.replace(row, about=made.about())
    assert known.beside(own, 10) == known.row("wen", 3.0)
    assert known.beside(own, 4) is None  # one norm over other images
    for text in (
        *("wen:3", "wen:3,scope=prompt", "wen:3,scope=batch,lr=0.2"),
        *("wen:3,scope=batch,optimiser=adamw", "wen:3,scope=batch,output=epsilon"),
    ):
        other = dataclasses.replace(row, about=mitigation(text).about())
        assert known.beside(other, 10) is None
    plain = mitigation("rna:3").about()
    rna = dataclasses.replace(row, method="rna", strength=3.0, about=plain)
    assert known.beside(rna, 4) == known.row("rna", 3.0)


def test_one_l_for_ten_images_and_for_one_is_said_to_be_two(tmp_path: Path) -> None:
    result = benchmark_of_the_paper(tmp_path)
    floor, said = cautions(result)
    assert floor.startswith("floor of the similarity: ")
    assert "10 of a trigger prompt, 1 of a general one" in said
    assert "a D 3.2 times as large" in said
    assert result.general is not None
    alike = dataclasses.replace(result, general=dataclasses.replace(result.general, images=10))
    other = tuple(row for row in result.rows if row.method != "wen")
    for each in (alike, dataclasses.replace(result, rows=other)):
        assert cautions(each) == [floor]
    assert cautions(dataclasses.replace(result, general=None)) == [floor]


def test_numbers_that_say_less_than_their_name_are_named(tmp_path: Path) -> None:
    result = benchmark_of_the_paper(tmp_path)
    few = dataclasses.replace(result.triggers, images=2)
    assert cautions(dataclasses.replace(result, general=None, triggers=few))[1:] == [
        "with 2 images a trigger prompt top-3 is the mean of all"
    ]
    about = {**result.about, "alignment": None, "aesthetic": None}
    assert any(
        line.startswith("of general prompts only seconds were measured")
        for line in cautions(dataclasses.replace(result, about=about))
    )
    scores = tuple(
        dataclasses.replace(each, interval=dataclasses.replace(each.interval, value=0.0))
        if each.name == "share"
        else each
        for each in result.base.scores
    )
    base = dataclasses.replace(result.base, scores=scores)
    nothing = dataclasses.replace(result, rows=(base, *result.rows[1:]))
    assert cautions(nothing)[1].startswith("without mitigation no image is more similar than 0.5")


def test_a_share_is_read_against_the_floor_of_the_similarity(tmp_path: Path) -> None:
    result = benchmark_of_the_paper(tmp_path)
    told = cautions(result)[0]
    assert ".040" in told
    for text in (markdown(result), latex(result), section(result)["markdown"]):
        assert "floor of the similarity" in text.lower()
    rows = [dict(zip(LINES, row, strict=True)) for row in lines_of(result)]
    floor = [row for row in rows if row["method"] == "floor"]
    assert [(row["number"], row["value"]) for row in floor] == [
        *(("top1", "0.15"), ("top3", "0.12"), ("share", "0.04")),
    ]
    unknown = cautions(dataclasses.replace(result, floor=None))[0]
    assert unknown.startswith("floor of the similarity: not measured")
    assert result.floor is not None
    high = dataclasses.replace(result.floor.share, value=0.4, low=0.3, high=0.5)
    low = dataclasses.replace(result, floor=dataclasses.replace(result.floor, share=high))
    assert any("within the interval of the floor" in line for line in cautions(low))


def test_a_verdict_quotes_the_probability_of_its_own_number(tmp_path: Path) -> None:
    result = benchmark_of_the_paper(tmp_path)
    chances = {"top1": 0.211, "clip": 0.033}

    def told(score: Score) -> Score:
        if score.scenario != "trigger" or score.name not in chances or score.change is None:
            return score
        change = dataclasses.replace(score.change, p_holm=chances[score.name])
        return dataclasses.replace(score, change=change)

    rows = tuple(
        dataclasses.replace(row, scores=tuple(map(told, row.scores))) for row in result.rows
    )
    for line in verdicts(dataclasses.replace(result, rows=rows)):
        top, clip = line.partition(", CLIP by ")[::2]
        assert "p = .211" in top
        assert "p = .033" not in top
        assert clip.partition(")")[0].endswith("(p = .033")
        # what is reached with another setting has a probability of its own
        assert ("kept it reaches" in clip) == ("p = .211" in clip)


def test_the_rule_of_the_paper_is_said_of_each_method(tmp_path: Path) -> None:
    result = benchmark_of_the_paper(tmp_path)
    said = verdicts(result)
    assert said[2] == (
        "Wen et al. l=2, batch: top-1 .641 to .096 (p = .002), above the reference .088, CLIP by"
        " -.031 (p = .002): it does not succeed by the paper's rule, and no setting keeps the CLIP"
        " score"
    )
    assert headline(result).startswith(
        "top-1 similarity .641 without mitigation; .228 with RNA n=6"
    )
    good = dataclasses.replace(result.rows[18], method="mine", setting="k=1", scores=tuple(
        dataclasses.replace(
            each,
            interval=dataclasses.replace(
                each.interval, value={"top1": 0.05, "clip": 0.28}.get(each.name, 1.0)
            ),
        )
        for each in result.rows[18].scores
    ))  # fmt: skip
    better = dataclasses.replace(result, rows=(*result.rows, good))
    assert meets(better, good) == (True, True)
    assert "it succeeds by the paper's rule" in verdicts(better)[-1]
    assert "at or below the reference .088" in verdicts(better)[-1]


def test_no_method_succeeds_where_nothing_is_to_be_lowered(tmp_path: Path) -> None:
    """By doing nothing it would."""
    result = benchmark_of_the_paper(tmp_path)
    assert result.reference is not None
    similarity = dataclasses.replace(result.reference.similarity, value=0.7)
    easy = dataclasses.replace(
        result, reference=dataclasses.replace(result.reference, similarity=similarity)
    )
    for line in verdicts(easy):
        assert line.endswith("at or below the reference already, and none can succeed")


def test_a_success_that_may_be_chance_is_said_to_be(tmp_path: Path) -> None:
    result = benchmark_of_the_paper(tmp_path)
    assert result.reference is not None
    similarity = dataclasses.replace(result.reference.similarity, value=0.6)
    rows = tuple(
        dataclasses.replace(
            row,
            scores=tuple(
                dataclasses.replace(
                    each,
                    interval=dataclasses.replace(each.interval, value=0.4),
                    change=each.change and dataclasses.replace(each.change, p_holm=0.3),
                )
                if row.method != "none" and each.name in ("top1", "clip")
                else each
                for each in row.scores
            ),
        )
        for row in result.rows
    )
    easy = dataclasses.replace(
        result, rows=rows, reference=dataclasses.replace(result.reference, similarity=similarity)
    )
    for line in verdicts(easy):
        assert line.endswith("succeeds by the paper's rule, by a change that may be chance")


def test_without_a_search_the_papers_reference_serves_its_own_models_alone(tmp_path: Path) -> None:
    def said(**more: str) -> str:
        made = benchmark_of_the_paper(tmp_path, **more)
        return verdicts(dataclasses.replace(made, reference=None))[0]

    assert "above the paper's reference .088" in said()
    for more in ({"model": "mine"}, {"similarity": "pixels"}):
        assert said(**more).endswith(
            "whether it succeeds cannot be said without a reference performance"
        )


def test_another_similarity_than_the_papers_is_said_everywhere(tmp_path: Path) -> None:
    result = benchmark_of_the_paper(tmp_path, similarity="builtin")
    told = "similarity is builtin, not SSCD as in the paper"
    assert told in cautions(result)[0]
    assert told in markdown(result)
    assert told[1:] in latex(result)
    assert told in section(result)["markdown"]
    assert [line[:20] for line in cautions(benchmark_of_the_paper(tmp_path))] == [
        "floor of the similar",
        "wen with scope=batch",
    ]
    few = dataclasses.replace(result.triggers, groups=1)
    lone = cautions(dataclasses.replace(result, triggers=few))
    assert "nothing can be said with confidence" in lone[1]


def test_csv_has_every_number_once(tmp_path: Path) -> None:
    result = benchmark_of_the_paper(tmp_path)
    rows = list(lines_of(result))
    assert {len(row) for row in rows} == {len(LINES)}
    keys = [tuple(row[:5]) for row in rows]
    assert len(set(keys)) == len(keys)
    text = io.StringIO()
    csv.writer(text).writerows([LINES, *rows])
    text.seek(0)
    first = next(csv.DictReader(text))
    assert (first["method"], first["number"], first["value"], first["paper"]) == (
        *("none", "top1"), "0.641", "0.641",
    )  # fmt: skip


def test_names_of_anybody_begin_no_markup(tmp_path: Path) -> None:
    result = benchmark_of_the_paper(tmp_path, model=HOSTILE, similarity=HOSTILE)
    tex = latex(result)
    assert "\\input{x}" not in tex
    assert "\x1b" not in tex + markdown(result)
    assert "<b>" not in markdown(result).replace("\\<b\\>", "")
    ElementTree.fromstring(tradeoff(result)["svg"])
    shown = sections_of(section(result), tmp_path)
    assert shown.trouble == ()
    assert "<b>" not in str(shown.body)


def sections_of(content: dict, folder: Path) -> sections.Section:
    (folder / "sections").mkdir(exist_ok=True)
    path = folder / "sections" / "memorization-benchmark.json"
    path.write_text(json.dumps(content))
    (found,) = sections.load(folder)
    return found


def test_the_section_is_shown_whole(tmp_path: Path) -> None:
    shown = sections_of(section(benchmark_of_the_paper(tmp_path)), tmp_path)
    assert shown.title == "Mitigations: what helps against replaying?"
    assert shown.headline.startswith("Top-1 similarity .641 without mitigation")
    assert [grid.caption for grid in shown.tables][:2] == [
        "Mitigations on trigger and general prompts",
        "Hypervolume of each trade-off",
    ]
    assert len(shown.drawings) == 1
    assert len(str(shown.drawings[0].image)) < 400_000


def test_latex_has_as_many_cells_a_row_as_columns(tmp_path: Path) -> None:
    tex = latex(benchmark_of_the_paper(tmp_path))
    for part in re.findall(r"\\begin\{tabular\}\{([lr]+)\}(.*?)\\end\{tabular\}", tex, re.DOTALL):
        rows = [line for line in part[1].splitlines() if line.endswith(r"\\")]
        for row in rows:
            spans = sum(int(n) - 1 for n in re.findall(r"\\multicolumn\{(\d)\}", row))
            assert len(re.findall(r"(?<!\\)&", row)) + 1 + spans == len(part[0]), row
    assert tex.count("{") == tex.count("}")
    assert r"$.479{}_{\,.419}^{\,.539}$\rlap{*}" in tex
    assert r"\textit{5.18?}" in tex


def test_figures_are_the_same_bytes_and_small(tmp_path: Path) -> None:
    result = benchmark_of_the_paper(tmp_path)
    one, other = tradeoff(result), tradeoff(result)
    assert one == other
    picture = Image.open(io.BytesIO(one["png"]))
    assert picture.width < 1600
    only = dataclasses.replace(result, rows=result.rows[:1])
    assert tradeoff(only) == {}


def test_how_to_read_it_names_what_is_shown(tmp_path: Path) -> None:
    result = benchmark_of_the_paper(tmp_path)
    lines = "\n".join(reading(result))
    assert "standard deviation of the aesthetic score over all images" in lines
    assert "scope=batch" in lines
    assert ".200 in appendix D" in lines
    assert "they rank nothing" in lines


def test_the_worst_images_are_one_a_prompt() -> None:
    scores = np.array([[5.0, 3.0], [2.0, 2.5], [4.0, 4.5]])
    unknown = np.full((3, 2), np.nan)
    digests = (("a", "b"), ("c", "d"), ("b", "e"))
    found = worst_of(Measured(unknown, unknown, scores, unknown, digests), 2)
    assert [(each.digest, each.score, each.prompt) for each in found] == [
        ("c", 2.0, 1),
        ("b", 3.0, 0),
    ]
    sheet = worst_sheet([("RNA " + "n=1 " * 30, found)], lambda _: np.zeros((9, 30, 3), np.uint8))
    assert Image.open(io.BytesIO(sheet)).height < 400
    assert worst_sheet([("none", [])], lambda _: np.zeros((9, 30, 3), np.uint8)) == b""


def test_a_leaderboard_takes_rows_of_others_and_keeps_boards_apart(tmp_path: Path) -> None:
    board = tmp_path / "board.json"
    result = benchmark_of_the_paper(tmp_path)
    first = add_to(board, result, date="2026-01-02")
    assert len(first) == 23
    assert first[0]["method"] == "wen"
    assert (first[0]["top1"], first[0]["setting"]) == (0.096, "l=2, batch")
    assert next(e for e in first if e["method"] == "wen")["hypervolume"] > 0.8
    assert add_to(board, result, date="2026-01-02") == first
    other = benchmark_of_the_paper(tmp_path, similarity="pixels")
    other.about["similarity"]["digest"] = "s2"
    both = add_to(board, other, date="2026-01-03")
    elsewhere = dataclasses.replace(result, about={**result.about, "references": "r2"})
    assert board_of(elsewhere) != board_of(result)
    assert len(both) == 46
    assert len({entry["board"] for entry in both}) == 2
    assert read_leaderboard(board) == both
    text = leaderboard_markdown(both)
    assert text.count("Board ") == 2
    # what somebody else adds by hand, with what was not measured as null
    content = json.loads(board.read_text())
    content["entries"].append(
        {**content["entries"][0], "method": "new", "aesthetic": None, "seconds_an_image": None}
    )
    board.write_text(json.dumps(content))
    assert len(read_leaderboard(board)) == 47
    assert "| new |" in leaderboard_markdown(read_leaderboard(board))
    content["entries"][0]["top1"] = "low"
    board.write_text(json.dumps(content))
    with pytest.raises(VisleakError, match="is damaged in entry 1; nothing was written"):
        add_to(board, result)
    board.write_text("{}")
    with pytest.raises(VisleakError, match="it is no leaderboard; choose another file"):
        read_leaderboard(board)
