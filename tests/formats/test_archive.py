"""Zip and tar archives, honest and hostile."""

import io
import os
import pickle
import struct
import tarfile
import zipfile

import pytest

from refusals import refused
from visleak.errors import UsageError, VisleakError
from visleak.formats import archives, open_images


@pytest.fixture
def members(picture, encode):
    names = ["cat/1.png", "dog/<img src=x onerror=alert(1)>.png", "dog/ü ñ.jpg", "../../up.png"]
    return {name: encode(picture(seed=i)) for i, name in enumerate(names)}


JUNK = {"readme.txt": b"x", ".hidden.png": b"x", "__MACOSX/cat/._1.png": b"x", ".git/1.png": b"x"}


def make_zip(path, members, method=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.mkdir("cat")
        for name, data in members.items():
            archive.writestr(name, data)
    return path


def make_tar(path, members, mode="w", links=()):
    with tarfile.open(path, mode) as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
        for name, kind, target in (("cat", tarfile.DIRTYPE, ""), *links):
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, target
            archive.addfile(info)
    return path


ENDINGS = [".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz"]


def make(path, members):
    mode = {".gz": "w:gz", ".tgz": "w:gz", ".bz2": "w:bz2", ".xz": "w:xz"}.get(path.suffix, "w")
    return make_zip(path, members) if path.suffix == ".zip" else make_tar(path, members, mode)


@pytest.mark.parametrize("ending", ENDINGS)
def test_members_are_pictures_and_folders_are_labels(ending, tmp_path, members):
    path = make(tmp_path / f"set{ending}", {**JUNK, **members})
    images = open_images(path)
    assert images.name == "set"
    assert images.ids.to_pylist() == list(members)
    assert images.labels.to_pylist() == ["cat", "dog", "dog", None]
    assert images.locators[0].as_py() == f"{path}!cat/1.png"
    opener = pickle.loads(pickle.dumps(images.opener))
    assert list(opener.read(range(4))) == list(members.values())
    assert list(opener.read([1, 3])) == [members[n] for n in list(members)[1::2]]
    assert list(images.opener.read([0])) == [members["cat/1.png"]]
    assert not (tmp_path.parent / "up.png").exists()
    assert sorted(os.listdir(tmp_path)) == [path.name]


def test_other_zip_methods(tmp_path, members):
    for method in (zipfile.ZIP_STORED, zipfile.ZIP_BZIP2):
        images = open_images(make_zip(tmp_path / "a.zip", members, method))
        assert list(images.opener.read(range(4))) == list(members.values())
    images = open_images(make_zip(tmp_path / "a.zip", members, zipfile.ZIP_LZMA))
    assert {found.reason for found in images.opener.read(range(4))} == {"unsupported"}


def test_corrupt_and_encrypted_members_cost_themselves_alone(tmp_path, members):
    path = make_zip(tmp_path / "a.zip", members)
    data = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as archive:
        at = archive.getinfo("cat/1.png").header_offset
    data[at + 60 : at + 80] = b"\xff" * 20
    data[data.rindex(b"PK\1\2") + 8] |= 1
    path.write_bytes(data)
    corrupt, *whole, locked = open_images(path).opener.read(range(4))
    assert corrupt.reason == "corrupt"
    assert whole == list(members.values())[1:3]
    assert locked.detail == "the archive member is encrypted"


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_cut_archive_is_refused(ending, tmp_path, members):
    path = make(tmp_path / f"a{ending}", members)
    whole = path.read_bytes()
    cuts = (whole[: int(len(whole) * share)] for share in (0.05, 0.25, 0.5))
    for content in (*cuts, b"words, and not an archive at all" * 40):
        path.write_bytes(content)
        refused(VisleakError, r"^archive .* cannot be read: ", path)


def test_rubbish_within_a_tar_is_not_its_end(tmp_path, members):
    path = make_tar(tmp_path / "a.tar", members)
    data = bytearray(path.read_bytes())
    with tarfile.open(path) as archive:
        at = archive.getmember("dog/ü ñ.jpg").offset
    data[at : at + 512] = b"\x37" * 512
    path.write_bytes(data)
    refused(VisleakError, f"cannot be read: no member begins at byte {at:,}", path)


def test_links_in_a_tar(tmp_path, members):
    links = [
        ("cat/hard.png", tarfile.LNKTYPE, "cat/1.png"),
        ("dog/soft.png", tarfile.SYMTYPE, "../cat/1.png"),
        ("dog/out.png", tarfile.SYMTYPE, "/etc/passwd"),
    ]
    images = open_images(make_tar(tmp_path / "a.tar", members, links=links), name="s")
    assert sorted(images.ids.to_pylist()) == sorted([*members, "cat/hard.png", "dog/soft.png"])
    found = dict(zip(images.ids.to_pylist(), images.opener.read(range(6)), strict=True))
    assert found["cat/hard.png"] == found["dog/soft.png"] == members["cat/1.png"]
    assert [(p.id, p.reason) for p in images.problems] == [("dog/out.png", "missing")]


def test_a_member_too_large_is_not_unpacked(tmp_path, monkeypatch):
    path = make_zip(tmp_path / "a.zip", {"a.bmp": bytes(50_000), "bomb.bmp": bytes(1 << 20)})
    with monkeypatch.context() as patch:
        patch.setattr(archives, "RATIO_FROM", 100_000)
        small, bomb = open_images(path).opener.read([0, 1])
    assert small == bytes(50_000)
    assert bomb.reason == "too-large"
    assert bomb.detail.startswith("unpacks from 1,03")
    data = bytearray(path.read_bytes())
    at = data.rindex(b"PK\1\2")
    data[at + 24 : at + 28] = struct.pack("<I", 1000)  # a false size
    path.write_bytes(data)
    [found] = open_images(path).opener.read([1])
    assert (found.reason, found.detail) == ("corrupt", "the archive member fails its checksum")
    monkeypatch.setattr(archives, "MAX_MEMBER_BYTES", 500_000)
    for ending in (".zip", ".tar"):
        path = make(tmp_path / f"a{ending}", {"bomb.bmp": bytes(1 << 20)})
        assert next(open_images(path).opener.read([0])).reason == "too-large"


@pytest.mark.parametrize("mode", ["w:gz", "w:bz2", "w:xz"])
def test_a_packed_tar_that_is_a_bomb_is_refused(mode, tmp_path, monkeypatch):
    monkeypatch.setattr(archives, "RATIO_FROM", 100_000)
    path = make_tar(tmp_path / "a.tar.gz", {"bomb.bmp": bytes(4 << 20), "b.png": b"x"}, mode)
    refused(VisleakError, r"it unpacks to more than 200 times its size", path)


def test_too_many_members(tmp_path, members, monkeypatch):
    monkeypatch.setattr(archives, "MAX_MEMBERS", 2)
    for ending in (".zip", ".tar"):
        refused(VisleakError, "has more than 2 members", make(tmp_path / f"a{ending}", members))


def test_two_members_of_one_name(tmp_path):
    path = make_zip(tmp_path / "a.zip", {"a.png": b"x"})
    with zipfile.ZipFile(path, "a") as archive, pytest.warns(UserWarning, match=r"Duplicate name"):
        archive.writestr("a.png", b"y")
    refused(VisleakError, r"id 'a.png' occurs more than once", path)
    links = [("a.png", tarfile.REGTYPE, "")]
    path = make_tar(tmp_path / "a.tar", {"a.png": b"x"}, links=links)
    refused(VisleakError, r"two members named 'a.png'", path)


def test_archives_without_pictures_or_columns(tmp_path):
    for path in (make_zip(tmp_path / "a.zip", JUNK), make_tar(tmp_path / "a.tar", JUNK)):
        refused(VisleakError, r"holds no images \(no member is an image", path)
        refused(UsageError, r"id 'x': the archive .* has no columns", path, id="x")


def test_an_archive_that_goes_away(tmp_path, members):
    for path in (make_zip(tmp_path / "a.zip", members), make_tar(tmp_path / "a.tar", members)):
        images = open_images(path)
        path.unlink()
        assert [found.reason for found in images.opener.read([0, 1])] == ["missing", "missing"]
