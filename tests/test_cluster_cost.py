"""The estimate of docs/cluster.md is that of the measured rates, and Ray takes its files."""

import json
from pathlib import Path

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
