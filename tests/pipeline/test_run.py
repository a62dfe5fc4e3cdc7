"""The whole run: samples, thresholds, names, modality, other encoders and other searches."""

import json
import sys

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

ENTRY = {"name": "builtin", "hard": 0.9375, "soft": 0.75, "provenance": "measured on doves"}


def squares(count, seed):
    """Return images of random coloured squares, all different."""
    rng = np.random.default_rng(seed)
    coarse = rng.integers(30, 200, (count, 6, 6, 3)).astype(np.uint8)
    return [np.kron(grid, np.ones((8, 8, 1), np.uint8)) for grid in coarse]


def test_a_sample_is_drawn_from_the_queries():
    """Images that are found to be unreadable are not part of the population."""
    shown = squares(60, 0)
    test = open_images([*shown, *["words"] * 20], name="a")
    train = open_images([*shown[::3], *squares(9, 1)], name="b")
    found, again, whole = (
        audit(test, train, settings=Settings(sample=size), cache=None) for size in (20, 20, 80)
    )
    lost = len(found.unreadable())
    first, second = (r.images().filter(pc.field("set") == "a")["id"] for r in (found, again))
    assert len(first) == 20 - lost < 20
    assert first.equals(second)
    assert "repeats within the test sets: not searched" in found.summary.as_dict()["skipped"]
    rate = found.rate()
    least, most = rate.expected
    assert (rate.total, rate.population, whole.rate().population) == (20 - lost, 80 - lost, None)
    assert found.headline.startswith(f"estimate from a sample of {20 - lost} of {80 - lost} a ima")
    assert found.headline.endswith(f", so {least} to {most} of all")
    assert least <= whole.rate().count <= most
    assert whole.rate().count >= 20


@pytest.mark.parametrize(
    ("given", "hard", "soft"),
    [
        ({}, 0.9375, 0.75),
        ({"hard": 0.99, "soft": 0.9}, 0.99, 0.9),
        ({"hard": 0.3}, 0.3, 0.3),
        ({"soft": 0.97}, 0.97, 0.97),
    ],
)
def test_thresholds_are_given_or_the_encoders_own(given, hard, soft):
    """A given threshold wins; the other one gives way where they would cross."""
    found = thresholds_of(load_encoder(), Settings(**given), {**ENTRY, "provisional": True})
    assert (found.hard, found.soft) == (hard, soft)
    # until both are given
    assert found.provisional == (len(given) < 2)


def test_labels_of_a_training_set_were_exposed():
    """Modality is full where the annotation was exposed in training, or as the caller states."""
    test, train = squares(4, 0), squares(4, 1)
    queries = open_images(list(zip(test, "abcd", strict=True)), name="q", roles=("benchmark",))
    labelled = open_images(list(zip(train, "abcd", strict=True)), name="r", roles=("training",))
    bare = open_images(train, name="r", roles=("training",))
    for reference, labels, modality in (
        (labelled, "auto", "full"),
        (labelled, "unused", "image-only"),
        (bare, "auto", "image-only"),
        (bare, "used", "full"),
    ):
        settings = Settings(annotations=labels, within=False)
        result = audit(queries, reference, settings=settings, cache=None)
        assert result.summary.comparisons[0].modality == modality


@pytest.mark.parametrize(
    ("names", "sample", "words"),
    [("xx", 0, "two sets are called 'x'"), ("x", 3, "compared whole: leave --sample out")],
)
def test_sets_that_cannot_be_compared_are_refused(names, sample, words):
    sets = [open_images(squares(9, n), name=name) for n, name in enumerate(names)]
    with pytest.raises(UsageError, match=words):
        audit(sets, settings=Settings(sample=sample), cache=None)


def written(path, **changes):
    content = {"kind": KIND, "schema": SCHEMA, "encoders": {load_encoder().digest: ENTRY}}
    path.write_text(json.dumps(content | changes))
    return path


def test_thresholds_of_a_file_precede_shipped_ones_and_follow_given_ones(tmp_path):
    encoder = load_encoder()
    entry = read_thresholds(written(tmp_path / "t.json"), encoder)
    found = thresholds_of(encoder, Settings(), entry)
    assert (found.hard, found.soft, found.provenance) == (0.9375, 0.75, "measured on doves")
    assert not found.provisional
    mixed = thresholds_of(encoder, Settings(hard=0.97), entry)
    assert (mixed.hard, mixed.soft) == (0.97, 0.75)
    assert mixed.provenance == "hard given by the caller; otherwise measured on doves"
    own = thresholds_of(encoder, Settings())
    assert (own.hard, own.soft) == (encoder.thresholds["hard"], encoder.thresholds["soft"])


def test_an_audit_uses_the_file(tmp_path, put):
    folder, out = put("set/a.png", seed=1).parent, tmp_path / "out"
    put("set/b.png", seed=2)
    visleak.audit(folder, folder, out=out, cache=None)
    path = written(tmp_path / "t.json")
    with pytest.raises(UsageError, match="another audit"):
        visleak.audit(folder, folder, out=out, cache=None, thresholds=path)
    result = visleak.audit(folder, folder, out=out, cache=None, thresholds=path, force=True)
    assert result.summary.thresholds.provenance == "measured on doves"
    assert visleak.audit(folder, folder, out=out, cache=None, thresholds=path).reused


OTHER = {"encoders": {"c0ffee" * 4: ENTRY | {"name": "clip"}}}
DAMAGED = "hard and soft must be similarities with -1 <= soft"


@pytest.mark.parametrize(
    ("changes", "kind", "words"),
    [
        ({"kind": "audit"}, VisleakError, 'does not say "kind"'),
        ({"schema": 99}, VisleakError, "has layout 99, this visleak reads"),
        ({"encoders": None}, VisleakError, "is damaged: it has no encoders"),
        (OTHER, UsageError, "holds thresholds of clip (c0ffeec0ffee), not of builtin ("),
        *(
            ({"encoders": {load_encoder().digest: ENTRY | values}}, VisleakError, DAMAGED)
            for values in ({"hard": 0.5, "soft": 0.6}, {"hard": 1.5}, {"hard": "0.9"})
        ),
    ],
)
def test_other_files_are_not_thresholds(tmp_path, changes, kind, words):
    path = written(tmp_path / "t.json", **changes)
    assert words in refusal(kind, read_thresholds, path, load_encoder())
    path.write_text("[")
    assert "cannot be read" in refusal(VisleakError, read_thresholds, path, load_encoder())
    path.unlink()
    assert "is not a file" in refusal(UsageError, read_thresholds, path, load_encoder())


class Thumbnails:
    """Means of a 4 x 4 grid of cells, around mid-grey."""

    def __init__(self):
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
def folders(tmp_path_factory):
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
def test_an_object_as_encoder_finds_leaks(folders, tmp_path, workers):
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


def test_an_object_is_reused_if_it_has_a_digest(folders, tmp_path):
    """The folder by the next run, the fingerprints by the next audit."""
    options = {"cache": tmp_path / "cache", "workers": 1}
    things = [Thumbnails(), Thumbnails(), Thumbnails(), Nameless(), Nameless()]
    for thing, name in zip(things, "aabcd", strict=True):
        audit(*folders, encoder=thing, out=tmp_path / name, **options)
    # one grey image gives the width; copies of test images are known when train is read
    assert [thing.shown for thing in things] == [33, 1, 1, 36, 36]
    with pytest.raises(UsageError, match="holds another audit"):
        audit(*folders, encoder=Nameless(), out=tmp_path / "d", **options)


@pytest.fixture(scope="module")
def sets():
    """Return 60 images, and 90 of which thirty are brighter copies of them."""
    images = squares(120, 0)
    return images[:60], [p + 20 for p in images[:30]] + images[60:]


def audited(sets, folder, **options):
    settings = Settings(verify=False, **options)
    return visleak.audit(*sets, settings=settings, out=folder, cache=None, workers=1)


def test_an_index_that_compares_everything_writes_the_same_table(sets, tmp_path):
    exact, found = (audited(sets, tmp_path / name, search=name) for name in ("exact", "faiss"))
    assert exact.rate("hard_or_soft").count >= 25
    assert (exact.folder / PAIRS).read_bytes() == (found.folder / PAIRS).read_bytes()
    summary = found.summary.as_dict()
    indexes = summary["search"]["indexes"]
    assert [each["index"] for each in indexes] == ["Flat", "Flat"]  # and within the test set
    shares = [each["recall"][name] for each in indexes for name in ("pairs", "leaks", "best")]
    assert all(share["count"] == share["total"] for share in shares)
    assert indexes[0]["recall"]["pairs"]["count"] > 0
    assert not any("faiss" in line for line in summary["skipped"])


def test_the_recall_of_an_index_is_reported(sets, tmp_path, monkeypatch):
    monkeypatch.setattr("visleak.search.faiss_search.suited", lambda sides, sample: "hnsw")
    found = audited(sets, tmp_path / "out", search="faiss", within=False)
    assert found.rate("hard_or_soft").count >= 25
    summary = found.summary.as_dict()
    assert any("faiss HNSW32 may miss pairs: it found" in line for line in summary["skipped"])
    (index,) = summary["search"]["indexes"]
    assert (index["index"], index["exact"]) == ("HNSW32", False)
    assert index["recall"]["queries"] == 30


def test_other_machines_and_a_missing_package_are_refused_before_any_work(
    sets, tmp_path, monkeypatch
):
    monkeypatch.setattr(sys.modules["visleak.pipeline.run"], "fingerprint", None)
    engine = {"engine": lambda *_: PicklingExecutor(), "cache": None}
    with pytest.raises(UsageError, match="faiss works on this machine only: leave out --engine"):
        audit(*sets, settings=Settings(search="faiss"), out=tmp_path, **engine)
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(MissingExtra, match=r"pip install 'visleak\[faiss\]'"):
        audited(sets, tmp_path / "out", search="faiss")
