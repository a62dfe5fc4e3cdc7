"""Where results may be written: never over files of somebody else, never among what is read."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from calling import refused, run
from PIL import Image

from visleak.auditing import Audit


def tree(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_an_input_is_never_written_over(dataset: Path, tmp_path: Path) -> None:
    """A table of images that has the name of one of the audit's own."""
    folder = tmp_path / "d"
    folder.mkdir()
    files = sorted(str(path) for path in (dataset / "train").rglob("*.png"))
    pq.write_table(pa.table({"path": files}), folder / "images.parquet")
    before = tree(folder)
    given = ("--test", dataset / "test", "--train", folder / "images.parquet", "-o", folder)
    for more in ((), ("--force",)):
        code, message = refused("audit", *given, *more)
        assert code == 2
        assert "lies in the output" in message
    assert tree(folder) == before


@pytest.mark.parametrize("place", ["test", "test/new/deep", "train"])
def test_nothing_is_written_among_the_images(dataset: Path, place: str) -> None:
    before = tree(dataset)
    out = dataset / place
    for verb in (("audit", dataset), ("encode", dataset / place.split("/", maxsplit=1)[0])):
        code, message = refused(*verb, "-o", out)
        assert code == 2
        assert "lies among the images of" in message
    assert tree(dataset) == before


def test_folders_of_others_are_left_alone(dataset: Path, audited: Path, tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "notes.txt").write_text("mine")
    for verb in (
        ("audit", dataset),
        ("encode", dataset / "test"),
        ("robustness", dataset / "test"),
        ("dlede", "--scores", folder / "notes.txt"),
    ):
        code, message = refused(*verb, "-o", folder, "--force")
        assert code == 2, verb
        assert "notes.txt" in message
    assert tree(folder) == {"notes.txt": b"mine"}


def test_an_empty_folder_and_one_of_visleak_may_be_written_to(
    dataset: Path, audited: Path, tmp_path: Path
) -> None:
    """Also one whose lock did not travel with it."""
    (tmp_path / "empty").mkdir()
    assert run("audit", dataset, "-o", tmp_path / "empty", "--no-verify").code == 0
    copy = Path(shutil.copytree(audited, tmp_path / "copy"))
    (copy / ".visleak.lock").unlink(missing_ok=True)
    assert run("audit", dataset, "-o", copy, "--no-verify", "--force").code == 0


@pytest.mark.parametrize("name", ["pairs.parquet", "images.parquet", "audit.json"])
def test_the_tables_of_an_audit_are_never_written_over(
    audited: Path, tmp_path: Path, name: str
) -> None:
    folder = Path(shutil.copytree(audited, tmp_path / "audit"))
    before = tree(folder)
    out = tmp_path / "audit" / ".." / "audit" / name
    for verb in (
        ("export", folder, "--format", "csv"),
        ("report", folder),
        ("diff", folder, folder),
    ):
        code, message = refused(*verb, "-o", out, "--force")
        assert code == 2, verb
        assert "is a part of an audit" in message
    assert tree(folder) == before


def test_a_picture_is_of_the_kind_that_its_name_says(audited: Path, tmp_path: Path) -> None:
    audit = Audit(audited)
    image = audit.pairs(grade="near")["query"][0].as_py()
    for name, kind in (("a.jpg", "JPEG"), ("a.png", "PNG")):
        assert run("show", audited, image, "-o", tmp_path / name).code == 0
        with Image.open(tmp_path / name) as drawn:
            assert drawn.format == kind
    code, message = refused("show", audited, image, "-o", tmp_path / "a.jpg")
    assert (code, message.split()[1]) == (2, "exists;")
    code, message = refused("show", audited, image, "-o", tmp_path / "a.txt")
    assert (code, message.endswith("choose a name that ends in .png or .jpg")) == (2, True)


def test_counts_go_into_a_folder_of_their_own(dataset: Path, audited: Path, tmp_path: Path) -> None:
    """Examples among the training images would be training images of the next audit."""
    folder = tmp_path / "mine"
    folder.mkdir()
    for name in ("notes.txt", "counts.json", "types.csv"):
        (folder / name).write_text("{}")
    mine, images = tree(folder), tree(dataset)
    for more in ((), ("--force",)):
        code, message = refused("stats", audited, "-o", folder, *more)
        assert code == 2, message
        for place in ("train", "test/new"):
            code, message = refused("stats", audited, "-o", dataset / place, *more)
            assert (code, "lies among the images of" in message) == (2, True)
    assert (tree(folder), tree(dataset)) == (mine, images)
    out = tmp_path / "counts"
    assert run("stats", audited, "-o", out).code == 0
    (out / "example-near-99.png").write_bytes(b"of an earlier run")
    code, message = refused("stats", audited, "-o", out)
    assert (code, "--force" in message) == (2, True)
    assert run("stats", audited, "-o", out, "--force").code == 0
    assert not (out / "example-near-99.png").exists()


@pytest.mark.parametrize("name", ["verdicts.csv", "recordings.csv", "replacements.sqlite"])
def test_files_that_an_audit_may_get_are_its_own(
    audited: Path, dataset: Path, tmp_path: Path, name: str
) -> None:
    """Also through a link, and for commands that read no audit."""
    folder = Path(shutil.copytree(audited, tmp_path / "audit"))
    (tmp_path / "link").symlink_to(folder)
    for place in (folder, tmp_path / "link"):
        code, message = refused("export", folder, "--format", "csv", "-o", place / name, "--force")
        assert (code, "is a part of an audit" in message) == (2, True)
    given = ("calibrate", dataset / "train", "--fpr", "1e-1", "-o", folder / "audit.json")
    code, message = refused(*given, "--force")
    assert (code, "is a part of an audit" in message) == (2, True)


@pytest.mark.parametrize(
    "verb",
    [
        ("diff", "{audit}", "{audit}", "-o", "{train}/new.csv"),
        ("verdicts", "{audit}", "export", "{train}/new.csv"),
        ("calibrate", "{train}", "--fpr", "1e-1", "-o", "{train}/new.json"),
        ("train-encoder", "{train}", "-o", "{train}/new.onnx"),
        ("purge", "{audit}", "--remove-from", "test", "-o", "{train}/new", "--apply"),
        ("replace", "{audit}", "--pool", "{test}", "-o", "{train}/new", "--apply"),
    ],
    ids=lambda verb: verb[0],
)
def test_no_command_writes_among_images(
    dataset: Path, audited: Path, verb: tuple[str, ...]
) -> None:
    """Not even among those of the other side, which a purge does not copy."""
    before = tree(dataset)
    places = {"audit": audited, "train": dataset / "train", "test": dataset / "test"}
    code, message = refused(*(part.format(**places) for part in verb))
    assert (code, "lies among the images of" in message) == (2, True), message
    assert tree(dataset) == before


def test_exported_verdicts_write_over_nothing(audited: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(audited, tmp_path / "audit"))
    given, out = tmp_path / "list.csv", tmp_path / "out.csv"
    given.write_text("TestID,TrainID,Judgment\nthing/copy.png,thing/t0.png,0\n")
    assert run("verdicts", folder, "import", given, "--reviewer", "Ada").code == 0
    before = tree(folder)
    for name in ("pairs.parquet", "audit.json", "verdicts.csv"):
        code, message = refused("verdicts", folder, "export", folder / name, "--force")
        assert (code, "is a part of an audit" in message) == (2, True)
    assert tree(folder) == before
    second = tmp_path / "out_within_test.csv"
    second.write_text("mine")
    assert refused("verdicts", folder, "export", out)[0] == 2
    assert (out.exists(), second.read_text()) == (False, "mine")
    assert run("verdicts", folder, "export", out, "--force").code == 0
    assert "thing/copy.png,thing/t0.png,0.0,0" in out.read_text()


def test_a_document_that_lies_anywhere_makes_no_folder_ours(dataset: Path, tmp_path: Path) -> None:
    """Thresholds beside tables of somebody else: an audit would write over them."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "images.parquet").write_text("mine")
    given = ("calibrate", dataset / "train", "--fpr", "1e-1", "--conditions", "jpeg-30")
    assert run(*given, "--no-verify", "-o", folder / "thresholds.json").code == 0
    code, message = refused("audit", dataset, "-o", folder, "--force")
    assert (code, "that visleak did not write" in message) == (2, True)
    assert (folder / "images.parquet").read_text() == "mine"
