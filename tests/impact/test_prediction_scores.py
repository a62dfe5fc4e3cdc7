"""Predictions become the same scores whatever file they are in, or are refused in one line."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from predictions_making import IDS, LABELS, as_csv, as_npz, as_parquet, benchmark, scores_of

from refusals import refusal
from visleak.errors import VisleakError
from visleak.impact.evaluators.predictions import write_predictions

#: Text that numpy's arrays can hold: NUL at the end is cut off there.
TEXT = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), min_size=1, max_size=6
)
ID = st.one_of(
    TEXT,
    st.from_regex(r"[=+@'-]{1,2}[a-z,\"]{1,3}", fullmatch=True),
    st.from_regex(r"0{0,3}[0-9]{1,4}", fullmatch=True),
)


def accuracy(scores):
    return scores.values["accuracy"].tolist()


def plain(text):
    """Return a label as it is compared, for ASCII."""
    return text.lower().replace("_", " ").replace("-", " ").strip(" \t\n\r\x0b\x0c")


@settings(max_examples=40)
@given(data=st.data())
def test_every_kind_of_file_gives_the_same_scores(data, tmp_path_factory):
    ids = data.draw(st.lists(ID, min_size=1, max_size=12, unique=True))
    classes = data.draw(st.lists(TEXT, min_size=1, max_size=4, unique=True))
    size = len(ids)
    some = st.lists(st.sampled_from(classes), min_size=size, max_size=size)
    labels, predicted = data.draw(some), data.draw(some)
    loss = data.draw(st.lists(st.floats(-1e6, 1e6), min_size=size, max_size=size))
    order = data.draw(st.permutations(range(size)))
    columns = {
        "id": [ids[i] for i in order],
        "label": [labels[i] for i in order],
        "prediction": [predicted[i] for i in order],
        "loss": [loss[i] for i in order],
    }
    folder = tmp_path_factory.mktemp("kinds")
    others = {name: values for name, values in columns.items() if name != "id"}
    files = [
        as_csv(folder / "m.csv", columns),
        as_csv(folder / "m.tsv", columns),
        as_parquet(folder / "m.parquet", columns),
        as_npz(folder / "m.npz", columns),
        write_predictions(folder / "e.parquet", columns["id"], others, {}),
    ]
    results = [scores_of(file, benchmark(ids, labels), name="m") for file in files]
    first, notes = results[0]
    for label, guess, right in zip(labels, predicted, accuracy(first), strict=True):
        if label == guess or (label + guess).isascii():
            assert right == (plain(label) == plain(guess))
    np.testing.assert_allclose(first.values["loss"], loss, rtol=1e-15)
    for scores, said in results[1:]:
        assert (scores.values.keys(), said) == (first.values.keys(), notes)
        for name, values in scores.values.items():
            np.testing.assert_array_equal(values, first.values[name])


def test_class_scores_of_every_kind_agree(tmp_path):
    random = np.random.default_rng(1)
    names = [f"class {number}" for number in range(9)]
    truth = random.integers(0, 9, 20)
    scores = random.integers(0, 4, (20, 9)).astype(np.float32) / 4
    order = random.permutation(20)
    ids = [IDS[i] for i in order]
    mixed = scores[order]
    columns = {f"score:{name}": mixed[:, place].tolist() for place, name in enumerate(names)}
    fixed = pa.FixedSizeListArray.from_arrays(mixed.reshape(-1), 9)
    turned = np.asfortranarray(mixed)
    files = [
        as_csv(tmp_path / "m.csv", {"id": ids, **columns}),
        as_parquet(tmp_path / "m.parquet", {"id": ids, "scores": mixed.tolist()}, names),
        as_parquet(tmp_path / "fixed.parquet", {"id": ids, "scores": fixed}, names),
        as_npz(tmp_path / "m.npz", {"id": ids, "scores": mixed, "classes": names}),
        as_npz(tmp_path / "f.npz", {"id": ids, "scores": turned, "classes": names}),
    ]
    labels = [names[i] for i in truth]
    rank = [
        sum(s[k] > s[t] or (s[k] == s[t] and k < t) for k in range(9))
        for s, t in zip(scores, truth, strict=True)
    ]
    for file in files:
        found, notes = scores_of(file, benchmark(IDS, labels))
        assert accuracy(found) == [float(place < 1) for place in rank]
        assert found.values["top-5"].tolist() == [float(place < 5) for place in rank]
        assert notes == ()


def test_ranked_predictions_of_both_kinds_agree(tmp_path):
    """Parquet has lists, npz a table; both give top-1 and top-5 of the first five."""
    ranked = [["a", "b", "c", "d", label, label] for label in LABELS]
    ranked[0] = ["cat", "b", "c", "d", "e", "f"]
    ranked[1] = ["a", "b", "c", "d", "e", "dog"]
    for file in (
        as_parquet(tmp_path / "m.parquet", {"id": IDS, "predictions": ranked}),
        as_npz(tmp_path / "m.npz", {"id": IDS, "predictions": ranked}),
    ):
        found, notes = scores_of(file, benchmark())
        assert accuracy(found) == [1.0] + [0.0] * 19
        assert found.values["top-5"].tolist() == [1.0, 0.0] + [1.0] * 18
        assert "19 of 20 predictions (95.0 %) are not a label of set 'test'" in notes[0]


@pytest.mark.parametrize("kind", [pa.uint64(), pa.float64(), pa.large_string()])
@pytest.mark.parametrize("dictionary", [False, True])
def test_whole_numbers_are_ids_in_decimal(tmp_path, kind, dictionary):
    """Whatever keeps them, ids read as in the audit, never as 1.0."""
    ids = pa.array([str(number) for number in range(20)]).cast(pa.int64()).cast(kind)
    column = ids.dictionary_encode() if dictionary else ids
    file = as_parquet(tmp_path / "m.parquet", {"id": column, "correct": [True] * 20})
    scores, _ = scores_of(file, benchmark([str(n) for n in range(20)]))
    assert accuracy(scores) == [1.0] * 20


def test_the_model_is_called_after_its_file(tmp_path):
    file = as_csv(tmp_path / "res.net.csv", {"id": IDS[:19], "correct": [1] * 19})
    assert scores_of(file, benchmark())[0].model == "res.net"
    _, notes = scores_of(file, benchmark(), name="a\n\x1b[1m")
    assert notes[0].startswith(r"'a\n\x1b[1m': 19 of")


@pytest.fixture
def read(tmp_path):
    """Return scores and notes of columns in a CSV file."""

    def read(columns, test=None, **options):
        file = as_csv(tmp_path / "a.csv", {"id": IDS} | columns)
        return scores_of(file, test or benchmark(), **options)

    return read


def test_metrics_are_chosen_and_their_direction_kept(read):
    columns = {"ap": [0.5] * 20, "loss": range(20), "confidence": [1] * 20}
    columns |= {"": range(20), "correct": ["True"] * 20}
    scores, notes = read(columns)
    assert list(scores.values) == ["accuracy", "ap", "loss"]
    assert (scores.lower, notes) == ({"loss"}, ("a: lower is better by their names: 'loss'",))
    scores, _ = read(columns, metrics=["loss", "ap"], lower=["accuracy"])
    assert list(scores.values) == ["loss", "ap"]
    assert scores.lower == frozenset({"loss"})


@pytest.mark.parametrize("others", [["NaN", *["1"] * 19], [1] * 20])
def test_an_image_that_lacks_one_metric_lacks_all(read, others):
    scores, notes = read({"ap": [None, *[0.5] * 19], "iou": others})
    assert np.isnan(scores.values["iou"]).tolist() == [True] + [False] * 19
    torn = "a: images that lack some of the metrics 'ap', 'iou' and are ignored in all: 1"
    assert notes[: len(notes) - 1] == (() if others[0] == "NaN" else (torn,))


def test_labels_of_the_file_come_first(read):
    scores, notes = read({"label": [0, 1] * 10, "prediction": [0] * 20})
    assert (scores.values["accuracy"].mean(), notes) == (0.5, ())
    assert accuracy(read({"label": [None] * 20, "prediction": LABELS})[0]) == [1.0] * 20
    scores, notes = read({"label": ["Dog", *LABELS[1:]], "prediction": ["cat"] * 20})
    assert accuracy(scores)[0] == 0.0
    assert "`label` differs from the audited labels for 1 of 20 images" in notes[0]


def test_an_image_without_a_label_has_no_answer(read):
    scores, notes = read({"prediction": LABELS}, benchmark(IDS, [None, *LABELS[1:]]))
    assert np.isnan(accuracy(scores)[0])
    assert "not in the file: 0, without a value: 1, such as 'test/000.png'" in notes[0]


def test_correct_stands_where_predictions_cannot_be_compared(read):
    scores, notes = read({"prediction": [0, 1] * 10, "correct": [1] * 20})
    assert accuracy(scores) == [1.0] * 20
    assert "a: not used: none of its predictions (`prediction`) is a label" in notes[0]


def test_labels_that_are_no_class_count_as_wrong(read):
    scores, (note,) = read({"score:Cat": [0.5] * 20, "score:bird": [0.1] * 20})
    assert accuracy(scores) == [1.0, 0.0] * 10
    assert note.startswith("a: 10 of 20 labels are not among its 2 classes, such as 'dog'")


def test_classes_without_names_are_called_by_number(tmp_path):
    columns = {"id": IDS, "scores": np.tile(np.eye(2), (10, 1)), "label": [0, 1] * 10}
    scores, notes = scores_of(as_npz(tmp_path / "a.npz", columns), benchmark())
    assert (accuracy(scores), notes) == ([1.0] * 20, ())


def test_percentages_are_read_as_shares(read):
    scores, notes = read({"ap": ["50%", "100 %", "", "0%"] * 5}, allow_partial=True)
    assert scores.values["ap"][:2].tolist() == [0.5, 1.0]
    assert any("'ap' holds percentages" in note for note in notes)


def test_shares_in_percent_without_a_sign_are_shares_all_the_same(read):
    scores, notes = read({"mAP@0.5": [50, 100, 0, 7.5] * 5, "score": [3, 98] * 10})
    assert scores.values["mAP@0.5"][:4].tolist() == [0.5, 1.0, 0.0, 0.075]
    assert scores.values["score"][:2].tolist() == [3, 98]
    assert any("'mAP@0.5' is a share and holds values up to 100" in note for note in notes)
    assert any("'score' is between 3 and 98 and is taken in its own" in note for note in notes)


REFUSED = [
    ({"f1": [0.5, 50] * 10}, {}, "column 'f1' must hold shares from 0 to 1, or percentages"),
    ({"iou": [120] * 20}, {}, "percentages with a percent sign: row 0 holds '120'"),
    ({"iou": [-5, 50] * 10}, {}, "percent sign: row 1 holds '50', row 0 holds '-5'"),
    ({"prediction": [0, 1] * 10}, {}, "none of its predictions (`prediction`) is a label:"),
    ({"prediction": ["cat"] * 20, "label": [0, 1] * 10}, {}, "use the same class names in"),
    ({"score:0": [1] * 20, "score:1": [0] * 20}, {}, "no label is one of its 2 classes:"),
    (
        {"correct": [1] * 20, "prediction": [*LABELS[:19], "cat"]},
        {},
        "accuracy of row 19 (id 'test/019.png') is 1 by `correct` and 0 by `prediction`",
    ),
    ({"correct": [2] * 20}, {}, "`correct` must be 0, 1, true or false; row 0 holds '2'"),
    ({"ap": ["50%", "0.5"] * 10}, {}, "column 'ap' mixes percentages and plain numbers: row"),
    ({"correct": ["50%"] * 20}, {}, "0, 1, true or false; row 0 holds '50%'"),
    ({"ap": [1.0, "inf"] * 10}, {}, "metric 'ap' of row 1 (id 'test/001.png') is infinite;"),
    ({"ap": [1] * 20, "word": ["x"] * 20}, {"metrics": ["word"]}, "no metric 'word' (row 0 holds"),
    ({"ap": [1] * 20}, {"lower": ["l\nss"]}, r"has no metric 'l\nss'; it has 'ap'"),
    ({"word": ["x"] * 20}, {}, "holds nothing to score: it needs `correct`, `prediction`,"),
    ({"f1": ["0,25"] * 20}, {}, "it has 'f1'; 'f1' is not of numbers such as 0.5: row 0 holds '0"),
    ({"predictions": LABELS}, {}, "it has 'predictions'; `predictions` holds lists of"),
]


@pytest.mark.parametrize(("columns", "asked", "said"), REFUSED)
def test_what_does_not_fit_is_refused_in_one_line(tmp_path, columns, asked, said):
    file = as_csv(tmp_path / "a.csv", {"id": IDS, **columns})
    message = refusal(VisleakError, scores_of, file, benchmark(), **asked)
    assert message.startswith(f"{file}")
    assert said in message


def test_predictions_need_labels(tmp_path):
    file = as_csv(tmp_path / "a.csv", {"id": IDS, "prediction": LABELS, "ap": [1] * 20})
    for labels in (None, [None] * 20):
        said = refusal(VisleakError, scores_of, file, benchmark(IDS, labels))
        assert "`prediction` needs labels, and set 'test' has none" in said
    scores, _ = scores_of(file, benchmark(IDS, None), metrics=["ap"])
    assert list(scores.values) == ["ap"]


def test_the_first_of_the_ranked_must_be_the_prediction(tmp_path):
    ranked = [[label, "x"] for label in LABELS]
    ranked[3] = ["Cat", "dog"]
    columns = {"id": IDS, "prediction": LABELS, "predictions": ranked}
    file = as_parquet(tmp_path / "a.parquet", columns)
    said = refusal(VisleakError, scores_of, file, benchmark())
    assert "row 3 predicts 'dog' in `prediction` and first 'Cat' in" in said


def test_short_lists_have_no_top_five(tmp_path):
    lists = [[label, str(number)] for number, label in enumerate(LABELS)]
    file = as_parquet(tmp_path / "a.parquet", {"id": IDS, "predictions": lists})
    scores, notes = scores_of(file, benchmark())
    assert list(scores.values) == ["accuracy"]
    assert notes == ("a: its lists of predictions have at most 2, so there is no top-5",)
