"""Charts are drawn for any numbers and names, the same for the same, and hold what they show."""

import math
from xml.etree import ElementTree

import numpy as np
import pytest

from visleak.errors import UsageError
from visleak.rates import Rate
from visleak.reporting import charts

pytestmark = pytest.mark.usefixtures("drawn_figures")

HOSTILE = "</text><script>alert(1)</script>$x_1$\x00\u202e"


def parsed(files):
    text = files["svg"].decode()
    assert "<script" not in text
    root = ElementTree.fromstring(text)
    assert root.tag.endswith("}svg")
    links = [v for e in root.iter() for k, v in e.attrib.items() if k.endswith("href")]
    assert all(link.startswith("#") for link in links)
    return root


def test_bar_charts():
    rate, soft, total = Rate.of(3, 100), Rate.of(1, 100), Rate.of(4, 100)
    bar = charts.Bar.of_rate("cat", "near", rate)
    assert (bar.note, bar.parts) == ("3 of 100 · 3.00 %", (("near", 3.0),))
    assert bar.interval == (100 * rate.low, 100 * rate.high)
    (stacked,) = charts.leak_bars([("test", rate, soft, total, None)])
    assert stacked.note == "3.00 + 1.00 = 4.00 %"
    assert stacked.parts == (("hard", 3.0), ("soft", 1.0))
    hostile = charts.Bar(HOSTILE, HOSTILE, (("near", 10.0),), (5.0, 20.0), 7.0)
    unknown = charts.Bar.of_rate("nothing known", "near", Rate.of(0, 0))
    for bars in ([bar, stacked, hostile], [unknown], [charts.Bar("none", "0", ()), stacked]):
        parsed(
            charts.bar_chart(bars, "bars", title=HOSTILE, legend=("hard", "soft"), mark="published")
        )
    assert charts.bar_chart([], "bars") == charts.matrices([], [], [], "matrix") == {}


def test_matrices():
    shares = np.array([[0.0101, 0.2], [np.nan, 0.0]])
    panels = [
        charts.Panel("Hard", shares, "Reds", [["1.02", ""], ["", ""]]),
        charts.Panel("Soft", shares, "Blues"),
    ]
    names = [HOSTILE, "imagenet-21k-winter-release"]
    files = charts.matrices(names, names, panels, "matrix", ("svg", "png"))
    parsed(files)
    assert files["png"].startswith(b"\x89PNG")
    with pytest.raises(UsageError, match="values must be 1 rows x 2 columns, got 2 x 2"):
        charts.matrices(["a"], ["b", "c"], panels, "matrix")


@pytest.mark.parametrize(
    ("values", "hard", "soft"),
    [([], None, None), ([-1.0, 1.0, math.nan], None, -0.5), ([0.5] * 9, 1.0, 0.2)],
)
def test_histograms_of_odd_input(values, hard, soft):
    parsed(charts.similarity_histogram(values, hard, soft, "nearest"))
    parsed(charts.distance_chart([("0", 4), ("1-10", 0)][: len(values)], 2, "frames", "distances"))
