"""The estimate of docs/cluster.md: worked out from the measured rates, and from nothing else."""

import json
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
FIGURES = json.loads((ROOT / "benchmarks" / "ray_rates.json").read_text())["figures"]
PAGE = (ROOT / "docs" / "cluster.md").read_text("utf-8")

MADE_UP = {
    "queries": 1_000,
    "vectors_a_second_and_core_ray": 100_000,
    "bytes_a_vector": 1_000,
    "images_a_second_and_core_ray": 1_000,
    "comparisons_a_second_and_core": 2_000,
    "backgrounds_a_second_and_core": 2_000,
    "bytes_an_image": 50_000,
}


@pytest.fixture
def module(script):
    return script("cluster_cost")


def test_the_sums_by_hand(module):
    """4e8 / 1e5 / 3600 = 1.11 core hours; an image takes 1 + 0.5 + 0.5 ms."""
    lines = module.table(MADE_UP, price=0.5).splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]
    assert [row[1:] for row in rows] == [
        ["400 million", "1.1", "0.011", "0.4", "0.56"],
        ["5 billion", "14", "0.14", "5", "6.9"],
        ["400 million", "220", "2.2", "20", "110"],
        ["5 billion", "2,800", "28", "250", "1,400"],
    ]


def test_the_page_states_what_was_measured(module):
    assert module.table(FIGURES) in PAGE
    ratio = {
        what: FIGURES[f"{what}_a_second_and_core_ray"] / FIGURES[f"{what}_a_second_and_core_local"]
        for what in ("vectors", "images")
    }
    read = FIGURES["vectors_a_second_and_core_ray"] * FIGURES["bytes_a_vector"] / 1e9
    for text in (
        f"photographs of {FIGURES['bytes_an_image']:,} bytes",
        f"one core reads {read:.2f} GB per second, so a hundred need {100 * read:.0f} GB",
        f"{FIGURES['backgrounds_a_second_and_core']:,} images per second and core",
        f"did {ratio['vectors']:.0%} (embeddings) and {ratio['images']:.0%} (images)",
    ):
        assert text in PAGE, text


def test_ray_takes_the_cluster_files():
    pytest.importorskip("ray")
    from ray.autoscaler._private.util import prepare_config, validate_config

    files = [part.partition("```")[0] for part in PAGE.split("```yaml\n")[1:]]
    assert len(files) == 2
    for text in files:
        config = yaml.safe_load(text)
        validate_config(prepare_config(config))
        assert any("ray start --head" in line for line in config["head_start_ray_commands"])
        assert any("$RAY_HEAD_IP" in line for line in config["worker_start_ray_commands"])
