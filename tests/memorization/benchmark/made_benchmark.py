"""A benchmark by hand: the figures of table 3 of the paper, with made-up intervals."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np

from visleak.memorization.benchmark.results import (
    Benchmark,
    Change,
    Curve,
    Distance,
    Floor,
    Line,
    ListSummary,
    MethodRow,
    ReferencePoint,
    Score,
)
from visleak.memorization.mitigate import mitigation
from visleak.stats.group_intervals import GroupInterval, share_of_ideal

#: Tables 3 to 5 of Hong et al. 2024.
PRINTED = Path(__file__).parents[3] / "benchmarks" / "memorization" / "membench_tables.json"

HALF = {"top1": 0.06, "top3": 0.06, "share": 0.07, "clip": 0.008, "aesthetic": 0.09}
SETTINGS = {"rna": "n={:g}", "rta": "n={:g}", "wen": "l={:g}, batch", "ren": "C={:g}"}
#: A name that Markdown, LaTeX, XML and a terminal would all misread.
HOSTILE = "sd-1.4 <b>&_$x$|[red]\\input{x}\x1b[31m"


def around(name, value, wide=1.0):
    half = wide * HALF.get(name, 0.04)
    return GroupInterval(value, value - half, value + half, 3000, 53, 8.9, "mean", 0.95)


def about_of(method):
    """Return what a row says of a method whose l is that of the paper."""
    return mitigation("wen:3,scope=batch").about() if method == "wen" else {}


def benchmark_of_the_paper(
    folder, model="sd-1.4", similarity="sscd:sscd_disc_large.torchscript.pt"
):
    """Return what the paper found, as if it were ours: a row a printed row."""
    content = json.loads(PRINTED.read_text(encoding="utf-8"))
    printed = [row for row in content["models"]["sd1"]["rows"] if row["method"] != "reference"]
    base = printed[0]
    rows = []
    for row in printed:
        scores = []
        for scenario in ("trigger", "general"):
            for name, value in row[scenario].items():
                if value is None:
                    continue
                full = f"{name}_images" if name == "aesthetic_std" else name
                before = base[scenario][name]
                change = None
                if row is not base:
                    half = 0.6 * HALF.get(name, 0.04)
                    away = value - before
                    p = 0.0004 if abs(away) > half else 0.3
                    change = Change(away, away - half, away + half, p, min(1.0, 5 * p))
                scores.append(Score(scenario, full, around(name, value), change))
        method, value = row["method"], row["value"]
        setting = "" if value is None else SETTINGS[method].format(value)
        strength = float("nan") if value is None else value
        strength = -strength if method == "wen" else strength
        frechet = content["frechet"]["values"][method]
        rows.append(
            MethodRow(
                method, setting, strength, about_of(method), tuple(scores),
                Distance(frechet, 0.01, 0.008, 0.012, 30_000, 5_000),
                {"trigger": 1.8, "general": 1.7},
            )
        )  # fmt: skip
    lists = [
        ListSummary("SD1_final.csv (CSV)", 3000, 53, 8.9, 10, 3000, "d1"),
        ListSummary("captions_val2017.json (JSON)", 5000, 5000, 5000.0, 1, 0, "d2"),
    ]
    reference = ReferencePoint(
        "laion", 100, around("top1", 0.088, 0.3), around("clip", 0.310), {"source": "laion"}
    )
    about = {
        "model": {
            "name": model, "family": "sd", "shape": [4, 64, 64], "digest": "m1", "precision": "fp16"
        },
        "sampling": {"steps": 50, "guidance": 7.5},
        "seed": 0,
        "similarity": {"name": similarity, "number": "cosine", "digest": "s1"},
        "alignment": {"name": "open_clip:ViT-g-14/laion2b_s12b_b42k", "digest": "a1"},
        "aesthetic": {"name": "sac+logos+ava1-l14-linearMSE.pth", "digest": "h1"},
        "real": {"name": "val2017", "features": "inception:pt_inception.pt", "digest": "r1"},
        "deviation": "images",
    }  # fmt: skip
    made = Benchmark(
        folder, about, lists[0], lists[1], tuple(rows), (), reference, ("2 prompts were empty",),
        "k1", Floor("trigger", 2000, around("x", 0.15), around("x", 0.12), around("x", 0.04, 0.5)),
    )  # fmt: skip
    return with_curves(made)


def with_curves(made):
    """Return a benchmark with the hypervolumes of its rows."""
    curves = []
    base = made.base
    for line in made.lines:
        for name in ("clip", "aesthetic"):
            points = np.array(
                [(r.value("trigger", "top1"), r.value("trigger", name)) for r in made.of(line)]
            )
            points = points[np.isfinite(points).all(1)]
            corner = (base.value("trigger", "top1"), base.value("trigger", name))
            value = share_of_ideal(points[:, 0], points[:, 1], corner)
            curves.append(Curve(Line(line.method, line.variant), name, around("x", value), 6))
    return replace(made, curves=tuple(curves))
