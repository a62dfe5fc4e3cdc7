"""Verdicts from and to files: what is known is taken, what is wrong is refused whole."""

import csv
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refusals import refused
from toy_audit import Image, Pair, digest_of, split_audit
from visleak.errors import UsageError, VisleakError
from visleak.records import GRADES
from visleak.storage import read_summary, write_json
from visleak.verdicts import Ledger, Verdict, consensus_of, judged_pairs, read_verdicts
from visleak.verdicts.exchange import export_verdicts, import_verdicts, verdicts_of
from visleak.verdicts.ledger import FILE

TEST = [Image(str(n), label="cat" if n < 5 else "dog") for n in range(12)]
TRAIN = [Image(str(n)) for n in range(100, 112)]
PAIRS = [
    Pair("0", "100", "exact", 1.0),
    Pair("1", "101", "near", 0.9),
    Pair("2", "102", "similar", 0.8),
    Pair("3", "103", "different", 0.7),
    # the machine has the lower id first, as text
    Pair("10", "9", "near", 0.875, within=True),
]


@pytest.fixture
def folder(tmp_path):
    return split_audit(tmp_path / "audit", TEST, TRAIN, PAIRS)


def listed(path, *rows, header="TestID,TrainID,Distance,Judgment"):
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


def cells(path):
    with path.open(newline="") as lines:
        return list(csv.reader(lines))


def test_a_list_is_taken_by_content(folder, tmp_path):
    """Columns in any order, a mark before UTF-8, lines of Windows, and a pair judged twice."""
    path = tmp_path / "barz.csv"
    header = b"\xef\xbb\xbfJudgment, TrainID,Agreed,TestID,Distance,Source"
    path.write_bytes(header + b"\r\n1,100,1,0,0.1,pooled\r\n\r\n3,104,,4,,\r\n2,100,,0,,\r\n")
    found = import_verdicts(folder, path)
    assert (found.rows, found.added, found.repeated, found.unknown) == (3, 2, 1, 0)
    assert found.ignored == ("Agreed", "Source")
    first = read_verdicts(folder)[0]
    assert first.key == tuple(sorted((digest_of("test", TEST[0]), digest_of("train", TRAIN[0]))))
    ends = (first.query_set, first.query, first.reference_set, first.reference)
    assert ends == ("test", "0", "train", "100")
    said = {(v.query, v.judgment, v.reviewer) for v in read_verdicts(folder)}
    assert said == {("0", "similar", "barz"), ("4", "different", "barz")}


def test_importing_twice_changes_nothing(folder, tmp_path):
    path = listed(tmp_path / "list.csv", "0,100,0.1,1", "1,101,0.2,2")
    import_verdicts(folder, path)
    before = read_verdicts(folder)
    assert import_verdicts(folder, path).known == 2
    assert read_verdicts(folder) == before
    # the same list with another word is a change of mind, by the same reviewer only
    listed(path, "0,100,0.1,2", "1,101,0.2,2")
    assert import_verdicts(folder, path).added == 1
    assert import_verdicts(folder, path, reviewer="Ben").added == 2
    assert [v.reviewer for v in read_verdicts(folder)] == ["list", "list", "Ben", "Ben"]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("0,100,0.1,4", "Judgment must be 0 exact, 1 near, 2 similar or 3 different; got '4'"),
        (",100,0.1,1", "TestID is empty"),
        ("0,100,-1,1", "Distance must be a number of 0 or more, or empty; got '-1'"),
        ("0,100,far,1", "Distance must be a number of 0 or more, or empty; got 'far'"),
        ("0,100,nan,1", "Distance must be a number of 0 or more, or empty; got 'nan'"),
    ],
)
def test_a_wrong_row_stops_all(folder, tmp_path, row, said):
    path = listed(tmp_path / "list.csv", "1,101,0.1,1", row)
    refused(VisleakError, f"^{path}, line 3: .*{said}", folder, import_verdicts, path=path)
    assert not (folder / FILE).exists()


def test_files_that_are_no_list(folder, tmp_path):
    path = listed(tmp_path / "other.csv", "1,2", header="a,b")
    refused(VisleakError, "must have the columns TestID", folder, import_verdicts, path=path)
    refused(UsageError, "is not a file", folder, import_verdicts, path=tmp_path)


def test_ids_that_the_audit_does_not_have(folder, tmp_path):
    rows = [f"x{n},100,,1" for n in range(7)]
    path = listed(tmp_path / "list.csv", "0,100,,1", *rows)
    found = import_verdicts(folder, path)
    assert (found.added, found.missing) == (1, tuple(f"x{n}" for n in range(7)))
    other = split_audit(tmp_path / "strict", TEST, TRAIN, PAIRS)
    refused(VisleakError, r"does not have \('x0'", other, import_verdicts, path=path, strict=True)
    path = listed(tmp_path / "strangers.csv", *rows)
    refused(VisleakError, r"none of the 7 rows of .* is about", other, import_verdicts, path=path)
    assert read_verdicts(other) == ()


def test_which_set_a_column_is_of(folder, tmp_path):
    path = listed(tmp_path / "list.csv", "0,100,,1")
    for arguments, said in (
        ({"train": "test"}, "--train must be one of train; got 'test'"),
        ({"within": True, "train": "train"}, "leave out --train"),
    ):
        refused(UsageError, said, folder, import_verdicts, path=path, **arguments)
    alone = split_audit(tmp_path / "alone", TEST, ())
    refused(UsageError, "compared a set with itself alone; give", alone, import_verdicts, path=path)
    apart = split_audit(tmp_path / "apart", TEST, TRAIN, within=False)
    refused(UsageError, "did not look for repeats", apart, import_verdicts, path=path, within=True)
    summary = read_summary(folder).as_dict()
    summary["comparisons"].append(summary["comparisons"][0] | {"reference_set": "web"})
    write_json(folder / "audit.json", summary)
    refused(UsageError, "has one set; choose with --train", folder, import_verdicts, path=path)
    assert import_verdicts(folder, path, train="train").added == 1


def test_within_keeps_which_of_the_two_is_to_go(folder, tmp_path):
    path = listed(tmp_path / "list.csv", "9,10,0.3,1", "4,5,0.3,2")
    assert import_verdicts(folder, path, within=True).added == 2
    done = export_verdicts(folder, tmp_path / "out.csv")
    assert done.files[1] == tmp_path / "out_within_test.csv"
    assert [row[:2] for row in cells(done.files[1])[1:]] == [["9", "10"], ["4", "5"]]
    # nobody measured the second pair: no distance, and it stands last
    assert [row[2:] for row in cells(done.files[1])[1:]] == [["0.5", "1"], ["", "2"]]


def test_sets_of_embeddings_are_refused(tmp_path):
    nothing = {("train", image.id): None for image in TRAIN}
    folder = split_audit(tmp_path / "audit", TEST, TRAIN, digests=nothing)
    path = listed(tmp_path / "list.csv", "0,100,,1")
    refused(UsageError, "set 'train' holds embeddings only", folder, import_verdicts, path=path)


def test_verdicts_of_another_folder_under_other_names(folder, tmp_path):
    """Contents tell who is who: the other audit calls the images otherwise, and has more."""
    import_verdicts(folder, listed(tmp_path / "list.csv", "0,100,,2", "1,101,,3"), reviewer="Ada")
    test = [Image("renamed", content="test/0"), Image("b")]
    train, pairs = [Image("c", content="train/100")], [Pair("renamed", "c", "near")]
    other = split_audit(tmp_path / "other", test, train, pairs)
    found = import_verdicts(other, folder / "verdicts.csv")
    assert (found.rows, found.added, found.unknown, found.reviewers) == (2, 1, 1, ("Ada",))
    (row,) = judged_pairs(other).to_pylist()
    assert (row["query"], row["grade"], row["machine_grade"]) == ("renamed", "similar", "near")
    assert import_verdicts(other, folder / "verdicts.csv").added == 0
    assert verdicts_of(other, folder / "verdicts.csv") == read_verdicts(other)
    words, file = "names its reviewers and images itself; leave out --", folder / "verdicts.csv"
    refused(UsageError, words, other, import_verdicts, path=file, within=True)


def test_an_older_word_never_replaces_a_newer_one(folder, tmp_path):
    old = Path(shutil.copytree(folder, tmp_path / "old"))
    pair = (digest_of("test", TEST[0]), digest_of("train", TRAIN[0]))
    with Ledger(old) as ledger:
        ledger.add(Verdict.of(*pair, "near", "Ada", time="2026-01-01T00:00:00.000+00:00"))
    with Ledger(folder) as ledger:
        ledger.add(Verdict.of(*pair, "different", "Ada", time="2026-01-02T00:00:00.000+00:00"))
    found = import_verdicts(folder, old / "verdicts.csv")
    assert (found.added, found.known) == (0, 1)
    assert [v.judgment for v in read_verdicts(folder)] == ["different"]
    assert import_verdicts(old, folder / "verdicts.csv").added == 1
    assert [v.judgment for v in read_verdicts(old)] == ["different"]


def test_export_leaves_disputed_pairs_out(folder, tmp_path):
    out = tmp_path / "out.csv"
    refused(UsageError, r"no pair was judged in .* yet", folder, export_verdicts, out=out)
    import_verdicts(folder, listed(tmp_path / "ada.csv", "0,100,,1", "1,101,,3", "3,103,,3"))
    import_verdicts(folder, listed(tmp_path / "ben.csv", "0,100,,3", "1,101,,2"))
    done = export_verdicts(folder, out)
    assert (done.written, done.disputed) == (2, 1)
    # of equally many the weaker one stands
    assert [(row[0], row[3]) for row in cells(out)[1:]] == [("1", "3"), ("3", "3")]
    refused(UsageError, r"exists; .* --force", folder, export_verdicts, out=out)
    refused(UsageError, "reviewer must be one of", folder, export_verdicts, out=out, force=True,
            reviewer="Cy")  # fmt: skip
    assert export_verdicts(folder, out, reviewer="ben", force=True).written == 2
    assert [(row[0], row[3]) for row in cells(out)[1:]] == [("0", "3"), ("1", "2")]
    out.unlink()
    refused(UsageError, r"within_test\.csv exists", folder, export_verdicts, out=out)
    done = export_verdicts(folder, out, as_="csv", force=True)
    assert (done.files, done.written, len(cells(out))) == ((out,), 5, 6)
    below = out / "below.csv"
    refused(VisleakError, "cannot be written", folder, export_verdicts, out=below, as_="csv")
    refused(UsageError, "the format must be one of", folder, export_verdicts, out=out, as_="xml")


#: Ids that spreadsheets, readers of lines and readers of cells all get wrong.
NAMES = ["=cmd()", "'q", "-1", 'a,"b"', "c\nd", " e ", "\N{PILE OF POO}", "7"]


@settings(max_examples=25)
@given(
    st.dictionaries(
        st.tuples(st.sampled_from(NAMES), st.sampled_from(NAMES), st.booleans()),
        st.sampled_from(GRADES),
        max_size=12,
    )
)
def test_what_is_exported_comes_back(said):
    images = [Image(name) for name in NAMES]
    with tempfile.TemporaryDirectory() as place:
        first = split_audit(Path(place) / "a", images, images, [Pair("7", "7", "near")])
        second = split_audit(Path(place) / "b", images, images)
        whole = {}
        for (query, reference, within), judgment in said.items():
            other = "test" if within else "train"
            pair = (digest_of("test", Image(query)), digest_of(other, Image(reference)))
            if pair[0] != pair[1]:
                verdict = Verdict.of(*pair, judgment, "out", query_set="test", query=query)
                whole[verdict.key] = verdict
        with Ledger(first) as ledger:
            ledger.add(*whole.values())
        if not whole:
            return
        files = export_verdicts(first, Path(place) / "out.csv").files
        import_verdicts(second, files[0])
        import_verdicts(second, files[1], reviewer="out", within=True)
        back = consensus_of(read_verdicts(second))
        grades = {key: each.grade for key, each in back.items()}
        assert grades == {key: verdict.judgment for key, verdict in whole.items()}
