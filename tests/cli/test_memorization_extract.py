"""``visleak memorization extract`` from the command line, with a model that replays by plan."""

import json

import pyarrow.parquet as pq
import pytest
from calling import check_refused, loaded, refusals, refused, run

from replaying_model import ReplayingModel
from visleak.memorization.prompt_files import read_prompts

EXTRACT = ("memorization", "extract", "--model", "some/folder", "--similarity", "pixels")
FEW = ("--images", 12, "--min-cluster", 6, "--steps", 3, "--batch", 12, "--no-sheets")
HOSTILE = "[red]=x\x1b[31m cat"


@pytest.fixture(autouse=True)
def model(monkeypatch):
    made = ReplayingModel({HOSTILE: (0, 1.0)})
    made.asked = loaded(monkeypatch, made)
    return made


@pytest.fixture
def prompts(tmp_path):
    path = tmp_path / "prompts.csv"
    path.write_text(f'prompt\n"{HOSTILE}"\nan ordinary one\n', encoding="utf-8")
    return path


def test_a_sentence_a_list_and_a_folder(prompts, tmp_path, model):
    out = tmp_path / "out"
    ran = run(*EXTRACT, *FEW, "--prompts", prompts, "-o", out, "--device", "cpu", code=0, err="")
    lines = ran.out.splitlines()
    assert lines[0] == (
        "1 of 2 prompts gave a cluster of at least 6 of 12 images that are nearly the same:"
        " candidates, not yet verified (visleak memorization trace)"
    )
    assert lines[1].startswith("recall: not measured for the similarity pixels")
    (row,) = (line for line in lines if line.startswith("[red]=x"))
    assert row.split()[-3:-1] == ["12", "12"]
    assert "\x1b" not in ran.out
    assert any("144 passes of the network" in line for line in lines)
    assert lines[-1] == str(out)
    assert model.asked == [("some/folder", "cpu", "auto")]
    assert len(pq.read_table(out / "generated.parquet")) == 24
    # what one verb writes the next one reads
    assert read_prompts(out / "clusters.csv").texts == (HOSTILE,)
    assert read_prompts(out / "clusters.parquet").texts == (HOSTILE,)

    again = run(*EXTRACT, *FEW, "--prompts", prompts, "-o", out, "--json")
    assert again.out == (out / "extract.json").read_text(encoding="utf-8")
    assert json.loads(again.out)["headline"] == lines[0]
    assert model.rows == [12, 12]

    anew = run(
        *("memorization", "extract", "--recluster", "--similarity", "pixels"),
        *("--min-cluster", 12, "--eps", 0.3, "--no-sheets", "-o", out),
    )
    assert anew.out.startswith("1 of 2 prompts gave a cluster of at least 12 of 12 images")
    again = f"memorization extract --recluster --similarity pixels -o {out} --min-cluster"
    assert run(f"{again} 1").out.startswith("1 of 2 prompts gave a cluster among 12 images: ")
    check_refused(f"{again} 13", "must be at most the number of images (12)")
    assert model.rows == [12, 12]


@pytest.mark.parametrize("fault", ["gone", "short", "other"])
def test_kept_images_that_cannot_be_read_again(fault, prompts, tmp_path):
    out = tmp_path / "out"
    assert run(*EXTRACT, *FEW, "--prompts", prompts, "-o", out).code == 0
    before = (out / "extract.json").read_bytes()
    first, *_, last = sorted(out.rglob("*.png"))
    content = first.read_bytes()
    if fault == "gone":
        last.unlink()
    else:
        last.write_bytes(content if fault == "other" else content[: len(content) // 2])
    again = f"memorization extract --recluster --min-cluster 8 --similarity builtin -o {out}"
    check_refused(again, str(last), code=1)
    assert (out / "extract.json").read_bytes() == before


@refusals("""
    --images 10 -> min_cluster must be at most the number of images (10)
    --recluster -> --model, --prompts cannot be used with --recluster
    --similarity ssim -> similarity is builtin, pixels, sscd:FILE or another encoder
""")
def test_what_cannot_be_is_refused(arguments, words, prompts, tmp_path, model):
    check_refused(f"{' '.join(EXTRACT)} --prompts {prompts} -o {tmp_path}/o {arguments}", words)
    check_refused("memorization extract --prompts p.txt", "--model is missing: give --model MODEL")
    assert model.asked == []


def test_only_the_best_of_a_search_are_made(tmp_path):
    folder = tmp_path / "searched"
    folder.mkdir()
    path = folder / "prompts.csv"
    path.write_text("prompt,d_squared\nlow,1\nhigh,9\nmiddle,6\n", encoding="utf-8")
    content = {"kind": "visleak memorization search", "settings": {"kappa": 5.0}}
    (folder / "search.json").write_text(json.dumps(content), encoding="utf-8")
    given = (*EXTRACT, *FEW, "--prompts", path)
    best = run(*given, "--top", 1, "-o", tmp_path / "best")
    assert best.err == "1 of 3 prompts are taken, which have the highest d_squared\n"
    made = pq.read_table(tmp_path / "best" / "generated.parquet")
    assert set(made["prompt"].to_pylist()) == {"high"}
    reached = run(*given, "--above-threshold-only", "-o", tmp_path / "reached", "--json")
    assert json.loads(reached.out)["prompts"] == ["high", "middle"]
    path.write_text("prompt\nlow\n", encoding="utf-8")
    refused(*given, "--top", 1, "-o", tmp_path / "none", code=2, words="--top needs a D of each")
