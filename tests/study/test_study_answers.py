"""What leaks, read from the audits' tables, against plain set arithmetic on the same tables."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from study_making import SETS, carried_out, crop, sets_of, table, write_pictures

from visleak.study.config import Comparison
from visleak.study.results import RATES
from visleak.study.running import Leaks, leaks_of, together

#: More leaks, blank images on both sides, a repeat within the queries.
GRADED = "verify = true\nwithin = true"


@pytest.fixture(scope="module")
def root(tmp_path_factory, natural):
    root = tmp_path_factory.mktemp("answers")
    write_pictures(root, natural, SETS)
    crop(natural, 0).save(root / "one/test/a-repeat.jpg", quality=20)
    crop(natural, 3).rotate(3).save(root / "one/test/a-turn.jpg")
    for name in ("one/test", "one/train", "crawl"):
        Image.new("RGB", (72, 72), (90, 90, 90)).save(root / name / "blank.png")
    (root / "one/test/broken.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    return root


@pytest.fixture(scope="module")
def result(root):
    return carried_out(root, sets_of(GRADED))


def audits_of(result):
    return list({id(audit): audit for audit in result.run.audits.values()}.values())


def test_a_cell_is_what_its_audit_says(result, root):
    """The audit counts from its arrays, the study from its tables."""
    assert len(result.cells) == 3
    for cell in result.cells:
        summary = json.loads((root / "out" / cell.audit / "audit.json").read_text())
        (stored,) = summary["comparisons"]
        assert stored["reference_set"] == cell.comparison.reference
        for name in RATES:
            assert cell.rates[name].as_dict() == stored["rates"][name], name
        assert cell.comparison.coverage == stored["coverage"]


def brute(result, union, column, *words):
    """Return the images that leak, by going through all rows of all tables."""
    pairs = (row for audit in audits_of(result) for row in audit.pairs().to_pylist())
    mine = [row for row in pairs if row["reference_set"] in union.references]
    return {row["query"] for row in mine if row[column] in words} - {"blank.png"}


def test_unions_are_unions_of_images(result):
    """An image leaks if it leaks into any; it is hard if it is hard in any."""
    assert [union.coverage for union in result.unions] == ["intra", "inter", "any"]
    for union in result.unions:
        hard = brute(result, union, "degree", "hard")
        either = brute(result, union, "degree", "hard", "soft")
        near = brute(result, union, "grade", "exact", "near")
        assert union.rates["hard"].count == len(hard)
        assert union.rates["soft"].count == len(either - hard)
        assert union.rates["hard_or_soft"].count == len(either)
        assert union.rates["near_or_exact"].count == len(near)
        assert union.rates["hard"].total == 8


def test_what_is_planted_is_what_comes_out(result):
    """Not only consistent: equal images of different sets, and nothing else, are exact."""
    exact = {c.comparison.reference: c.rates["exact"].count for c in result.cells}
    assert exact == {"one-train": 2, "two-train": 2, "crawl": 2}
    everything = next(u for u in result.unions if u.coverage == "any")
    # 0, 1 (in two of them), 6, 7, 8, and the repeat of 0, which is a near copy of train's 0 too
    assert everything.rates["exact"].count == 5
    assert everything.rates["near_or_exact"].count >= 6


def test_repeats_within_are_counted_apart(result):
    """The repeat stands in no table of an audit against a reference."""
    (repeats,) = result.repeats
    assert (repeats.query, repeats.pairs, repeats.images) == ("one-test", 1, 2)
    for audit in audits_of(result):
        assert "within" not in audit.pairs()["coverage"].to_pylist()


codes = st.dictionaries(st.sampled_from("abcdefgh"), st.integers(0, 1))


@given(st.lists(codes, min_size=1, max_size=4))
def test_union_against_set_arithmetic(parts):
    """For any leaks: hard is the union of the hard, soft what is soft in some and hard in none."""
    leaks = [Leaks(8, part, {}, True, True) for part in parts]
    hard = {image for part in parts for image, code in part.items() if code == 0}
    both = {image for part in parts for image in part}
    rates = together(leaks).rates()
    assert rates["hard"].count == len(hard)
    assert rates["soft"].count == len(both - hard)
    assert rates["hard_or_soft"].count == len(both)


def test_a_union_over_what_was_not_looked_at_is_not_known():
    """Embeddings have no grade: saying zero would be a claim."""
    graded = Leaks(4, {"a": 0}, {"a": 1}, True, True)
    vectors = Leaks(4, {"b": 1}, {}, True, False)
    rates = together([graded, vectors]).rates()
    assert rates["near_or_exact"] is None
    assert rates["hard_or_soft"].count == 2
    unmeasured = Leaks(4, {}, {"c": 0}, False, True)
    assert together([graded, unmeasured]).rates()["hard"] is None


@pytest.fixture
def releases(tmp_path, natural):
    """A val set whose images are also in train, named after numbers; one more leaks in fact."""
    write_pictures(tmp_path, natural, {"val": [0, 1, 2, 3], "train": [0, 1, 2, 5]})
    for path in list((tmp_path / "val").iterdir()):
        path.rename(path.with_name(f"VAL_{path.name}"))
    # another image of train shows what val's number 3 shows
    crop(natural, 3).save(tmp_path / "train" / "99.png")
    return tmp_path


@pytest.mark.parametrize(
    ("contains", "pairs", "leaks"),
    [
        (None, 0, 4),
        ([{"set": "val", "match": "id"}], 0, 4),
        ([{"set": "val", "match": r"/(\d+)\.png$/"}], 3, 1),
    ],
)
def test_own_copies_are_left_out_by_id(releases, contains, pairs, leaks):
    """Of four images three are known to be in both sets; the fourth is a finding."""
    text = "[audit]\nverify = false\n" + table("val", dataset="d", roles=["B"], source="val")
    text += table("train", dataset="d", roles=["T"], source="train", contains=contains)
    result = carried_out(releases, text)
    assert result.unions[-1].rates["hard"].count == leaks
    assert result.cells[0].own == pairs
    notes = [note for note in result.notes if "images in common" in note]
    assert len(notes) == (1 if contains else 0)


def test_a_sample_is_the_same_in_every_audit(root):
    """Else the union would be over different images."""
    text = sets_of("verify = false\nlocal = false\nwithin = true\nsample = 4")
    result = carried_out(root, text, out="sampled")
    tables = [audit.images().to_pylist() for audit in audits_of(result)]
    drawn = {frozenset(r["id"] for r in table if r["set"] == "one-test") for table in tables}
    assert len(drawn) == 1
    assert result.unions[-1].rates["hard"].total == len(next(iter(drawn)))
    assert any("a sample of 4 images of each benchmark" in note for note in result.notes)
    # a set alone would be compared whole
    assert result.repeats == ()
    assert "repeats within the benchmarks: not looked for in a sample" in result.notes


def test_reading_is_by_name_not_by_order(result):
    """A comparison that an audit does not hold is no silent zero."""
    with pytest.raises(KeyError):
        leaks_of(audits_of(result)[0], [Comparison("one-test", "elsewhere", "inter")])
