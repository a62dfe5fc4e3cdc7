"""``audit --dry-run``, options for the encoder, and audits by encoders without thresholds."""

import json
import re
from dataclasses import replace

import pyarrow.parquet as pq
import pytest
from calling import MOSTLY_READABLE, run

from visleak.pipeline.cost import Cost
from visleak.pipeline.cost import describe as line
from visleak.quantities import size


def test_cost_says_a_line_and_stops(dataset, tmp_path):
    ran = run("audit", dataset, "-o", tmp_path / "out", "--dry-run", "--cache", "off")
    assert ran.code == 0
    assert re.fullmatch(
        r"13 images \(\d+ kB\); about \d+ s with 1 process: \d s reading and encoding, \d s search,"
        r" \d+ s local features, \d s screening of \d+ pairs, \d+ s verification of \d+ pairs"
        r" \(estimated from 13 images and \d+ pairs\); at least 497 kB of scratch\n",
        ran.out,
    ), ran.out
    assert not (tmp_path / "out").exists()


def test_cost_as_json(dataset, tmp_path):
    ran = run("audit", dataset, "--dry-run", "--json", "--cache", tmp_path / "cache")
    assert ran.code == 0
    found = json.loads(ran.out)
    assert list(found) == [
        *("images", "embeddings", "bytes", "seconds", "steps", "candidates", "verified"),
        *("timed", "timed_pairs", "processes", "scratch", "cache"),
    ]
    assert found["images"] == 13
    assert found["bytes"] == sum(
        file.stat().st_size for part in ("test", "train") for file in dataset.glob(f"{part}/*/*")
    )


def test_the_line_of_a_large_run():
    steps = {"fingerprint": 80_000.0, "search": 400.0, "local": 0.0, "screening": 1_000.0}
    cost = Cost(
        images=407_314_000,
        embeddings=12,
        bytes=None,
        seconds=86_400.0,
        steps=steps | {"verification": 5_000.0},
        candidates=30_000,
        verified=4_000,
        timed=64,
        timed_pairs=24,
        processes=16,
        scratch=834_179_072_000,
        cache=0,
    )
    assert line(cost) == (
        "407,314,000 images; 12 embeddings; about 24:00:00 with 16 processes: 22:13:20 reading and"
        " encoding, 6:40 search, 0 s local features, 16:40 screening of 30,000 pairs, 1:23:20"
        " verification of 4,000 pairs (estimated from 64 images and 24 pairs); at least 834 GB of"
        " scratch"
    )
    unknown = replace(cost, images=3, embeddings=0, bytes=1_500, seconds=None)
    assert line(replace(unknown, scratch=10, cache=20)) == (
        "3 images (1.5 kB); at least 10 bytes of scratch, up to 20 bytes of cache"
    )
    assert size(999_600) == "1.0 MB"


@pytest.fixture(scope="module")
def unmeasured(dataset, tmp_path_factory):
    """Return an audit by an encoder without thresholds."""
    folder = tmp_path_factory.mktemp("unmeasured") / "out"
    assert run("audit", dataset, "-o", folder, "--encoder", "phash").code == 0
    return folder


HOW = (
    "degrees: no thresholds are known for encoder phash; find them with `visleak calibrate S"
    " --encoder phash --fpr 1e-6` for --thresholds, or give --hard and --soft"
)


def test_without_thresholds_there_are_no_degrees(unmeasured, dataset, tmp_path):
    audit = json.loads((unmeasured / "audit.json").read_text())
    (total,) = audit["totals"]
    assert total["rates"]["hard"] is total["rates"]["hard_or_soft"] is None
    assert total["rates"]["near_or_exact"]["count"] == 3
    assert audit["thresholds"]["hard"] is audit["thresholds"]["soft"] is None
    assert audit["skipped"] == [
        HOW,
        "views: phash compares images as they are; mirrored, turned and inverted copies are found"
        " by local features only, in images of 96 pixels and more",
    ]
    pairs = pq.read_table(unmeasured / "pairs.parquet")
    assert pairs["degree"].null_count == len(pairs) > 0
    assert pairs["grade"].null_count == 0
    ran = run("audit", dataset, "-o", unmeasured, "--encoder", "phash")
    assert ran.out.startswith("3 of 6 test images")
    assert re.search(r"thresholds +none are known", ran.out)
    assert HOW in ran.out
    assert "near or exact" in ran.out
    assert "hard or soft" not in ran.out
    assert ran.err.startswith("reused: ")
    page = (unmeasured / "report.html").read_text()
    assert "3 of 6 test images" in page
    assert "hard or soft" not in page


def test_without_thresholds_and_pictures_nothing_is_claimed(dataset, tmp_path):
    ran = run("audit", dataset, "-o", tmp_path / "out", "--encoder", "phash", "--no-verify")
    assert ran.code == 0
    assert ran.out.startswith("test was compared with train; no thresholds, so no rate\n")
    assert "images   share" not in ran.out
    assert HOW in ran.out


def test_thresholds_of_the_caller_serve(dataset, tmp_path):
    base = ("audit", dataset, "--encoder", "phash", "--no-verify", *MOSTLY_READABLE)
    ran = run(*base, "-o", tmp_path / "h", "--hard", "0.95", "--fail-on", "hard=90%")
    assert ran.code == 0
    assert "hard 0.95, soft 0.95" in ran.out
    rates = json.loads((tmp_path / "h" / "audit.json").read_text())["totals"][0]["rates"]
    assert rates["hard"]["count"] == rates["hard_or_soft"]["count"] == 2
    assert rates["soft"]["count"] == 0
    ran = run(*base, "-o", tmp_path / "s", "--soft", "0.95", "--fail-on", "soft=90%")
    assert ran.code == 0
    rates = json.loads((tmp_path / "s" / "audit.json").read_text())["totals"][0]["rates"]
    assert rates["hard"] is rates["soft"] is None
    assert rates["hard_or_soft"]["count"] == 2


def test_the_cost_of_a_long_run_is_shown_at_a_terminal(dataset, tmp_path, monkeypatch):
    monkeypatch.setattr("visleak.cli.audits.WORTH_TELLING", 1)
    monkeypatch.setattr("visleak.cli.audits.TELL_ABOVE", 0.0)
    for times in (1, 0):
        ran = run("audit", dataset, "-o", tmp_path / "out", "--no-images", terminal=True)
        assert (ran.code, ran.err.count("13 images (152 kB); about ")) == (0, times)
