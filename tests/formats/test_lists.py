"""Globs and names, beyond what :mod:`test_folder` opens."""

from __future__ import annotations

import pytest

from visleak.formats import open_images
from visleak.formats.listing import glob_names, matches, split_glob


def test_a_recursive_glob_does_not_follow_links_in_circles(tmp_path, put):
    put("a/1.png")
    put("a/b/2.png")
    for name in ("a/x", "a/y", "a/b/z"):
        (tmp_path / name).symlink_to(tmp_path)
    images = open_images(f"{tmp_path}/**/*.png")
    assert images.ids.to_pylist() == ["a/1.png", "a/b/2.png"]


@pytest.mark.parametrize(
    "pattern",
    [
        "**/*.png",
        "*/*.png",
        "**",
        "a/**",
        "a/**/b/*",
        "**/b/**/*.p?g",
        "*",
        "a/[1-2].png",
        "**/.h/*",
        "nope/**",
    ],
)
def test_globs_find_what_python_finds(pattern, tmp_path, put):
    for name in (
        "1.png",
        "a/1.png",
        "a/b/2.png",
        "a/c/b/d/3.png",
        "b/4.jpg",
        ".h/5.png",
        "a/.6.png",
    ):
        put(name, b"")
    found = sorted(glob_names(str(tmp_path), pattern, lambda name: not name.startswith(".")))
    want = (p for p in tmp_path.rglob("*") if p.is_file())
    hidden = [p.relative_to(tmp_path).as_posix() for p in want]
    want = [n for n in hidden if "/." not in f"/{n}" and matches(n.split("/"), pattern.split("/"))]
    import glob

    system = glob.glob(pattern, root_dir=tmp_path, recursive=True)
    files = sorted(n for n in system if (tmp_path / n).is_file())
    assert found == sorted(want)
    if not pattern.startswith("**/.h"):
        assert found == files


def test_where_a_glob_begins():
    assert split_glob("*.png") == (".", "*.png")
    assert split_glob("/*.png") == ("/", "*.png")
    assert split_glob("a/b?/c/*.png") == ("a", "b?/c/*.png")
