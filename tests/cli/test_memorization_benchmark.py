"""``visleak memorization benchmark`` from the command line, with tiny real networks."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest
from calling import check_refused, refusals, refused, run
from PIL import Image

import tiny_pipelines
from toy_clip import make_clip
from visleak.memorization.prompt_files import read_prompts

BENCHMARK = ("memorization", "benchmark")
HOSTILE = "[red]=x\x1b[31m cat"


@pytest.fixture(scope="module")
def given(tmp_path_factory):
    """A tiny Stable Diffusion, a tiny CLIP, a head, lists and memorized images."""
    import torch

    base = tmp_path_factory.mktemp("given")
    tiny_pipelines.saved(tiny_pipelines.stable_diffusion, base / "model")
    make_clip(base / "clip")
    made = torch.Generator().manual_seed(1)
    layers = {"layers.0": (4, 20), "layers.2": (1, 4)}
    state = {
        f"{name}.{part}": torch.randn(shape if part == "weight" else shape[:1], generator=made)
        for name, shape in layers.items()
        for part in ("weight", "bias")
    }
    torch.save(state, base / "head.pth")
    (base / "memorized").mkdir()
    draw = np.random.default_rng(3)
    for name in ("1.png", "2.png", "3.png"):
        pixels = draw.integers(0, 256, (16, 16, 3), np.uint8)
        Image.fromarray(pixels).save(base / "memorized" / name)
    rows = ("prompt,urls", f'"{HOSTILE}",1.png', "a red house,2.png", "the sun on a hill,3.png")
    (base / "triggers.csv").write_text("\n".join(rows) + "\n")
    (base / "general.txt").write_text("a dog\nthe cat\n")
    return base


def asked(given, out, *more):
    return (
        *(*BENCHMARK, "--model", given / "model", "--triggers", given / "triggers.csv"),
        *("--references", given / "memorized", "--similarity", "pixels", "--device", "cpu"),
        *("--images", 2, "--steps", 2, "--batch", 4, "-o", out, *more),
    )


METHODS = ("rna:2", "rta:1", "wen:0.01,lr=0.2", "ren:1.1")


def test_every_method_runs_on_a_real_pipeline(given, tmp_path):
    out, board = tmp_path / "out", tmp_path / "board.json"
    methods = [part for text in METHODS for part in ("--method", text)]
    call = asked(
        *(given, out, *methods, "--general", given / "general.txt", "--clip", given / "clip"),
        *("--aesthetic", given / "head.pth", "--aesthetic-clip", given / "clip"),
        *("--reference-source", given / "memorized"),
        *("--fid-reference", given / "memorized", "--fid-features", "builtin"),
        *("--leaderboard", board),
    )
    ran = run(*call, code=0)
    assert "5 methods and settings: 40 images, 160 passes of the network" in ran.err
    assert "\x1b" not in ran.out + ran.err
    assert ran.out.startswith("top-1 similarity ")
    assert "similarity is pixels, not SSCD as in the paper" in ran.out
    result = json.loads((out / "benchmark.json").read_text(encoding="utf-8"))
    assert [row["method"] for row in result["rows"]] == ["none", "rna", "rta", "wen", "ren"]
    assert all(row["distance"]["against"] == 3 for row in result["rows"])
    table = pq.read_table(out / "measurements.parquet").to_pylist()
    assert len(table) == 5 * (3 * 2 + 2)
    assert all(row["clip"] is not None and row["aesthetic"] is not None for row in table)
    seeds = {row["seed"] for row in table if row["method"] == "wen"}
    assert seeds == {row["seed"] for row in table if row["method"] == "none"}
    images = {(r["prompt"], r["seed"]): r["image"] for r in table if r["method"] == "none"}
    for method in ("rna", "rta", "wen", "ren"):
        own = [r for r in table if r["method"] == method]
        assert any(images[(r["prompt"], r["seed"])] != r["image"] for r in own), method
    # what the table of images holds is a list of prompts for other verbs
    assert read_prompts(out / "measurements.parquet").texts[0] == HOSTILE
    shown = run(*BENCHMARK, "-o", out)
    assert (shown.code, shown.out, shown.err) == (0, ran.out, "")
    assert run(*BENCHMARK, "-o", out, "--json").out == (out / "benchmark.json").read_text("utf-8")
    assert len(json.loads(board.read_text())["entries"]) == 5
    assert (tmp_path / "board.md").read_text().startswith("# Mitigation leaderboard")

    assert run(*call).err.splitlines()[0].endswith("holds this benchmark, finished")
    words = "or --force replaces it and keeps its images and measurements"
    refused(*call, "--seed", 1, code=2, words=words)


@refusals("""
    --method mine:1 -> a method is one of none, rna, rta, wen, ren
    --method paper -> the paper has settings for sd1 and sd2
    --method rna:1 --fid-features dinov2 -> distances need both --fid-reference SOURCE
    --method rna:1 --reference-source x -> --reference-source finds images by CLIP score
    --method rna:1 --aesthetic-clip x -> --aesthetic-clip goes with --aesthetic FILE
    --method rna:1 --general-column x -> --general-column goes with --general FILE
""")
def test_what_cannot_be_is_refused(arguments, words, given, tmp_path):
    command = " ".join(map(str, asked(given, tmp_path / "out")))
    check_refused(f"{command} {arguments}", words)


@refusals("""
    --model m -> --triggers is missing: give --model MODEL and --triggers FILE
    --method rna:1 -> --model is missing: give --model MODEL and --triggers FILE
     -> {out} holds no finished benchmark to show; give --model MODEL
""")
def test_an_incomplete_request_names_what_is_missing(arguments, words, tmp_path):
    check_refused(f"memorization benchmark -o {tmp_path} {arguments}", words, out=tmp_path)
