"""Files of prompts, one by one: what they say, and what is said of files that lie."""

import json
import os
import pickle
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import refusals
from visleak.errors import UsageError, VisleakError
from visleak.memorization import read_prompts
from visleak.memorization.prompt_files.reading import sources_of

DATA = os.environ.get("VISLEAK_DATA")

#: The schema of MemBench's file: a nameless column, prompt, and urls as a literal of Python.
MEMBENCH = """\
,prompt,urls
0,red flag small,['https://a.example/flag.jpg?v=1']
1,"rug, striped","['https://b.example/rug.jpg', 'https://a.example/1.jpg']"
2,wall mural,"['https://b.example/rug.jpg']"
3,< i > caf\u00e9 < / i >,"[""https://c.example/it's.png""]"
"""


def wrote(folder, name, content):
    file = folder / name
    file.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8"))
    return file


def refusal(file, **options):
    message = refusals.refusal(VisleakError, read_prompts, file, **options)
    assert len(message) < 700
    return message.replace(str(file), "FILE")


def test_membench(tmp_path):
    prompts = read_prompts(wrote(tmp_path, "SD1_final.csv", MEMBENCH))
    assert prompts.texts == ("red flag small", "rug, striped", "wall mural", "< i > café < / i >")
    assert prompts.sources[1] == ("https://b.example/rug.jpg", "https://a.example/1.jpg")
    assert prompts.sources[3] == ("https://c.example/it's.png",)
    assert prompts.groups().tolist() == [0, 1, 1, 2]
    assert (prompts.labels, dict(prompts.columns), prompts.notes) == ((), {}, ())


@pytest.mark.parametrize(
    ("end", "mark", "last"), [("\n", "", ""), ("\r\n", "\ufeff", "\r\n"), ("\n", "\ufeff", "\n")]
)
def test_text_is_one_prompt_a_line(tmp_path, end, mark, last):
    # a line separator of Unicode ends no line
    texts = ("The No Limits, Podcast", '"quoted"', "a\u2028b")
    prompts = read_prompts(wrote(tmp_path, "list.txt", mark + end.join(texts) + last))
    assert prompts.texts == texts


def test_lines_of_json_as_webster_and_wen_write_them(tmp_path):
    rows = [
        {"caption": "Mothers influence", "index": 1, "url": "https://a.example/1.jpg"},
        {"caption": "Emoji \U0001f600", "index": 2, "url": None, "parts": [1, 2]},
    ]
    text = "\n".join(map(json.dumps, rows)) + "\n\n"
    prompts = read_prompts(wrote(tmp_path, "memorized.jsonl", text))
    assert prompts.texts == ("Mothers influence", "Emoji \U0001f600")
    assert prompts.sources == (("https://a.example/1.jpg",), ())
    assert dict(prompts.columns) == {"index": ("1", "2"), "parts": ("", "[1, 2]")}


@pytest.mark.parametrize(
    ("content", "texts", "sources"),
    [
        (["a", "b"], ("a", "b"), ()),
        ([{"prompt": "a", "urls": ["u"]}], ("a",), (("u",),)),
        ({"a": ["u", "v"], "b": "w"}, ("a", "b"), (("u", "v"), ("w",))),
    ],
)
def test_json(tmp_path, content, texts, sources):
    prompts = read_prompts(wrote(tmp_path, "list.json", json.dumps(content)))
    assert (prompts.texts, prompts.sources) == (texts, sources)


def test_parquet(tmp_path):
    urls = pa.array([["u", "v"], None], pa.list_(pa.string()))
    columns = {"caption": ["a", "b"], "urls": urls, "label": [True, None], "d_l2": [1.25, None]}
    pq.write_table(pa.table(columns), tmp_path / "own.parquet")
    prompts = read_prompts(tmp_path / "own.parquet")
    assert (prompts.texts, prompts.labels) == (("a", "b"), (True, None))
    assert prompts.sources == (("u", "v"), ())
    assert dict(prompts.columns) == {"d_l2": ("1.25", "")}


def test_tables_of_other_names(tmp_path):
    table = "Text\tscore\tmemorized\na b\t0.5\tTrue\nc d\t-3\t\n'=e\t1\tno\n"
    prompts = read_prompts(wrote(tmp_path, "list.tsv", table))
    assert prompts.texts == ("a b", "c d", "=e")
    assert prompts.labels == (True, None, False)
    assert dict(prompts.columns) == {"score": ("0.5", "-3", "1")}
    other = wrote(tmp_path, "other.csv", "prompt,mine\nx,y\n")
    assert read_prompts(other, column="mine").texts == ("y",)
    assert read_prompts(other, column="mine").columns == {"prompt": ("x",)}


def test_captions_of_coco_are_the_first_of_each_image(tmp_path):
    rows = [(3, "one"), (9, "two"), (3, "three"), (4, "two")]
    content = {"images": [], "annotations": [{"image_id": n, "caption": c} for n, c in rows]}
    prompts = read_prompts(wrote(tmp_path, "captions.json", json.dumps(content)))
    assert prompts.texts == ("one", "two")
    assert dict(prompts.columns) == {"image_id": ("3", "9")}


def test_legacy_pickles(tmp_path):
    for protocol in (4, 5):
        content = {"a": {"v", "u"}, "b": ["w"]}
        file = wrote(tmp_path, "urls.pickle", pickle.dumps(content, protocol))
        assert read_prompts(file).sources == (("u", "v"), ("w",))
    for protocol in range(6):
        file = wrote(tmp_path, "list.pkl", pickle.dumps(["a", "caf\u00e9"], protocol))
        assert read_prompts(file).texts == ("a", "café")


def test_equal_prompts_join_and_empty_ones_are_counted(tmp_path):
    file = wrote(
        tmp_path,
        "list.csv",
        "prompt,urls,label,n\n a,['u'],,1\n,,,\na,\"['v', 'u']\",1,2\nb,,0,3\n",
    )
    prompts = read_prompts(file)
    assert prompts.texts == ("a", "b")
    assert prompts.sources == (("u", "v"), ())
    assert prompts.labels == (True, False)
    assert dict(prompts.columns) == {"n": ("1", "3")}
    assert prompts.notes[0].startswith("prompts that came again: 1; images they name were joined")
    assert prompts.notes[1] == "empty prompts that were left out: 1"


#: Lists in lists, as JSON and as instructions of a pickle.
DEEP = "[" * 100_000 + "]" * 100_000
NESTED = b"]" * 100_000 + b"a" * 99_999


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", "\n \n", "FILE holds no prompts (2 empty ones)"),
        ("a.csv", "prompt,prompt\na,b\n", "FILE has more than one column 'prompt'; keep one"),
        ("a.csv", "n,prompt\n1,a\n2,red, flag\n", "FILE, line 3: 3 cells for 2 columns; put a"),
        ("a.csv", 'prompt\n"two\nlines"\n"never closed\n', "FILE, line 4: no CSV (unexpected"),
        ("a.csv", "prompt,urls\na,['u'\n", "FILE, line 2: images of a prompt are a flat list of"),
        ("a.csv", "prompt,label\na,cat\n", "FILE, line 2: a label is 1, 0, true, false, yes, no"),
        ("a.csv", "prompt,label\na,1\nb,\na,0\n", "FILE, line 4: this prompt is also at line 2"),
        ("a.txt", "a\nb\0c\n", "FILE, line 2: a prompt with a null byte; save the file as UTF-8"),
        ("a.txt", "a".encode("utf-16"), "FILE is not UTF-8 text (invalid start byte); save it"),
        ("a.jsonl", '"a"\n{"caption": 1}\n', "FILE, line 2: 'caption' must be text; got int"),
        ("a.jsonl", '"a"\n3\n', "FILE, line 2: a prompt is a text, or an object with prompt,"),
        ("a.jsonl", '"a"\n{"name": "b"}\n', "FILE, line 2 has no column prompt, caption, text;"),
        ("a.json", "3", "FILE is not a list of prompts: its JSON is 3"),
        ("a.json", DEEP, "FILE cannot be read as JSON"),
        ("a.jsonl", DEEP, "FILE, line 1: no JSON"),
        ("a.pickle", b"\x80\x04" + NESTED + b".", "FILE is not a list of prompts"),
        ("a.pickle", b"\x80\x04}X\x01\0\0\0a" + NESTED + b"s.", "images of a prompt are a list of"),
        ("a.json", '{"annotations": [{"image_id": 1}]}', "FILE, annotation 1: captions of COCO"),
        ("a.parquet", "no", "FILE cannot be read as Parquet: Parquet file size is 2 bytes,"),
        ("a.doc", "a", "prompts FILE: its ending must be one of .csv, .tsv, .txt,"),
    ],
)
def test_errors_name_the_line_and_what_to_do(tmp_path, name, content, message):
    assert message in refusal(wrote(tmp_path, name, content))


def test_errors_of_the_call(tmp_path):
    with pytest.raises(UsageError, match="is a folder; name a file in it"):
        read_prompts(tmp_path)
    with pytest.raises(UsageError, match="there is no such file"):
        read_prompts(tmp_path / "a.csv")
    for name, content, why in (
        ("b.csv", b"prompt\na\n", "has no such column; it has 'prompt'"),
        ("a.txt", b"a", "is a text file, which has no columns"),
        ("a.json", b'{"a": "u"}', "goes from prompt to images, without columns"),
        ("a.pkl", pickle.dumps(["a"]), "is a list of prompts, without columns"),
    ):
        said = refusal(wrote(tmp_path, name, content), column="x")
        assert said.startswith("--column 'x': FILE ")
        assert why in said


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.txt", "a.jsonl", "a.json", "a.pkl"])
@pytest.mark.parametrize("size", [10_000_000, 200_000])
def test_a_line_of_any_length_is_refused_where_it_stands(tmp_path, name, size):
    long = "x" * size
    contents = {".jsonl": json.dumps(long), ".json": json.dumps([long]), ".txt": long}
    contents |= {".pkl": pickle.dumps([long])}
    message = refusal(wrote(tmp_path, name, contents.get(Path(name).suffix, f"prompt\n{long}\n")))
    assert "characters" in message
    assert "line " in message or "entry 1" in message


def test_literals_that_are_bombs_reach_no_parser(monkeypatch):
    def never(text):
        raise AssertionError(f"parsed {text[:20]}")

    monkeypatch.setattr("ast.literal_eval", never)
    monkeypatch.setattr("json.loads", never)
    for cell in (
        "[" * 100_000,
        "[" + "-" * 100_000 + "1]",
        "[" + "'a'+" * 20_000 + "'a']",
        "[__import__('os').system('true')]",
        "['a' 'b']",
        "[b'a']",
        "['" + "\\" * 99_999 + "']",
    ):
        with pytest.raises(VisleakError, match="a flat list of texts"):
            sources_of(cell, "line 1")


class Evil:
    """What a pickle of it would do is run a command."""

    def __init__(self, target):
        self.target = target

    def __reduce__(self):
        return os.mkdir, (str(self.target),)


@pytest.mark.parametrize("protocol", range(6))
def test_a_pickle_cannot_do_anything(tmp_path, protocol):
    for content in (Evil(tmp_path / "done"), ["a", Evil(tmp_path / "done")]):
        file = wrote(tmp_path, "evil.pickle", pickle.dumps(content, protocol))
        message = refusal(file)
        assert "FILE cannot be read as a pickle of texts, lists, sets and dicts alone:" in message
        assert message.endswith("; write the prompts as CSV or JSON where you trust it")
    assert not (tmp_path / "done").exists()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x80\x04.",
        b"garbage",
        # numbers an object 2^31: memory is set aside for all numbers below
        b"\x80\x04]r\xff\xff\xff\x7f.",
        # the hash of a deeply nested tuple overflows the stack
        b"\x80\x04}" + b"(" * 200_000 + b"t" * 200_000 + b"X\x01\x00\x00\x00as.",
        b"\x80\x04" + b"(" * 500_000 + b"t" * 500_000 + b".",
        # extension registry, persistent ids, bytes set aside before they are read
        b"\x80\x02\x82\x01.",
        b"Pabc\n.",
        b"\x80\x05\x96\xff\xff\xff\xff\xff\xff\x00\x00.",
        # a text that claims to be longer than the file
        b"\x80\x04\x8d\xff\xff\xff\xff\xff\xff\x00\x00a.",
        b"\x80\x04\x95\xff\xff\xff\xff\xff\xff\x00\x00].",
        b"\x80\x04cposix\nsystem\n.",
        # a list that holds itself, as a prompt; a set in a set
        b"\x80\x04]\x94h\x00a.",
        b"\x80\x04\x8f(\x8f\x90.",
    ],
)
def test_damaged_and_hostile_pickles_are_refused_in_one_line(tmp_path, data):
    message = refusal(wrote(tmp_path, "a.pickle", data))
    assert message.startswith(("FILE cannot be read as a pickle", "FILE is not a list of prompts"))


def test_files_larger_than_any_list_are_refused(tmp_path, monkeypatch):
    images = [f"u{number}" for number in range(2000)]
    # each prompt names the one list of 2,000 images: small as a pickle, not as a table
    shared = pickle.dumps({f"p{number}": images for number in range(1000)})
    columns = [json.dumps({"prompt": str(number), f"c{number}": 1}) for number in range(200)]
    long = ["a" * 20]
    for limit, value, name, content, why in (
        ("MOST_SOURCES", 100_000, "a.pickle", shared, "more than 100,000 images are named; split"),
        ("MOST_COLUMNS", 100, "a.jsonl", "\n".join(columns), "line 101: more than 100 columns;"),
        ("MOST_BYTES", 10, "b.pickle", pickle.dumps(long), "bytes; pickles are read up to 10"),
        ("MOST_JSON_BYTES", 10, "a.json", json.dumps(long), "24 bytes; at most 10 are read: make"),
    ):
        monkeypatch.setattr(f"visleak.memorization.prompt_files.reading.{limit}", value)
        assert why in refusal(wrote(tmp_path, name, content))


TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=40)


@given(st.lists(TEXTS))
def test_whatever_is_a_text_is_a_prompt(tmp_path_factory, texts):
    expected = tuple(dict.fromkeys(text.strip() for text in texts if text.strip()))
    file = wrote(tmp_path_factory.mktemp("texts"), "a.json", json.dumps(["a text", *texts]))
    assert read_prompts(file).texts == tuple(dict.fromkeys(("a text", *expected)))


@pytest.mark.data
@pytest.mark.skipif(not DATA, reason="VISLEAK_DATA is not set: no prompts of MemBench")
def test_the_lists_of_the_papers():
    folder = Path(str(DATA)) / "membench"
    prompts = read_prompts(folder / "SD1_final.csv")
    assert (len(prompts), prompts.notes) == (3000, ())
    assert len({image for images in prompts.sources for image in images}) == 151
    sets = [frozenset(images) for images in prompts.sources]
    assert len(set(sets)) == 373
    assert max(map(sets.count, set(sets))) == 208
    assert len(set(prompts.groups())) == 53
    for name, count in (("sd1_mem345", 345), ("sd2_mem219", 219), ("group_nomem500", 500)):
        assert len(read_prompts(folder / f"{name}.txt")) == count
