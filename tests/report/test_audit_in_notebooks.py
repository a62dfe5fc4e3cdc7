"""What an audit shows in Python and in a notebook."""

import pytest
from PIL import Image

import visleak
from visleak.errors import UsageError

pytestmark = pytest.mark.usefixtures("drawn_figures")

ODD = "<script>alert(1)<b>&.png"


@pytest.fixture(scope="module")
def found(tmp_path_factory, natural):
    """An audit of images, one of whose names is markup."""
    root = tmp_path_factory.mktemp("notebook")
    images = [natural[name][:128, :128] for name in ("astronaut", "coffee", "chelsea")]
    test = {ODD: images[0], "b.png": images[1][:, ::-1], "c.png": natural["moon"][:96, :96]}
    train = {f"t{number}.png": image for number, image in enumerate(images)}
    for side, content in (("test", test), ("train", train)):
        (root / side).mkdir()
        for name, pixels in content.items():
            Image.fromarray(pixels).save(root / side / name)
    return visleak.audit(root / "test", root / "train", cache=None, report=True)


def test_html_has_rates_and_the_strongest_leaks(found):
    page = found._repr_html_()
    assert found.headline in page
    assert page.count("<figure") == 2
    assert page.count('src="data:image/') == 4
    assert "<script" not in page
    assert "&lt;script&gt;alert(1)" in page
    assert len(page) < 60_000


def test_the_pairs_of_an_image(found):
    shown = found.show("b.png")
    (row,) = shown.pairs
    assert (row["reference"], row["grade"]) == ("t1.png", "near")
    assert "near: test: b.png = train: t1.png" in repr(shown)
    assert shown._repr_html_().count("data:image/") == 2
    assert len(found.show("b.png", different=True).pairs) > 1
    with pytest.raises(visleak.VisleakError, match="no image of this audit"):
        found.show("none.png")


def test_rates_are_plotted_and_the_report_is_written(found, tmp_path):
    assert (found.folder / "report.html").is_file()
    assert found.plot().width > 300
    assert found.report(tmp_path / "a.html") == tmp_path / "a.html"
    assert "data:image/png" not in found.report(tmp_path / "b.html", private=True).read_text()


def test_progress_is_shown_or_forwarded(natural, capsys, monkeypatch):
    monkeypatch.setattr("visleak.progress.PATIENCE", 0.0)
    images, steps = [natural["coffee"][:96, :96]], []
    given = {"verify": False, "cache": None}
    visleak.audit(images, images, progress=True, **given)
    assert "reading test" in capsys.readouterr().err
    visleak.audit(images, images, progress=lambda *step: steps.append(step[0]), **given)
    assert "reading test" in steps
    assert capsys.readouterr().err == ""


def test_a_setting_that_does_not_exist_is_refused():
    with pytest.raises(UsageError, match="audit has no setting 'hrad'; did you mean 'hard"):
        visleak.audit([], [], hrad=0.9)
