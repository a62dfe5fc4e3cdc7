"""The whole run: samples, thresholds, names, modality, other encoders and other searches."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pytest
from PIL import Image

import visleak
from pickling_executor import PicklingExecutor
from refusals import refusal
from visleak.auditing import audit
from visleak.encoders import load_encoder
from visleak.errors import MissingExtra, UsageError, VisleakError
from visleak.formats import open_images
from visleak.pipeline.comparison import KIND, SCHEMA, read_thresholds, thresholds_of
from visleak.settings import Settings
from visleak.storage import PAIRS
from visleak.storage.cache import Cache

ENTRY = {"name": "builtin", "hard": 0.9375, "soft": 0.75, "provenance": "measured on doves"}


def squares(count, seed):
    """Return images of random coloured squares, all different."""
    rng = np.random.default_rng(seed)
    coarse = rng.integers(30, 200, (count, 6, 6, 3)).astype(np.uint8)
    return [np.kron(grid, np.ones((8, 8, 1), np.uint8)) for grid in coarse]


def test_a_sample_is_drawn_from_the_queries(tmp_path):
    shown = squares(60, 0)
    test = open_images(shown, name="a")
    train = open_images([*shown[::3], *squares(9, 1)], name="b")
    found, again, whole = (
        audit(test, train, settings=Settings(sample=size), out=tmp_path / name, cache=None)
        for name, size in (("s", 20), ("t", 20), ("w", 60))
    )
    first, second = (r.images().filter(pc.field("set") == "a")["id"] for r in (found, again))
    assert len(first) == 20
    assert first.equals(second)
    assert "repeats within the test sets: not searched" in found.summary.as_dict()["skipped"]
    rate = found.rate()
    least, most = rate.expected
    assert (rate.total, rate.population, whole.rate().population) == (20, 60, None)
    assert found.headline == (
        f"estimate from a sample of 20 of 60 a images: {rate.count} ({100 * rate.share:.2f} %,"
        f" {rate.interval}) have a near-duplicate or exact copy in b, so {least} to {most} of all"
    )
    assert least <= whole.rate().count <= most
    assert whole.rate().count >= 20
    assert whole.headline.startswith(f"{whole.rate().count} of 60 a images (")


def test_unreadable_images_are_not_part_of_the_population(tmp_path, put):
    shown = squares(40, 0)
    for n, pixels in enumerate(shown):
        put(f"test/{n:02}.png", Image.fromarray(pixels) if n % 4 else b"words")
    test, train = open_images(tmp_path / "test", name="a"), open_images(shown[:9], name="b")
    found = audit(test, train, settings=Settings(sample=20), out=tmp_path / "out", cache=None)
    lost = len(found.unreadable())
    assert lost
    assert (found.rate().total, found.rate().population) == (20 - lost, 40 - lost)


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
    """Modality is full where the annotation was exposed in training, or as the caller states."""
    test, train = squares(4, 0), squares(4, 1)
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


@pytest.mark.parametrize(
    ("names", "sample", "words"),
    [("xx", 0, "two sets are called 'x'"), ("x", 3, "compared whole: leave --sample out")],
)
def test_sets_that_cannot_be_compared_are_refused(names, sample, words):
    sets = [open_images(squares(9, n), name=name) for n, name in enumerate(names)]
    with pytest.raises(UsageError, match=words):
        audit(sets, settings=Settings(sample=sample), cache=None)


def written(path: Path, **changes: Any) -> Path:
    content = {"kind": KIND, "schema": SCHEMA, "encoders": {load_encoder().digest: ENTRY}}
    path.write_text(json.dumps(content | changes))
    return path


def test_thresholds_of_a_file_precede_shipped_ones_and_follow_given_ones(tmp_path: Path) -> None:
    encoder = load_encoder()
    entry = read_thresholds(written(tmp_path / "t.json"), encoder)
    found = thresholds_of(encoder, Settings(), entry)
    assert (found.hard, found.soft, found.provenance) == (0.9375, 0.75, "measured on doves")
    assert not found.provisional
    mixed = thresholds_of(encoder, Settings(hard=0.97), entry)
    assert (mixed.hard, mixed.soft) == (0.97, 0.75)
    assert mixed.provenance == "hard given by the caller; otherwise measured on doves"
    assert thresholds_of(encoder, Settings()).hard == encoder.thresholds["hard"]


def test_an_audit_uses_the_file(tmp_path: Path, put) -> None:
    folder, out = put("set/a.png", seed=1).parent, tmp_path / "out"
    put("set/b.png", seed=2)
    visleak.audit(folder, folder, out=out, cache=None)
    path = written(tmp_path / "t.json")
    with pytest.raises(UsageError, match="another audit"):
        visleak.audit(folder, folder, out=out, cache=None, thresholds=path)
    result = visleak.audit(folder, folder, out=out, cache=None, thresholds=path, force=True)
    found = result.summary.as_dict()["thresholds"]
    assert {name: found[name] for name in ("hard", "soft", "provenance")}.items() <= ENTRY.items()
    again = visleak.audit(folder, folder, out=out, cache=None, thresholds=path)
    assert again.reused


OTHER = {"encoders": {"c0ffee" * 4: ENTRY | {"name": "clip"}}}
DAMAGED = "hard and soft must be similarities with -1 <= soft"


@pytest.mark.parametrize(
    ("content", "kind", "words"),
    [
        (None, UsageError, "is not a file; `visleak calibrate` writes one"),
        ("{", VisleakError, "cannot be read"),
        ("[]", VisleakError, 'does not say "kind": "visleak thresholds"; `visleak calibrate`'),
        ({"kind": "audit"}, VisleakError, 'does not say "kind"'),
        ({"schema": 99}, VisleakError, "has layout 99, this visleak reads"),
        ({"encoders": None}, VisleakError, "is damaged: it has no encoders"),
        (OTHER, UsageError, "holds thresholds of clip (c0ffeec0ffee), not of builtin ("),
        *(
            ({"encoders": {load_encoder().digest: ENTRY | values}}, VisleakError, DAMAGED)
            for values in (
                {"hard": 0.5, "soft": 0.6}, {"hard": 1.5}, {"hard": "0.9"}, {"soft": None}
            )
        ),
    ],
)  # fmt: skip
def test_other_files_are_not_thresholds(tmp_path, content, kind, words) -> None:
    path = tmp_path / "t.json"
    if isinstance(content, str):
        path.write_text(content)
    elif content is not None:
        written(path, **content)
    assert words in refusal(kind, read_thresholds, path, load_encoder())


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
    """Has no digest that another run would find."""

    def __reduce__(self):
        raise TypeError("no")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return twelve test images, three of them in the training folder; one file is broken."""
    root = tmp_path_factory.mktemp("sets")
    images = squares(32, 3)
    for name, shown in (("test", images[:12]), ("train", [*images[12:], *images[:3]])):
        (root / name).mkdir()
        for n, pixels in enumerate(shown):
            Image.fromarray(pixels).save(root / name / f"{n:02}.png")
    (root / "test" / "99.png").write_bytes(b"words")
    return root / "test", root / "train"


@pytest.mark.parametrize("workers", [1, 2])
def test_an_object_as_encoder_finds_leaks(folders, tmp_path, workers) -> None:
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


def test_an_object_with_a_digest_is_reused(folders, tmp_path) -> None:
    """The folder by the next run, the fingerprints by the next audit."""
    first, second, third = Thumbnails(), Thumbnails(), Thumbnails()
    options = {"cache": tmp_path / "cache", "workers": 1}
    audit(*folders, encoder=first, out=tmp_path / "a", **options)
    again = audit(*folders, encoder=second, out=tmp_path / "a", **options)
    audit(*folders, encoder=third, out=tmp_path / "b", **options)
    assert again.reused
    # one grey image gives the width; copies of test images are known when train is read
    assert (first.shown, second.shown, third.shown) == (33, 1, 1)


def test_an_object_without_a_digest_is_never_reused(folders, tmp_path) -> None:
    options = {"cache": tmp_path / "cache", "workers": 1}
    for _ in range(2):
        thing = Nameless()
        audit(*folders, encoder=thing, out=tmp_path / "a", force=True, **options)
        assert thing.shown == 36
    with pytest.raises(UsageError, match="holds another audit"):
        audit(*folders, encoder=Nameless(), out=tmp_path / "a", **options)
    with Cache(tmp_path / "cache") as cache:
        makers = {row[0] for row in cache._db.execute("SELECT DISTINCT maker FROM entries")}
    assert not any(b"this run only" in maker for maker in makers)


@pytest.fixture(scope="module")
def sets():
    """Return 60 images, and 90 of which thirty are brighter copies of them."""
    images = squares(120, 0)
    return images[:60], [p + 20 for p in images[:30]] + images[60:]


def audited(sets, folder, **options):
    settings = Settings(verify=False, **options)
    return visleak.audit(*sets, settings=settings, out=folder, cache=None, workers=1)


def test_a_flat_index_writes_the_same_table(sets, tmp_path):
    exact = audited(sets, tmp_path / "exact")
    found = audited(sets, tmp_path / "faiss", search="faiss")
    assert exact.rate("hard_or_soft").count >= 25
    assert (exact.folder / PAIRS).read_bytes() == (found.folder / PAIRS).read_bytes()
    assert exact.summary.as_dict()["search"] == {"engine": "exact", "version": None, "indexes": []}
    search = found.summary.as_dict()["search"]
    assert search["engine"] == "faiss"
    assert search["version"]
    assert [each["index"] for each in search["indexes"]] == ["Flat", "Flat"]  # and within test
    first = search["indexes"][0]
    assert first["recall"]["pairs"]["count"] == first["recall"]["pairs"]["total"] > 0
    assert not [line for line in found.summary.as_dict()["skipped"] if "faiss" in line]


def test_the_recall_of_an_index_is_reported(sets, tmp_path, monkeypatch):
    monkeypatch.setattr("visleak.search.faiss_search.suited", lambda sides, sample: "hnsw")
    found = audited(sets, tmp_path / "out", search="faiss", within=False)
    summary = found.summary.as_dict()
    (line,) = [line for line in summary["skipped"] if "faiss" in line]
    one, other = (each["name"] for each in summary["sets"])
    assert line.startswith(f"search for {one} in {other}: faiss HNSW32 may miss pairs: it found")
    (index,) = summary["search"]["indexes"]
    assert (index["index"], index["exact"]) == ("HNSW32", False)
    assert index["parameters"]["efSearch"] >= 16
    assert index["recall"]["queries"] == 30


def test_indexes_are_for_one_machine(sets, tmp_path):
    engine = {"engine": lambda *_: PicklingExecutor(), "cache": None}
    with pytest.raises(UsageError, match="faiss works on this machine only: leave out --engine"):
        audit(*sets, settings=Settings(search="faiss"), out=tmp_path, **engine)


def test_a_missing_package_is_refused_before_any_work(sets, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    monkeypatch.setattr(sys.modules["visleak.pipeline.run"], "fingerprint", None)
    with pytest.raises(MissingExtra, match=r"pip install 'visleak\[faiss\]'"):
        audited(sets, tmp_path / "out", search="faiss")
