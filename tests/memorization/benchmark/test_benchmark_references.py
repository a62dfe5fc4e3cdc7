"""Which files are the memorized images of a prompt."""

import numpy as np
import pytest
from PIL import Image

from refusals import refusal
from visleak.errors import UsageError, VisleakError
from visleak.memorization.benchmark import references_of
from visleak.memorization.benchmark.references import last_part, read_reference
from visleak.memorization.prompts import Prompts


def made(folder, *names):
    for number, name in enumerate(names):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((4, 4, 3), 20 * number, np.uint8)).save(path)
    return folder


def prompts(**sources):
    return Prompts(tuple(sources), sources=tuple(sources.values()))


def test_a_file_is_named_like_a_source(tmp_path):
    folder = made(tmp_path, "whole.png", "stem.jpg", "red bag.png", "17.png", "sub/deep.png")
    found = references_of(
        prompts(
            a=("whole.png",),
            b=("stem",),
            c=("https://cdn.example/x/red%20bag.png?width=300#top",),
            d=("17", "whole.png"),
            e=("sub/deep.png",),
            f=("https://cdn.example/17.webp",),
            g=("https://other.example/17.webp",),
        ),
        folder,
    )
    (note,) = found.notes
    assert note.startswith("1 reference file stands for several addresses that have the same end")
    assert [[path.relative_to(folder).as_posix() for path in own] for own in found.files] == [
        *(["whole.png"], ["stem.jpg"], ["red bag.png"], ["17.png", "whole.png"]),
        *(["sub/deep.png"], ["17.png"], ["17.png"]),
    ]


def test_a_table_names_files_by_prompt_and_by_source(tmp_path):
    made(tmp_path, "x.png", "y.png")
    table = tmp_path / "map.csv"
    table.write_text("source,prompt,file\nhttps://a.example/1,,x.png\n,two,y.png\n")
    triggers = prompts(one=("https://a.example/1",), two=())
    found = references_of(triggers, None, table)
    assert [[path.name for path in own] for own in found.files] == [["x.png"], ["y.png"]]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a,b\n1,2\n", "it needs file and source (or prompt)"),
        ("source,file\nx,none.png\n", "line 2: there is no file"),
        ("source,file\nx,\n", "line 2: there is no file"),
    ],
)
def test_a_table_that_cannot_be(text, said, tmp_path):
    table = tmp_path / "map.csv"
    table.write_text(text)
    assert said in refusal(VisleakError, references_of, prompts(one=("x",)), None, table)


def test_no_file_at_all_says_what_one_would_be_called(tmp_path):
    triggers = prompts(one=("https://a.example/b/red.png?x=1",))
    said = refusal(UsageError, references_of, triggers, made(tmp_path, "other.png"))
    assert "none of the 1 trigger prompts has an image in" in said
    assert "such as 'red.png' for 'https://a.example/b/red.png?x=1'" in said
    with pytest.raises(UsageError, match="--reference-map CSV with the columns prompt and file"):
        references_of(prompts(one=()), tmp_path)
    with pytest.raises(UsageError, match="give --references DIR or --reference-map CSV"):
        references_of(triggers)


def test_files_that_cannot_be_are_said(tmp_path):
    path = tmp_path / "a.png"
    path.write_text("no picture")
    with pytest.raises(VisleakError, match=r"reference .*a\.png cannot be read as an image"):
        read_reference(path)
    with pytest.raises(UsageError, match="; a reference map is a CSV with the"):
        references_of(prompts(one=("a",)), table=tmp_path / "map.csv")
    folder = made(tmp_path, "a/1.png", "b/1.png")
    with pytest.raises(UsageError, match=r"1\.png are both named like the source '1\.png'"):
        references_of(prompts(one=("1.png",)), folder)
    # the last part of what is no address
    assert last_part("http://[bad/x.png") == "x.png"


def test_sources_may_be_paths_beside_the_list_and_never_lead_out_of_its_folder(tmp_path):
    folder = made(tmp_path / "lists", "memorised/a.png", "b.png")
    made(tmp_path, "secret.png")
    (folder / "notes.txt").write_text("no picture")
    (folder / "link.png").symlink_to(tmp_path / "secret.png")
    found = references_of(
        prompts(
            one=("memorised/a.png", "memorised/a.png"),
            two=("../secret.png", str(tmp_path / "secret.png"), "link.png", "notes.txt"),
            three=("https://cdn.example/b.png", "b.png", "x" * 5000 + ".png", "a\0.png"),
        ),
        beside=folder,
    )
    assert found.files == ((folder / "memorised/a.png",), (), (folder / "b.png",))
    assert len(found.notes) == 1
