"""``visleak memorization trace`` and ``dataset``, and the notice that is shown once."""

from shutil import copytree

import pytest
from calling import check_refused, refusals, refused, run
from PIL import Image

from generated_images import write_extraction
from visleak.cli.memorization import NOTICE
from visleak.memorization import read_prompts
from visleak.memorization.tracing import read_trace


@pytest.fixture(scope="session")
def folders(tmp_path_factory, natural):
    """Three training images; two generated ones, of which one is a copy."""
    root = tmp_path_factory.mktemp("to-trace")
    for name in ("train", "made"):
        (root / name).mkdir()
    parts = {name: natural[name][:128, :128] for name in ("astronaut", "coffee", "coins", "brick")}
    for name in ("astronaut", "coffee", "coins"):
        Image.fromarray(parts[name]).save(root / "train" / f"{name}.png")
    Image.fromarray(parts["astronaut"]).save(root / "made" / "copy.jpg", quality=60)
    Image.fromarray(parts["brick"]).save(root / "made" / "new.png")
    return root


@pytest.fixture(scope="session")
def traced(folders, tmp_path_factory):
    out = tmp_path_factory.mktemp("traced") / "out"
    run(f"memorization trace {folders}/made --source {folders}/train -o {out}", code=0)
    return out


def test_the_summary_and_the_gate(folders, traced):
    asked = ("memorization", "trace", folders / "made", "--source", folders / "train", "-o", traced)
    ran = run(*asked, "--fail-on", "memorized=50%", code=0)
    lines = ran.out.splitlines()
    assert lines[0] == "1 of 2 generated images is a near-duplicate of 1 training image in train"
    assert any(line.startswith("recall: the default similarity ") for line in lines)
    assert any(line.startswith("astronaut.png") for line in lines)
    assert lines[-3:] == [
        str(traced),
        str(traced / "audit" / "report.html"),
        f"judge the pairs: visleak review {traced / 'audit'}",
    ]
    page = (traced / "audit" / "report.html").read_text()
    assert "sources of the generated images" in page
    ran = run(*asked, "--fail-on", "memorized", code=3)
    assert ran.err.startswith("visleak: gate memorized: 1 of 2 traced images (50.00 %)")


@refusals("""
     -> --source is missing: give the training images, or --unverified
    --unverified --fail-on near -> --fail-on must be one of memorized, unreadable; got 'near'
    --unverified --fail-on memorized=5 -> the rate is a share from 0 to 1 or a percentage
    --unverified --fail-on memorized -> --fail-on needs a --source with images
    --unverified --source {folders}/train -> --unverified is for a trace without --source
""")
def test_refused(folders, tmp_path, arguments, words):
    command = f"memorization trace {folders}/made -o {tmp_path} {arguments}"
    check_refused(command, words, folders=folders)


def test_a_gate_does_not_pass_what_was_not_compared(folders, tmp_path):
    run(f"encode {folders}/train -o {tmp_path}/prints", code=0)
    command = f"memorization trace {folders}/made --source emb:{tmp_path}/prints -o {tmp_path}/out"
    check_refused(f"{command} --fail-on memorized", "--fail-on needs a --source with images")
    ran = run(f"memorization trace {folders}/made --unverified -o {tmp_path}/bare", code=0)
    assert ran.out.startswith("2 generated images are candidates, unverified: ")
    gated = f"--source {folders}/train --fail-on memorized"
    write_extraction(tmp_path / "none", (), [], [])
    ran = run(f"memorization trace {tmp_path}/none -o {tmp_path}/a {gated}", code=1)
    assert ran.out.startswith("there are no clusters to trace\n")
    assert "no image was compared, so no gate passes; --all traces every image" in ran.err
    assert read_trace(tmp_path / "a").matches == ()
    copytree(folders / "made", tmp_path / "made")
    (tmp_path / "made" / "broken.png").write_bytes(b"no image")
    traced = f"memorization trace {tmp_path}/made -o {tmp_path}/b {gated}"
    ran = run(f"{traced}=40% --fail-on unreadable=40%", code=3)
    assert "gate memorized: 1 of 2 traced images" in ran.err
    assert "gate unreadable: 1 of 3 generated images" in run(f"{traced}=100%", code=3).err
    (tmp_path / "made" / "images.sqlite").touch()
    check_refused(traced, "holds an unfinished extraction", code=1)


@pytest.fixture
def listed(tmp_path):
    file = tmp_path / "list.csv"
    file.write_text("prompt,urls\na red bag,\"['u', 'v']\"\na red bag now,['v']\n=wall,\n")
    return file


def test_a_list_of_others(tmp_path, listed):
    out = tmp_path / "set"
    given = ("memorization", "dataset", listed, "--verified-by", "Ann\x1b[31m", "-o", out)
    ran = run(*given, code=0)
    lines = ran.out.splitlines()
    assert lines[0] == (
        "2 trigger prompts naming 2 sources in 1 group that share one (as good as 1.0 of one"
        " size); 1 of 3 left out"
    )
    assert lines[1].startswith("  verified by Ann")
    assert "\x1b" not in ran.out
    assert read_prompts(out / "prompts.parquet").texts == ("a red bag", "a red bag now")
    refused(*given, "--unverified", code=2, words="--force replaces it")
    assert run(*given, "--unverified", "--force").code == 0
    words = "none of 3 prompts is verified; trace their images"
    check_refused(f"memorization dataset {listed} -o {tmp_path}/none", words, code=1)


@refusals("""
     -> dataset needs prompts: name a list of them, or --trace DIR
    --trace {folder} -> no trace.json
""")
def test_refusals(tmp_path, arguments, words):
    check_refused(f"memorization dataset {arguments}", words, folder=tmp_path)


@pytest.fixture
def fresh(tmp_path, monkeypatch):
    """The cache folder of a user who has not been told."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("VISLEAK_CACHE", str(folder))
    return folder


def test_the_notice_is_shown_once_and_not_with_help(fresh, tmp_path):
    for call in (("memorization",), ("memorization", "dataset", "--help")):
        run(*call, code=0, err="")
    assert not fresh.exists()
    call = ("memorization", "dataset", tmp_path / "none.csv")
    first, second = run(*call), run(*call)
    assert first.err.splitlines()[0] == NOTICE
    assert NOTICE not in second.err
    assert first.out == second.out == ""
    assert [each.name for each in fresh.iterdir()] == ["memorization-notice-1"]


def test_a_file_in_the_place_of_the_folder_is_no_error(fresh):
    fresh.write_text("")
    for _ in range(2):
        assert NOTICE in run("memorization", "dataset", code=2).err
