"""The estimate of docs/cluster.md is that of the measured rates, and Ray takes its files."""

import json
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
FIGURES = json.loads((ROOT / "benchmarks" / "ray_rates.json").read_text())["figures"]
PAGE = (ROOT / "docs" / "cluster.md").read_text("utf-8")


def test_the_page_states_what_was_measured(script):
    assert script("cluster_cost").table(FIGURES) in PAGE
    each = {
        what: [FIGURES[f"{what}_per_second_and_core_{where}"] for where in ("ray", "local")]
        for what in ("vectors", "images")
    }
    ratio = {what: ray / local for what, (ray, local) in each.items()}
    read = FIGURES["vectors_per_second_and_core_ray"] * FIGURES["bytes_per_vector"] / 1e9
    for text in (
        f"photographs of {FIGURES['bytes_per_image']:,} bytes",
        f"one core reads {read:.2f} GB per second, so a hundred need {100 * read:.0f} GB",
        f"{FIGURES['backgrounds_per_second_and_core']:,} images per second and core",
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
