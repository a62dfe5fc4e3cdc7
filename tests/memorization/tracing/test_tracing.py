"""Tracing, from an extraction's folder to the pages of the audit."""

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

import visleak
from generated_images import PROMPTS, noisy
from visleak.auditing import Audit
from visleak.embedding import encode
from visleak.errors import UsageError, VisleakError
from visleak.formats import open_images
from visleak.memorization.extraction.similarity import recall_of
from visleak.memorization.settings import TraceSettings
from visleak.memorization.tracing import read_trace, trace
from visleak.memorization.tracing.document import Hit, headlines
from visleak.memorization.tracing.run import best, counts, families, read_categories
from visleak.verdicts import Ledger, Verdict, digests_of


def run(world, out, *, target=None, sources=None, **given):
    """Trace the clusters of the world, by default without searching for layouts."""
    options = {name: given.pop(name) for name in ("force",) if name in given}
    settings = TraceSettings(**{"layouts": False, **given})
    sources = [str(world.train)] if sources is None else sources
    return trace(target or world.extraction, sources, out, settings, workers=1, **options)


def test_what_is_copied_is_found(traced):
    assert headlines(traced)[:2] == [
        "2 of 4 clusters are near-duplicates of 1 training image in train",
        "1 more repeats the layout of 1 training image in other colours",
    ]
    assert [(m.image, m.reference, m.grade) for m in traced.matches[:3]] == [
        ("p0c0", "astronaut.png", "near"),
        ("p1c0", "astronaut.png", "near"),
        ("p2c0", "chelsea.png", "layout"),
    ]
    assert tuple(match.prompt for match in traced.matches) == PROMPTS
    counted = [(match.memorized, match.verified, match.size) for match in traced.matches]
    assert counted == [(0, True, 20), (0, True, 21), (1, True, 22), (None, False, 23)]
    assert [original.layout for original in traced.originals] == [False, True]
    assert traced.originals[1].references == ("chelsea.png",)
    # tau looks at similarity alone
    assert [match.nearest > 0.7 for match in traced.matches] == [True, True, False, False]
    share, low, high = traced.share
    assert share == 0.5
    # the two share one image: less is known than of two independent ones
    assert low < visleak.rates.wilson(2, 4)[0]
    assert high > visleak.rates.wilson(2, 4)[1]
    # what is not found is not shown to be new
    recall = json.loads((traced.folder / "trace.json").read_text(encoding="utf-8"))["recall"]
    assert recall == recall_of("builtin", "trace")
    page = (traced.folder / "trace.md").read_text(encoding="utf-8").replace("\\", "")
    assert f"{100 * recall['share']:.2f} % of non" in page


def test_people_decide(world, traced, tmp_path):
    folder = Path(shutil.copytree(traced.folder, tmp_path / "out"))
    table = visleak.Audit(folder / "audit").pairs()
    sides = [side.to_pylist() for side in digests_of(folder / "audit", table)]
    keys = {
        (row["query"], row["reference"]): pair
        for row, *pair in zip(table.to_pylist(), *sides, strict=True)
    }
    said = {
        ("p0c0", "astronaut.png"): "different",
        ("p3c0", "rocket.png"): "near",
        ("p2c0", "chelsea.png"): "different",
    }
    with Ledger(folder / "audit") as ledger:
        for pair, judgment in said.items():
            ledger.add(Verdict.of(*keys[pair], judgment, "ada"))
    found = trace(world.extraction, [str(world.train)], folder, workers=1)
    assert [match.verified for match in found.matches] == [False, True, False, True]
    assert [match.judged for match in found.matches] == ["human", "", "human", "human"]
    assert found.about["verdicts"] == 3


def test_all_images_say_which_prompts_replicate(world, tmp_path):
    found = run(world, tmp_path, every=True)
    assert len(found.matches) == 8
    assert {each.prompt for each in found.prompts if each.trigger} == set(PROMPTS[:2])
    assert [each.images for each in found.prompts] == [2, 2, 2, 2]
    assert headlines(found)[-1].startswith("2 of 4 prompts are in D_mem: more than 50.00 % of")
    # D_mem asks for more than the share
    strict = run(world, tmp_path, every=True, kappa_share=0.999, tau=0.9999, force=True)
    assert not any(each.trigger for each in strict.prompts)


def test_without_a_training_set_nothing_is_memorized(world, tmp_path):
    found = trace(world.extraction, [], tmp_path)
    assert headlines(found) == [
        "4 clusters are candidates, unverified: there was no training set, and a result without"
        " one is never called memorized"
    ]
    assert (found.verified, found.memorized, math.isnan(found.share[0])) == ((), 0, True)
    assert json.loads((tmp_path / "trace.json").read_text())["share"] == [None, None, None]
    assert not (tmp_path / "audit").exists()


def test_fingerprints_verify_nothing(world, tmp_path):
    encode(open_images(world.train), "builtin", tmp_path / "prints", workers=1)
    found = trace(world.extraction, [f"emb:{tmp_path / 'prints'}"], tmp_path / "out", workers=1)
    assert [match.grade for match in found.matches] == [""] * 4
    assert [match.probability for match in found.matches] == [None] * 4
    assert found.matches[0].reference == "astronaut.png"
    assert found.matches[0].similarity > 0.9
    assert not found.verified
    assert found.share[0] == 0.5
    # nothing is verified, so the recall of verification does not apply
    assert json.loads((tmp_path / "out" / "trace.json").read_text("utf-8"))["recall"] is None


def test_any_pictures_can_be_traced(world, tmp_path):
    pictures = tmp_path / "pictures"
    pictures.mkdir()
    Image.fromarray(world.generated["p0c0"]).save(pictures / "a.png")
    found = run(world, tmp_path / "out", target=pictures)
    assert headlines(found)[0].startswith("1 of 1 generated image is a near-duplicate of 1 train")
    with pytest.raises(UsageError, match=r"--all is for a folder of visleak memorization extract"):
        run(world, tmp_path / "other", target=pictures, every=True)
    # figures of another command are no generated images
    (pictures / "search.json").write_text('{"kind": "visleak memorization search"}')
    with pytest.raises(UsageError, match="is a result of visleak memorization"):
        run(world, tmp_path / "other", target=pictures)
    assert not (tmp_path / "other").exists()


def test_tiny_pictures(natural, tmp_path):
    small = [np.asarray(Image.fromarray(p[:256, :256]).resize((16, 16))) for p in natural.values()]
    for name in ("train", "made"):
        (tmp_path / name).mkdir()
    for number, picture in enumerate(small[1:]):
        Image.fromarray(picture).save(tmp_path / "train" / f"{number}.png")
    Image.fromarray(small[0]).save(tmp_path / "made" / "new.png")
    Image.fromarray(noisy(small[2], 1, 4.0)).save(tmp_path / "made" / "copy.png")
    found = trace(tmp_path / "made", [tmp_path / "train"], tmp_path / "out", workers=1)
    verified = {match.image: match.verified for match in found.matches}
    assert verified == {"copy.png": True, "new.png": False}


def test_what_cannot_be_traced(world, traced, tmp_path):
    broken = Path(shutil.copytree(world.extraction, tmp_path / "extract"))
    (broken / "medoids.parquet").write_bytes(b"PAR1")
    with pytest.raises(VisleakError, match=r"medoids.parquet cannot be read .* extract again"):
        trace(broken, [], tmp_path / "out")
    with pytest.raises(UsageError, match=r"two sources are called 'generated'"):
        run(world, tmp_path / "out", sources=[open_images(world.train, name="generated")])
    with pytest.raises(UsageError, match=r"categories none\.csv is not a file; give a CSV file"):
        run(world, tmp_path / "out", categories="none.csv")
    for wrong in ({"tau": 1.0}, {"tau": math.nan}, {"kappa_share": 1.0}, {"views": "some"}):
        with pytest.raises(UsageError, match=f"{next(iter(wrong))} must be"):
            TraceSettings(**wrong)
    whole = (traced.folder / "trace.json").read_text(encoding="utf-8")
    (tmp_path / "trace.json").write_text(whole.replace('"size": 20', '"size": "many"'))
    with pytest.raises(VisleakError, match=r"trace\.json is damaged"):
        read_trace(tmp_path)


def test_a_picture_that_is_gone_is_said(world, tmp_path):
    broken = Path(shutil.copytree(world.extraction, tmp_path / "extract"))
    path = pq.read_table(broken / "medoids.parquet")["path"][3].as_py()
    (broken / path).write_bytes(b"no picture")
    found = run(world, tmp_path / "out", target=broken, layouts=True)
    assert found.notes == (
        "1 of 4 images of generated could not be read",
        "1 of 4 images have no M_tau: they were not compared",
    )
    assert found.matches[3].reference is None
    assert found.share[0] == pytest.approx(2 / 3)


def test_an_image_that_is_gone_when_layouts_are_compared(world, tmp_path, monkeypatch):
    """It is never left out in silence: the trace would be another one."""
    train = Path(shutil.copytree(world.train, tmp_path / "train"))
    read = Audit.decoded_images

    def lose(self, *given, **options):
        shutil.rmtree(train, ignore_errors=True)
        train.mkdir()
        return read(self, *given, **options)

    monkeypatch.setattr(Audit, "decoded_images", lose)
    with pytest.raises(VisleakError, match="gone or changed"):
        trace(world.extraction, [str(train)], tmp_path / "out", workers=1)


PLAIN = Hit("a", "train", "1", 0.5, "different", 0.1)


def test_copies_come_before_layouts_and_these_before_the_rest():
    hits = [
        PLAIN,
        replace(PLAIN, reference="2", grade="similar", similarity=0.9),
        replace(PLAIN, reference="3", grade="layout", similarity=0.1),
        replace(PLAIN, reference="4", grade="near", probability=0.6, similarity=0.2),
        replace(PLAIN, reference="5", grade="near", probability=0.9, refused="not in place"),
        replace(PLAIN, reference="6", grade="", probability=None, similarity=0.99),
    ]
    order = []
    while hits:
        chosen = best(hits)
        order.append(chosen.reference)
        hits.remove(chosen)
    assert order == ["4", "3", "5", "2", "1", "6"]
    assert best([]) is None
    # what people said comes before what the machine did
    machine = replace(PLAIN, grade="near", probability=0.99)
    person = replace(PLAIN, grade="near", probability=1.0, judged="human", reference="z")
    assert best([machine, person]) == person


@given(
    st.lists(
        st.builds(
            Hit,
            st.just("a"),
            st.sampled_from("st"),
            st.sampled_from("123"),
            st.one_of(st.just(math.nan), st.floats(-1, 1)),
            st.sampled_from(["exact", "near", "similar", "different", "layout", ""]),
            st.one_of(st.none(), st.floats(0, 1)),
            refused=st.sampled_from(["", "no"]),
        ),
        min_size=1,
        max_size=8,
    )
)
def test_the_order_of_hits_never_matters(hits):
    one, other = best(hits), best(hits[::-1])
    assert counts(one) == any(counts(hit) for hit in hits)
    assert (one.source, one.reference, one.grade) == (other.source, other.reference, other.grade)


def test_families_are_prompts_and_shared_sources():
    prompts = ["a", "a", "b", "c", ""]
    assert families(prompts, [None, "x", "x", None, None]).tolist() == [0, 0, 0, 1, 2]
    assert families([], []).tolist() == []


@pytest.mark.parametrize(
    ("text", "note"),
    [
        (
            "reference,category\nastronaut.png,Human\nnobody.png,artwork\n",
            "rows of categories.csv about no memorized image: 1",
        ),
        (
            "prompt,category\n'=a space poster,artwork\nan astronaut,human\n",
            "memorized image 0 has several categories in categories.csv: human, artwork; the first"
            " is taken",
        ),
    ],
)
def test_memorized_images_have_categories(traced, tmp_path, text, note):
    """By reference or by prompt, which may begin like a formula."""
    (tmp_path / "categories.csv").write_text(text)
    told = read_categories(tmp_path / "categories.csv").applied_to(traced)
    assert [each.category for each in told.originals] == ["human", ""]
    assert told.notes == (note,)
    for wrong, said in (
        ("name,category\n", "needs category, and one of reference, image, prompt"),
        ("image,category\na,cat\n", "line 2: category is one of commercial product, human,"),
    ):
        (tmp_path / "categories.csv").write_text(wrong)
        with pytest.raises(VisleakError, match=said):
            read_categories(tmp_path / "categories.csv")
