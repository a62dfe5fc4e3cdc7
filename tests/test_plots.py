import math
import re
from xml.etree import ElementTree as Xml

import numpy as np
import pytest

from visleak import plots
from visleak.errors import UsageError
from visleak.plots import Bar, heat_map, heat_maps, histogram, rate_bars, stacked_bars

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = "</text><script>alert(1)</script>\x00\u202e"


def parsed(svg: str) -> Xml.Element:
    """Parse a chart; every chart must be well-formed, sized, named and free of style."""
    root = Xml.fromstring(svg)
    assert root.tag == f"{SVG}svg"
    assert root.get("role") == "img"
    assert root.get("aria-label")
    _, _, width, height = map(float, root.get("viewBox", "").split())
    assert (float(root.get("width", 0)), float(root.get("height", 0))) == (width, height)
    for element in root.iter():
        assert "style" not in element.attrib
        assert element.tag.removeprefix(SVG) in {"svg", "g", "rect", "line", "text", "title"}
        for name, value in element.attrib.items():
            assert not name.startswith("on")
            if name in ("x", "y", "width", "height", "x1", "x2", "y1", "y2"):
                assert math.isfinite(float(value))
                assert -1.0 <= float(value) <= max(width, height) + 1.0
    return root


def texts(root: Xml.Element) -> list[str]:
    return ["".join(e.itertext()) for e in root.iter(f"{SVG}text")]


def rects(root: Xml.Element, name: str) -> list[Xml.Element]:
    return [e for e in root.iter(f"{SVG}rect") if e.get("class") == name]


def test_heat_map_writes_every_share_with_two_decimals() -> None:
    root = parsed(
        heat_map([[0.0101, 0.2], [np.nan, 0.0]], ["train", "web"], ["val", "test"], "hard", "Hard")
    )
    assert texts(root) == ["Hard", "val", "test", "train", "1.01", "20.00", "web", "-", "0.00"]
    cells = rects(root, "c-hard")
    assert [cell.get("fill") for cell in cells] == [plots.COLOURS["hard"]] * 3
    depth = [float(cell.get("fill-opacity", 0)) for cell in cells]
    assert depth[1] == 1.0 > depth[0] > depth[2] > 0


def test_heat_maps_add_hard_and_soft_up() -> None:
    hard, soft, total = heat_maps([[0.01]], [[0.02]], ["train"], ["test"])
    assert "1.00" in texts(parsed(hard))
    assert "2.00" in texts(parsed(soft))
    assert "3.00" in texts(parsed(total))
    assert len(rects(parsed(total), "c-total")) == 1


def test_heat_map_refuses_another_shape() -> None:
    with pytest.raises(UsageError, match="values must be 1 rows x 2 columns, got 2 x 1"):
        heat_map([[0.1], [0.2]], ["a"], ["b", "c"], "hard", "t")


def test_long_and_hostile_names_are_cut_and_escaped() -> None:
    long = "imagenet-21k-winter-release"
    root = parsed(heat_map([[0.5, 0.5]], [HOSTILE], [long, "b"], "soft", HOSTILE))
    assert "script" not in {e.tag.removeprefix(SVG) for e in root.iter()}
    assert any(e.text == long for e in root.iter(f"{SVG}title"))
    for svg in (
        stacked_bars([HOSTILE], [0.1], [0.1]),
        rate_bars([Bar(HOSTILE, HOSTILE, "near", 0.1, 0.05, 0.2)], HOSTILE),
    ):
        assert "<script" not in svg
        parsed(svg)


def test_stacked_bars_lie_end_to_end() -> None:
    root = parsed(stacked_bars(["test", "val"], [0.01, 0.0], [0.03, 0.0]))
    hard, soft = rects(root, "f-hard")[1], rects(root, "f-soft")[1]  # the first is the key
    width = float(hard.get("width", 0))
    assert float(soft.get("x", 0)) == pytest.approx(width, abs=0.01)
    assert float(soft.get("width", 0)) == pytest.approx(3 * width, abs=0.02)
    assert "1.00 + 3.00 = 4.00 %" in texts(root)


def test_stacked_bars_refuse_unequal_lengths() -> None:
    with pytest.raises(UsageError, match="must be of one length"):
        stacked_bars(["test"], [0.1, 0.2], [0.1])


def test_rate_bars_draw_share_and_interval_to_scale() -> None:
    root = parsed(rate_bars([Bar("cat", "3 of 100", "near", 0.03, 0.01, 0.05)], "told"))
    (bar,) = rects(root, "f-near")
    whisker = next(iter(root.iter(f"{SVG}line")))
    # The axis ends at 5 %.
    assert float(bar.get("width", 0)) == pytest.approx(plots.WIDTH * 0.6)
    assert float(whisker.get("x1", 0)) == pytest.approx(plots.WIDTH * 0.2)
    assert float(whisker.get("x2", 0)) == pytest.approx(plots.WIDTH)
    assert root.get("aria-label") == "told"


def test_rate_bars_of_nothing_known() -> None:
    nan = math.nan
    root = parsed(rate_bars([Bar("cat", "0 of 0", "near", nan, nan, nan)], "told"))
    assert float(rects(root, "f-near")[0].get("width", 1)) == 0.0
    parsed(rate_bars([], "told"))


def test_histogram_counts_every_query_once_and_colours_by_threshold() -> None:
    values = np.concatenate([np.full(500, 0.605), np.full(30, 0.925), np.full(2, 1.0), [np.nan]])
    svg = histogram(values, 0.96, 0.9)
    root = parsed(svg)
    counted = [int(n.replace(",", "")) for n in re.findall(r": ([\d,]+) queries", svg)]
    assert sum(counted) == 532
    assert [len(rects(root, f"f-{band}")) for band in ("below", "soft", "hard")] == [1, 1, 1]
    assert {"hard ≥ 0.960", "soft ≥ 0.900"} <= set(texts(root))


@pytest.mark.parametrize(
    ("values", "hard", "soft"),
    [([], None, None), ([1.0], 0.9, None), ([-1.0, 1.0], None, -0.5), ([0.5] * 9, 1.0, 0.2)],
)
def test_histogram_of_odd_input_is_a_picture(values, hard, soft) -> None:
    parsed(histogram(values, hard, soft))


def test_same_numbers_same_bytes() -> None:
    values = np.random.default_rng(0).random(100)
    assert histogram(values, 0.9, 0.8) == histogram(values.copy(), 0.9, 0.8)
