import base64
import hashlib
import json
import re
from collections import Counter
from html.parser import HTMLParser

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from made_audit import HOSTILE_LABEL, HOSTILE_NAME

from toy_audit import Image, Pair, split_audit
from visleak.errors import VisleakError
from visleak.rates import Rate
from visleak.report import build, findings, write_report
from visleak.report.findings import MOST_BYTES
from visleak.reporting.gallery import relation
from visleak.storage import IMAGES, PAIRS, PAIRS_SCHEMA, read_table, write_json, write_tables

VOID = {"meta", "img", "br", "input", "link", "hr"}


class Page(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        assert len({name for name, _ in attrs}) == len(attrs), (tag, attrs)
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] not in ("style", "script"):
            self.text.append(data)

    def all(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]

    @property
    def words(self):
        return " ".join(" ".join(self.text).split())


@pytest.fixture(scope="module")
def html(made):
    return build(made.folder, made.pictures)


@pytest.fixture(scope="module")
def page(html):
    return Page(html)


def charts(page):
    shown = [a for a in page.all("img") if str(a["src"]).startswith("data:image/svg+xml;base64,")]
    return [str(a["alt"]) for a in shown]


def cards(page):
    return [a for a in page.all("li") if "data-kind" in a]


def test_page_is_one_well_formed_document(page):
    assert len(page.all("h1")) == 1
    for landmark in ("header", "nav", "main", "footer"):
        assert page.all(landmark)
    ids = [a["id"] for _, a in page.elements if "id" in a]
    assert len(ids) == len(set(ids))
    inner = [a["href"] for a in page.all("a") if (a["href"] or "").startswith("#")]
    assert {str(href)[1:] for href in inner} <= set(ids)
    assert all("scope" in a for a in page.all("th"))
    assert all(a.get("alt") for a in page.all("img"))


def test_page_needs_nothing_from_outside(html, page):
    assert not page.all("link")
    for tag, attributes in page.elements:
        for name, value in attributes.items():
            assert not name.startswith("on")
            assert name != "style", tag
            if name in ("src", "href", "action", "srcset"):
                assert (value or "").startswith(("#", "data:image/")), value
    assert "@import" not in html
    assert not re.search(r"url\(\s*['\"]?http", html)


def test_policy_allows_exactly_the_pages_own_style_and_script(html, page):
    policy = page.all("meta")[1]["content"] or ""
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert [a.get("type") for a in page.all("script")] == ["application/json", None]
    for kind, tag in (("style-src", "style"), ("script-src", "script")):
        (body,) = re.findall(rf"<{tag}>(.*?)</{tag}>", html, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(body.encode()).digest()).decode()
        assert f"{kind} 'sha256-{digest}'" in policy


def test_page_says_what_the_audit_found(made, page):
    assert made.summary["headline"] in page.words
    for standing in made.summary["totals"]:
        rate = Rate.from_dict(standing["rates"]["near_or_exact"])
        assert f"{rate.count} of {rate.total} images · {rate.interval}" in page.words
    for part in (
        "The rates are lower bounds",
        "These thresholds are provisional",
        "image only, another dataset",
        "3 images could not be read",
        "Not done: 3 archives",
        "One of a duplicate group of 4 images",
        "visleak audit --test test --train train --train web=crawl",
        "One of the two images could not be read again",
    ):
        assert part in page.words, part
    assert any("Shares of hard and soft leaks" in words for words in charts(page))


def listed(html):
    """The pairs of the table, as the script of the page reads them."""
    (text,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', html)
    data = json.loads(text)
    rows = [dict(zip(data["columns"], row, strict=True)) for row in data["rows"]]
    for row in rows:
        row |= {name: values[row[name]] for name, values in data["names"].items()}
    return rows


def test_table_lists_every_pair_above_different(made, html, page):
    stored = [p for p in read_table(made.folder, PAIRS).to_pylist() if p["grade"] != "different"]
    found = listed(html)
    ends = ("query_set", "query", "reference_set", "reference")
    assert {tuple(row[name] for name in ends) for row in found} == {
        tuple(pair[name] for name in ends) for pair in stored
    }
    leaks = [row["kind"] in ("exact", "near") for row in found]
    assert leaks == sorted(leaks, reverse=True)
    ids = {a["id"] for a in cards(page)}
    assert {row["card"] for row in found if row["kind"] in ("exact", "near")} <= ids
    capped = Page(build(made.folder, made.pictures, cap=10))
    total = pq.read_metadata(made.folder / PAIRS).num_rows
    assert f"Images of 10 of {total} pairs, most certain first" in capped.words
    assert len(cards(capped)) == 10


def test_table_has_a_bounded_size(own):
    many = pa.concat_tables([read_table(own.folder, PAIRS).slice(0, 1)] * 40_000)
    write_tables(own.folder / PAIRS, PAIRS_SCHEMA, [many])
    names = pa.array([f"{'long name ' * 12}{n}" for n in range(len(many))])
    own.set_columns(PAIRS, query=names, reference=names)
    html = build(own.folder)
    rows = listed(html)
    assert 1_000 < len(rows) < 20_000
    assert len(html) < MOST_BYTES + 1_500_000
    assert f"The table lists the strongest {len(rows):,} of 40,000" in Page(html).words


def test_repeats_show_no_pair_of_different_images(html):
    """The gallery has some of every kind, to be looked at; a repeat is one image twice."""
    assert 'data-kind="different" data-between="within' in html
    section = html.partition('<section id="within"')[2].partition("</section>")[0]
    assert "<img" in section
    assert 'class="chip different"' not in section


def test_strongest_leaks_come_first(page):
    """Before any number: six leaks between sets, near ones among them."""
    order = [attributes.get("id") for tag, attributes in page.elements if tag == "section"]
    assert order[:3] == ["strongest", "numbers", "next"]
    strong = [str(a["data-card"]) for a in page.all("li") if "data-card" in a][:6]
    known = {a["id"]: a for a in cards(page)}
    assert [known[name]["data-kind"] for name in strong] == ["exact"] * 3 + ["near"] * 3
    assert not any(str(known[name]["data-between"]).startswith("within") for name in strong)


def test_pairs_have_one_address_and_conflicts_are_ranked(made):
    few, many = (findings.read(made.folder, [], None, cap) for cap in (8, 300))
    of_few, of_many = (
        {(c.row["query"], c.row["reference"]): c.anchor for c in found.cards}
        for found in (few, many)
    )
    assert 0 < len(of_few) < len(of_many)
    assert of_few.items() <= of_many.items()
    # the same pair may be a false positive, so conflicts are ranked by probability
    chances = [each.row["probability"] or 0.0 for each in many.conflicts]
    assert len(set(chances)) > 1
    assert chances == sorted(chances, reverse=True)


def test_copies_are_grouped_and_have_no_black_difference(made):
    cards = {c.row["query"]: c for c in findings.read(made.folder, [], made.pictures, 300).cards}
    group, copy, mirrored = (cards[f"cat/img_00{n}.png"] for n in ("01", "08", "14"))
    name = "n01/photo-00001.jpg"
    ends = {group.row["reference"], *(each.id for each in group.members)}
    assert ends == {name, f"copy_1_{name}", f"copy_2_{name}"}
    assert group.group_size == 4
    assert copy.card is not None
    assert copy.card.difference is None
    # its grade claims a copy, its pixels do not
    assert mirrored.card is not None
    assert mirrored.card.difference is not None


def test_files_are_linked_from_where_the_page_lies(own, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name = "javascript:alert(1) #?.png"
    (tmp_path / name).write_bytes(b"x")
    count = pq.read_metadata(own.folder / IMAGES).num_rows
    own.set_columns(IMAGES, locator=pa.array([name] * count))
    output = write_report(own.folder, tmp_path / "pages" / "a.html", loader=own.pictures)
    links = {a["href"] for a in Page(output.read_text("utf-8")).all("a") if "target" in a}
    assert links == {"../javascript%3Aalert%281%29%20%23%3F.png"}
    private = Page(build(own.folder, own.pictures, private=True))
    assert not [a for a in private.all("a") if "target" in a]


def test_page_without_images_says_why(own):
    for private, words in ((True, "made without images"), (False, "No images were available")):
        page = Page(build(own.folder, own.pictures if private else None, private=private))
        assert own.asked == []
        assert len(page.all("img")) == len(charts(page))
        assert words in page.words


def test_hostile_names_and_labels_are_text(html, page):
    assert len(page.all("script")) == 2
    assert not [a for a in page.all("img") if a["src"] == "x"]
    assert HOSTILE_NAME in page.words
    assert HOSTILE_LABEL in page.words
    assert HOSTILE_NAME not in html
    assert HOSTILE_LABEL not in html


def test_characters_that_hide_become_visible(own):
    summary = {**own.summary, "headline": "a\u202egpj.exe \x07 \ud800 b"}
    (own.folder / "audit.json").write_text(json.dumps(summary), encoding="utf-8")
    html = build(own.folder, own.pictures)
    assert r"a\u202egpj.exe \u0007 \ud800 b" in html
    html.encode("utf-8")


def test_audit_without_a_leak_says_what_that_means(tmp_path):
    folder = split_audit(tmp_path / "audit", [Image(name) for name in "abc"], [Image("t")])
    page = Page(build(folder))
    upper = 100 * (1 - 0.025 ** (1 / 3))
    for words in (
        "No leak was found.",
        "not proof that there is none",
        f"No leaks found in 3 test images (95 % upper bound {upper:.2g} %)",
    ):
        assert words in page.words, words
    assert not cards(page)


def test_unverified_audit_shows_degrees_only(tmp_path):
    pairs = [Pair("a", "t", None), Pair("b", "t", None, degree="soft")]
    images = [Image(name) for name in "abc"]
    page = Page(build(split_audit(tmp_path / "a", images, [Image("t")], pairs, verified=False)))
    assert "No pixels were compared" in page.words
    assert "Near or exact" not in page.words
    assert "hard or soft" in page.words
    assert {a["data-kind"] for a in cards(page)} == {"hard", "soft"}


def test_nearly_empty_summary_still_makes_a_page(own):
    write_json(own.folder / "audit.json", {"schema": 1})
    (own.folder / "unreadable.csv").unlink()
    page = Page(build(own.folder, own.pictures))
    assert "no rate of leakage to state" in page.words
    assert "Every listed image could be read." in page.words


def test_an_audit_within_one_set_only_claims_no_leak(own):
    within = [each for each in own.summary["comparisons"] if each["coverage"] == "within"]
    own.change(comparisons=within, totals=[])
    words = Page(build(own.folder, own.pictures)).words
    assert "Repeats within the test side" in words
    assert "No leak was found" not in words


def test_sections_of_other_steps_are_on_the_page(own):
    own.section(
        "impact",
        {
            "title": "Impact <b>",
            "headline": "<b>a model</b> gains 22.4 %",
            "markdown": "Costs **2 %**. <script>alert(1)</script>",
            "tables": [{"caption": "Runs", "header": ["seed"], "rows": [[1], [HOSTILE_NAME]]}],
            "svg": "<svg xmlns='http://www.w3.org/2000/svg'><rect width='3' height='3'/></svg>",
        },
    )
    own.section("purge", "{")
    html = build(own.folder, own.pictures)
    page = Page(html)
    assert "sections/purge.json cannot be shown" in page.words
    assert "Impact <b>" in charts(page)
    assert len(page.all("script")) == 2
    # its headline stands before charts and gallery, with a link
    top = html[html.index('id="numbers"') : html.index('id="charts"')]
    assert '<a href="#section-impact">Impact &lt;b&gt;</a> &lt;b&gt;a model' in top


def test_the_same_page_is_written_to_the_given_path(made, tmp_path, html):
    path = write_report(made.folder, tmp_path / "new" / "page.html", loader=made.pictures)
    assert path.read_text(encoding="utf-8") == html
    assert write_report(made.folder, private=True) == made.folder / "report.html"


def test_damaged_table_is_named(own):
    (own.folder / IMAGES).write_bytes(b"PAR1")
    with pytest.raises(VisleakError, match=r"images\.parquet cannot be read"):
        build(own.folder)


def test_classes_count_images_and_leave_flat_ones_out(made):
    found = findings.read(made.folder, ("test", "val"), None, 300)
    images = read_table(made.folder, IMAGES).to_pylist()
    leaking = {
        (p["query_set"], p["query"])
        for p in read_table(made.folder, PAIRS).to_pylist()
        if p["grade"] in ("exact", "near") and p["coverage"] != "within"
    }
    sizes, leaks = Counter(), Counter()
    for image in images:
        if image["set"] in ("test", "val") and not image["flat"]:
            name = f"{image['set']}: {image['label']}"
            sizes[name] += 1
            leaks[name] += (image["set"], image["id"]) in leaking
    assert {name: (rate.count, rate.total) for name, rate in found.classes} == {
        name: (count, sizes[name]) for name, count in leaks.items() if count
    }
    assert found.class_total == (len(sizes), sum(count == 0 for count in leaks.values()))
    assert sum(len(values) for _, values in found.nearest) == sum(
        not i["flat"] and i["nearest_similarity"] is not None for i in images
    )


@pytest.mark.parametrize("turns", [0, 1, 2, 3])
@pytest.mark.parametrize("mirror", [False, True])
def test_view_without_a_matrix_is_that_view(turns, mirror):
    words = (["mirror"] if mirror else []) + ([f"turn-{90 * turns}"] if turns else [])
    made = relation({"matrix": None, "view": "-".join(words) or "original"})
    matrix = np.eye(3) if made is None else np.array(made).reshape(3, 3)
    # A dot at the top, left of the middle, followed through an array turned the same way.
    dot = np.zeros((60, 60))
    dot[6, 18] = 1
    moved = np.rot90(dot[:, ::-1] if mirror else dot, -turns)
    row, column = np.argwhere(moved)[0]
    x, y, _ = matrix @ [18.5 / 60, 6.5 / 60, 1]
    assert (x * 60, y * 60) == pytest.approx((column + 0.5, row + 0.5))
