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
        ("export", folder, "--as", "csv"),
        ("report", folder),
        ("diff", folder, folder),
    ):
        code, message = refused(*verb, "-o", out, "--force")
        assert code == 2, verb
        assert "is a part of the audit itself" in message
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
