"""Small sets of images and a file that names them."""

from PIL import Image

from visleak.study import Options, study

#: A name that a page, a spreadsheet, LaTeX and a formula would all misread.
HOSTILE = "=<img src=x onerror=alert(1)> $x$ a_b & 50 %"

#: Which crops a set holds: number -> image. Equal numbers are equal images.
SETS = {
    "one/train": [0, 1, 2, 3, 4, 5],
    "one/test": [0, 1, 6, 7, 8],
    "two/train": [1, 2, 6, 9],
    "crawl": [7, 8, 10],
}


def crop(natural, number, side=72):
    """Return a region of a natural image; two numbers never show the same."""
    names = ("astronaut", "chelsea", "coffee", "rocket")
    picture = natural[names[number % len(names)]]
    top, left = 20 + 80 * (number // len(names)), 30 + 75 * (number // len(names))
    return Image.fromarray(picture[top : top + side, left : left + side])


def write_pictures(root, natural, sets):
    for name, numbers in sets.items():
        (root / name).mkdir(parents=True, exist_ok=True)
        for number in numbers:
            crop(natural, number).save(root / name / f"{number:02d}.png")


def table(name, **keys):
    """Return a set of the file; a key of ``None`` is left out."""
    lines = [f"{key} = {_toml(value)}" for key, value in keys.items() if value is not None]
    quoted = name.replace("\\", "\\\\").replace('"', '\\"')
    return "\n".join([f'[sets."{quoted}"]', *lines, ""]) + "\n"


def _toml(value):
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f"'{value}'"
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_toml(each)}" for key, each in value.items()) + "}"
    return str(value)


def sets_of(audit="verify = false\nlocal = false"):
    """Return the file of :data:`SETS`."""
    return (
        f"title = 'small'\n[audit]\n{audit}\n"
        + table("one-train", dataset="one", roles=["T"], source="one/train")
        + table("one-test", dataset="one", roles=["B"], source="one/test")
        + table("two-train", dataset="two", roles=["T"], source="two/train")
        + table("crawl", roles=["P"], source="crawl")
    )


def carried_out(root, text, out="out", **options):
    """Write the file and carry it out, without processes and a cache."""
    (root / "sets.toml").write_text(text, encoding="utf-8")
    return study(root / "sets.toml", root / out, Options(workers=1, cache=None, **options))
