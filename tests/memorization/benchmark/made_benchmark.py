"""A benchmark by hand: the figures of table 3 of the paper, with made-up intervals."""

import json
from dataclasses import replace
from pathlib import Path

from visleak.memorization.benchmark.results import (
    Benchmark,
    Change,
    Curve,
    Distance,
    Floor,
    ListSummary,
    MethodRow,
    ReferencePoint,
    Score,
)
from visleak.memorization.mitigate import mitigation
from visleak.stats.group_intervals import GroupInterval

#: Tables 3 to 5 of Hong et al. 2024.
PRINTED = Path(__file__).parents[3] / "benchmarks" / "memorization" / "membench_tables.json"

HALF = {"top1": 0.06, "top3": 0.06, "share": 0.07, "clip": 0.008, "aesthetic": 0.09}
SETTINGS = {"rna": "n={:g}", "rta": "n={:g}", "wen": "l={:g}, batch", "ren": "C={:g}"}


def around(name, value, wide=1.0):
    half = wide * HALF.get(name, 0.04)
    return GroupInterval(value, value - half, value + half, 3000, 53, 8.9, "mean", 0.95)


def scores_of(row, base):
    for scenario in ("trigger", "general"):
        for name, value in row[scenario].items():
            if value is not None:
                half, away, change = 0.6 * HALF.get(name, 0.04), value - base[scenario][name], None
                if row is not base:
                    p = 0.0004 if abs(away) > half else 0.3
                    change = Change(away, away - half, away + half, p, min(1.0, 5 * p))
                full = f"{name}_images" if name == "aesthetic_std" else name
                yield Score(scenario, full, around(name, value), change)


def benchmark_of_the_paper(folder, similarity="sscd:sscd_disc_large.torchscript.pt"):
    """Return what the paper found, as if it were ours: a row for each printed row."""
    content = json.loads(PRINTED.read_text(encoding="utf-8"))
    printed = [row for row in content["models"]["sd1"]["rows"] if row["method"] != "reference"]
    rows = []
    for row in printed:
        method, value = row["method"], row["value"]
        setting = "" if value is None else SETTINGS[method].format(value)
        strength = float("nan") if value is None else -value if method == "wen" else value
        about = mitigation("wen:3,scope=batch").about() if method == "wen" else {}
        far = Distance(content["frechet"]["values"][method], 0.01, 0.008, 0.012, 30_000, 5_000)
        scores, seconds = tuple(scores_of(row, printed[0])), {"trigger": 1.8, "general": 1.7}
        rows.append(MethodRow(method, setting, strength, about, scores, far, seconds))
    reference = ReferencePoint(
        "laion", around("top1", 0.088, 0.3), around("clip", 0.310), {"source": "laion"}
    )
    about = {
        "model": {"name": "sd-1.4", "family": "sd", "digest": "m1", "precision": "fp16"},
        "sampling": {"steps": 50, "guidance": 7.5},
        "seed": 0,
        "similarity": {"name": similarity, "number": "cosine", "digest": "s1"},
        "alignment": {"name": "open_clip:ViT-g-14/laion2b_s12b_b42k", "digest": "a1"},
        "aesthetic": {"name": "sac+logos+ava1-l14-linearMSE.pth", "digest": "h1"},
        "real": {"name": "val2017", "features": "inception:pt_inception.pt", "digest": "r1"},
        "deviation": "images",
    }
    made = Benchmark(
        folder=folder,
        about=about,
        triggers=ListSummary("SD1_final.csv (CSV)", 3000, 53, 8.9, 10, 3000, "d1"),
        general=ListSummary("captions_val2017.json (JSON)", 5000, 5000, 5000.0, 1, 0, "d2"),
        rows=tuple(rows),
        curves=(),
        reference=reference,
        notes=("2 prompts were empty",),
        key="k1",
        floor=Floor(
            *("trigger", 2000, around("x", 0.15), around("x", 0.12), around("x", 0.04, 0.5))
        ),
    )
    names = ("clip", "aesthetic")
    curves = [Curve(line, name, around("x", 0.85), 6) for line in made.lines for name in names]
    return replace(made, curves=tuple(curves))
