"""The whole run: samples, thresholds, names, modality, other encoders and other searches."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pytest
from PIL import Image

import visleak
from refusals import refusal
from visleak.auditing import audit
from visleak.encoders import load_encoder
from visleak.errors import MissingExtra, UsageError, VisleakError
from visleak.formats import open_images
from visleak.pipeline.comparison import KIND, SCHEMA, read_thresholds, thresholds_of
from visleak.pipeline.run import _check_search
from visleak.settings import Settings
from visleak.storage import PAIRS
from visleak.storage.cache import Cache

ENTRY = {"name": "builtin", "hard": 0.9375, "soft": 0.75, "provenance": "measured on doves"}


def pictures(count, seed):
    """Return random smooth images, all different."""
    rng = np.random.default_rng(seed)
    return [
        np.kron(rng.integers(0, 256, (6, 6, 3)), np.ones((8, 8, 1))).astype(np.uint8)
        for _ in range(count)
    ]


def test_a_sample_is_of_the_queries(tmp_path):
    test, train = open_images(pictures(30, 0), name="a"), open_images(pictures(9, 1), name="b")
    runs = [
        audit(test, train, settings=Settings(sample=7), out=tmp_path / str(n), cache=None)
        for n in range(2)
    ]
    first, second = (r.images().filter(pc.field("set") == "a")["id"].to_pylist() for r in runs)
    assert len(first) == 7
    assert first == second
    assert "repeats within the test sets: not searched" in runs[0].summary.as_dict()["skipped"]
    assert runs[0].rate().total == 7


def test_a_sample_is_told_as_an_estimate(tmp_path):
    shown = pictures(60, 0)
    test = open_images(shown, name="a")
    train = open_images([*shown[::3], *pictures(9, 1)], name="b")
    found = audit(test, train, settings=Settings(sample=20), out=tmp_path / "s", cache=None)
    rate = found.rate()
    least, most = rate.expected
    assert rate.population == 60
    assert found.headline == (
        f"estimate from a sample of 20 of 60 a images: {rate.count} ({100 * rate.share:.2f} %,"
        f" {rate.interval}) have a near-duplicate or exact copy in b, so {least} to {most} of all"
    )
    whole = audit(test, train, settings=Settings(sample=60), out=tmp_path / "w", cache=None)
    assert least <= whole.rate().count <= most
    assert whole.rate().count >= 20
    assert whole.rate().population is None
    assert whole.headline.startswith(f"{whole.rate().count} of 60 a images (")


def test_unreadable_images_are_no_part_of_what_a_sample_stands_for(tmp_path):
    shown = pictures(40, 0)
    (tmp_path / "test").mkdir()
    for n, pixels in enumerate(shown):
        path = tmp_path / "test" / f"{n:02}.png"
        if n % 4:
            Image.fromarray(pixels).save(path)
        else:
            path.write_bytes(b"words")
    test, train = open_images(tmp_path / "test", name="a"), open_images(shown[:9], name="b")
    found = audit(test, train, settings=Settings(sample=20), out=tmp_path / "out", cache=None)
    lost = len(found.unreadable())
    assert lost
    assert (found.rate().total, found.rate().population) == (20 - lost, 40 - lost)


def test_a_set_alone_is_compared_whole():
    with pytest.raises(UsageError, match="a set alone is compared whole: leave --sample out"):
        audit(open_images(pictures(9, 0)), settings=Settings(sample=3), cache=None)


@pytest.mark.parametrize(
    ("given", "hard", "soft"),
    [
        ({}, None, None),
        ({"hard": 0.99, "soft": 0.9}, 0.99, 0.9),
        ({"hard": 0.3}, 0.3, 0.3),
        ({"soft": 0.97}, 0.97, 0.97),
    ],
)
def test_thresholds_are_given_or_the_encoders_own(given, hard, soft):
    """A given threshold wins; the other one gives way where they would cross."""
    encoder = load_encoder()
    found = thresholds_of(encoder, Settings(**given))
    assert (found.hard, found.soft) == (
        hard or encoder.thresholds["hard"],
        soft or encoder.thresholds["soft"],
    )
    assert not found.provisional
    rough = {**ENTRY, "provisional": True}
    # until both are given
    assert thresholds_of(encoder, Settings(**given), rough).provisional == (len(given) < 2)


def test_labels_of_a_training_set_were_exposed():
    """Modality is full where the annotation was there in training, or as the caller says."""
    test, train = pictures(4, 0), pictures(4, 1)
    queries = open_images(list(zip(test, "abcd", strict=True)), name="q", roles=("benchmark",))
    labelled = open_images(list(zip(train, "abcd", strict=True)), name="r", roles=("training",))
    bare = open_images(train, name="r", roles=("training",))

    def modality(reference, annotations="auto"):
        settings = Settings(annotations=annotations, within=False)
        result = audit(queries, reference, settings=settings, cache=None)
        return result.summary.as_dict()["comparisons"][0]["modality"]

    assert modality(labelled) == "full"
    assert modality(labelled, "unused") == "image-only"
    assert modality(bare) == "image-only"
    assert modality(bare, "used") == "full"


def test_two_sets_of_one_name_are_refused():
    one, other = open_images(pictures(3, 0), name="x"), open_images(pictures(3, 1), name="x")
    with pytest.raises(UsageError, match="two sets are called 'x'"):
        audit([one, other], cache=None)


def written(path: Path, entry: object = None, digest: str | None = None, **extra: Any) -> Path:
    digest = digest or load_encoder().digest
    content = {"kind": KIND, "schema": SCHEMA, "encoders": {digest: entry or ENTRY}} | extra
    path.write_text(json.dumps(content))
    return path


def test_a_file_comes_before_what_ships_and_the_caller_before_the_file(tmp_path: Path) -> None:
    encoder = load_encoder()
    entry = read_thresholds(written(tmp_path / "t.json"), encoder)
    found = thresholds_of(encoder, Settings(), entry)
    assert (found.hard, found.soft, found.provenance) == (0.9375, 0.75, "measured on doves")
    assert not found.provisional
    mixed = thresholds_of(encoder, Settings(hard=0.97), entry)
    assert (mixed.hard, mixed.soft) == (0.97, 0.75)
    assert mixed.provenance == "hard given by the caller; otherwise measured on doves"
    assert thresholds_of(encoder, Settings()).hard == encoder.thresholds["hard"]


def test_another_encoders_thresholds_are_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "t.json", {**ENTRY, "name": "clip"}, digest="c0ffee" * 4)
    said = (
        rf"holds thresholds of clip \(c0ffeec0ffee\), not of builtin \({load_encoder().digest[:12]}"
    )
    with pytest.raises(UsageError, match=said):
        read_thresholds(path, load_encoder())


def test_an_audit_uses_the_file(tmp_path: Path, natural: dict[str, np.ndarray]) -> None:
    folder = tmp_path / "set"
    folder.mkdir()
    for name in ("coffee", "moon"):
        Image.fromarray(natural[name]).save(folder / f"{name}.png")
    out = tmp_path / "out"
    visleak.audit(folder, folder, out=out, cache=None)
    path = written(tmp_path / "t.json")
    with pytest.raises(UsageError, match="another audit"):
        visleak.audit(folder, folder, out=out, cache=None, thresholds=path)
    result = visleak.audit(folder, folder, out=out, cache=None, thresholds=path, force=True)
    found = result.summary.as_dict()["thresholds"]
    assert {name: found[name] for name in ("hard", "soft", "provenance")}.items() <= ENTRY.items()
    again = visleak.audit(folder, folder, out=out, cache=None, thresholds=path)
    assert again.reused


@pytest.mark.parametrize(
    ("text", "kind", "said"),
    [
        (None, UsageError, "is not a file; `visleak calibrate` writes one"),
        ("{", VisleakError, "cannot be read"),
        ("[]", VisleakError, 'does not say "kind": "visleak thresholds"; `visleak calibrate`'),
        ('{"kind": "audit"}', VisleakError, 'does not say "kind"'),
        (f'{{"kind": "{KIND}", "schema": 99}}', VisleakError, "has layout 99, this visleak reads"),
        (f'{{"kind": "{KIND}", "schema": 1}}', VisleakError, "is damaged: it has no encoders"),
    ],
)
def test_what_is_no_file_of_thresholds_is_refused(
    tmp_path: Path, text: str | None, kind: type[VisleakError], said: str
) -> None:
    path = tmp_path / "t.json"
    if text is not None:
        path.write_text(text)
    assert said in refusal(kind, read_thresholds, path, load_encoder())


@pytest.mark.parametrize(
    "values", [{"hard": 0.5, "soft": 0.6}, {"hard": 1.5}, {"hard": "0.9"}, {"soft": None}]
)
def test_thresholds_that_cannot_be_are_refused(tmp_path: Path, values: dict[str, object]) -> None:
    path = written(tmp_path / "t.json", ENTRY | values)
    with pytest.raises(VisleakError, match="hard and soft must be similarities with -1 <= soft"):
        read_thresholds(path, load_encoder())


class Thumbnails:
    """Means of a 4 x 4 grid of cells, around mid-grey."""

    def __init__(self) -> None:
        self.shown = 0

    def __reduce__(self):
        return Thumbnails, ()

    def encode(self, images):
        self.shown += len(images)
        small = [np.asarray(Image.fromarray(image).resize((4, 4))) for image in images]
        return np.stack(small).reshape(len(small), -1) / 127.5 - 1.0


class Nameless(Thumbnails):
    """Cannot be known again."""

    def __reduce__(self):
        raise TypeError("no")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return twelve test images, three of them in the training folder; one file is broken."""
    root = tmp_path_factory.mktemp("sets")
    rng = np.random.default_rng(0)
    for name, count in (("test", 12), ("train", 20)):
        (root / name).mkdir()
        for n in range(count):
            rough = Image.fromarray(rng.integers(0, 256, (6, 6, 3), np.uint8))
            rough.resize((32, 32), Image.Resampling.BICUBIC).save(root / name / f"{n:02}.png")
    for n in range(3):
        data = (root / "test" / f"{n:02}.png").read_bytes()
        (root / "train" / f"{n + 5:02}.png").write_bytes(data)
    (root / "test" / "99.png").write_bytes(b"words")
    return root / "test", root / "train"


@pytest.mark.parametrize("workers", [1, 2])
def test_it_finds_what_leaks(folders, tmp_path, workers) -> None:
    found = audit(*folders, encoder=Thumbnails(), out=tmp_path / "a", cache=None, workers=workers)
    assert found.rate("exact").count == 3
    summary = found.summary
    assert (summary.encoder.name, summary.encoder.width) == ("Thumbnails", 48)
    assert summary.totals[0].rates["hard_or_soft"] is None
    assert found.pairs()["degree"].null_count == len(found.pairs())
    assert [problem.id for problem in found.unreadable()] == ["99.png"]
    limits = visleak.Settings(hard=0.999, soft=0.99, verify=False)
    found = audit(*folders, encoder=Thumbnails(), settings=limits, cache=None)
    assert found.rate("hard").count == 3


def test_what_can_be_known_again_is_reused(folders, tmp_path) -> None:
    """The folder by the next run, the fingerprints by the next audit."""
    first, second, third = Thumbnails(), Thumbnails(), Thumbnails()
    options = {"cache": tmp_path / "cache", "workers": 1}
    audit(*folders, encoder=first, out=tmp_path / "a", **options)
    again = audit(*folders, encoder=second, out=tmp_path / "a", **options)
    audit(*folders, encoder=third, out=tmp_path / "b", **options)
    assert again.reused
    # one grey image tells the width; of three copies one is read after the other is known
    assert (first.shown, second.shown, third.shown) == (30, 1, 1)


def test_what_cannot_be_known_again_is_never_reused(folders, tmp_path) -> None:
    options = {"cache": tmp_path / "cache", "workers": 1}
    for _ in range(2):
        thing = Nameless()
        audit(*folders, encoder=thing, out=tmp_path / "a", force=True, **options)
        assert thing.shown == 33
    with pytest.raises(UsageError, match="holds another audit"):
        audit(*folders, encoder=Nameless(), out=tmp_path / "a", **options)
    with Cache(tmp_path / "cache") as cache:
        makers = {row[0] for row in cache._db.execute("SELECT DISTINCT maker FROM entries")}
    assert not any(b"this run only" in maker for maker in makers)


@pytest.fixture(scope="module")
def sets():
    """Return 60 noisy images, and 90 of which thirty are brighter copies of them."""
    rng = np.random.default_rng(0)
    coarse = rng.integers(30, 200, (120, 6, 6, 3)).astype(np.uint8)
    pictures = [np.kron(grid, np.ones((8, 8, 1), np.uint8)) for grid in coarse]
    return pictures[:60], [p + 20 for p in pictures[:30]] + pictures[60:]


def audited(sets, folder, **asked):
    settings = Settings(verify=False, **asked)
    return visleak.audit(*sets, settings=settings, out=folder, cache=None, workers=1)


def test_a_flat_index_writes_the_same_table(sets, tmp_path):
    exact = audited(sets, tmp_path / "exact")
    found = audited(sets, tmp_path / "faiss", search="faiss")
    assert exact.rate("hard_or_soft").count >= 25
    assert (exact.folder / PAIRS).read_bytes() == (found.folder / PAIRS).read_bytes()
    assert exact.summary.as_dict()["search"] == {"engine": "exact", "version": None, "indexes": []}
    told = found.summary.as_dict()["search"]
    assert told["engine"] == "faiss"
    assert told["version"]
    assert [each["index"] for each in told["indexes"]] == ["Flat", "Flat"]  # and within test
    first = told["indexes"][0]
    assert first["recall"]["pairs"]["count"] == first["recall"]["pairs"]["total"] > 0
    assert not [line for line in found.summary.as_dict()["skipped"] if "faiss" in line]


def test_an_index_that_may_lose_leaks_says_so(sets, tmp_path, monkeypatch):
    monkeypatch.setattr("visleak.search.faiss_search.suited", lambda sides, sample: "hnsw")
    found = audited(sets, tmp_path / "out", search="faiss", within=False)
    summary = found.summary.as_dict()
    (line,) = [line for line in summary["skipped"] if "faiss" in line]
    one, other = (each["name"] for each in summary["sets"])
    assert line.startswith(f"search for {one} in {other}: faiss HNSW32 may miss pairs: it found")
    (told,) = summary["search"]["indexes"]
    assert (told["index"], told["exact"]) == ("HNSW32", False)
    assert told["parameters"]["efSearch"] >= 16
    assert told["recall"]["queries"] == 30


def test_indexes_are_for_one_machine():
    place = SimpleNamespace(executor=SimpleNamespace(local=False))
    with pytest.raises(UsageError, match="faiss works on this machine only: leave out --engine"):
        _check_search(Settings(search="faiss"), place)
    _check_search(Settings(), place)


def test_a_missing_package_is_told_before_the_work(sets, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    monkeypatch.setattr(sys.modules["visleak.pipeline.run"], "fingerprint", None)
    with pytest.raises(MissingExtra, match=r"pip install 'visleak\[faiss\]'"):
        audited(sets, tmp_path / "out", search="faiss")
